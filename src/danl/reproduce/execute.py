"""One run: the problem, its optimum, the start, and the fit measured against the optimum.

Runs on the same problem share the optimum and the start, which are kept for the problems met last. Everything is a
function of the `RunSpec` alone, so that a run computed again gives the same rows (but for the seconds).
"""

from __future__ import annotations

import math
import re
import warnings
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from danl.data import Dataset, load_dataset, partition
from danl.data.fetch import digest_and_rows
from danl.errors import DanlWarning
from danl.methods import make_method
from danl.objective.problem import Problem
from danl.policies import make_policy
from danl.protocol.messages import Array
from danl.protocol.streams import stream
from danl.reproduce.runs import NEAR, RunSpec
from danl.run.history import History
from danl.run.result import Reference, Result
from danl.run.solver import reference_optimum, setting_of, solve
from danl.theory import certify

TOL = 1e-10
NEWTON_STEPS = 20
"""The paper's F* is the value after so many steps of Newton's method."""
SCALING, DIRECTION = 100, 101  # purposes of random streams, beside those of danl.protocol.streams


@dataclass(frozen=True)
class Start:
    """Where a run starts, and where the paper's twenty Newton steps lead from there."""

    w: Array
    objective: float
    newton: dict[str, Any]
    made_by: dict[str, Any] | None


def execute(run: RunSpec) -> tuple[History, dict[str, Any]]:
    """Do the run; return its history and its record."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DanlWarning)  # a run that ends badly says so in its status
        problem, optimum = prepared(run.problem)
        start = make_start(run.problem, run.start)
        result = solve(
            problem,
            method=with_learning_rate(run.method, problem),
            regions=run.regions,
            policy=run.policy,
            w0=start.w,
            max_rounds=run.rounds,
            tol=TOL,
            seed=run.seed,
            reference=optimum,
        )
    return result.history, _record(run, result, problem, optimum, start)


def _record(run: RunSpec, result: Result, problem: Problem, optimum: Reference, start: Start) -> dict[str, Any]:
    summary, certificate = {name: value for name, value in result.summary().items() if "seconds" not in name}, None
    if run.certified:
        whole = certify(problem, result, reference=optimum).to_dict()
        certificate = {name: whole[name] for name in ("constants", "conditions", "conditions_met", "first_violation")}
    return {
        "status": result.status,
        "summary": summary,
        "promised": promised(run, problem),
        "optimum": {"objective": optimum.objective, "grad_norm": optimum.grad_norm},
        "newton20": start.newton,
        "start": {
            "objective": start.objective,
            "distance": float(np.linalg.norm(start.w - optimum.w)),
            "made_by": start.made_by,
        },
        "strong_convexity": problem.strong_convexity,
        "smoothness": smoothness(problem),
        "certificate": certificate,
    }


def promised(run: RunSpec, problem: Problem) -> dict[str, int | None]:
    """What the masks are sure to satisfy."""
    regions, method = problem.layout.regions(run.regions), make_method(with_learning_rate(run.method, problem))
    setting = setting_of(problem, regions, method, run.rounds)
    return asdict(make_policy(run.policy).promise(setting))


@lru_cache(maxsize=4)
def dataset(name: str) -> Dataset:
    return load_dataset(name, progress=False)


@lru_cache(maxsize=16)
def digest(name: str) -> str:
    """SHA-256 of the data set's text."""
    return digest_and_rows(Path(dataset(name).source))[0]


@lru_cache(maxsize=4)
def prepared(key: tuple[Any, ...]) -> tuple[Problem, Reference]:
    """The problem of a run, and its optimum."""
    name, penalty, scheme, decades, workers, seed = key
    data = dataset(name)
    X = data.X
    if decades:
        exponents = stream(seed, SCALING).uniform(-decades / 2, decades / 2, X.shape[1])
        X = X.multiply(10.0**exponents).tocsr()
    shards = partition(X, data.y, workers=workers, scheme=scheme, seed=seed)
    kind, value = penalty.split("=")
    problem = Problem(shards, l2=float(value)) if kind == "lambda" else Problem(shards, alpha=float(value))
    return problem, reference_optimum(problem)


@lru_cache(maxsize=4)
def make_start(key: tuple[Any, ...], kind: str) -> Start:
    """Where a run on this problem starts."""
    problem, optimum = prepared(key)
    made_by = None
    if kind == "zero":
        w = np.zeros(problem.n_coefficients)
    elif kind == NEAR:
        w = optimum.w + near_step(problem, optimum, seed=int(key[-1]))
    else:
        made = solve(problem, method=kind, max_rounds=10_000, tol=0.0, monitor=False)
        w, made_by = made.w, made.settings["method_options"] | {"method": made.method}
    newton = solve(problem, method="newton-undamped", w0=w, max_rounds=NEWTON_STEPS - 1, tol=0.0)
    value = newton.history[-1].objective if len(newton.history) == NEWTON_STEPS else math.nan
    steps = {
        "objective": value if math.isfinite(value) else None,
        "grad_norm": newton.history[-1].grad_norm if math.isfinite(value) else None,
        "status": newton.status,
    }
    return Start(w, problem.objective(w), steps, made_by)


def near_step(problem: Problem, optimum: Reference, *, seed: int) -> Array:
    """A random direction, as long as half of what condition (iv) allows with full masks and whole shards.

    With c = 0 that is min(mu / (4 iota_h), b / a), both known before the run.
    """
    trial = solve(problem, method="danl-paper", w0=optimum.w, max_rounds=0, tol=TOL, reference=optimum)
    constants = certify(problem, trial, reference=optimum).constants
    direction = stream(seed, DIRECTION).standard_normal(problem.n_coefficients)
    return 0.5 * min(constants.reach, constants.high) * direction / np.linalg.norm(direction)


def smoothness(problem: Problem) -> float:
    """L of the objective: the workers' constants, weighted as the objective weights them."""
    return float(problem.weights @ [local.smoothness() for local in problem.local_objectives])


def with_learning_rate(method: str, problem: Problem) -> str:
    """Put numbers in for learning rates given as multiples of 1/L."""
    return re.sub(r"=([0-9.]+)/L", lambda match: f"={float(match[1]) / smoothness(problem)!r}", method)
