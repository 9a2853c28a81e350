"""What travels between server and workers: messages, their bytes, their costs, and what a reply must be."""
