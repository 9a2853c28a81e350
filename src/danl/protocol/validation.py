"""The border: what a reply must be before it may touch the server's state.

A worker may be broken or hostile. Each reply is held against the task it answers:

    kind        the reply the task asks for, from the worker that was asked
    shape       float64 vectors of the length the task and the mask determine; d (d + 1) / 2 numbers for a Hessian
    mask        the mask that was planned, or Q booleans where the worker chooses
    finite      gradients, Hessians, models and constants; a loss may be +inf only where the loss can overflow
    curvature   H_i without its penalty has no negative direction: diagonal, 2 x 2 minors, and up to CHOLESKY_LIMIT
                coefficients a Cholesky factorisation; what is asked of parts of it is in `danl.protocol.hessian_checks`

The wire carries half of a symmetric matrix, so an asymmetric Hessian cannot be sent. A worker that breaks a rule is
quarantined: named, not asked again, and the run goes on as if it had left. A reply for another exchange is only
dropped: it may be late, and honest.

A worker that lies plausibly is not found here. `Guards` limits what one worker can do.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg.lapack import dpptrf

from danl.checks import check_number
from danl.objective.regions import Regions
from danl.policies.measures import with_a_region
from danl.protocol.batches import Stacked, Tasks
from danl.protocol.hessian_checks import numbers_fault
from danl.protocol.messages import (
    Array,
    CurvatureReply,
    CurvatureTask,
    Exchange,
    Failure,
    GradientReply,
    GradientTask,
    HessianReply,
    HessianTask,
    LocalStepsTask,
    LossReply,
    LossTask,
    Mask,
    ModelReply,
    ModelTask,
    MomentsReply,
    MomentsTask,
    Replies,
    Reply,
    ScoresReply,
    ScoresTask,
    SmoothnessReply,
    SmoothnessTask,
    Task,
    packed_size,
    unpack,
)

ANSWERS: Mapping[type, type] = {
    HessianTask: HessianReply,
    CurvatureTask: CurvatureReply,
    GradientTask: GradientReply,
    LossTask: LossReply,
    LocalStepsTask: ModelReply,
    ScoresTask: ScoresReply,
    SmoothnessTask: SmoothnessReply,
    MomentsTask: MomentsReply,
}
CHOLESKY_LIMIT = 1000
"""Coefficients up to which every worker's Hessian is factorised to see that it is definite (d^3 / 3 each)."""
PACKED_LIMIT = 500
"""Coefficients up to which a factorisation in packed form is the faster way to see that all is well."""
CURVATURE_ROUNDING = 1e-8
"""How far below zero curvature may be, as a share of the Hessian's largest entry: rounding, and float32 on the way."""
HUGE = 1e150
"""A model with an entry above this has blown up: what workers then say is not held against them."""


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


NO_GUARDS = Guards()


@dataclass(frozen=True)
class Border:
    """What replies of a run are held against."""

    regions: Regions
    penalties: Array  # (N,): the penalty of every worker
    penalised: Mask  # (d,): on which coefficients it is
    overflows: bool  # whether the loss can be +inf at a finite model (Poisson)
    guards: Guards = NO_GUARDS

    @property
    def n_features(self) -> int:
        return self.regions.n_features

    @property
    def columns(self) -> tuple[int, int]:
        """The columns of the data and the outputs of the loss, where there are intercepts: those have no penalty."""
        outputs = max(int(np.count_nonzero(~self.penalised)), 1)
        return int(np.count_nonzero(self.penalised)) // outputs, outputs

    def admit(self, exchange: Exchange, replies: Replies, weights: Array) -> Replies:
        """The replies that may pass; the others are failures (`invalid`) or, where they are of another round, dropped.

        A reply nobody asked for is dropped, too. Hessians that are added up on their way are added up for the workers
        that pass, with their `weights`.
        """
        if self._admissible(exchange.tasks, replies.received):
            return replies if replies.add_up is None else self._added_up(replies, weights)
        received: dict[int, Reply] = {}
        failures = dict(replies.failures)
        dropped = replies.dropped
        for worker, reply in replies.received.items():
            task = exchange.tasks.get(worker)
            number = getattr(reply, "exchange", None)
            if task is None or (isinstance(number, int) and number != task.exchange):
                dropped += 1
                if task is not None:
                    failures[worker] = Failure(worker, "timeout", "its reply was for another exchange and was dropped")
                continue
            fault = self.fault(worker, task, reply)
            if fault is None:
                received[worker] = reply
            else:
                failures[worker] = Failure(worker, "invalid", fault)
        admitted = self._guarded(replace(replies, received=received, failures=failures, dropped=dropped))
        return admitted if admitted.add_up is None else self._added_up(admitted, weights)

    def _admissible(self, tasks: Mapping[int, Task], received: Mapping[int, Reply]) -> bool:
        """Whether nothing is wrong with stacked replies, seen at a glance; if not, each is looked at by itself."""
        if not (isinstance(tasks, Tasks) and isinstance(received, Stacked)) or self.guards != NO_GUARDS:
            return False
        asked = ANSWERS[type(tasks.task)]
        n, d = len(received), self.n_features
        kinds = (asked, LossReply) if tasks.idle is not None else (asked,)
        return (
            received.kind in kinds
            and received.exchange == tasks.task.exchange
            and received.idle == (tasks.idle is not None)
            and self._same_masks(tasks, received)
            and received.losses.shape == (n,)
            and (received.numbers is None) == (asked is LossReply)
            and (received.numbers is None or received.numbers.shape == (self._rows_told(received), d))
            and _sum_to_numbers(received.losses, received.numbers)
        )

    def _rows_told(self, received: Stacked) -> int:
        """How many gradients there must be; -1 where they are said to be of others than those with a region."""
        if received.holders is None:
            return len(self.penalties)
        busy = received.workers
        if received.idle and received.masks is not None:
            busy = busy[with_a_region(received.masks)]
        return len(busy) if np.array_equal(received.holders, busy) else -1

    def _same_masks(self, tasks: Tasks, received: Stacked) -> bool:
        """Whether they answer for workers that were asked, and for the masks that were planned."""
        if received.workers is tasks.workers and received.masks is tasks.masks:
            return not getattr(tasks.task, "choose", False) or received.masks is not None
        if not (np.diff(received.workers) > 0).all():
            return False
        rows = np.minimum(np.searchsorted(tasks.workers, received.workers), len(tasks) - 1)
        if len(received) and not np.array_equal(tasks.workers[rows], received.workers):
            return False
        if isinstance(tasks.task, GradientTask) and tasks.task.choose:
            return received.masks is not None and received.masks.shape == (len(received), self.regions.n_regions)
        if tasks.masks is None or received.masks is None:
            return received.masks is tasks.masks
        return received.masks is tasks.masks or np.array_equal(received.masks, tasks.masks[rows])

    def _added_up(self, replies: Replies, weights: Array) -> Replies:
        """Have the Hessians of admitted workers added up; those found faulty on the way are failures."""
        assert replies.add_up is not None
        if isinstance(replies.received, Stacked):
            who = replies.received.workers.tolist()
        else:
            who = sorted(worker for worker, reply in replies.received.items() if isinstance(reply, HessianReply))
        if not who:
            return replace(replies, add_up=None)
        total = replies.add_up({worker: float(weights[worker]) for worker in who})
        failures = {worker: Failure(worker, "invalid", fault) for worker, fault in total.faults.items()}
        failures |= {worker: Failure(worker, "died", reason) for worker, reason in total.lost.items()}
        received: Mapping[int, Reply] = replies.received
        if failures:
            received = {worker: reply for worker, reply in received.items() if worker not in failures}
        return replace(
            replies, received=received, failures={**replies.failures, **failures}, add_up=None, hessian=total
        )

    def fault(self, worker: int, task: Task, reply: object) -> str | None:
        """What is wrong with a reply, in a few words; None where nothing is."""
        expected = ANSWERS[type(task)]
        if type(reply) is not expected:
            return f"answered with {type(reply).__name__} where {expected.__name__} was asked for"
        for name, value in (("worker", worker), ("exchange", task.exchange)):
            told = getattr(reply, name, None)
            if not isinstance(told, int) or told != value:
                return f"answered in the name of {name} {str(told)[:20]!r}"
        try:
            return self._fault(worker, task, reply)
        except (TypeError, ValueError, AttributeError, IndexError) as error:  # a field of a type nobody thought of
            return f"its {type(reply).__name__} cannot be read ({type(error).__name__})"

    def _fault(self, worker: int, task: Task, reply: object) -> str | None:
        blown_up = isinstance(task, ModelTask) and not np.all(np.abs(task.w) <= HUGE)
        d = self.n_features
        match reply:
            case SmoothnessReply(smoothness=constant, squares=squares):
                if not (_is_float(constant) and constant > 0):
                    return f"its smoothness is {constant!r}"
                return _vector_fault("mean squares", squares, d, False)
            case GradientReply(mask=mask, fragment=fragment):
                assert isinstance(task, GradientTask)
                fault = self._mask_fault(task, mask)
                size = d if mask is None or fault else int(self.regions.coordinates(mask).size)
                vectors = {"gradient": (fragment, size)}
            case HessianReply(gradient=gradient) | CurvatureReply(gradient=gradient):
                fault, vectors = None, {"gradient": (gradient, d)}
            case ScoresReply(packed_scores=packed):
                return packed_fault(packed, np.zeros(d), excused=blown_up, blown_up=blown_up)
            case MomentsReply(means=means, variances=variances, targets=targets):
                n, outputs = self.columns
                fault = None
                vectors = {"means": (means, n), "variances": (variances, n), "targets": (targets, outputs)}
            case ModelReply(w=w):
                fault, vectors = None, {"model": (w, d)}
            case _:
                fault, vectors = None, {}
        loss = getattr(reply, "loss", 0.0)
        fault = fault or self._loss_fault(loss, blown_up)
        excused = blown_up or (self.overflows and loss == np.inf)
        for name, (vector, length) in vectors.items():
            fault = fault or _vector_fault(name, vector, length, excused)
        if fault is None and isinstance(reply, HessianReply) and reply.packed_hessian is not None:
            # None: it was added up, and looked at, on the way
            penalties = self.penalties[worker] * self.penalised
            fault = packed_fault(reply.packed_hessian, penalties, excused=excused, blown_up=blown_up)
        if fault is None and isinstance(reply, CurvatureReply) and isinstance(task, CurvatureTask):
            penalties, look = self.penalties[worker] * self.penalised, {"excused": excused, "blown_up": blown_up}
            fault = numbers_fault(task, reply.numbers, penalties, self.regions, hessian_fault, **look)
        return fault

    def _mask_fault(self, task: GradientTask, mask: object) -> str | None:
        if task.choose:
            legal = isinstance(mask, np.ndarray) and mask.dtype == np.bool_ and mask.shape == (self.regions.n_regions,)
            return None if legal else f"its mask is not {self.regions.n_regions} booleans"
        same = mask is None if task.mask is None else isinstance(mask, np.ndarray) and np.array_equal(mask, task.mask)
        return None if same else "it answered for another mask than the one planned"

    def _loss_fault(self, loss: object, blown_up: bool) -> str | None:
        if not isinstance(loss, float | np.floating):
            return f"its loss is {type(loss).__name__}, not a number"
        if np.isfinite(loss) or blown_up or (self.overflows and loss == np.inf):
            return None
        return f"its loss is {float(loss)}"

    def _guarded(self, replies: Replies) -> Replies:
        """The optional limits."""
        if self.guards.drop_infinite and self.overflows:
            replies = _without_lone_infinities(replies)
        if self.guards.clip is not None:
            replies = _clipped(replies, self.guards.clip)
        return replies


def packed_fault(packed: object, penalties: Array, *, excused: bool, blown_up: bool) -> str | None:
    """What is wrong with a packed Hessian, here or where it is added up on the way."""
    fault = _vector_fault("Hessian", packed, packed_size(penalties.size), excused)
    if fault is None and not blown_up:
        assert isinstance(packed, np.ndarray)
        fault = hessian_fault(packed, penalties)
    return fault


def hessian_fault(packed: Array, penalties: Array, rounding: float = CURVATURE_ROUNDING) -> str | None:
    """Whether H - diag(penalties) has a negative direction, as far as it is looked for."""
    d = penalties.size
    if not np.isfinite(packed).all():
        return None  # with a loss that overflows, at a wild model: the loss tells
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


def _sum_to_numbers(*arrays: Array | None) -> bool:
    """Whether the sums are finite: then all of it is. Where one is not, finite numbers may have overflowed."""
    with np.errstate(over="ignore", invalid="ignore"):
        return all(array is None or math.isfinite(array.sum()) for array in arrays)


def _vector_fault(name: str, vector: object, length: int, excused: bool) -> str | None:
    if not isinstance(vector, np.ndarray) or vector.dtype != np.float64:
        kind = vector.dtype if isinstance(vector, np.ndarray) else type(vector).__name__
        return f"its {name} is {kind}, not an array of float64"
    if vector.shape != (length,):
        return f"its {name} has shape {vector.shape}, not ({length},)"
    if not excused and not np.isfinite(vector).all():
        return f"its {name} is not finite"
    return None


def _is_float(value: object) -> bool:
    return isinstance(value, float | np.floating) and not np.isnan(value)


def _without_lone_infinities(replies: Replies) -> Replies:
    losses = {worker: getattr(reply, "loss", 0.0) for worker, reply in replies.received.items()}
    infinite = {worker for worker, loss in losses.items() if np.isinf(loss)}
    if not infinite or 2 * len(infinite) >= len(losses):
        return replies
    failures = {
        worker: Failure(worker, "invalid", "its loss is infinite and most others' is not") for worker in infinite
    }
    received = {worker: reply for worker, reply in replies.received.items() if worker not in infinite}
    return replace(replies, received=received, failures={**replies.failures, **failures})


def _clipped(replies: Replies, clip: float) -> Replies:
    """Scale down gradients far above the median; workers that sent none are left out of it."""
    sizes = {worker: _mean_square(_gradient_of(reply)) for worker, reply in replies.received.items()}
    known = {worker: size for worker, size in sizes.items() if size is not None}
    if len(known) < 3:
        return replies  # of two, nobody can say which is the odd one
    limit = clip * float(np.median(list(known.values())))
    received = dict(replies.received)
    for worker, size in known.items():
        if size > limit:
            received[worker] = _scaled(received[worker], limit / size)
    return replace(replies, received=received)


def _gradient_of(reply: Reply) -> Array | None:
    match reply:
        case GradientReply(fragment=gradient) | HessianReply(gradient=gradient) | CurvatureReply(gradient=gradient):
            return gradient
    return None


def _scaled(reply: Reply, share: float) -> Reply:
    match reply:
        case GradientReply(fragment=fragment):
            return replace(reply, fragment=share * fragment)
        case HessianReply(gradient=gradient) | CurvatureReply(gradient=gradient):
            return replace(reply, gradient=share * gradient)
    return reply


def _mean_square(gradient: Array | None) -> float | None:
    return None if gradient is None or not gradient.size else float(np.sqrt(np.mean(np.square(gradient))))
