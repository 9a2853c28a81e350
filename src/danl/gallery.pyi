"""The public name of danl.plots.gallery, for type checkers; `__init__.py` has it for Python."""

from danl.plots.gallery import *  # noqa: F403
