"""DSGD: after a transient the ring is as good as everyone talking to everyone, that is as centralised SGD."""

from __future__ import annotations

import numpy as np

import danl
from benchmarks.watched_states import Watched

WORKERS, ROWS, D, ALPHA, ITERATIONS = 10, 1000, 5, 0.1, 1500
EARLY, LATE = slice(100, 200), slice(1000, 1500)
"""Iterations that errors are averaged over; N / gap^2, the order of the transient time, is 617 for a ring of 10."""


def claim() -> dict[str, object]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(ROWS, D))
    y = X @ rng.normal(size=D) + rng.normal(size=ROWS)
    problem = danl.Problem(danl.partition(X, y, workers=WORKERS, scheme="sorted"), loss="squared", alpha=ALPHA)
    optimum = danl.reference_optimum(problem)
    mu = float(np.linalg.eigvalsh(problem.hessian(optimum.w))[0])
    errors = {}
    for graph in ("ring", "complete"):
        run = Watched(f"dsgd:batch_size=1,mu={mu!r}")
        danl.solve(problem, method=run, graph=graph, max_rounds=ITERATIONS, monitor=False)
        errors[graph] = np.array([np.square(state.models - optimum.w).sum(axis=1).mean() for state in run.states])
    early, late = (float(errors["ring"][when].mean() / errors["complete"][when].mean()) for when in (EARLY, LATE))
    first, last = (float(errors["ring"][when].mean()) for when in (EARLY, LATE))
    return {
        "method": "dsgd",
        "paper": "Pu, Olshevsky, Paschalidis, IEEE TAC 2022",
        "says": "asymptotically the error is that of centralised SGD, whatever the graph, after a transient time of "
        "order N / gap^2 (abstract; the step sizes are from memory)",
        "tried": f"ridge regression, {ROWS} x {D}, {WORKERS} workers with sorted targets, alpha {ALPHA:g}, one row a "
        "batch, steps 1 / (L + mu k / 2); ring against complete graph, which is centralised SGD",
        "measured": f"mean |x_i - x*|^2 on the ring is {early:.2g} times that of centralised SGD in iterations "
        f"{EARLY.start}-{EARLY.stop} and {late:.2g} times in {LATE.start}-{LATE.stop}, where it is {last:.1e} "
        f"(before: {first:.1e})",
        "bar": "at least 2 times early, at most 1.5 times late",
        "holds": bool(early >= 2 and late <= 1.5),
    }
