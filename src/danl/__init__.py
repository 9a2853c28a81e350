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
    from danl import callbacks, engines, methods, policies, report
    from danl import federation as flower
    from danl.data import Dataset, Shard, load_dataset, partition
    from danl.data.reference import ShardReference
    from danl.errors import DanlWarning, InputError
    from danl.estimators import DANLClassifier, DANLRegressor
    from danl.objective import layout
    from danl.objective import losses as objectives
    from danl.objective.problem import Problem, RemoteProblem
    from danl.objective.regions import Regions
    from danl.plots import gallery
    from danl.plots.figures import plot_histories
    from danl.policies import Profile
    from danl.protocol.validation import Guards
    from danl.run.callback import STOP
    from danl.run.checkpoint import Checkpoints
    from danl.run.history import History, Row
    from danl.run.result import Reference, Result
    from danl.run.solver import observed_information, reference_optimum, solve
    from danl.run.trace import Trace
    from danl.theory import Certificate, certify

_HOMES = {
    "Certificate": "danl.theory",
    "Checkpoints": "danl.run.checkpoint",
    "DanlWarning": "danl.errors",
    "Guards": "danl.protocol.validation",
    "RemoteProblem": "danl.objective.problem",
    "ShardReference": "danl.data.reference",
    "DANLClassifier": "danl.estimators",
    "DANLRegressor": "danl.estimators",
    "Dataset": "danl.data",
    "History": "danl.run.history",
    "InputError": "danl.errors",
    "Problem": "danl.objective.problem",
    "Profile": "danl.policies",
    "Reference": "danl.run.result",
    "Regions": "danl.objective.regions",
    "Result": "danl.run.result",
    "Row": "danl.run.history",
    "STOP": "danl.run.callback",
    "Shard": "danl.data",
    "Trace": "danl.run.trace",
    "certify": "danl.theory",
    "load_dataset": "danl.data",
    "partition": "danl.data",
    "plot_histories": "danl.plots.figures",
    "observed_information": "danl.run.solver",
    "reference_optimum": "danl.run.solver",
    "solve": "danl.run.solver",
}
_MODULES = {
    **{name: f"danl.{name}" for name in ("callbacks", "engines", "methods", "policies", "report")},
    "flower": "danl.federation",
    "gallery": "danl.plots.gallery",
    "layout": "danl.objective.layout",
    "objectives": "danl.objective.losses",
    "solver": "danl.run.solver",
}

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
    "observed_information",
    "partition",
    "plot_histories",
    "policies",
    "reference_optimum",
    "report",
    "solve",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(_MODULES[name])
    if name in _HOMES:
        value = getattr(importlib.import_module(_HOMES[name]), name)
        globals()[name] = value  # next time without this detour
        return value
    raise AttributeError(f"module 'danl' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
