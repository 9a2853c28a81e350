"""St-SoPro: errors fall linearly to a neighbourhood of the optimum, which mini-batches with less noise make smaller."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np

import danl
from benchmarks.watched_states import Watched

WORKERS, ROWS, D, ALPHA, ITERATIONS, SETTLED = 10, 1000, 10, 1e-2, 300, 100
RHO, DAMPING = 0.5, 1.5
BATCHES = (4, 16, 64)


def claim() -> dict[str, object]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(ROWS, D))
    y = (rng.random(ROWS) < 1 / (1 + np.exp(-X @ rng.normal(size=D)))).astype(float)
    problem = danl.Problem(danl.partition(X, y, workers=WORKERS, seed=0), alpha=ALPHA)
    optimum = danl.reference_optimum(problem)

    def errors(options: str) -> np.ndarray:
        run = Watched(f"st-sopro:rho={RHO},damping={DAMPING}{options}")
        danl.solve(problem, method=run, graph="ring", max_rounds=ITERATIONS, monitor=False)
        return np.array([math.sqrt(np.square(state.models - optimum.w).sum(axis=1).mean()) for state in run.states])

    whole = errors("")
    rates = [float((whole[k + 75] / whole[k]) ** (1 / 75)) for k in (75, 150, 225)]
    floors = [float(errors(f",batch_size={size},hessian_batch={size}")[SETTLED:].mean()) for size in BATCHES]
    halves = [before / after for before, after in pairwise(floors)]
    told = ", ".join(f"{floor:.2g} with {size}" for floor, size in zip(floors, BATCHES, strict=True))
    return {
        "method": "st-sopro",
        "paper": "Qiu, Zhu, Ou, Lu, IEEE L-CSS 2023",
        "says": "the expected error falls at a linear rate below an error bound, which can be made arbitrarily small "
        "(abstract; its conditions on the parameters are not known here)",
        "tried": f"logistic regression, {ROWS} x {D}, {WORKERS} workers on a ring, alpha {ALPHA:g}, rho {RHO}, damping "
        f"{DAMPING}, the same for all runs",
        "measured": f"whole shards: error times {', '.join(f'{rate:.3f}' for rate in rates)} an iteration in three "
        f"quarters of the run, {whole[-1]:.0e} after {ITERATIONS}; mini-batches settle at {told} rows: each "
        f"{' and '.join(f'{each:.2f}' for each in halves)} times smaller",
        "bar": "a rate below 0.97 throughout; four times the rows: between 1.5 and 3 times smaller",
        "holds": bool(max(rates) < 0.97 and all(1.5 <= each <= 3 for each in halves)),
    }
