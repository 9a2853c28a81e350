"""How fast a run gets on: the gains of its newest steps, how many more it will take, and how sure that is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from danl.methods.acceptance import ROUNDING, TINY, Step
from danl.protocol.hessian_form import HessianForm

OF_SAMPLES, OF_PARTS = 0.5, 0.1
"""Curvature of sampled rows, and pairs on a part of it, may show more than there is: decrements up to 1.1 and 3 times
too small were seen."""

MOST_OFF = 0.9
"""The largest error of the curvature that a run may end with: the decrement is then a tenth of the tolerance."""


def off(gains: Sequence[float], *, everyone: bool) -> float:
    """How far off the curvature was along the newest two steps, as a share of it; 0 where it is of this very model.

    That of some stands in for `everyone`: as long as there is no step, it may be as far off as can be.

    After a whole step s = -B^-1 g the gradient is y - B s, what B missed of its change y: its size over that of the
    step, both in the norm of B, is the decrement there over the one before. Of two, as steps of quasi-Newton methods
    are better and worse in turn.
    """
    if len(gains) < 2:
        return 0.0 if everyone else MOST_OFF
    ratios = [after / before for before, after in pairwise(gains[-3:]) if before > 0]
    return min(math.sqrt(max(ratios, default=0.0)), MOST_OFF)


RATE_OF_SAMPLES, SLOWEST = 0.1, 0.9
"""What a step with the curvature of sampled rows leaves of the decrement, at least, and any step with a new Hessian, at
most."""


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


def steps_with(decrement: float, tol: float, *, sampled: bool) -> float:
    """Steps until the decrement is at most tol with the whole Hessian here: each leaves about as much as is left here.

    That is the change of the curvature from here to the optimum; with pairs it is not more. A sample leaves more.
    """
    if math.isinf(decrement):  # the old one hides directions: nobody knows how far it is, and a new one will tell
        return 0.0
    share = min(max(decrement, RATE_OF_SAMPLES if sampled else TINY), SLOWEST)
    return math.log(max(decrement / max(tol, ROUNDING), 1.0)) / -math.log(share)


def pays(step: Step, gains: Sequence[float], window: int, tol: float, price: float, sampled: bool) -> bool:
    """Whether new curvature saves more steps than it costs, its `price` in exchanges of gradients."""
    return steps_left(step, gains, window, tol) - steps_with(step.decrement, tol, sampled=sampled) > price - 1.0


def certain_share(form: HessianForm, rows: int | None) -> float:
    """What share of the curvature that is shown is there for certain: decrements are stretched by it."""
    if not form.whole:
        return OF_PARTS
    return 1.0 if rows is None else OF_SAMPLES
