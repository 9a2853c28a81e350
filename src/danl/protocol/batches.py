"""Tasks and replies of many workers as arrays: the same mappings from worker to message, without N objects.

A round asks all workers the same thing about the same model and differs in their masks alone; their answers are rows of
one array. `Tasks` and `Stacked` are mappings like any other, so an engine or a method that knows nothing of them works
with them message by message; what handles ten thousand workers looks at the arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property

import numpy as np

from danl.objective.regions import IntArray, Regions
from danl.protocol.messages import (
    Array,
    GradientReply,
    GradientTask,
    HessianReply,
    LossReply,
    Mask,
    Replies,
    Reply,
    Task,
)


class Tasks(Mapping[int, Task]):
    """One task for many workers, each with its own mask where there are masks.

    Parameters
    ----------
    task : Task
        What everyone is asked.
    workers : int array, (n,)
        Whom; in increasing order.
    masks : bool array, (n, Q), optional
        The regions each of them is asked for.
    idle : Task, optional
        What is asked of a worker whose mask is empty; every row of `masks` has a region where it is left out.

    """

    def __init__(self, task: Task, workers: IntArray, masks: Mask | None = None, idle: Task | None = None) -> None:
        self.task, self.workers, self.masks, self.idle = task, workers, masks, idle
        self._made: dict[int, Task] = {}  # a task is the same object whenever it is looked at, as in any mapping

    def __getitem__(self, worker: int) -> Task:
        row = row_of(self.workers, worker)
        if self.masks is None:
            return self.task
        mask = self.masks[row]
        if self.idle is not None and not mask.any():
            return self.idle
        if worker not in self._made:
            assert isinstance(self.task, GradientTask)
            self._made[worker] = replace(self.task, mask=mask)
        return self._made[worker]

    def __iter__(self) -> Iterator[int]:
        return iter(self.workers.tolist())

    def __len__(self) -> int:
        return len(self.workers)

    def without(self, others: Iterable[int]) -> Tasks:
        """The same for fewer workers."""
        left_out = np.fromiter(others, dtype=np.int64)
        if not left_out.size:
            return self
        kept = ~np.isin(self.workers, left_out)
        return Tasks(self.task, self.workers[kept], None if self.masks is None else self.masks[kept], self.idle)


class Stacked(Mapping[int, Reply]):
    """The replies of many workers to one task, as arrays.

    Parameters
    ----------
    kind : type
        HessianReply (its Hessians are added up on the way), GradientReply or LossReply.
    exchange : int
        The exchange they answer.
    workers : int array, (n,)
        Who; in increasing order.
    losses : float array, (n,)
        Their losses.
    numbers : float array, (N, d) or (k, d), optional
        The gradients of all N workers by their numbers, who answered or not; or those of the k `holders`. What belongs
        to the others, or what a mask leaves out, is there and does not count.
    masks : bool array, (n, Q), optional
        The regions that count.
    regions : Regions, optional
        What the masks are about.
    idle : bool
        Whether a worker with an empty mask told its loss alone.
    holders : int array, (k,), optional
        Whose gradients there are, in increasing order: those of `workers` with a region.
    hessian_of : callable, optional
        The packed Hessian of one worker, for whoever looks at its reply by itself.

    """

    def __init__(
        self,
        kind: type[Reply],
        exchange: int,
        workers: IntArray,
        losses: Array,
        numbers: Array | None = None,
        masks: Mask | None = None,
        regions: Regions | None = None,
        *,
        idle: bool = False,
        holders: IntArray | None = None,
        hessian_of: Callable[[int], Array] | None = None,
    ) -> None:
        self.idle, self.hessian_of = idle, hessian_of
        self.kind, self.exchange, self.workers, self.losses = kind, exchange, workers, losses
        self.numbers, self.masks, self.regions = numbers, masks, regions
        self.holders = holders

    @cached_property
    def gradients(self) -> Array:
        """The gradients of those who answered, (n, d)."""
        assert self.numbers is not None, "these told their losses alone"
        return self.numbers if len(self.numbers) == len(self.workers) else self.gradients_at(self.workers)

    def gradients_at(self, workers: IntArray) -> Array:
        """The gradients of some of those who told theirs."""
        assert self.numbers is not None, "these told their losses alone"
        return self.numbers[workers if self.holders is None else np.searchsorted(self.holders, workers)]

    def __getitem__(self, worker: int) -> Reply:
        row = row_of(self.workers, worker)
        loss = float(self.losses[row])
        if self.numbers is None:
            return LossReply(worker, self.exchange, loss)
        mask = None if self.masks is None else self.masks[row]
        if self.idle and mask is not None and not mask.any():
            return LossReply(worker, self.exchange, loss)
        gradient = self.numbers[worker if self.holders is None else row_of(self.holders, worker)]
        if self.kind is HessianReply:
            packed = None if self.hessian_of is None else self.hessian_of(worker)
            return HessianReply(worker, self.exchange, gradient, packed, loss)
        if mask is None:
            return GradientReply(worker, self.exchange, None, gradient, loss)
        assert self.regions is not None
        return GradientReply(worker, self.exchange, mask, gradient[self.regions.coordinates(mask)], loss)

    def __iter__(self) -> Iterator[int]:
        return iter(self.workers.tolist())

    def __len__(self) -> int:
        return len(self.workers)

    def trained(self, n_workers: int, n_regions: int) -> Mask:
        """Which (worker, region) pairs sent something to learn from, (N, Q)."""
        if self.numbers is not None and self.masks is not None and len(self.workers) == n_workers:
            return self.masks
        pairs = np.zeros((n_workers, n_regions), dtype=bool)
        if self.numbers is not None:
            pairs[self.workers] = True if self.masks is None else self.masks
        return pairs


def row_of(workers: IntArray, worker: int) -> int:
    """Where a worker is in the increasing list of them."""
    row = int(worker) if isinstance(worker, int | np.integer) else -1
    if 0 <= row < len(workers) and workers[row] == worker:
        return row
    if row >= 0:
        row = int(np.searchsorted(workers, worker))
        if row < len(workers) and workers[row] == worker:
            return row
    raise KeyError(worker)


def who_was_asked(tasks: Mapping[int, Task]) -> IntArray:
    """The workers there is a task for."""
    return tasks.workers if isinstance(tasks, Tasks) else np.fromiter(tasks, dtype=np.int64)


def who_answered(replies: Replies) -> IntArray:
    """The workers whose replies there are, in increasing order."""
    if isinstance(replies.received, Stacked):
        return replies.received.workers
    return np.array(sorted(replies.received), dtype=np.int64)
