"""What is minimised: losses, layouts, regions, and their evaluation on the rows of one worker or of many."""
