"""All workers of one process, answering a task together: what `Worker.answer` does, for all of them at once.

Whole Hessians and diagonals are added up; those of workers that are not asked for one are not computed. Anything that
is not the same question to all of them (models of their own, mini-batches of gradients, local steps, smoothness, pruned
models beside whole ones, other parts and pieces of Hessians), or brings its own work, is left to the workers one by
one: `answer` then returns None.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from danl.frozen import cached_property, replace
from danl.objective.batch import Batch
from danl.objective.moments import moments_of_each
from danl.objective.problem import BaseProblem, Problem
from danl.objective.regions import IntArray
from danl.objective.row_samples import leverage_sample, stacked_sample
from danl.policies.masks import with_a_region
from danl.protocol.hessian_form import pieces_of
from danl.protocol.messages import (
    Array,
    CurvatureTask,
    Exchange,
    GradientTask,
    HessianTask,
    LossTask,
    MomentsTask,
    packed_size,
)
from danl.protocol.replies import HUGE_LOSS, HessianSum, Replies, has_blown_up
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
        if exchange.own is not None:
            return None
        match task:
            case MomentsTask():
                return self._moments(workers)
            case LossTask():
                return Replies(workers, self.batch.losses(task.w)[workers])
            case GradientTask(batch_size=None) if task.submodel == "full" or exchange.idle is None:
                return self._masked_gradients(exchange, task)
            case (
                HessianTask(batch_size=None)
                | CurvatureTask(kind="full", batch_size=None, mask=None, first=0, last=None)
                | CurvatureTask(
                    kind="diag", batch_size=None, hessian_batch=None, dtype="float64", mask=None, first=0, last=None
                )
            ):
                if exchange.pieces is None:
                    return self._hessians(exchange, task, workers)
                pieces, incomplete = pieces_of(exchange, self._regions)
                curved = pieces[:, 0] < pieces[:, 1]
                return None if incomplete.any() else self._hessians(exchange, task, workers[curved])
        return None

    def _hessians(self, exchange: Exchange, task: HessianTask | CurvatureTask, curved: IntArray) -> Replies:
        """The gradients, and the Hessians of those that send one: added up when it is known whose count."""
        workers, question = exchange.workers, (task.exchange, task.w)
        if exchange.masks is None:
            losses, gradients = self.batch.losses_and_gradients(task.w)
            replies = Replies(workers, self._of(losses, workers), self._of(gradients, workers))
        else:
            replies = self._masked_gradients(replace(exchange, idle=LossTask(*question)), GradientTask(*question))
        add_up = partial(self._add_up, task)
        if isinstance(task, CurvatureTask) and task.dtype == "float32":
            excused = (replies.losses >= HUGE_LOSS) | has_blown_up(task)
            add_up = partial(self._add_up_rounded, task, set(workers[excused].tolist()))
        return replace(replies, curvature_senders=curved, add_up=add_up)

    def _moments(self, workers: IntArray) -> Replies:
        """Means and variances of the columns, once in a run."""
        objectives = [self._workers[worker].objective for worker in workers.tolist()]
        means, variances, targets = moments_of_each(objectives, self.batch)
        values = {"means": means, "variances": variances, "targets": targets}
        return Replies(workers, np.full(len(workers), np.nan), values=values)

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
        return Replies(workers, self._of(losses, workers), self._of(gradients, workers), masks=masks)

    def _of(self, rows: Array, workers: IntArray) -> Array:
        return rows if len(workers) == len(rows) else rows.take(workers, axis=0)

    def _add_up(self, task: HessianTask | CurvatureTask, weights: Mapping[int, float]) -> HessianSum:
        """One product over the rows of all that count."""
        batch, of_worker = self.batch, np.zeros(self.batch.n_workers)
        of_worker[list(weights)] = list(weights.values())
        if isinstance(task, CurvatureTask) and task.kind == "diag":
            return HessianSum(batch.diagonal_sum(task.w, of_worker))
        if task.hessian_batch is None:
            return HessianSum(batch.hessian_sum(task.w, of_worker))
        if task.leverage:
            draws, size = np.array([worker.leverage_draw(task) for worker in self._workers]), task.hessian_batch
            curvature = batch.curvature_of_rows(task.w)
            sample = leverage_sample(curvature, self._relative_squares, batch.bounds, size, draws)
        else:
            samples = [each.hessian_sample(task) if each.index in weights else None for each in self._workers]
            sample = stacked_sample(samples, batch.bounds)
        return HessianSum(batch.hessian_sum(task.w, of_worker, sample))

    @cached_property
    def _relative_squares(self) -> Array:
        return np.concatenate([worker.objective.relative_squares for worker in self._workers])

    def _add_up_rounded(self, task: CurvatureTask, excused: set[int], weights: Mapping[int, float]) -> HessianSum:
        """One Hessian after the other, each rounded as its worker sends it."""
        total, faults = np.zeros(packed_size(task.w.size)), dict[int, str]()
        for worker, weight in sorted(weights.items()):
            numbers = self._workers[worker].curvature(task)
            if worker not in excused and not np.isfinite(numbers).all():
                faults[worker] = "its curvature is not finite"
                continue
            with np.errstate(invalid="ignore", over="ignore"):  # at a model that blew up: its loss rejects it
                total += weight * numbers.astype(np.float64)
        return HessianSum(total, faults)
