"""When a step is good enough, and when there is nothing left to gain: shared by the safeguarded methods.

`scale` is the size of the numbers a loss is made of: sums of what the workers told, without their signs.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

SUFFICIENT_DECREASE = 1e-4
"""Armijo's constant: accept when the loss falls by this share of what the slope promises (Nocedal & Wright, 3.4)."""
ROUNDING = 16 * float(np.finfo(float).eps)
"""A rise of the loss below this share of its scale is rounding, not a rise."""


def low_enough(before: float, after: float, scale: float, promised: float = 0.0) -> bool:
    """Armijo's rule up to rounding; `promised` is what the slope says of the step, length * slope <= 0."""
    return bool(after <= before + SUFFICIENT_DECREASE * promised + ROUNDING * scale)


def at_rounding(decrease: float, scale: float) -> bool:
    """Whether a predicted decrease is below the rounding of the loss."""
    return bool(decrease <= ROUNDING * max(scale, float(np.finfo(float).tiny)))


def given_up(decrement: float, scale: float) -> Literal["converged", "max_rounds"]:
    """What to call a run in which no length of a step shows a decrease.

    The direction is one of descent, so rounding hides it: of the loss, and of the margins behind it, up to some
    thousand times larger. Where there was more to gain than that, the run has failed to find it.
    """
    return "converged" if at_rounding(decrement / 1e3, scale) else "max_rounds"


def shorter(length: float) -> float:
    """Half the step; a sixteenth once ten halvings have not helped, so that a wild direction costs few exchanges."""
    return length / 2 if length > 2.0**-10 else length / 16
