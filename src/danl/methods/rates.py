"""How fast a run gets on: the gains of its newest steps, and how many more it will take at that rate."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from danl.methods.acceptance import ROUNDING, Step


def shrinkage(step: Step, gains: Sequence[float], window: int) -> float:
    """What is left of the gain of a step after `window` more of them; 0 where there was none."""
    before = gains[-1 - window]
    return step.gain / before if before > 0 else 0.0


def steps_left(step: Step, gains: Sequence[float], window: int, tol: float) -> float:
    """Steps until the decrement is at most tol, or lost in rounding, if gains go on shrinking as over the window."""
    ratio = shrinkage(step, gains, window)
    if ratio >= 1:
        return np.inf
    least = max(tol**2 / 2, ROUNDING) * step.scale
    return math.log(max(step.gain / least, 1.0)) / (-math.log(ratio) / window) if ratio > 0 else 0.0
