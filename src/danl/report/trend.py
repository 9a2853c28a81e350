"""Whether a run was still getting nearer: the stretch in which it fell, how, and since when it does not.

Looked at is the gap where it is known to the end, else the gradient norm: the best so far after every exchange, on a
log scale, down to where rounding is all that is left. What did not halve for long has stalled where its newest quarter
is flat, is slow where that still falls, and has risen where that lies above the best.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from danl.run.history import History
from danl.wording import FLOOR

Array = np.ndarray[Any, np.dtype[np.float64]]

STALL_ROUNDS = 10
"""At least this many exchanges, and a quarter of all, without halving are a stall."""
SLOWER = 0.5
"""A stall is also slower than this times the rate before: a slow fall that goes on as it began is none."""
FLAT = float(np.log10(1 / 0.99))
"""A fall of less than this, 1 %, over the newest quarter is none."""
LIKE_A_LINE = 0.5
"""A fall of which a straight line explains less than this share of the variance is noise, and none."""
RISEN = 2.0
"""A run rose where all of the newest quarter is more than this many times the best."""
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
    slow: tuple[int, float] | None
    """Since when it falls slowly, and by which factor an exchange in the newest quarter."""
    rose: bool


def trend_of(history: History) -> Trend | None:
    """The trend of a run; None where there is too little to see one."""
    has_gap = len(history) > 0 and bool(np.isfinite(history[-1].gap))  # where workers left it is known no more
    values, numbers = history.column("gap" if has_gap else "grad_norm"), history.column("exchange")
    known = np.isfinite(values)
    values, numbers = values[known], numbers[known]
    if len(values) < 3:
        return None
    scale = 1.0 + abs(history.column("objective")[known]) if has_gap else np.ones(len(values))
    floor = FLOOR * np.where(np.isfinite(scale), scale, 1.0)
    raised = np.maximum(values, floor)
    best = np.minimum.accumulate(raised)
    newest = np.log10(raised[-max(STALL_ROUNDS, len(raised) // 4) :])
    rose = bool(raised[-max(3, len(raised) // 4) :].min() > RISEN * raised.min())
    at_floor = np.flatnonzero(best <= 2 * floor)
    since = None if rose or best[-1] <= 2 * floor[-1] else _slower_since(np.log10(best))
    slope, explained = (0.0, 0.0) if since is None else line_through(newest)
    falls = -slope * (len(newest) - 1) >= FLAT and explained >= LIKE_A_LINE
    rate = -slope if falls else 0.0  # 0 where the newest are flat, or noise
    end = int(raised.argmin()) if rose else len(best) - 1 if since is None else since
    end = min([end, *at_floor[:1].tolist()])
    logs = np.log10(best[: end + 1])
    fall, halved = logs[0] - logs[-1], logs[0] - logs[-1] > np.log10(2) and end > 0
    return Trend(
        name="gap" if has_gap else "gradient norm",
        last=int(numbers[-1]),
        best=float(max(values.min(), 0.0)),
        best_at=int(numbers[int(values.argmin())]),
        end=float(values[-1]),
        falling=(int(numbers[0]), int(numbers[end]), float(10 ** (fall / end))) if halved else None,
        manner=_manner(logs),
        stalled_since=None if since is None or rate else int(numbers[since]),
        slow=(int(numbers[since]), float(10**rate)) if since is not None and rate else None,
        rose=rose,
    )


def _slower_since(logs: Array) -> int | None:
    """The place since which the best so far did not halve, if that is long ago and not its pace."""
    since, last = int(np.flatnonzero(logs <= logs[-1] + np.log10(2))[0]), len(logs) - 1
    if last - since < max(STALL_ROUNDS, len(logs) // 4):
        return None
    if since and (logs[since] - logs[last]) / (last - since) > SLOWER * (logs[0] - logs[since]) / since:
        return None
    return since


def line_through(logs: Array) -> tuple[float, float]:
    """The slope of the straight line through these, and the share of their variance that it explains."""
    places = np.arange(len(logs), dtype=float)
    slope, offset = np.polyfit(places, logs, 1)
    spread = float(np.sum((logs - logs.mean()) ** 2))
    off = float(np.sum((logs - slope * places - offset) ** 2))
    return float(slope), 1 - off / spread if spread > 0 else 0.0


def _manner(logs: Array) -> str:
    """Linearly (a straight line on the log scale), faster and faster, slower and slower, or unevenly."""
    if len(logs) < 4:
        return "quickly"
    if line_through(logs)[1] >= STEADY:
        return "linearly"
    half = len(logs) // 2
    first, second = logs[0] - logs[half], logs[half] - logs[-1]
    return "faster and faster" if second > 2 * first else "slower and slower" if first > 2 * second else "unevenly"
