"""The version, in a file of its own so that `danl --version` imports nothing else."""

__version__ = "0.1.0.dev0"
