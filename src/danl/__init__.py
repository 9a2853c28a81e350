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

import lazy_loader

_ALIASES = {
    "flower": "danl.engines.flower",
    "gallery": "danl.plots.gallery",
    "layout": "danl.objective.layout",
    "objectives": "danl.objective.losses",
    "solver": "danl.run.solver",
}
"""Modules by a name of their own; lazy_loader knows none but a module's place."""

_attribute_of, _, _names = lazy_loader.attach_stub(__name__, __file__)
__all__ = sorted({*_names, *_ALIASES} - {"solver"})  # an old name for what is here by name


def __getattr__(name: str) -> object:
    if name in _ALIASES:
        import importlib

        return importlib.import_module(_ALIASES[name])
    return _attribute_of(name)


def __dir__() -> list[str]:
    return __all__
