"""What every method is made of: messages, workers, the server's memory and curvature."""
