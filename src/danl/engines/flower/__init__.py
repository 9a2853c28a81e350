"""Workers as sites of a Flower federation."""
