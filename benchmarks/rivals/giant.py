"""GIANT's claim: on a quadratic it converges linearly, at a rate that falls as the workers' random shards grow."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np

import danl
from danl.data import Shard

WORKERS, FEATURES = 16, 20
ROWS = (200, 800, 3200)
ROUNDS = 8


def claim() -> dict[str, object]:
    rates = {rows: rate(rows) for rows in ROWS}
    bounds = {rows: bound(rows) for rows in ROWS}
    below = all(rates[rows] <= bounds[rows] for rows in ROWS)
    halves = all(rates[more] <= rates[rows] / 2 for rows, more in pairwise(ROWS))
    return {
        "method": "giant",
        "paper": "Wang, Roosta, Xu & Mahoney, NeurIPS 2018",
        "says": "on a quadratic whose shards are random samples of s rows the error shrinks in every iteration by "
        "about eta / sqrt(m) + eta^2, with eta^2 of the order of d / s (its theorem for quadratics, from memory; the "
        "constant and the logarithm are left out here)",
        "tried": f"ridge regression, {FEATURES} Gaussian features of unequal size, m = {WORKERS} workers with s rows "
        "each, alpha 1e-4, line_search=false: the mean factor of |w - w*| over the iterations down to 1e-9 of the "
        "start",
        "measured": "; ".join(f"s = {rows}: {rates[rows]:.3f}, bound {bounds[rows]:.3f}" for rows in ROWS),
        "bar": "at most eta / sqrt(m) + eta^2 with eta = sqrt(d / s), and at most half with four times the rows",
        "holds": below and halves,
    }


def bound(rows: int) -> float:
    eta = math.sqrt(FEATURES / rows)
    return eta / math.sqrt(WORKERS) + eta**2


def rate(rows: int) -> float:
    """The mean factor of the distance to the optimum in an iteration."""
    problem = ridge(rows)
    reference = danl.reference_optimum(problem)
    result = danl.solve(
        problem, method="giant:line_search=false", reference=reference, max_rounds=4 * ROUNDS - 1, tol=0.0
    )
    away = [float(np.linalg.norm(reference.w))]
    away += [row.distance for row in result.history if row.kind == "newton-direction"]
    last = next((number for number, each in enumerate(away) if each < 1e-9 * away[0]), len(away) - 1)
    return (away[last] / away[0]) ** (1 / last)


def ridge(rows: int) -> danl.Problem:
    rng = np.random.default_rng(0)
    w, sizes = rng.normal(size=FEATURES), np.logspace(0, -1, FEATURES)
    shards = []
    for number in range(WORKERS):
        X = rng.normal(size=(rows, FEATURES)) * sizes
        shards.append(Shard.of(X, X @ w + rng.normal(size=rows), name=f"worker-{number}"))
    return danl.Problem(shards, loss="squared", alpha=1e-4)
