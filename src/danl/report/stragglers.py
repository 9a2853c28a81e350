"""Workers whom the others wait for, by simulated seconds: who they are, and what the run would take without them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from danl.protocol.messages import Array, Mask
from danl.report.recorded import RecordedRun

PACE_SHARE = 0.8
"""Workers set the pace when, in this share of the exchanges, one of them is among the slowest."""
AS_SLOW = 0.99
"""As slow as the slowest is who takes at least this share of its time: rounding tells no equal machines apart."""
LEAST_SAVED = 0.1
"""Of workers without whom the run would have saved less than this share of its time nothing is said."""


@dataclass(frozen=True)
class Stragglers:
    """The workers, the share of exchanges they decide, and the seconds of the run with and without them."""

    workers: tuple[int, ...]
    """Empty if the slowest worker changes from exchange to exchange."""
    share: float
    total: float
    without: float


def among_slowest(seconds: Array) -> Mask:
    """Who is as slow as the slowest in each exchange, (T, N); nobody where nobody answered."""
    known = ~np.isnan(seconds)
    slowest = np.where(known, seconds, -np.inf).max(axis=1, initial=-np.inf, keepdims=True)
    return known & (np.where(known, seconds, 0.0) >= AS_SLOW * np.where(np.isfinite(slowest), slowest, np.inf))


def stragglers_of(run: RecordedRun) -> Stragglers | None:
    """Who sets the pace; None without profiles, with one worker, and where leaving them out would save little.

    Workers are left out one after the other, those first that are among the slowest most often. Of the sets that decide
    most exchanges and save enough it is the one whose last member saves most; never half of all or more.
    """
    if run.trace is None or not len(run.trace):
        return None
    taken = run.trace.simulated_seconds
    answered = ~np.isnan(taken)
    taken, answered = taken[answered.any(axis=1)], answered[answered.any(axis=1)]
    n_workers = taken.shape[1]
    if not len(taken) or n_workers < 2:
        return None
    near = among_slowest(taken)
    order = np.lexsort((np.arange(n_workers), -np.where(answered, taken, 0.0).sum(axis=0), -near.sum(axis=0)))
    rest = np.maximum.accumulate(np.where(answered, taken, 0.0)[:, order[::-1]], axis=1)[:, ::-1].sum(axis=0)
    most = max(1, (n_workers - 1) // 2)
    total, without = float(rest[0]), rest[1 : most + 1]  # without the first, the first two, ...
    share = np.logical_or.accumulate(near[:, order[:most]], axis=1).mean(axis=0)
    decide = share >= PACE_SHARE
    if not 0 < total < np.inf:
        return None
    if not decide.any():
        return Stragglers((), 0.0, total, total)
    good = decide & (total - without >= LEAST_SAVED * total)
    if not good.any():
        return None
    last = int(np.where(good, rest[:most] - without, -np.inf).argmax())
    who = tuple(sorted(int(worker) for worker in order[: last + 1]))
    return Stragglers(who, float(share[last]), total, float(without[last]))
