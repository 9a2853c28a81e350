"""danl: Newton-type learning across machines that differ in data, speed and memory.

A server and N workers fit a model together; the Hessian is exchanged rarely, and in each round every worker trains only
the regions of the model it can afford.

    import danl

    data = danl.load_dataset("a1a")
    shards = danl.partition(data.X, data.y, workers=10, seed=0)
    problem = danl.Problem(shards, loss="logistic", alpha=1e-3)
    result = danl.solve(problem, regions=4, policy=danl.policies.Coverage(psi=3))

Names are imported when they are first used, so that `import danl` stays quick.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from danl._version import __version__

if TYPE_CHECKING:
    from danl import callbacks, engines, flower, gallery, layout, methods, objectives, policies, report, solver
    from danl.callbacks.base import STOP
    from danl.checkpoint import Checkpoints
    from danl.core.border import Guards
    from danl.data import Dataset, Shard, load_dataset, partition
    from danl.data.reference import ShardReference
    from danl.errors import DanlWarning, InputError
    from danl.estimators import DANLClassifier, DANLRegressor
    from danl.figures import plot_histories
    from danl.history import History, Row
    from danl.policies import Profile
    from danl.problem import Problem, RemoteProblem
    from danl.regions import Regions
    from danl.result import Reference, Result
    from danl.solver import reference_optimum, solve
    from danl.theory import Certificate, certify
    from danl.trace import Trace

_HOMES = {
    "Certificate": "danl.theory",
    "Checkpoints": "danl.checkpoint",
    "DanlWarning": "danl.errors",
    "Guards": "danl.core.border",
    "RemoteProblem": "danl.problem",
    "ShardReference": "danl.data.reference",
    "DANLClassifier": "danl.estimators",
    "DANLRegressor": "danl.estimators",
    "Dataset": "danl.data",
    "History": "danl.history",
    "InputError": "danl.errors",
    "Problem": "danl.problem",
    "Profile": "danl.policies",
    "Reference": "danl.result",
    "Regions": "danl.regions",
    "Result": "danl.result",
    "Row": "danl.history",
    "STOP": "danl.callbacks.base",
    "Shard": "danl.data",
    "Trace": "danl.trace",
    "certify": "danl.theory",
    "load_dataset": "danl.data",
    "partition": "danl.data",
    "plot_histories": "danl.figures",
    "reference_optimum": "danl.solver",
    "solve": "danl.solver",
}
_MODULES = (
    *("callbacks", "engines", "flower", "gallery", "layout"),
    *("methods", "objectives", "policies", "report", "solver"),
)

__all__ = [
    "STOP",
    "Certificate",
    "Checkpoints",
    "DANLClassifier",
    "DANLRegressor",
    "DanlWarning",
    "Dataset",
    "Guards",
    "History",
    "InputError",
    "Problem",
    "Profile",
    "Reference",
    "Regions",
    "RemoteProblem",
    "Result",
    "Row",
    "Shard",
    "ShardReference",
    "Trace",
    "__version__",
    "callbacks",
    "certify",
    "engines",
    "flower",
    "gallery",
    "layout",
    "load_dataset",
    "methods",
    "objectives",
    "partition",
    "plot_histories",
    "policies",
    "reference_optimum",
    "report",
    "solve",
    "solver",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"danl.{name}")
    if name in _HOMES:
        value = getattr(importlib.import_module(_HOMES[name]), name)
        globals()[name] = value  # next time without this detour
        return value
    raise AttributeError(f"module 'danl' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
