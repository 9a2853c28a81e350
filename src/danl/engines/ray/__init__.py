"""Workers as actors on a Ray cluster."""
