"""What the objective and the solvers of this benchmark share; benchopt puts it on the path under this name."""
