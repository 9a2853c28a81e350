"""All workers of one process, answering a task together: what `Worker.answer` does, for all of them at once.

Whole Hessians and diagonals are added up; those of workers that are not asked for one are not computed. Anything that
is not the same question to all of them (mini-batches of gradients, smoothness, pruned models beside whole ones, other
parts and pieces of Hessians) is left to the workers one by one: `answer` then returns None. A task that brings its own
work may know how it is done for many workers (`OwnTask.work_together`): `messages` then has their replies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from danl.frozen import cached_property, replace
from danl.objective.batch import Batch
from danl.objective.batch_parts import of_workers, sampled
from danl.objective.batch_parts import part as part_of
from danl.objective.hessian_parts import diagonal_sum
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
    LocalStepsTask,
    LossTask,
    MomentsTask,
    Reply,
    packed_size,
)
from danl.protocol.own_tasks import OwnTask
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
            case LocalStepsTask():
                return self._local_steps(task, workers)
            case MomentsTask():
                return self._moments(workers)
            case LossTask():
                return Replies(workers, self.batch.losses(task.w)[workers])
            case GradientTask(mask=None, choose=False, whole_loss=False) if task.batch_size and exchange.masks is None:
                rows = [self._workers[worker].gradient_draw(task) for worker in workers.tolist()]
                return Replies(workers, *sampled(self.batch, workers, rows).losses_and_gradients(task.w))
            case GradientTask(batch_size=None) if task.submodel == "full" or exchange.idle is None:
                return self._masked_gradients(exchange, task)
            case (
                HessianTask(batch_size=None)
                | CurvatureTask(kind="full", batch_size=None, mask=None, first=0, last=None, compressor=None)
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

    def messages(self, exchange: Exchange) -> dict[int, Reply] | None:
        """The replies to a task that brings its own work, or None where the workers have to be asked one by one."""
        if not isinstance(exchange.task, OwnTask) or not len(exchange.workers):
            return None
        tasks = exchange.tasks()
        places = [self._workers[worker].place for worker in tasks]
        return exchange.task.work_together(list(tasks.values()), places, self.batch)

    def _local_steps(self, task: LocalStepsTask, workers: IntArray) -> Replies:
        """The steps of FedAvg, of all workers at once."""
        here = self.batch if len(workers) == self.batch.n_workers else of_workers(self.batch, workers)
        draws = [self._workers[worker].local_draws(task) for worker in workers.tolist()]
        models, start = np.tile(task.w, (len(workers), 1)), np.zeros(len(workers))
        for step in range(task.steps):
            if task.batch_size is None:
                losses, gradients = here.losses_and_gradients(task.w if step == 0 else models)
            else:
                batch = sampled(self.batch, workers, [next(each) for each in draws])
                losses, gradients = batch.losses_and_gradients(models)
            start = losses if step == 0 else start
            models = models - task.learning_rate * gradients
        return Replies(workers, start, values={"w": models})

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
        part = part_of(self.batch, senders)
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
            return HessianSum(diagonal_sum(batch, task.w, of_worker))
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
