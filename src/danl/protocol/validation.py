"""What the numbers of a reply must be before they may touch the server's state.

A worker may be broken or hostile. The form of its reply was checked when it was stacked (`danl.protocol.replies`); here

    finite      gradients, Hessians, models and moments; a loss may be +inf only where the loss can overflow
    curvature   H_i without its penalty has no negative direction: diagonal, 2 x 2 minors, and up to CHOLESKY_LIMIT
                coefficients a Cholesky factorisation; parts of it are checked by `danl.protocol.hessian_checks`

The wire carries half of a symmetric matrix, so an asymmetric Hessian cannot be sent. A worker that breaks a rule is
quarantined: named, not asked again, and the run goes on as if it had left.

A worker that lies plausibly is not found here. `Guards` limits what one worker can do.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg.lapack import dpptrf

from danl.checks import check_number
from danl.objective.regions import Regions
from danl.protocol.hessian_checks import numbers_fault
from danl.protocol.messages import Array, CurvatureTask, Exchange, Failure, Mask, ModelTask, ScoresTask, unpack
from danl.protocol.replies import Replies

CHOLESKY_LIMIT = 1000
"""Coefficients up to which every worker's Hessian is factorised to see that it is definite (d^3 / 3 each)."""
PACKED_LIMIT = 500
"""Coefficients up to which a factorisation in packed form is the faster way to see that all is well."""
CURVATURE_ROUNDING = 1e-8
"""How far below zero curvature may be, as a share of the Hessian's largest entry: rounding, and float32 on the way."""
HUGE = 1e150
"""A model with an entry above this has blown up: what workers then say is not held against them."""
NAMES = {"w": "model", "squares": "mean squares"}
"""What a fault calls a field, where that is not the field's name."""


@dataclass(frozen=True)
class Guards:
    """Optional limits on what one worker's plausible replies can do.

    Parameters
    ----------
    clip : float, optional
        A gradient whose root mean square is above `clip` times the median of the others' is scaled down to that.
        At least 1. Honest workers with skewed data differ, too: 3 to 10 is usual.
    drop_infinite : bool
        Quarantine a worker whose loss is infinite where most workers' is not, with losses that can overflow.

    """

    clip: float | None = None
    drop_infinite: bool = False

    def __post_init__(self) -> None:
        if self.clip is not None:
            check_number("clip", self.clip, "leave it out to clip nothing", least=1, infinite=True)


@dataclass(frozen=True)
class ReplyRules:
    """What the replies of a run are held against."""

    regions: Regions
    penalties: Array  # (N,): the penalty of every worker
    penalised: Mask  # (d,): which coefficients have it
    overflows: bool  # whether the loss can be +inf at a finite model (Poisson)
    guards: Guards = Guards()

    def validate_replies(self, exchange: Exchange, replies: Replies, weights: Array) -> Replies:
        """The replies that may pass, and the weighted sum of their curvatures; the others are failures ("invalid")."""
        blown_up = has_blown_up(exchange.task)
        if not blown_up and not _sums_are_finite(replies):
            replies = replies.without(self._not_finite(exchange, replies))
        if replies.curvatures:
            replies = replies.without(self._bad_curvatures(exchange, replies, blown_up))
        if self.guards.drop_infinite and self.overflows:
            replies = _without_lone_infinities(replies)
        if self.guards.clip is not None:
            replies = _clipped(replies, self.guards.clip, self.regions)
        if replies.add_up is None and not replies.curvatures:
            return replies
        return self._with_sum(replies, weights)

    def _not_finite(self, exchange: Exchange, replies: Replies) -> dict[int, Failure]:
        """Who sent a number that is none."""
        faults: dict[int, Failure] = {}

        def blame(worker: int, fault: str) -> None:
            faults.setdefault(worker, Failure(worker, "invalid", fault))

        overflowed = self.overflows & np.isposinf(replies.losses)
        if isinstance(exchange.task, ModelTask) and not isinstance(exchange.task, ScoresTask):
            for row in np.flatnonzero(~(np.isfinite(replies.losses) | overflowed)):
                blame(int(replies.workers[row]), f"its loss is {float(replies.losses[row])}")
        excused = set(replies.workers[overflowed].tolist())
        rows = np.searchsorted(replies.workers, replies.senders)
        for worker, row, gradient in zip(replies.senders.tolist(), rows, self._of(replies.gradients), strict=False):
            counted = True if replies.masks is None else replies.masks[row][self.regions.of_feature]
            if worker not in excused and not np.isfinite(np.where(counted, gradient, 0.0)).all():
                blame(worker, "its gradient is not finite")
        for name, values in replies.values.items():
            for worker, value in zip(replies.workers.tolist(), values, strict=True):
                if name != "smoothness" and worker not in excused and not np.isfinite(value).all():
                    blame(worker, f"its {NAMES.get(name, name)} is not finite")
        return faults

    @staticmethod
    def _of(gradients: Array | None) -> Array:
        return np.zeros((0, 0)) if gradients is None else gradients

    def _bad_curvatures(self, exchange: Exchange, replies: Replies, blown_up: bool) -> dict[int, Failure]:
        """Whose Hessian, or part of one, cannot be that of a convex function with a penalty."""
        losses = dict(zip(replies.workers.tolist(), replies.losses.tolist(), strict=True))
        faults: dict[int, Failure] = {}
        for worker, numbers in replies.curvatures.items():
            excused = blown_up or (self.overflows and losses[worker] == np.inf)
            penalties = self.penalties[worker] * self.penalised
            if isinstance(exchange.task, CurvatureTask):
                fault = numbers_fault(
                    exchange.task, numbers, penalties, self.regions, hessian_fault, excused=excused, blown_up=blown_up
                )
            else:
                if isinstance(exchange.task, ScoresTask):
                    penalties, excused = np.zeros_like(penalties), blown_up
                fault = packed_fault(numbers, penalties, excused=excused, blown_up=blown_up)
            if fault is not None:
                faults[worker] = Failure(worker, "invalid", fault)
        return faults

    def _with_sum(self, replies: Replies, weights: Array) -> Replies:
        """The replies with the sum of their curvatures; who is found faulty on the way is a failure."""
        if replies.add_up is None:
            total: Array | None = None
            for worker, numbers in replies.curvatures.items():  # in the order of their numbers: the same bits always
                with np.errstate(invalid="ignore", over="ignore"):  # at a model that blew up: its loss rejects it
                    term = weights[worker] * numbers.astype(np.float64, copy=False)
                    total = term if total is None else total + term
            return replace(replies, curvature_sum=total)
        if not len(replies.workers):
            return replace(replies, add_up=None)
        summed = replies.add_up({worker: float(weights[worker]) for worker in replies.workers.tolist()})
        failures = {worker: Failure(worker, "invalid", fault) for worker, fault in summed.faults.items()}
        failures |= {worker: Failure(worker, "died", reason) for worker, reason in summed.lost.items()}
        return replace(replies.without(failures), add_up=None, curvature_sum=summed.packed)


def has_blown_up(task: object) -> bool:
    """Whether a task asks about a model beyond all bounds."""
    return isinstance(task, ModelTask) and not bool(np.all(np.abs(task.w) <= HUGE))


def packed_fault(packed: Array, penalties: Array, *, excused: bool, blown_up: bool) -> str | None:
    """What is wrong with a packed Hessian, here or where it is added up on the way."""
    if not excused and not np.isfinite(packed).all():
        return "its Hessian is not finite"
    return None if blown_up else hessian_fault(packed, penalties)


def hessian_fault(packed: Array, penalties: Array, rounding: float = CURVATURE_ROUNDING) -> str | None:
    """Whether H - diag(penalties) has a negative direction, as far as it is looked for."""
    d = penalties.size
    if not np.isfinite(packed).all():
        return None  # with a loss that overflows, at a wild model: the loss shows it
    slack = rounding * max(float(np.abs(packed).max(initial=0.0)), np.finfo(float).tiny)
    if d <= PACKED_LIMIT and _is_definite(packed, d, slack - penalties):
        return None  # H - diag(penalties) + slack I is definite: none of what follows can be wrong
    hessian = unpack(packed, d)
    diagonal = hessian.diagonal() - penalties
    if (diagonal < -slack).any():
        return f"its Hessian is indefinite: entry {int(diagonal.argmin())} of the diagonal is below the penalty"
    width = np.sqrt(np.maximum(diagonal, 0.0) + slack)
    hessian[np.diag_indices(d)] = 0.0
    if (np.abs(hessian) > np.outer(width, width) + slack).any():
        return "its Hessian is indefinite: an entry off the diagonal is larger than the diagonal allows"
    if d <= CHOLESKY_LIMIT:
        hessian[np.diag_indices(d)] = diagonal + slack * d
        try:
            np.linalg.cholesky(hessian)
        except np.linalg.LinAlgError:
            return "its Hessian is indefinite"
    return None


def _is_definite(packed: Array, d: int, shift: Array) -> bool:
    """Whether H + diag(shift) has a Cholesky factor; its upper rows are the lower columns LAPACK takes, packed."""
    shifted = packed.copy()
    shifted[np.cumsum(np.arange(d + 1, 1, -1)) - (d + 1)] += shift
    return int(dpptrf(d, shifted, lower=1, overwrite_ap=1)[1]) == 0


def _sums_are_finite(replies: Replies) -> bool:
    """Whether the sums are finite: then all of it is. Where one is not, finite numbers may have overflowed."""
    with np.errstate(over="ignore", invalid="ignore"):
        if not math.isfinite(replies.losses.sum()):
            return False
        if replies.gradients is not None and not math.isfinite(replies.gradients.sum()):
            return False
        return all(math.isfinite(values.sum()) for values in replies.values.values())


def _without_lone_infinities(replies: Replies) -> Replies:
    infinite = replies.workers[np.isinf(replies.losses)].tolist()
    if 2 * len(infinite) >= len(replies.workers):
        return replies
    fault = "its loss is infinite and most others' is not"
    return replies.without({worker: Failure(worker, "invalid", fault) for worker in infinite})


def _clipped(replies: Replies, clip: float, regions: Regions) -> Replies:
    """Scale down gradients far above the median; workers that sent none are left out of it."""
    if replies.gradients is None:
        return replies
    counted = np.ones(replies.gradients.shape, dtype=bool)
    if replies.masks is not None:
        counted = replies.masks[np.searchsorted(replies.workers, replies.senders)][:, regions.of_feature]
    numbers = counted.sum(axis=1)
    squares = np.square(np.where(counted, replies.gradients, 0.0)).sum(axis=1)
    sizes = np.sqrt(squares / np.maximum(numbers, 1))
    if np.count_nonzero(numbers) < 3:
        return replies  # of two, nobody can say which is the odd one
    limit = clip * float(np.median(sizes[numbers > 0]))
    shares = np.where(sizes > limit, limit / np.where(sizes > 0, sizes, 1.0), 1.0)
    return replace(replies, gradients=shares[:, None] * replies.gradients)
