"""A run: solve, its loop, the record of it, its result, its checkpoints."""
