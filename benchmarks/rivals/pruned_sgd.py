"""SGD on pruned models: a floor that pruning leaves, and that is lower the more workers cover each region."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

import danl

WORKERS, ALPHA, REGIONS, ROUNDS, LAST = 10, 1e-3, 4, 150, 50
COVERAGES = (1, 3, 6, 9)


def claim() -> dict[str, object]:
    """Whether the floor is there, and falls with the coverage."""
    data = danl.load_dataset("a1a")
    problem = danl.Problem(danl.partition(data.X, data.y, workers=WORKERS, seed=0), alpha=ALPHA)

    def squares(policy: str) -> np.ndarray:
        method = "pruned-sgd:steps=5,batch_size=all"
        history = danl.solve(problem, method=method, policy=policy, regions=REGIONS, max_rounds=ROUNDS).history
        return np.square(history.column("grad_norm"))

    runs = {psi: squares(f"coverage:psi={psi}") for psi in COVERAGES}
    full = squares("full")
    floors = {psi: float(run[-LAST:].mean()) for psi, run in runs.items()}
    floors[WORKERS] = float(full[-LAST:].mean())
    levels = list(floors.values())
    falling = all(low > high for low, high in pairwise(levels))
    stalled = all(float(run[-LAST:].mean()) > 0.5 * float(run[-2 * LAST : -LAST].mean()) for run in runs.values())
    return {
        "method": "pruned-sgd",
        "paper": "Zhou, Lan, Venkataramani & Ding, 2022 (arXiv 2201.11803)",
        "says": "the mean of |grad f|^2 falls like 1 / sqrt(rounds), up to a term of the pruning noise that shrinks "
        "with the fewest workers that cover a region (abstract; the theorem from memory)",
        "tried": f"a1a, logistic, alpha {ALPHA:g}, {WORKERS} workers, {REGIONS} regions with psi workers each, drawn "
        f"anew in every round, 5 local steps on whole shards; where the paper has small networks",
        "measured": f"mean |grad f|^2 of the last {LAST} of {ROUNDS} rounds: "
        + ", ".join(f"{floor:.1e} at psi = {psi}" for psi, floor in floors.items())
        + f"; the partial masks have {'stalled' if stalled else 'not stalled'} there",
        "bar": f"it falls with psi; with partial masks the last {LAST} rounds do not halve it, with full ones it "
        "is 10 times lower",
        "holds": bool(falling and stalled and 10 * levels[-1] <= min(levels[:-1])),
    }
