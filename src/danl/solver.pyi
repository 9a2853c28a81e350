"""The public name of danl.run.solver, for type checkers; `__init__.py` has it for Python."""

from danl.run.solver import *  # noqa: F403
