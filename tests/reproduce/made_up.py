"""Runs that never were: rows made by hand, so that what a verdict must be is known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from danl.reproduce.runs import READINGS, START, RunSpec
from danl.reproduce.store import StoredRun
from danl.run.history import History, Row

OPTIMUM = 0.25


@dataclass(frozen=True)
class Course:
    """How a run goes: from `start` to `phase_one`, to `peak`, then down (or up) by `rate` decades an exchange."""

    rate: float
    start: float = 1e-1
    phase_one: float = 1e-2
    peak: float = 5e-2
    hessians: int = 1
    hessian_bytes: int = 1000
    bytes: int = 10
    met: bool = True
    first_violation: int | None = None
    distance: float = 1.0
    condition: float = 1e3

    def gaps(self, rounds: int) -> np.ndarray:
        falling = self.peak * 10.0 ** (-self.rate * np.arange(rounds))
        return np.array([self.start, self.phase_one, *np.clip(falling, 1e-14, 1e12)])


Change = Callable[[RunSpec, Course], Course]

PSI_GAMMA = {(1, 4): 0.10, (1, 2): 0.11, (2, 4): 0.18, (2, 2): 0.20}
RATES = {"coverage:psi=1": 0.1, "coverage:psi=3": 0.2, "subset:S=1,order=random": 0.09, "full": 0.2} | {
    f"coverage:psi={psi},gamma={gamma}{waits}": rate
    for (psi, gamma), rate in PSI_GAMMA.items()
    for waits in ("", ",waits=longest")
}


def as_claimed(run: RunSpec) -> Course:
    """A world in which every claim of the paper is true."""
    if run.method in READINGS:
        return Course(RATES[run.policy])
    if run.method == "gd":  # the slower, the smaller the penalty
        rate = 0.2 if run.penalty == "alpha=0.1" else 0.0
        return Course(rate)
    return Course(0.001)


@cache  # most changes leave most runs as they are
def stored(run: RunSpec, course: Course) -> StoredRun:
    gaps = course.gaps(run.rounds)
    rows = [
        Row(
            exchange=t,
            kind="hessian" if t < course.hessians else "gradient",
            active=10,
            failed=0,
            min_coverage=1,
            max_staleness=0,
            min_trained=4,
            pruning_error=0.0,
            objective=OPTIMUM + gap,
            gap=gap,
            grad_norm=1.0,
            step_norm=1.0,
            model_norm=1.0,
            distance=1.0,
            bytes_up=course.hessian_bytes if t < course.hessians and run.method in READINGS else course.bytes,
            bytes_down=0,
            seconds=0.0,
            simulated_seconds=np.nan,
            coverage=(1, 1, 1, 1),
        )
        for t, gap in enumerate(gaps[1:])
    ]
    conditions = [{"name": name, "holds": course.met} for name in ("(i)", "(ii)", "(iii)", "(iv)")]
    record = {
        "status": "diverged" if course.rate < 0 else "max_rounds",
        "optimum": {"objective": OPTIMUM, "grad_norm": 1e-16},
        "start": {"objective": OPTIMUM + gaps[0], "distance": course.distance},
        "strong_convexity": 1e-3,
        "smoothness": course.condition * 1e-3,
        "certificate": {
            "constants": {"high": 2.0, "reach": 3.0} if course.met else {"high": None, "reach": 3.0},
            "conditions": conditions,
            "conditions_met": course.met,
            "first_violation": course.first_violation,
        }
        if run.certified
        else None,
    }
    return StoredRun(run, History(rows), record)


def world(*changes: Change, read_from: Callable[[RunSpec], bool] = lambda run: True) -> Callable[[RunSpec], StoredRun]:
    """A reader of made-up runs; it refuses runs that `read_from` does not have."""

    def read(run: RunSpec) -> StoredRun:
        assert read_from(run), f"{run} was not announced"
        course = as_claimed(run)
        for change in changes:
            course = change(run, course)
        return stored(run, course)

    return read


def where(condition: Callable[[RunSpec], bool], **fields: object) -> Change:
    """A change of some fields in the runs that meet the condition."""
    return lambda run, course: replace(course, **fields) if condition(run) else course


def everywhere(**fields: object) -> Change:
    return where(lambda run: run.method in READINGS, **fields)


def reading(name: str, **fields: object) -> Change:
    return where(lambda run: run.method == name, **fields)


def masks(*policies: str, **fields: object) -> Change:
    return where(lambda run: run.method in READINGS and run.policy in policies, **fields)


def from_start(run: RunSpec) -> bool:
    return run.start == START
