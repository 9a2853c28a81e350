"""The replies to an exchange in one form, and what their numbers must be.

Replies are arrays, row by row, with who sent them. An engine that evaluates its workers together makes `Replies`
directly; for one that carries messages `danl.protocol.reply_form` makes them.

A worker may be broken or hostile. Before its numbers may touch the server's state (`ReplyRules.validate_replies`)

    finite      gradients, Hessians, models and moments must be; a loss may be +inf only where the loss can overflow
    curvature   has no negative direction (`danl.protocol.hessian_checks`)

A worker that breaks a rule is quarantined: named, not asked again, and the run goes on as if it had left. A worker that
lies plausibly is not found here. `danl.protocol.guards` limits what one worker can do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from danl.errors import InputError
from danl.frozen import at_once, replace
from danl.objective.problem import BaseProblem
from danl.objective.regions import IntArray, Regions, as_items
from danl.protocol.compressed_hessians import restored
from danl.protocol.compressors import Compressed
from danl.protocol.guards import NO_GUARDS, Guards, clipped, without_lone_infinities
from danl.protocol.hessian_checks import compressed_fault, numbers_fault, packed_fault
from danl.protocol.hessian_form import pieces_of
from danl.protocol.messages import (
    Array,
    CurvatureTask,
    Exchange,
    Failure,
    HessianTask,
    Mask,
    ModelTask,
    ScoresTask,
)
from danl.protocol.own_tasks import OwnTask, array_fields, number_fields

HUGE = 1e150
"""A model with an entry above this has blown up: what workers then say is not held against them."""
NEARLY_INFINITE = 1e200
"""From this loss on gradients and curvature may be infinite where the loss itself is not: entries of rows are large."""
HUGE_LOSS = 1e15
"""With a loss that can overflow: from here on curvature may do so in float32."""
NAMES = {
    "fragment": "gradient",
    "packed_hessian": "Hessian",
    "packed_scores": "Hessian",
    "numbers": "curvature",
    "w": "model",
    "squares": "mean squares",
}
"""What a fault calls a field, where that is not the field's name."""
MANY_WORKERS = 1000
"""Workers from which on a mask is copied as one item."""
EVERYONE: IntArray = np.zeros(0, dtype=np.int64)
"""Stands for all that answered."""
NOBODY: IntArray = np.zeros(0, dtype=np.int64)


@at_once
@dataclass(frozen=True)
class HessianSum:
    """sum_i weight_i Hess F_i over some workers, packed or whole; and why the Hessians of others were left out.

    `faults` says what was wrong with a Hessian, `lost` why it never came: a machine that died on the way.
    """

    packed: Array
    faults: Mapping[int, str] = field(default_factory=dict)
    lost: Mapping[int, str] = field(default_factory=dict)


@at_once
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
    curvatures : mapping of worker to array or Compressed
        Packed Hessians, parts of them, pieces, compressed ones or sums of scores, as each worker sent its own.
    curvature_senders : int array, (m,)
        Who sent curvature, in increasing order. Default: those of `curvatures`, or with `add_up` all that answered.
    add_up : callable, optional
        Where an engine adds Hessians up on their way, so that nobody holds N of them: takes the weights of the senders
        whose replies are valid and returns the sum.
    curvature_sum : float array, optional
        sum_i weight_i curvature_i over those that sent it, once the replies are validated; none where some were asked
        for a part of its numbers.
    messages : mapping of worker to Reply
        The replies as they came, to a task that brings its own work (`danl.protocol.own_tasks`).
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
    curvature_senders: IntArray = field(default_factory=lambda: EVERYONE)
    add_up: Callable[[Mapping[int, float]], HessianSum] | None = None
    curvature_sum: Array | None = None
    messages: Mapping[int, Any] = field(default_factory=dict)
    failures: Mapping[int, Failure] = field(default_factory=dict)
    dropped: int = 0
    from_messages: bool = False

    fills_in_defaults: ClassVar[bool] = True  # and nothing else: a copy has them (`danl.frozen`)

    def __post_init__(self) -> None:
        if self.senders is EVERYONE:
            object.__setattr__(self, "senders", self.workers)
        if self.curvature_senders is EVERYONE:
            sent = self.workers if self.add_up is not None else NOBODY
            if sent is NOBODY and self.curvatures:
                sent = np.array(sorted(self.curvatures), dtype=np.int64)
            object.__setattr__(self, "curvature_senders", sent)

    @property
    def absent(self) -> Mapping[int, Failure]:
        """Failures that count as absences: not those of workers that the engine expects back and still waits for."""
        return {worker: failure for worker, failure in self.failures.items() if failure.kind != "restarting"}

    def losses_of_all(self, n_workers: int) -> Array:
        """The losses by worker, (N,): nan where none came; a nan of the worker's counts as infinite."""
        if len(self.workers) == n_workers and math.isfinite(self.losses.dot(self.losses)):
            return self.losses
        losses = np.full(n_workers, np.nan)
        losses[self.workers] = np.where(np.isnan(self.losses), np.inf, self.losses)
        return losses

    @property
    def _learnt(self) -> bool:
        """Whether there is something to learn from."""
        if self.gradients is not None or "w" in self.values:
            return True
        return any(type(message).trains for message in self.messages.values())

    def all_trained(self, n_workers: int) -> bool:
        """Whether everyone sent something to learn from about everything."""
        return self._learnt and self.masks is None and len(self.workers) == n_workers

    def trained(self, n_workers: int, n_regions: int) -> Mask:
        """Which (worker, region) pairs sent something to learn from, (N, Q)."""
        learnt = self._learnt
        if learnt and len(self.workers) == n_workers:
            return np.ones((n_workers, n_regions), dtype=bool) if self.masks is None else self.masks
        pairs = np.zeros((n_workers, n_regions), dtype=bool)
        if learnt and self.masks is not None and n_workers >= MANY_WORKERS:
            as_items(pairs)[self.workers] = as_items(np.ascontiguousarray(self.masks))
        elif learnt:
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
            curvature_senders=self.curvature_senders[~np.isin(self.curvature_senders, gone)],
            messages={worker: each for worker, each in self.messages.items() if worker not in failures},
            failures={**self.failures, **failures},
        )


@dataclass(frozen=True)
class ReplyRules:
    """What the replies of a run are held against."""

    regions: Regions
    penalties: Array  # (N,): the penalty of every worker
    penalised: Mask  # (d,): which coefficients have it
    overflows: bool  # whether the loss can be +inf at a finite model (Poisson)
    guards: Guards = NO_GUARDS

    @classmethod
    def of(cls, problem: BaseProblem, regions: Regions, guards: Guards | None = None) -> ReplyRules:
        """The rules of a problem."""
        overflows = math.isinf(problem.loss.second_bound)
        return cls(regions, problem.penalties, problem.layout.penalised, overflows, guards or NO_GUARDS)

    def penalties_of(self, worker: int) -> Array:
        """The penalty of a worker on every coefficient, (d,)."""
        return np.asarray(self.penalties[worker] * self.penalised)

    def excused(self, loss: float, blown_up: bool, dtype: str = "float64") -> bool:
        """Whether numbers need not be finite: the model has blown up, or the worker's loss has overflowed, or nearly.

        In float32 curvature overflows where the loss is merely huge.
        """
        return blown_up or (self.overflows and loss >= (HUGE_LOSS if dtype == "float32" else NEARLY_INFINITE))

    def validate_replies(self, exchange: Exchange, replies: Replies, weights: Array) -> Replies:
        """The replies that may pass, and the weighted sum of their curvatures; the others are failures ("invalid")."""
        if not replies.from_messages:
            self._check_arrays(exchange, replies)
        blown_up = has_blown_up(exchange.task, exchange.own)
        if not blown_up and not _sums_are_finite(replies, losses=_has_losses(exchange.task)):
            replies = replies.without(self._not_finite(exchange, replies))
        if replies.curvatures or (replies.add_up is None and len(replies.curvature_senders)):
            replies = replies.without(self._bad_curvatures(exchange, replies, blown_up))  # else where they are added up
        if self.guards.drop_infinite and self.overflows:
            replies = without_lone_infinities(replies)
        if self.guards.clip is not None:
            replies = clipped(replies, self.guards.clip, self.regions)
        if replies.add_up is None and not replies.curvatures:
            return replies
        if replies.add_up is None and isinstance(exchange.task, HessianTask | CurvatureTask):
            incomplete = pieces_of(exchange, self.regions)[1]
            if incomplete[np.searchsorted(exchange.workers, replies.curvature_senders)].any():
                return replies
        return self._with_sum(exchange, replies, weights)

    def _check_arrays(self, exchange: Exchange, replies: Replies) -> None:
        """Refuse arrays of an engine's own making that do not fit the exchange: a fault of the engine, not a worker."""
        workers, senders, masks, curved = replies.workers, replies.senders, replies.masks, replies.curvature_senders
        n, d = len(workers), self.regions.n_coefficients
        fault = None
        if workers is not exchange.workers and not _within(workers, exchange.workers):
            fault = "workers must be some of those that were asked, in increasing order"
        elif senders is not workers and not _within(senders, workers):
            fault = "senders must be some of the workers, in increasing order"
        elif curved.size and curved is not workers and not _within(curved, workers):
            fault = "curvature_senders must be some of the workers, in increasing order"
        elif replies.losses.shape != (n,) or any(len(value) != n for value in replies.values.values()):
            fault = f"losses and values must have a row for each of the {n} workers"
        elif replies.gradients is not None and replies.gradients.shape != (len(senders), d):
            fault = f"gradients must have the shape ({len(senders)}, {d})"
        elif masks is not None and masks is not exchange.masks and not self._planned(exchange, workers, masks):
            fault = "masks must be those that were planned, a row for each of the workers"
        if fault is not None:
            raise InputError(f"engine: its replies to exchange {exchange.task.exchange}: {fault}; see ReplyForm.stack")

    def _planned(self, exchange: Exchange, workers: IntArray, masks: Mask) -> bool:
        if exchange.masks is None:  # chosen by the workers
            return masks.shape == (len(workers), self.regions.n_regions)
        return np.array_equal(masks, exchange.masks[np.searchsorted(exchange.workers, workers)])

    def _not_finite(self, exchange: Exchange, replies: Replies) -> dict[int, Failure]:
        """Who sent a number that is none."""
        faults: dict[int, Failure] = {}

        def blame(worker: int, fault: str) -> None:
            faults.setdefault(worker, Failure(worker, "invalid", fault))

        overflowed = self.overflows & (replies.losses >= NEARLY_INFINITE)  # gradients overflow before losses do
        if _has_losses(exchange.task):
            for row in np.flatnonzero(~(np.isfinite(replies.losses) | overflowed)):
                blame(int(replies.workers[row]), f"its loss is {float(replies.losses[row])}")
        excused = set(replies.workers[overflowed].tolist())
        rows = np.searchsorted(replies.workers, replies.senders)
        gradients: Any = [] if replies.gradients is None else replies.gradients
        for worker, row, gradient in zip(replies.senders.tolist(), rows, gradients, strict=False):
            counted = True if replies.masks is None else replies.masks[row][self.regions.of_coefficient]
            if worker not in excused and not np.isfinite(np.where(counted, gradient, 0.0)).all():
                blame(worker, "its gradient is not finite")
        for worker, message in replies.messages.items():
            for name, value in (array_fields(message) | number_fields(message)).items():
                if worker not in excused and not np.isfinite(value).all():
                    blame(worker, f"its {NAMES.get(name, name)} is not finite")
        for name, values in replies.values.items():
            for worker, value in zip(replies.workers.tolist(), values, strict=True):
                if name != "smoothness" and worker not in excused and not np.isfinite(value).all():
                    blame(worker, f"its {NAMES.get(name, name)} is not finite")
        return faults

    def _bad_curvatures(self, exchange: Exchange, replies: Replies, blown_up: bool) -> dict[int, Failure]:
        """Whose Hessian, or part of one, cannot be that of a convex function with a penalty."""
        losses = dict(zip(replies.workers.tolist(), replies.losses.tolist(), strict=True))
        faults, tasks = dict[int, Failure](), exchange.tasks()
        for worker in replies.curvature_senders.tolist():
            numbers = replies.curvatures.get(worker)
            if numbers is None:
                if replies.add_up is None:  # else it is looked at where it is added up
                    faults[worker] = Failure(worker, "invalid", "its Hessian is missing")
                continue
            penalties, task = self.penalties_of(worker), tasks[worker]
            excused = self.excused(losses[worker], blown_up, getattr(task, "dtype", "float64"))
            if isinstance(task, CurvatureTask) and isinstance(numbers, Compressed):
                fault = compressed_fault(task, numbers, penalties, excused=excused, blown_up=blown_up)
            elif isinstance(task, CurvatureTask):
                fault = numbers_fault(task, numbers, penalties, self.regions, excused=excused, blown_up=blown_up)
            else:
                if isinstance(task, ScoresTask):
                    penalties, excused = np.zeros_like(penalties), blown_up
                fault = packed_fault(numbers, penalties, excused=excused, blown_up=blown_up)
            if fault is not None:
                faults[worker] = Failure(worker, "invalid", fault)
        return faults

    def _with_sum(self, exchange: Exchange, replies: Replies, weights: Array) -> Replies:
        """The replies with the sum of their curvatures; who is found faulty on the way is a failure."""
        if replies.add_up is None:
            total: Array | None = None
            for worker, numbers in replies.curvatures.items():  # in the order of their numbers: the same bits always
                if isinstance(numbers, Compressed):
                    assert isinstance(exchange.task, CurvatureTask)
                    numbers = restored(exchange.task, numbers, self.penalties_of(worker))
                with np.errstate(invalid="ignore", over="ignore"):  # at a model that blew up: its loss rejects it
                    term = weights[worker] * numbers.astype(np.float64, copy=False)
                    total = term if total is None else total + term
            return replace(replies, curvature_sum=total)
        if not len(replies.curvature_senders):
            return replace(replies, add_up=None)
        senders = replies.curvature_senders
        summed = replies.add_up(dict(zip(senders.tolist(), weights[senders].tolist(), strict=True)))
        if not summed.faults and not summed.lost:
            return replace(replies, add_up=None, curvature_sum=summed.packed)
        failures = {worker: Failure(worker, "invalid", fault) for worker, fault in summed.faults.items()}
        failures |= {worker: Failure(worker, "died", reason) for worker, reason in summed.lost.items()}
        return replace(replies.without(failures), add_up=None, curvature_sum=summed.packed)


def _within(some: IntArray, all_of_them: IntArray) -> bool:
    """Whether these numbers increase, and each is among the others."""
    at = np.searchsorted(all_of_them, some)
    found = bool((np.diff(some) > 0).all()) and bool((at < len(all_of_them)).all())
    return found and np.array_equal(all_of_them[at], some)


def has_blown_up(task: object, own: Mapping[str, Array] | None = None) -> bool:
    """Whether a task asks about a model beyond all bounds, or one of the models that workers have of their own."""
    if not isinstance(task, ModelTask):
        return False
    models = task.w if own is None else own.get("w", task.w)
    return not bool(np.abs(models).max(initial=0.0) <= HUGE)  # nan is not <=


def _has_losses(task: object) -> bool:
    if isinstance(task, OwnTask):
        return "loss" in task.answer.__dataclass_fields__
    return isinstance(task, ModelTask) and not isinstance(task, ScoresTask)


def _sums_are_finite(replies: Replies, *, losses: bool) -> bool:
    """Whether sums of squares are finite: then all of it is. Else finite numbers may overflow."""
    arrays = [replies.losses] if losses else []
    for message in replies.messages.values():
        arrays += [each.astype(float, copy=False) for each in array_fields(message).values()]
        arrays.append(np.array(list(number_fields(message).values()), dtype=float))
    if replies.gradients is not None:
        arrays.append(replies.gradients)
    with np.errstate(over="ignore", invalid="ignore"):
        for each in (*arrays, *replies.values.values()):
            numbers = each.ravel()
            if not math.isfinite(numbers.dot(numbers)):
                return False
    return True
