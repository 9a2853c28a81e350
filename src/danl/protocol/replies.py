"""The replies to an exchange in one form: arrays, row by row, with who sent them.

An engine that evaluates its workers together makes `Replies` directly. An engine that carries messages has
`ReplyForm.stack` make them: each message is held against the task it answers, and what is not of its form (another
kind, another shape, another mask, somebody else's name) is a `Failure`. The numbers themselves are looked at by
`danl.protocol.validation`.

Bytes are counted here, too (`bytes_down`, `bytes_up`): 8 for every float64, 4 for a float32, the half of a symmetric
Hessian with its diagonal, one bit per region for a mask (rounded up to a byte). The number of the exchange, the
worker's number, the number a sketch is drawn from and whatever framing an engine adds are not counted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from danl.objective.layout import Layout
from danl.objective.regions import IntArray, Regions
from danl.protocol.hessian_form import HessianForm
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
    MomentsReply,
    MomentsTask,
    ScoresReply,
    ScoresTask,
    SmoothnessReply,
    SmoothnessTask,
    Task,
    packed_size,
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
"""The reply that each task asks for."""
EVERYONE: IntArray = np.zeros(0, dtype=np.int64)
"""Stands for all that answered."""


@dataclass(frozen=True)
class HessianSum:
    """sum_i weight_i Hess F_i over some workers, packed or whole; and why the Hessians of others were left out.

    `faults` says what was wrong with a Hessian, `lost` why it never came: a machine that died on the way.
    """

    packed: Array
    faults: Mapping[int, str] = field(default_factory=dict)
    lost: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Replies:
    """What came back: the replies as arrays, and a typed failure for every worker that did not answer.

    Parameters
    ----------
    workers : int array, (n,)
        Who answered; in increasing order.
    losses : float array, (n,)
        Their losses; nan where the task asks for none.
    gradients : float array, (k, d), optional
        The gradients of `senders`. What a mask leaves out of a row is there and does not count.
    senders : int array, (k,)
        Whose gradients these are, in increasing order. Default: all that answered.
    masks : bool array, (n, Q), optional
        The regions that count. Default: all.
    values : mapping of name to array, (n, ...)
        Other fields of the replies: the models of local steps, smoothness constants, moments.
    curvatures : mapping of worker to array
        Packed Hessians, parts of them or sums of scores, as each worker sent its own.
    add_up : callable, optional
        Where an engine adds Hessians up on their way, so that nobody holds N of them: takes the weights of the workers
        whose replies are valid and returns the sum.
    curvature_sum : float array, optional
        sum_i weight_i curvature_i over those that answered, once the replies are validated.
    failures : mapping of worker to Failure
        Who did not answer, and why.
    dropped : int
        Replies that came late, twice, for another exchange or from nobody that was asked.
    from_messages : bool
        Whether each came as a message of its own: these are added up one by one, in the order of the workers, so that
        all engines that carry messages give the same bits.

    """

    workers: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    losses: Array = field(default_factory=lambda: np.zeros(0))
    gradients: Array | None = None
    senders: IntArray = field(default_factory=lambda: EVERYONE)
    masks: Mask | None = None
    values: Mapping[str, Array] = field(default_factory=dict)
    curvatures: Mapping[int, Any] = field(default_factory=dict)
    add_up: Callable[[Mapping[int, float]], HessianSum] | None = None
    curvature_sum: Array | None = None
    failures: Mapping[int, Failure] = field(default_factory=dict)
    dropped: int = 0
    from_messages: bool = False

    def __post_init__(self) -> None:
        if self.senders is EVERYONE:
            object.__setattr__(self, "senders", self.workers)

    @property
    def absent(self) -> Mapping[int, Failure]:
        """Failures that count as absences: not those of workers that the engine expects back and still waits for."""
        return {worker: failure for worker, failure in self.failures.items() if failure.kind != "restarting"}

    def losses_of_all(self, n_workers: int) -> Array:
        """The losses by worker, (N,): nan where none came; a nan of the worker's counts as infinite."""
        losses = np.full(n_workers, np.nan)
        losses[self.workers] = np.where(np.isnan(self.losses), np.inf, self.losses)
        return losses

    def trained(self, n_workers: int, n_regions: int) -> Mask:
        """Which (worker, region) pairs sent something to learn from, (N, Q)."""
        learnt = self.gradients is not None or "w" in self.values
        if learnt and self.masks is not None and len(self.workers) == n_workers:
            return self.masks
        pairs = np.zeros((n_workers, n_regions), dtype=bool)
        if learnt:
            pairs[self.workers] = True if self.masks is None else self.masks
        return pairs

    def without(self, failures: Mapping[int, Failure]) -> Replies:
        """The same with the rows of some workers replaced by failures."""
        if not failures:
            return self
        gone = np.fromiter(failures, dtype=np.int64)
        kept, sent = ~np.isin(self.workers, gone), ~np.isin(self.senders, gone)
        return replace(
            self,
            workers=self.workers[kept],
            losses=self.losses[kept],
            gradients=None if self.gradients is None else self.gradients[sent],
            senders=self.senders[sent],
            masks=None if self.masks is None else self.masks[kept],
            values={name: value[kept] for name, value in self.values.items()},
            curvatures={worker: each for worker, each in self.curvatures.items() if worker not in failures},
            failures={**self.failures, **failures},
        )


def bytes_down(exchange: Exchange) -> IntArray:
    """Bytes of the task of every worker that is asked, (n,)."""
    each = np.full(len(exchange.workers), task_bytes(exchange.task))
    if exchange.masks is None:
        return each
    each += -(-exchange.masks.shape[1] // 8)
    return each if exchange.idle is None else np.where(_busy(exchange.masks), each, task_bytes(exchange.idle))


def task_bytes(task: Task) -> int:
    """Bytes of a task: its model, and its mask if it has one of its own."""
    w, mask = getattr(task, "w", None), getattr(task, "mask", None)
    return (0 if w is None else int(w.nbytes)) + (0 if mask is None else -(-mask.size // 8))


def bytes_up(exchange: Exchange, replies: Replies, regions: Regions) -> IntArray:
    """Bytes of every reply, (n,)."""
    n, d = len(replies.workers), len(regions.of_feature)
    match exchange.task:
        case GradientTask():
            if replies.masks is None:
                return np.full(n, 8 * (d + 1))
            with_mask = True if exchange.idle is None else _busy(replies.masks)  # without a region the loss alone
            return np.asarray(8 * (replies.masks @ regions.sizes) + 8 + -(-len(regions.sizes) // 8) * with_mask)
        case HessianTask():
            return np.full(n, 8 * (packed_size(d) + d + 1))
        case CurvatureTask() as task:
            return np.full(n, HessianForm.of(task).numbers(regions) * np.dtype(task.dtype).itemsize + 8 * (d + 1))
        case ScoresTask():
            return np.full(n, 8 * packed_size(d))
        case MomentsTask():
            return np.full(n, 8 * sum(value[0].size for value in replies.values.values() if n))
        case LossTask():
            return np.full(n, 8)
        case _:  # a model and a loss, or mean squares and a constant
            return np.full(n, 8 * (d + 1))


def _busy(masks: Mask) -> Mask:
    """Who trains at all, (n,)."""
    return np.asarray(masks.T.copy().any(axis=0))  # a tenth of the time along the other axis


@dataclass(frozen=True)
class ReplyForm:
    """The form replies of a run must have: the regions of its model, and where its coefficients are."""

    regions: Regions
    layout: Layout

    def stack(
        self,
        exchange: Exchange,
        messages: Mapping[int, Any],
        failures: Mapping[int, Failure] | None = None,
        dropped: int = 0,
    ) -> Replies:
        """Make arrays of the messages that are of the right form.

        The others are failures ("invalid"). A reply that nobody asked for, or that is for another exchange, is dropped:
        it may be late, and honest.
        """
        tasks, received, failed = exchange.tasks(), dict[int, Any](), dict(failures or {})
        for worker in sorted(messages):
            task, reply = tasks.get(worker), messages[worker]
            number = getattr(reply, "exchange", None)
            if task is None or (isinstance(number, int) and number != task.exchange):
                dropped += 1
                if task is not None:
                    failed[worker] = Failure(worker, "timeout", "its reply was for another exchange and was dropped")
                continue
            fault = self.fault(worker, task, reply)
            if fault is None:
                received[worker] = reply
            else:
                failed[worker] = Failure(worker, "invalid", fault)
        return replace(self._stacked(exchange, received), failures=failed, dropped=dropped, from_messages=True)

    def _stacked(self, exchange: Exchange, received: Mapping[int, Any]) -> Replies:
        workers = np.array(list(received), dtype=np.int64)
        replies = list(received.values())
        rows = Replies(workers, np.array([getattr(reply, "loss", np.nan) for reply in replies], dtype=float))
        if not replies:
            return rows

        def column(name: str) -> Array:
            return np.array([getattr(reply, name) for reply in replies])

        match exchange.task:
            case GradientTask() as task:
                masked = exchange.masks is not None or task.choose or task.mask is not None
                return self._gradients(rows, received, masked)
            case HessianTask():
                packed = {worker: reply.packed_hessian for worker, reply in received.items()}
                own = {worker: each for worker, each in packed.items() if each is not None}  # None: added up on the way
                return replace(rows, gradients=column("gradient"), curvatures=own)
            case CurvatureTask():
                own = {worker: reply.numbers for worker, reply in received.items()}
                return replace(rows, gradients=column("gradient"), curvatures=own)
            case ScoresTask():
                return replace(rows, curvatures={worker: reply.packed_scores for worker, reply in received.items()})
            case LocalStepsTask():
                return replace(rows, values={"w": column("w")})
            case SmoothnessTask():
                return replace(rows, values={name: column(name) for name in ("smoothness", "squares")})
            case MomentsTask():
                return replace(rows, values={name: column(name) for name in ("means", "variances", "targets")})
            case LossTask():
                return rows

    def _gradients(self, rows: Replies, received: Mapping[int, Any], masked: bool) -> Replies:
        sent = {worker: reply for worker, reply in received.items() if isinstance(reply, GradientReply)}
        senders = np.array(list(sent), dtype=np.int64)
        gradients = np.zeros((len(sent), self.regions.n_features))
        masks = np.zeros((len(received), self.regions.n_regions), dtype=bool)
        for row, reply in enumerate(sent.values()):
            gradients[row, slice(None) if reply.mask is None else self.regions.coordinates(reply.mask)] = reply.fragment
        if masked:
            masks[np.searchsorted(rows.workers, senders)] = [reply.mask for reply in sent.values()] or False
        return replace(rows, gradients=gradients, senders=senders, masks=masks if masked else None)

    def fault(self, worker: int, task: Task, reply: object) -> str | None:
        """What is wrong with the form of a reply, in a few words; None where nothing is."""
        expected = ANSWERS[type(task)]
        if type(reply) is not expected:
            return f"answered with {type(reply).__name__} where {expected.__name__} was asked for"
        for name, value in (("worker", worker), ("exchange", task.exchange)):
            stated = getattr(reply, name, None)
            if not isinstance(stated, int) or stated != value:
                return f"answered in the name of {name} {str(stated)[:20]!r}"
        try:
            return self._fault(task, reply)
        except (TypeError, ValueError, AttributeError, IndexError) as error:  # a field of a type nobody thought of
            return f"its {type(reply).__name__} cannot be read ({type(error).__name__})"

    def _fault(self, task: Task, reply: Any) -> str | None:
        d, layout, fault = self.regions.n_features, self.layout, None
        vectors: dict[str, tuple[object, int]] = {}
        match reply:
            case GradientReply(mask=mask, fragment=fragment):
                assert isinstance(task, GradientTask)
                fault = self._mask_fault(task, mask)
                vectors["gradient"] = fragment, d if mask is None or fault else self.regions.coordinates(mask).size
            case HessianReply(gradient=gradient, packed_hessian=packed):
                vectors["gradient"] = gradient, d
                if packed is not None:  # None: it was added up, and looked at, on the way
                    vectors["Hessian"] = packed, packed_size(d)
            case CurvatureReply(gradient=gradient):
                vectors["gradient"] = gradient, d
            case ScoresReply(packed_scores=packed):
                vectors["Hessian"] = packed, packed_size(d)
            case MomentsReply(means=means, variances=variances, targets=targets):
                n, outputs = layout.n_features, layout.n_outputs
                vectors = {"means": (means, n), "variances": (variances, n), "targets": (targets, outputs)}
            case ModelReply(w=w):
                vectors["model"] = w, d
            case SmoothnessReply(smoothness=constant, squares=squares):
                if not (isinstance(constant, float | np.floating) and not np.isnan(constant) and constant > 0):
                    return f"its smoothness is {constant!r}"
                vectors["mean squares"] = squares, d
        loss = getattr(reply, "loss", 0.0)
        if fault is None and not isinstance(loss, float | np.floating):
            return f"its loss is {type(loss).__name__}, not a number"
        for name, (vector, length) in vectors.items():
            fault = fault or vector_fault(name, vector, length)
        if fault is None and isinstance(task, CurvatureTask):
            fault = vector_fault("curvature", reply.numbers, HessianForm.of(task).numbers(self.regions), task.dtype)
        return fault

    def _mask_fault(self, task: GradientTask, mask: object) -> str | None:
        if task.choose:
            legal = isinstance(mask, np.ndarray) and mask.dtype == np.bool_ and mask.shape == (self.regions.n_regions,)
            return None if legal else f"its mask is not {self.regions.n_regions} booleans"
        same = mask is None if task.mask is None else isinstance(mask, np.ndarray) and np.array_equal(mask, task.mask)
        return None if same else "it answered for another mask than the one planned"


def vector_fault(name: str, vector: object, length: int, dtype: str = "float64") -> str | None:
    """What is wrong with the form of an array; None where nothing is."""
    if not isinstance(vector, np.ndarray) or vector.dtype != np.dtype(dtype):
        kind = vector.dtype if isinstance(vector, np.ndarray) else type(vector).__name__
        return f"its {name} is {kind}, not an array of {dtype}"
    return None if vector.shape == (length,) else f"its {name} has shape {vector.shape}, not ({length},)"
