"""Masks, checked and measured: what a policy returned, and what the masks of a run amount to.

Policies promise; `MaskRecord` measures the paper's psi*, gamma and S* as the rounds go by. The certificate of a run and
its report read these numbers, and resuming a run needs the staleness.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from danl.errors import InputError
from danl.objective.regions import BoolArray, IntArray
from danl.policies.base import Round
from danl.storage.serialize import storable

MANY = 16
"""Workers a region from which on masks are counted region by region."""


def validated_masks(masks: object, *, policy: object, round: Round) -> BoolArray:
    """Return the masks a planned policy made, checked to be N x Q booleans."""
    expected = (round.setting.n_workers, round.setting.n_regions)
    return _validated(masks, expected, lambda: f"{type(policy).__name__}.masks in round {round.number}")


def validated_mask(mask: object, *, policy: object, worker: int, number: int, n_regions: int) -> BoolArray:
    """Return the mask a worker policy made, checked to be Q booleans."""
    return _validated(mask, (n_regions,), lambda: f"{type(policy).__name__}.mask for worker {worker} in round {number}")


def _validated(masks: object, expected: tuple[int, ...], where: Callable[[], str]) -> BoolArray:
    try:
        array = np.asarray(masks)
    except ValueError:  # numpy cannot make an array of rows of unequal length
        returned = "rows of unequal length"
    else:
        # Only booleans: a list of region numbers such as [0, 2] must not pass for a mask of zeros and ones.
        if array.dtype == np.bool_ and array.shape == expected:
            return array
        returned = f"{array.dtype} of shape {array.shape}"
    raise InputError(
        f"{where()} returned {returned}: must be booleans of shape {expected}; return one boolean per region"
    )


def coverage_counts(masks: BoolArray) -> IntArray:
    """Count the workers that train each region: |C^{t,q}|, from masks (N, Q) to shape (Q,)."""
    if len(masks) < MANY * masks.shape[1]:
        return np.asarray(masks.sum(axis=0))
    return np.array([np.count_nonzero(own) for own in masks.T], dtype=np.int64)  # of many rows a tenth of the time


def mask_bytes(n_regions: int) -> int:
    """A mask has one bit for every region, in whole bytes."""
    return -(-n_regions // 8)


def with_a_region(masks: BoolArray) -> BoolArray:
    """Who trains at all, from masks (N, Q) to shape (N,)."""
    return np.asarray(masks.T.copy().any(axis=0))  # a tenth of the time along the other axis


def staleness_after(staleness: IntArray, masks: BoolArray) -> IntArray:
    """Advance the staleness, shape (N, Q), by one round: 0 where trained, one more where not."""
    return np.asarray((staleness + 1) * ~masks)  # np.where takes five times as long on masks nobody can predict


@storable
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
