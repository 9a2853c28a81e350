"""Tasks for many workers of one process, answered together: what `Worker.answer` does, for all of them at once.

Anything that is not the same question to all of them (mini-batches of gradients, local steps, smoothness, pruned models
beside whole ones) is left to the workers one by one: `answer` then returns None.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from danl.objective.batched import Batch
from danl.objective.problem import Problem, Terms
from danl.objective.regions import IntArray
from danl.policies.measures import with_a_region
from danl.protocol.batches import Stacked, Tasks
from danl.protocol.messages import (
    Array,
    GradientReply,
    GradientTask,
    HessianReply,
    HessianSum,
    HessianTask,
    LossReply,
    LossTask,
    Mask,
    Replies,
    pack,
)
from danl.protocol.streams import WORKER_MASK, stream
from danl.worker.worker import Worker


class Together:
    """All workers of one process."""

    def __init__(self, workers: Sequence[Worker], batch: Batch) -> None:
        self._workers, self.batch = workers, batch
        self._regions = workers[0].regions

    @classmethod
    def of(cls, workers: Sequence[Worker], problem: Terms) -> Together | None:
        """The workers together, or None where they have to be asked one by one."""
        if isinstance(problem, Problem):
            batch = problem.batch
        else:
            objectives = [worker.objective for worker in workers]
            batch = Batch.of(objectives) if Batch.possible(objectives) else None
        return None if batch is None else cls(workers, batch)

    def answer(self, tasks: Tasks) -> Replies | None:
        """The replies, or None where the workers have to be asked one by one."""
        task, workers = tasks.task, tasks.workers
        if not len(workers):
            return Replies()
        match task:
            case LossTask(exchange=exchange, w=w):
                return Replies(Stacked(LossReply, exchange, workers, self._rows(self.batch.losses(w), workers)))
            case GradientTask(batch_size=None) if task.submodel == "full" or tasks.idle is None:
                return self._masked_gradients(tasks, task)
            case HessianTask(batch_size=None, exchange=exchange, w=w):
                losses, gradients = self.batch.losses_and_gradients(w)
                rows = None if task.hessian_batch is None else [worker.hessian_rows(task) for worker in self._workers]
                stacked = Stacked(
                    HessianReply,
                    exchange,
                    workers,
                    self._rows(losses, workers),
                    gradients,
                    hessian_of=partial(self._own_hessian, w, rows),
                )
                return Replies(stacked, add_up=partial(self._add_up, w, rows))
        return None

    def _masked_gradients(self, tasks: Tasks, task: GradientTask) -> Replies:
        """Lines 11-14 of Algorithm 1 for all of them."""
        workers, masks = tasks.workers, tasks.masks
        if task.choose:
            masks = np.stack([self._chosen(self._workers[worker], task) for worker in workers.tolist()])
        holders, pruned = workers, None
        if tasks.idle is not None and masks is not None:
            holders = workers[with_a_region(masks)]
        elif task.submodel == "pruned" and masks is not None:
            pruned = self._regions.expand(masks)
        part = self.batch.part(holders)
        if part is not None:
            losses, gradients = part.losses_and_gradients(task.w, pruned)
            self.batch.passes += part.passes
            if len(holders) < len(workers):  # the others tell their losses alone
                losses = self._rows(self.batch.losses(task.w), workers)
        else:
            if pruned is not None:
                of_all = np.zeros((self.batch.n_workers, self.batch.layout.size), dtype=bool)
                of_all[holders] = pruned
                pruned = of_all
            losses, gradients = self.batch.losses_and_gradients(task.w, pruned, workers, holders)
            losses = self._rows(losses, workers)
        return Replies(
            Stacked(
                GradientReply,
                task.exchange,
                workers,
                losses,
                gradients,
                masks,
                self._regions,
                idle=tasks.idle is not None,
                holders=None if part is None else holders,
            )
        )

    def _chosen(self, worker: Worker, task: GradientTask) -> Mask:
        assert worker.policy is not None, "the task asks for a mask and this worker has no policy"
        rng = stream(worker.seed, WORKER_MASK, worker.index, task.round)
        return worker.policy.mask(task.w, worker.index, task.round, rng, worker.regions)

    def _own_hessian(self, w: Array, rows: Sequence[Array | None] | None, worker: int) -> Array:
        return pack(self._workers[worker].objective.hessian(w, None if rows is None else rows[worker]))

    def _add_up(self, w: Array, rows: Sequence[Array | None] | None, weights: Mapping[int, float]) -> HessianSum:
        of_worker = np.zeros(self.batch.n_workers)
        of_worker[list(weights)] = list(weights.values())
        return HessianSum(self.batch.hessian_sum(w, of_worker, rows))

    def _rows(self, values: Array, workers: IntArray) -> Array:
        return values if len(workers) == len(values) else values[workers]
