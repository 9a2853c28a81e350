"""The public name of danl.objective.layout, for type checkers; `__init__.py` has it for Python."""

from danl.objective.layout import *  # noqa: F403
