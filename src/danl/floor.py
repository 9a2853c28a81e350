"""Where a gap of zero is: one floor for the figures, the report, the comparison and the terminal.

A gap f(w) - f(w*) is a difference of two numbers that each carry rounding. At the optimum it is zero, a little above or
a little below, and which of these depends on the processor. So whatever is at or below the floor is drawn at the floor
and said to be that: nothing else can be told apart.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

FLOOR = 1e-15
"""The smallest gap, or gradient norm, that is drawn and told as it is."""
BELOW = 10.0
"""A gap below zero is rounding up to so many times the floor, for an objective of 1; one further below is told."""


def floored(values: Any) -> Any:
    """Numbers as a log axis shows them: FLOOR where they are at or below it; nan stays nan."""
    return np.maximum(values, FLOOR)


def is_rounding(gap: float, objective: float = 0.0) -> bool:
    """Whether a gap is zero as far as can be told; below zero rounding grows with the objective."""
    scale = 1.0 + abs(objective) if math.isfinite(objective) else 1.0
    return -BELOW * FLOOR * scale <= gap <= FLOOR


def gap_told(gap: float, form: str = ".1e", objective: float = 0.0) -> str:
    """A gap as text: "<=1e-15" where it is rounding."""
    return f"<={FLOOR:.0e}" if is_rounding(gap, objective) else format(gap, form)
