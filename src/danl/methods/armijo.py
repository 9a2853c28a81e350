"""When a step is good enough, and when there is nothing left to gain: shared by the safeguarded methods."""

from __future__ import annotations

import numpy as np

SUFFICIENT_DECREASE = 1e-4
"""Armijo's constant: accept when the loss falls by this share of what the slope promises (Nocedal & Wright, 3.4)."""
ROUNDING = 16 * float(np.finfo(float).eps)
"""A rise of the loss below this share of its size is rounding, not a rise."""
SMALLEST_STEP = 2.0**-40
"""Below this there is no descent left to find along a direction."""


def low_enough(before: float, after: float, promised: float = 0.0) -> bool:
    """Armijo's rule up to rounding; `promised` is what the slope says of the step, length * slope <= 0."""
    allowed = before + SUFFICIENT_DECREASE * promised
    return bool(after <= allowed + ROUNDING * max(abs(before), abs(allowed)))


def at_rounding(decrease: float, loss: float) -> bool:
    """Whether a predicted decrease is below the rounding of the loss."""
    return bool(decrease <= ROUNDING * max(abs(loss), float(np.finfo(float).tiny)))
