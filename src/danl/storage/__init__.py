"""Files that are there whole or not at all, files that only grow, folders that are one process's alone."""
