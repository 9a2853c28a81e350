"""What a worker does with a task: one by one, and for all workers of a process together."""
