"""All workers of one process, answering a task together: what `Worker.answer` does, for all of them at once.

Anything that is not the same question to all of them (mini-batches of gradients, local steps, smoothness, pruned models
beside whole ones) is left to the workers one by one: `answer` then returns None.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from danl.objective.batch import Batch
from danl.objective.problem import BaseProblem, Problem
from danl.objective.regions import IntArray
from danl.policies.masks import with_a_region
from danl.protocol.messages import Array, Exchange, GradientTask, HessianTask, LossTask
from danl.protocol.replies import HessianSum, Replies
from danl.worker.worker import Worker


class BatchedWorkers:
    """All workers of one process."""

    def __init__(self, workers: Sequence[Worker], batch: Batch) -> None:
        self._workers, self.batch = workers, batch
        self._regions = workers[0].regions

    @classmethod
    def of(cls, workers: Sequence[Worker], problem: BaseProblem) -> BatchedWorkers:
        """The workers together."""
        batch = problem.batch if isinstance(problem, Problem) else Batch.of([worker.objective for worker in workers])
        return cls(workers, batch)

    def answer(self, exchange: Exchange) -> Replies | None:
        """The replies, or None where the workers have to be asked one by one."""
        task, workers = exchange.task, exchange.workers
        if not len(workers):
            return Replies()
        match task:
            case LossTask():
                return Replies(workers, self.batch.losses(task.w)[workers])
            case GradientTask(batch_size=None) if task.submodel == "full" or exchange.idle is None:
                return self._masked_gradients(exchange, task)
            case HessianTask(batch_size=None):
                losses, gradients = self.batch.losses_and_gradients(task.w)
                rows = None if task.hessian_batch is None else [worker.hessian_rows(task) for worker in self._workers]
                add_up = partial(self._add_up, task.w, rows)
                return Replies(workers, losses[workers], self._of(gradients, workers), add_up=add_up)
        return None

    def _masked_gradients(self, exchange: Exchange, task: GradientTask) -> Replies:
        """Lines 11-14 of Algorithm 1 for all of them."""
        workers, masks, pruned = exchange.workers, exchange.masks, None
        if task.choose:
            masks = np.stack([self._workers[worker].chosen_mask(task) for worker in workers.tolist()])
        elif masks is None and task.mask is not None:
            masks = np.tile(task.mask, (len(workers), 1))
        senders = workers
        if exchange.idle is not None and masks is not None:
            senders = workers[with_a_region(masks)]
        elif task.submodel == "pruned" and masks is not None:
            pruned = masks[:, self._regions.of_coefficient]
        part = self.batch.part(senders)
        if part is not None:
            losses, gradients = part.losses_and_gradients(task.w, pruned)
            self.batch.passes += part.passes
            if len(senders) < len(workers):  # the others report their losses alone
                losses = self.batch.losses(task.w)[workers]
            return Replies(workers, losses, gradients, senders, masks)
        if pruned is not None:
            of_all = np.zeros((self.batch.n_workers, self.batch.layout.n_coefficients), dtype=bool)
            of_all[senders] = pruned
            pruned = of_all
        losses, gradients = self.batch.losses_and_gradients(task.w, pruned, workers, senders)
        # A row for everyone who answered: those without a region are masked, and a copy would cost more.
        return Replies(workers, losses[workers], self._of(gradients, workers), masks=masks)

    def _of(self, rows: Array, workers: IntArray) -> Array:
        return rows if len(workers) == len(rows) else rows[workers]

    def _add_up(self, w: Array, rows: Sequence[Array | None] | None, weights: Mapping[int, float]) -> HessianSum:
        of_worker = np.zeros(self.batch.n_workers)
        of_worker[list(weights)] = list(weights.values())
        return HessianSum(self.batch.hessian_sum(w, of_worker, rows))
