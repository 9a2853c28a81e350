"""danl: Newton-type learning across machines that differ in data, speed and memory.

A server and N workers fit a model together; the Hessian is exchanged rarely, and in each round every worker trains only
the regions of the model it can afford.

    import danl

    data = danl.load_dataset("a1a")
    shards = danl.partition(data.X, data.y, workers=10, seed=0)
    problem = danl.Problem(shards, loss="logistic", alpha=1e-3)
    result = danl.solve(problem, regions=4, policy=danl.policies.Coverage(psi=3))

Names are imported when they are first used, so that `import danl` stays quick; `__init__.pyi` lists them.
"""

import importlib.util
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

from danl._lazy import LazyNames

_ALIASES = {
    "flower": "danl.engines.flower",
    "gallery": "danl.plots.gallery",
    "layout": "danl.objective.layout",
    "objectives": "danl.objective.losses",
    "solver": "danl.run.solver",
}
"""Modules with a public name that is not their place in the tree."""


class _Alias:
    """Imports ``danl.objectives`` as the very module ``danl.objective.losses``, and what is in a folder likewise."""

    def __init__(self, place: str) -> None:
        self._place = place

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        package, _, rest = name.partition(".")
        alias, dot, inner = rest.partition(".")
        place = _ALIASES.get(alias, "") + dot + inner
        if package != __name__ or alias not in _ALIASES or importlib.util.find_spec(place) is None:
            return None
        return ModuleSpec(name, _Alias(place))  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> None:
        """An empty module, for a moment."""

    def exec_module(self, module: ModuleType) -> None:
        sys.modules[module.__name__] = importlib.import_module(self._place)


sys.meta_path.insert(0, _Alias)  # before the search of folders, which would make a second module of a file

_stub = LazyNames(__name__, __file__)
__all__ = sorted({*_stub.names, *_ALIASES} - {"solver"})  # an old name for what is here by name


def __getattr__(name: str) -> object:
    return importlib.import_module(f"{__name__}.{name}") if name in _ALIASES else _stub.attribute(name)


def __dir__() -> list[str]:
    return __all__
