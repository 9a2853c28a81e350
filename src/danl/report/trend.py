"""Whether a run was still getting nearer: the stretch in which it fell, how, and since when it does not.

Looked at is the gap where it is known, else the gradient norm: the best so far after every exchange, on a log scale,
down to where rounding is all that is left.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from danl.history import History

Array = np.ndarray[Any, np.dtype[np.float64]]

ROUNDING = 1e-15
"""A gap below this times 1 + |f| is rounding; the same floor, without f, for a gradient norm."""
STALL_ROUNDS = 10
"""At least this many exchanges, and a quarter of all, without halving are a stall."""
SLOWER = 0.5
"""And slower than this times the rate before: a slow fall that goes on as it began is none."""
STEADY = 0.95
"""Share of the variance of the logarithm that a straight line explains when convergence is called linear."""


@dataclass(frozen=True)
class Trend:
    """What the logarithm of `name` did up to exchange `last`."""

    name: str
    last: int
    best: float
    best_at: int
    """The exchange at which it was smallest."""
    end: float
    falling: tuple[int, int, float] | None
    """The first and last exchange of the fall, and the mean factor an exchange; None where it never halved."""
    manner: str
    stalled_since: int | None


def trend_of(history: History) -> Trend | None:
    """The trend of a run; None where there is too little to see one."""
    name, column = ("gap", "gap") if np.isfinite(history.column("gap")).any() else ("gradient norm", "grad_norm")
    values, numbers = history.column(column), history.column("exchange")
    known = np.isfinite(values)
    values, numbers = values[known], numbers[known]
    if len(values) < 3:
        return None
    scale = 1.0 + abs(history.column("objective")[known]) if column == "gap" else np.ones(len(values))
    floor = ROUNDING * np.where(np.isfinite(scale), scale, 1.0)
    best = np.minimum.accumulate(np.maximum(values, floor))
    logs = np.log10(best)
    stalled = _stalled(logs, best, float(floor[-1]))
    end = len(logs) - 1 if stalled is None else stalled
    first_at_floor = np.flatnonzero(best <= 2 * floor)
    if len(first_at_floor):
        end = min(end, int(first_at_floor[0]))
    fall = logs[0] - logs[end]
    falling = None
    if fall > np.log10(2) and end > 0:
        falling = (int(numbers[0]), int(numbers[end]), float(10 ** (fall / end)))
    return Trend(
        name=name,
        last=int(numbers[-1]),
        best=float(max(values.min(), 0.0)),
        best_at=int(numbers[int(values.argmin())]),
        end=float(values[-1]),
        falling=falling,
        manner=_manner(logs[: end + 1]),
        stalled_since=None if stalled is None else int(numbers[stalled]),
    )


def _stalled(logs: Array, best: Array, floor: float) -> int | None:
    """The place since which the best so far did not halve, if that is long ago and neither its pace nor rounding."""
    if best[-1] <= 2 * floor:
        return None
    since, last = int(np.flatnonzero(logs <= logs[-1] + np.log10(2))[0]), len(logs) - 1
    if last - since < max(STALL_ROUNDS, len(logs) // 4):
        return None
    if since and (logs[since] - logs[last]) / (last - since) > SLOWER * (logs[0] - logs[since]) / since:
        return None
    return since


def _manner(logs: Array) -> str:
    """Linearly (a straight line on the log scale), faster and faster, slower and slower, or unevenly."""
    if len(logs) < 4:
        return "quickly"
    places = np.arange(len(logs), dtype=float)
    slope, offset = np.polyfit(places, logs, 1)
    spread = float(np.sum((logs - logs.mean()) ** 2))
    off = float(np.sum((logs - slope * places - offset) ** 2))
    if spread > 0 and 1 - off / spread >= STEADY:
        return "linearly"
    half = len(logs) // 2
    first, second = logs[0] - logs[half], logs[half] - logs[-1]
    return "faster and faster" if second > 2 * first else "slower and slower" if first > 2 * second else "unevenly"
