"""Names of a package that are imported when they are first used, so that importing the package itself stays quick.

The list is the package's stub, `__init__.pyi`, which is what type checkers read: one line a name,

    from . import policies as policies           a module of the package
    from .run.solver import solve as solve       a name of one of its modules

and lines of any other form are for type checkers alone. They are only split into words: to parse them as Python would
cost more than all the rest of `import danl`.
"""

from __future__ import annotations

import importlib


class LazyNames:
    """The names that a stub lists, each with the place it is imported from."""

    def __init__(self, package: str, file: str) -> None:
        self._package = package
        self._places: dict[str, str] = {}
        stub = file.rpartition(".")[0] + ".pyi"
        with open(stub, encoding="utf-8") as lines:  # without pathlib, whose import takes longer than all of this
            for line in lines:
                match line.split():
                    case ["from", place, "import", name, "as", known] if place.startswith(".") and name == known:
                        self._places[name] = place

    @property
    def names(self) -> list[str]:
        """All of them, in order."""
        return sorted(self._places)

    def attribute(self, name: str) -> object:
        """What the name stands for, imported if it was not yet; for the package's `__getattr__`."""
        place = self._places.get(name)
        if place is None:
            raise AttributeError(f"module {self._package!r} has no attribute {name}")
        if place == ".":
            return importlib.import_module(f"{self._package}.{name}")
        return getattr(importlib.import_module(self._package + place), name)
