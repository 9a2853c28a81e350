"""The public name of danl.objective.losses, for type checkers; `__init__.py` has it for Python."""

from danl.objective.losses import *  # noqa: F403
