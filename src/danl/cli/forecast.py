"""How far a run still has to go: a straight line through the newest logarithms of the decrement.

Newton-type runs fall faster and faster, masked ones stall before a Hessian exchange; what the newest exchanges did is
all this goes by, and where they did not fall it says so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from danl.wording import duration

WINDOW = 16
"""Exchanges the line is drawn through."""
FEWEST = 4
SLOWEST = 0.01
"""A fall of less than this many decades an exchange is not extrapolated: it goes on for too long."""
SURE = 3.0
"""A slope of less than so many standard errors is no fall: noise goes up and down."""
FLAT = 1e-6
"""A slope of less than so many decades an exchange is no fall, however even it is."""


@dataclass(frozen=True)
class Observation:
    """What the forecast goes by of one exchange."""

    decrement: float
    elapsed: float  # seconds since the run began


def forecast(seen: Sequence[Observation], *, tol: float, left: int) -> str:
    """What to say about the way to the tolerance, `left` exchanges being allowed at most."""
    if not seen:
        return "unclear"
    newest = seen[-WINDOW:]
    pace = (newest[-1].elapsed - newest[0].elapsed) / max(len(newest) - 1, 1)
    if tol <= 0:
        return f"no tolerance; {left} exchanges left{_in(left * pace)}"
    values = [each.decrement for each in newest if each.decrement > 0 and math.isfinite(each.decrement)]
    if values and values[-1] <= tol:
        return "reached; the workers have the last word"
    if len(values) < FEWEST:
        return "unclear"
    (slope, _), covariance = np.polyfit(np.arange(len(values)), np.log10(values), 1, cov=True)
    error = math.sqrt(covariance[0, 0])
    if slope > -max(FLAT, SURE * error):
        return "unclear: it does not fall steadily"
    if slope > -SLOWEST:
        return "unclear: it falls too slowly to tell"
    needed = math.ceil(math.log10(values[-1] / tol) / -slope - 1e-9)  # rounding is no exchange
    if needed > left:
        return f"about {needed} exchanges, more than the {left} left"
    return f"about {needed} exchanges{_in(needed * pace)}"


def _in(seconds: float) -> str:
    return f", {duration(seconds)}" if seconds > 0 else ""
