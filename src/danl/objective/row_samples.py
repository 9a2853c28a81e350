r"""Rows that stand for all of a worker's: what curvature is computed on where all rows would take too long.

A row drawn with chance pi_j counts 1 / pi_j times, so that a sampled Hessian is right on average. Rows are drawn by
their leverage, as far as the squares of the columns tell it,

    leverage_j = r_j b_j sum_c a_jc^2 / mean_square_c           pi_j = min(1, size * share_j)

so that a column that few rows have an entry in is not lost (Drineas, Mahoney & Muthukrishnan, "Relative-error CUR
matrix decompositions", 2008, draw by the exact ones); and some by r_j b_j alone, so that no row counts for too many.
The draw is systematic: one random number, then every step of 1 along the sum of the pi_j (Madow, 1949).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from danl.objective.local_objective import LocalObjective
from danl.objective.losses import Array

BY_LEVERAGE = 0.7
"""The share of the draw that goes by leverage."""
LARGE = 0.25
"""Rows whose chance is to be cut off are looked for among those with more than this first."""


@dataclass(frozen=True)
class RowSample:
    """Rows, in increasing order, and how many rows each of them stands for; None: all for equally many."""

    rows: Any
    counts: Array | None = None


def leverage_sample(objective: LocalObjective, w: Array, size: int, rng: np.random.Generator) -> RowSample | None:
    """About `size` rows for the curvature at w; None for all of them."""
    if size >= objective.n_rows:
        return None
    curvature = _curvature_of_rows(objective, w)
    total = float(curvature.sum())
    if not (np.isfinite(total) and total > 0):  # a model that blew up, or nothing curved: as good as any
        return RowSample(np.sort(rng.choice(objective.n_rows, size=size, replace=False)))
    leverage, chances = curvature * objective.relative_squares, curvature / total  # which may be tiny: divided first
    of_leverage = float(leverage.sum())
    if of_leverage > 0:  # else rows without entries are all that is curved
        leverage /= of_leverage
        chances = BY_LEVERAGE * leverage + (1 - BY_LEVERAGE) * chances
    chances = _at_most_one(size * chances, size)
    passed = (np.cumsum(chances) + rng.random()).astype(np.int64)
    chosen = np.flatnonzero(np.diff(passed, prepend=0))
    return RowSample(chosen, 1.0 / chances[chosen])


def _curvature_of_rows(objective: LocalObjective, w: Array) -> Array:
    """r_j b_j, over all outputs; of a logistic loss p (1 - p) from one exponential: exact enough to draw by."""
    both = getattr(objective.loss, "exp_value_and_first", None)
    if both is not None:
        with np.errstate(over="ignore", invalid="ignore"):
            chance = np.abs(both(objective.y, objective.margins(w))[1])
        return np.asarray(objective.row_weights * (chance * (1.0 - chance)))
    curvature = np.zeros(objective.n_rows)
    for k, m, weights in objective.second_derivatives(w):
        if k == m:
            curvature += weights
    return curvature


def _at_most_one(chances: Array, size: int) -> Array:
    """No chance above 1: what is cut off is dealt to the others in proportion, and they add up to `size` still.

    With the largest certain, the others grow by a factor; as few are certain as leave none of these above 1.
    """
    if chances.max() <= 1:
        return chances
    for least in (LARGE, 0.0):  # those below are hardly ever certain
        above = np.sort(chances[chances > least])
        below = size - float(above.sum()) if least else 0.0
        left = below + np.append(0.0, np.cumsum(above))  # of all but the largest, with 0, 1, 2, ... of these among them
        drawn = np.arange(size - len(above), size + 1.0)
        fit = (drawn >= 0) & (left > 0) & (drawn * np.append(least, above) <= left)
        if fit.any():
            last = len(above) - int(np.argmax(fit[::-1]))
            return np.asarray(np.minimum(drawn[last] * (chances / left[last]), 1.0))
    return np.asarray(chances > 0, dtype=float)  # there are no more rows than are to be drawn
