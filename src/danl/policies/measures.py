"""What the masks of a run amounted to: the paper's psi*, gamma and S*, measured as the rounds go by.

Policies promise; this measures. Both the certificate of a run and its report read these numbers, and
resuming a run needs the staleness, so it is one small value that is carried from round to round and never
changed in place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from danl.objective.regions import BoolArray, IntArray


def coverage_counts(masks: BoolArray) -> IntArray:
    """Count the workers that train each region: |C^{t,q}|, from masks (N, Q) to shape (Q,)."""
    counts: IntArray = masks.sum(axis=0)
    return counts


def with_a_region(masks: BoolArray) -> BoolArray:
    """Who trains at all, from masks (N, Q) to shape (N,)."""
    return np.asarray(masks.T.copy().any(axis=0))  # a tenth of the time along the other axis


def staleness_after(staleness: IntArray, masks: BoolArray) -> IntArray:
    """Advance the staleness, shape (N, Q), by one round: 0 where trained, one more where not."""
    return np.where(masks, 0, staleness + 1)


@dataclass(frozen=True, eq=False)
class MaskRecord:
    """The masks of the rounds so far, in four numbers that do not grow with the rounds.

    Parameters
    ----------
    staleness : int array, shape (N, Q)
        For how many rounds in a row each (worker, region) has gone untrained. What a `Round` hands to its
        policy.
    min_coverage : int
        min over rounds and trained regions of the number of workers, the paper's psi*. A region no worker
        trained in a round does not count for that round. N as long as nothing was trained.
    max_staleness : int
        The longest run of rounds that some (worker, region) went untrained, gamma^t.
    min_trained : int
        min over rounds of the number of regions that at least one worker trained, S*. Q before the first
        round.
    """

    staleness: IntArray
    min_coverage: int
    max_staleness: int
    min_trained: int

    @classmethod
    def start(cls, n_workers: int, n_regions: int) -> MaskRecord:
        """Begin after Phase I, which trains every region on every worker."""
        return cls(np.zeros((n_workers, n_regions), dtype=np.int64), n_workers, 0, n_regions)

    def after(self, masks: BoolArray, coverage: Sequence[int] | None = None) -> MaskRecord:
        """Return the record with one more round, of masks (N, Q); `coverage` are their counts, where they are known."""
        trained = [count for count in (coverage_counts(masks).tolist() if coverage is None else coverage) if count]
        staleness = staleness_after(self.staleness, masks)
        return MaskRecord(
            staleness=staleness,
            min_coverage=min(self.min_coverage, min(trained, default=len(masks))),
            max_staleness=max(self.max_staleness, int(staleness.max())),
            min_trained=min(self.min_trained, len(trained)),
        )
