r"""The model without features, where rows have offsets: the intercept that the others start from.

With row weights r the best intercept b of a worker's rows solves

    sum_j r_j first(y_j, b + offset_j) = 0

Without offsets that is the margin of the mean target. With them a worker reports the mean target at margin b, where the
offset is 0: a target that the offset has been taken out of. The mean of these over the workers is where a run starts;
a few digits of it are enough.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from danl.objective.losses import Array

STEPS, ENOUGH = 50, 1e-6
"""Steps at most, and a step that is short enough to be the last."""


def null_target(loss: Any, y: Array, offset: Array, row_weights: Array) -> float:
    """The mean target of a row with offset 0, in the model that has an intercept alone.

    Of a loss that does not say what its margins mean, or rows that have no such intercept, the mean target as it is.
    """
    margin = null_margin(loss, y, offset, row_weights)
    return float(row_weights @ y) if margin is None else float(loss.mean(np.array([margin]))[0])


def null_margin(loss: Any, y: Array, offset: Array, row_weights: Array) -> float | None:
    """The best intercept of the model that has it alone; None of a loss or rows that have none."""
    mean = float(row_weights @ y)
    if not (hasattr(loss, "null_margins") and hasattr(loss, "mean")):
        return None
    with np.errstate(divide="ignore", invalid="ignore"):
        margin = float(loss.null_margins(np.array([mean]))[0])
    if not np.isfinite(margin):
        return None
    low, high = margin - float(offset.max()), margin - float(offset.min())
    b = 0.5 * (low + high)
    for _ in range(STEPS):
        with np.errstate(over="ignore", invalid="ignore"):
            z = b + offset
            slope, curvature = float(row_weights @ loss.first(y, z)), float(row_weights @ loss.second(y, z))
        low, high = (low, b) if slope > 0 else (b, high)
        step = -slope / curvature if curvature > 0 else 0.0
        onward = b + step if low <= b + step <= high else 0.5 * (low + high)
        b, moved = onward, abs(onward - b)
        if moved <= ENOUGH:
            break
    return b
