r"""Stochastic gradient steps on the quadratic model of a worker's objective: an approximate Newton step, without H.

    u = 0;  repeat `steps` times:  u <- u - learning_rate (H_S u + g_S)          S: `batch_size` rows, drawn anew

(FedSN-Lite: Bullins, Patel, Shamir, Srebro & Woodworth, NeurIPS 2021.) H_S and g_S are Hessian and gradient at w on the
rows of S, the same for both, so that a step is one pass over S (`danl.objective.quadratic_model`). With a `gradient` in
the task that one takes the place of g_S. With the whole shard for S, exactly

    u = -(I - (I - learning_rate H)^steps) H^-1 g

Without a learning rate the worker takes 1 / L, with which no step can grow: L is a bound on the largest eigenvalue of
every H_S it draws. With `second` the second derivatives of the loss at w and r the weights of the rows,

    whole shard   L = max_j second_j |A^T diag(r) A| + penalty
    mini-batch    L = max_j second_j n r_j |a_j|^2 + penalty              over the rows that were drawn

Both are exact at w, so that a loss without a bound on its curvature (Poisson) has such a step as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from danl.objective.batch import Batch
from danl.objective.local_objective import LocalObjective
from danl.objective.quadratic_model import QuadraticModel
from danl.protocol.messages import Array, Reply
from danl.protocol.own_tasks import OwnTask, Workplace, batch_of, vectors_fault
from danl.protocol.streams import LOCAL_STEPS


@dataclass(frozen=True)
class QuadraticStepsReply(Reply):
    """Where the steps ended, and the loss at w: that of all rows that were drawn."""

    step: Array
    loss: float


@dataclass(frozen=True)
class QuadraticStepsTask(OwnTask):
    """Take gradient steps on the quadratic model at w, with the gradient of the own rows or the one that is given."""

    name, answer = "quadratic-steps", QuadraticStepsReply

    steps: int
    gradient: Array | None = None
    learning_rate: float | None = None
    batch_size: int | None = None

    def work(self, place: Workplace) -> QuadraticStepsReply:
        drawn = None if self.batch_size is None else self.steps * self.batch_size
        objective = place.objective.sample(place.rows(LOCAL_STEPS, drawn, self.exchange))
        model, u = QuadraticModel.of(objective, self.w), np.zeros_like(self.w)
        with np.errstate(over="ignore", invalid="ignore"):  # at a model that blew up: the loss shows it
            rate = self._stable_rate(objective, model) if self.learning_rate is None else self.learning_rate
            if self.batch_size is None:
                gradient = model.gradient() if self.gradient is None else self.gradient
                for _ in range(self.steps):
                    u = u - rate * (model.times(u) + gradient)
                return QuadraticStepsReply(place.worker, self.exchange, u, model.loss)
            for step in range(self.steps):
                first = step * self.batch_size
                batch = model.part(first, first + self.batch_size, self.steps)
                slope = batch.gradient_at(u) if self.gradient is None else batch.times(u) + self.gradient
                u = u - rate * slope
        return QuadraticStepsReply(place.worker, self.exchange, u, model.loss)

    def work_together(self, tasks: Sequence[Any], places: Sequence[Workplace], batch: Batch) -> dict[int, Reply] | None:
        common = all(task is self for task in tasks)
        if not common or self.batch_size is not None or self.learning_rate is None or batch.layout.n_outputs > 1:
            return None
        here = batch_of(places, batch, None)
        losses, gradients = here.losses_and_gradients(self.w)
        with np.errstate(over="ignore", invalid="ignore"):
            slopes = gradients if self.gradient is None else np.tile(self.gradient, (len(places), 1))
            curvatures = here.row_weights * here.loss.second(here.y, here.margins(self.w))
            u = -self.learning_rate * slopes
            for _ in range(self.steps - 1):
                u = u - self.learning_rate * (here.hessians_times(curvatures, u) + slopes)
        made = zip(places, u, losses.tolist(), strict=True)
        return {place.worker: QuadraticStepsReply(place.worker, self.exchange, *own) for place, *own in made}

    def _stable_rate(self, objective: LocalObjective, model: QuadraticModel) -> float:
        """1 / L."""
        own, curvature = objective.row_weights, model.curvature_of_rows()
        if self.batch_size is None:
            second = np.divide(curvature, own, out=np.zeros_like(own), where=own > 0)
            top = float(second.max(initial=0.0)) * objective.gram_norm
        else:  # drawn rows weigh n r / (steps * batch_size); of a batch alone, n r / batch_size
            top = self.steps * self.batch_size * float((curvature * np.square(objective.row_norms)).max(initial=0.0))
        smoothness = top + objective.penalty
        return 1.0 / smoothness if smoothness > 0 else 1.0

    def fault(self, reply: Any, d: int) -> str | None:
        return vectors_fault(reply, {"step": d})

    def work_rows(self, rows: int, entries_per_row: float) -> float:
        per_step = rows if self.batch_size is None else self.batch_size
        return float(self.steps * per_step) + (rows if self.batch_size is None else self.steps * per_step / 2)
