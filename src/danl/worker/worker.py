"""A worker: answers tasks on its own shard.

Its answer is a function of the task, the shard and the run's seed alone (mini-batches come from `stream`), so a worker
that restarts, or answers the same task twice, gives the same reply. It keeps the margins of the newest model it was
asked about (`LocalObjective.margins`): a further question about that model is answered sooner, not otherwise. Only a
`StatefulTask` depends on what came before: it goes on from a slot, and says so where the slot is not there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

import danl.tasks  # noqa: F401  # known to the wire
from danl.frozen import at_once
from danl.objective.hessian_parts import blocks, diagonal, piece, times
from danl.objective.local_objective import LocalObjective
from danl.objective.regions import IntArray, Regions
from danl.objective.row_samples import RowSample, curvature_of_rows, leverage_sample
from danl.policies.base import WorkerPolicy
from danl.policies.masks import validated_mask
from danl.protocol import messages as msg
from danl.protocol.compressed_hessians import compressed_hessian
from danl.protocol.hessian_form import HessianForm, piece_of, sketch_matrix
from danl.protocol.messages import Array, Array32, CurvatureTask, HessianTask, Mask, pack
from danl.protocol.own_tasks import OwnTask, Slot, StatefulTask, Workplace
from danl.protocol.streams import COMPRESSION, GRADIENT_BATCH, HESSIAN_BATCH, LOCAL_STEPS, WORKER_MASK, stream


@at_once
@dataclass(frozen=True)
class Worker:
    """Worker `index` with its shard's objective, the common regions, and its own mask policy if it has one."""

    index: int
    objective: LocalObjective
    regions: Regions
    policy: WorkerPolicy | None
    seed: int
    slots: dict[str, Slot] = field(default_factory=dict)
    """What is kept between tasks of this run, by name."""
    least_rows: int = 1
    """The fewest rows that a mini-batch of a task that brings its own work may be of."""
    min_cell: int = 1
    """The fewest records of a cell that a task may tell of."""

    @property
    def place(self) -> Workplace:
        """Where a task that brings its own work is worked on."""
        return Workplace(self.index, self.objective, self.regions, self.seed, self.least_rows, self.min_cell)

    def answer(self, task: msg.Task) -> msg.Reply | msg.Failure:
        """Do what the task asks; a failure where it counts on what is not kept here."""
        objective, who = self.objective, (self.index, task.exchange)
        match task:
            case msg.GradientTask():
                return self._masked_gradient(task)
            case HessianTask() | CurvatureTask():
                return self._hessian(task)
            case msg.LossTask(w=w):
                return msg.LossReply(*who, objective.value(w))
            case msg.LocalStepsTask():
                return self._local_steps(task)
            case msg.ScoresTask(w=w):
                return msg.ScoresReply(*who, pack(objective.scores(w)))
            case msg.MomentsTask():
                return msg.MomentsReply(*who, *objective.moments())
            case StatefulTask():
                return task.worked(self.place, self.slots)
            case OwnTask():
                return task.work(self.place)
            case msg.SmoothnessTask():
                return msg.SmoothnessReply(*who, objective.smoothness(), objective.mean_squares())
        raise TypeError(f"a worker has no answer to a {type(task).__name__}")

    def _hessian(self, task: HessianTask | CurvatureTask) -> msg.Reply:
        """Lines 3-4: gradient and Hessian at w, or a part of it, on samples zeta_i^0 where batches are asked for."""
        w = task.w
        loss, gradient = self.objective.sample(self.gradient_draw(task)).value_and_gradient(w)
        if isinstance(task, HessianTask):
            hessian = self._sampled(task).hessian(w)
            return msg.HessianReply(self.index, task.exchange, gradient, pack(hessian), loss)
        kept = gradient if task.mask is None else gradient[self.regions.coordinates(task.mask)]
        if task.compressor is None:
            return msg.CurvatureReply(self.index, task.exchange, kept, self.curvature(task), loss, task.mask)
        rng = stream(self.seed, COMPRESSION, self.index, task.exchange)
        sent = compressed_hessian(task, self._sampled(task).data_hessian(w), rng)
        arrays = (sent.places, sent.codes)
        return msg.CurvatureReply(self.index, task.exchange, kept, sent.numbers, loss, task.mask, *arrays)

    def curvature(self, task: CurvatureTask) -> Array | Array32:
        """The numbers of the Hessian that a task asks for, as they are sent."""
        sampled = self._sampled(task)
        with np.errstate(over="ignore", invalid="ignore"):  # at a model that blew up: the loss shows it
            numbers = _hessian_part(sampled, task, self.regions)
            return numbers if task.dtype == "float64" else numbers.astype(np.float32)

    def hessian_sample(self, task: HessianTask | CurvatureTask) -> RowSample | None:
        """The rows the Hessian is computed on; None for all of them.

        A task that names the draw by its `sketch` has the same rows in every exchange: those of a Hessian in pieces.
        """
        objective, size = self.objective, task.hessian_batch
        if size is None or size >= objective.n_rows:
            return None
        if not task.leverage:
            rng = stream(self.seed, HESSIAN_BATCH, self.index, draw_of(task))
            return RowSample(_chosen(rng, objective.n_rows, size), np.full(size, objective.n_rows / size))
        weights = None if objective.weights is None else objective.row_weights
        curvature = curvature_of_rows(objective.loss, objective.y, objective.margins(task.w), weights)
        bounds, draws = np.array([0, objective.n_rows]), np.array([self.leverage_draw(task)])
        return leverage_sample(curvature, objective.relative_squares, bounds, size, draws)

    def leverage_draw(self, task: HessianTask | CurvatureTask) -> float:
        """The random number that decides which rows are drawn by leverage."""
        return stream(self.seed, HESSIAN_BATCH, self.index, draw_of(task)).random()

    def _sampled(self, task: HessianTask | CurvatureTask) -> LocalObjective:
        sample = self.hessian_sample(task)
        return self.objective if sample is None else self.objective.sample(sample.rows, sample.counts)

    def _masked_gradient(self, task: msg.GradientTask) -> msg.GradientReply:
        """Lines 11-14: choose the mask, prune the model, compute the gradient there, send what the mask keeps."""
        mask = self.chosen_mask(task) if task.choose else task.mask
        kept = slice(None) if mask is None else self.regions.coordinates(mask)
        w = task.w
        if task.submodel == "pruned":
            w = np.zeros_like(task.w)
            w[kept] = task.w[kept]
        rows = self.gradient_draw(task)
        loss, gradient = self.objective.sample(rows).value_and_gradient(w)
        if task.whole_loss and rows is not None:
            loss = self.objective.value(w)
        return msg.GradientReply(self.index, task.exchange, mask, gradient[kept], loss)

    def chosen_mask(self, task: msg.GradientTask) -> Mask:
        """The regions that this worker's own policy keeps, checked."""
        assert self.policy is not None, "the task asks for a mask and this worker has no policy"
        rng, n_regions = stream(self.seed, WORKER_MASK, self.index, task.round), self.regions.n_regions
        mask = self.policy.mask(task.w, self.index, task.round, rng, self.regions)
        return validated_mask(mask, policy=self.policy, worker=self.index, number=task.round, n_regions=n_regions)

    def _local_steps(self, task: msg.LocalStepsTask) -> msg.ModelReply:
        w, start_loss = task.w, np.nan
        for step, rows in enumerate(self.local_draws(task)):
            loss, gradient = self.objective.sample(rows).value_and_gradient(w)
            start_loss = loss if step == 0 else start_loss
            w = w - task.learning_rate * gradient
        return msg.ModelReply(self.index, task.exchange, w, start_loss)

    def local_draws(self, task: msg.LocalStepsTask) -> Iterator[IntArray | None]:
        """The rows of every local step; None for all of them."""
        rng = stream(self.seed, LOCAL_STEPS, self.index, task.exchange)
        return (_draw(rng, self.objective.n_rows, task.batch_size) for _ in range(task.steps))

    def gradient_draw(self, task: msg.GradientTask | HessianTask | CurvatureTask) -> IntArray | None:
        """The rows of a gradient; None for all of them."""
        if task.batch_size is None:  # a stream costs more to make than a small shard's gradient
            return None
        rng = stream(self.seed, GRADIENT_BATCH, self.index, task.exchange)
        return _draw(rng, self.objective.n_rows, task.batch_size)


def draw_of(task: HessianTask | CurvatureTask) -> int:
    """What a draw of rows is named by: the exchange, or the `sketch` that all pieces of one Hessian have."""
    named = task.sketch if isinstance(task, CurvatureTask) and task.kind == "full" else 0
    return named or task.exchange


def _draw(rng: np.random.Generator, n_rows: int, size: int | None) -> IntArray | None:
    """Rows of a mini-batch, without replacement; None for the whole shard."""
    return None if size is None or size >= n_rows else _chosen(rng, n_rows, size)


def _chosen(rng: np.random.Generator, n_rows: int, size: int) -> IntArray:
    return np.sort(rng.choice(n_rows, size=size, replace=False))


def _hessian_part(objective: LocalObjective, task: CurvatureTask, regions: Regions) -> Array:
    """The numbers of the Hessian that a task asks for; of a whole one no more than these are computed."""
    w, form, (first, last, all_of_it) = task.w, HessianForm.of(task), piece_of(task, regions)
    match form.kind:
        case "full":
            return pack(objective.hessian(w)) if all_of_it else piece(objective, w, first, last)
        case "block":
            numbers = blocks(objective, w, regions)
        case "diag":
            numbers = diagonal(objective, w)
        case "lowrank":
            sketched = times(objective, w, sketch_matrix(task.sketch, w.size, form.columns(w.size)))
            numbers = np.concatenate([diagonal(objective, w), sketched.ravel()])
    return numbers if all_of_it else numbers[first:last].copy()  # the rest need not be kept
