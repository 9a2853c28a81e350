"""What is measured on one run, and what is made of its repetitions: speed, progress, the line through the falling part.

Every claim that compares runs uses these, so that "faster" and "converges" mean the same everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from danl.protocol.messages import Array
from danl.report.trend import line_through
from danl.reproduce.claims.base import Case, found_values
from danl.reproduce.runs import ROUNDS
from danl.reproduce.store import StoredRun

FLOOR, CEILING = 1e-12, 1e6
"""Gaps are clipped to these: below is rounding, above is gone."""
EXCHANGES = ROUNDS
AHEAD = 0.1
"""Decades by which a score must be lower to count as faster."""
CONVERGED = 1e-6
"""A run that gets to this gap and stays there converges, for the claims that ask whether it does."""
SOLVED = 1e-8
"""The gap at which a problem counts as solved."""

SCORE_RULE = (
    f"The score of a run is the mean over exchanges 1 to {EXCHANGES} of log10(gap), the gap clipped to "
    f"[{FLOOR:.0e}, {CEILING:.0e}]; medians are over seeds. A is faster than B on a data set at a penalty if its "
    f"median score is lower by at least {AHEAD} decades, and A's median gap at the end is below that at the start: "
    "the better of two runs that both lead away from the optimum is not fast."
)


def clipped(stored: StoredRun) -> Array:
    """Gaps after 0, 1, 2, ... exchanges, clipped; what is no number counts as gone."""
    return np.clip(np.nan_to_num(stored.gaps(), nan=CEILING, posinf=CEILING), FLOOR, CEILING)


def clipped_gap(gap: float | None) -> str:
    """A gap as people read it, where it is clipped."""
    if gap is None or np.isnan(gap):
        return "-"
    return f"{FLOOR:.0e} or less" if gap <= FLOOR else f"{CEILING:.0e} or more" if gap >= CEILING else f"{gap:.1e}"


def median(values: Iterable[float]) -> float:
    """The median."""
    return float(np.median(list(values)))


def majority(flags: Iterable[bool]) -> bool:
    """Whether more than half are true."""
    each = list(flags)
    return 2 * sum(each) > len(each)


def reached(cases: Iterable[Case], name: str) -> tuple[list[float], str]:
    """What is finite of the counts found under a name, those of runs that get there, and ``3 of 4``: how many do."""
    counts = found_values(cases, name)
    finite = [count for count in counts if count < np.inf]
    return finite, f"{len(finite)} of {len(counts)}"


def exchanges_to(stored: StoredRun, gap: float) -> float:
    """Exchanges until the gap is at most `gap` for good; infinity where the run does not end there.

    For good: raw memory often touches a small gap in Phase I and leaves it again.
    """
    above = np.flatnonzero(~(stored.gaps() <= gap))
    if not len(above):
        return 0.0
    return float(above[-1] + 1) if above[-1] + 1 < len(stored.gaps()) else np.inf


def hessians_to(stored: StoredRun, gap: float) -> float:
    """Hessian exchanges until the gap is at most `gap` for good; infinity where the run does not end there."""
    exchanges = exchanges_to(stored, gap)
    if exchanges == np.inf:
        return exchanges
    return float(sum(stored.history[t].kind == "hessian" for t in range(int(exchanges))))


def score(stored: StoredRun) -> float:
    """Mean log10 gap over the exchanges 1 to EXCHANGES: lower is faster."""
    return float(np.mean(np.log10(clipped(stored)[1 : EXCHANGES + 1])))


@dataclass(frozen=True)
class Repeated:
    """Repetitions of one run with other seeds: medians."""

    score: float
    start: float
    end: float
    converging: list[bool]
    """Whether each gets to a gap of 1e-6 and stays there."""

    @property
    def improves(self) -> bool:
        """Whether it ends below where it started."""
        return self.end < self.start

    @classmethod
    def of(cls, stored: Sequence[StoredRun]) -> Repeated:
        """Take medians over the runs."""
        gaps = [clipped(each) for each in stored]
        return cls(
            score=median(map(score, stored)),
            start=median(each[0] for each in gaps),
            end=median(each[-1] for each in gaps),
            converging=[exchanges_to(each, CONVERGED) < np.inf for each in stored],
        )


@dataclass(frozen=True)
class Line:
    """A straight line through log10 gap over exchanges, from the peak to the floor."""

    slope: float
    """Decades an exchange; nan where there are fewer than three points."""
    r_squared: float
    end: float
    """The gap at the run's end."""


def falling_line(stored: StoredRun) -> Line:
    """Least squares from the largest gap to the first one at the floor, or to the end."""
    gaps = clipped(stored)
    tail = gaps[int(np.argmax(gaps)) :]
    at_floor = np.flatnonzero(tail <= FLOOR)
    tail = np.log10(tail[: at_floor[0] + 1] if len(at_floor) else tail)
    end = float(gaps[-1])
    if len(tail) < 3 or np.ptp(tail) == 0:
        return Line(np.nan, np.nan, end)
    return Line(*line_through(tail), end)
