"""The public name of danl.engines.flower, for type checkers; `__init__.py` has it for Python."""

from danl.engines.flower import *  # noqa: F403
