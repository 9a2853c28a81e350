r"""A proximal Newton step: the worker's own curvature, damped, against its gradient and the pull of its neighbours.

    step = (scale Hess F_i,R(w) + damping I)^-1 (scale grad F_i,S(w) + pull)

S and R are mini-batches of `batch_size` and `hessian_batch` rows, drawn with replacement and independently, so that the
noise of the Hessian and that of the gradient do not go together; None is the whole shard. `scale` is what F_i counts.

Where R has fewer rows than the model has coefficients, the rows are what is factored (Woodbury): with D the diagonal
scale penalty + damping and B the rows, each times the root of scale and its second derivative,

    (B^T B + D)^-1 v  =  D^-1 v - D^-1 B^T (I + B D^-1 B^T)^-1 B D^-1 v
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from danl.objective.local_objective import LocalObjective
from danl.protocol.messages import Array, Reply
from danl.protocol.own_tasks import OwnTask, Workplace, vectors_fault
from danl.protocol.streams import GRADIENT_BATCH, HESSIAN_BATCH
from danl.tasks.learned_hessian import with_intercept
from danl.tasks.newton_directions import Factored

FEWER = 2
"""The rows are factored where they are at most so many times fewer than the coefficients."""


@dataclass(frozen=True)
class ProximalStepReply(Reply):
    """The step, and the loss at w, of the rows of the gradient."""

    step: Array
    loss: float


@dataclass(frozen=True)
class ProximalStepTask(OwnTask):
    """Send the damped Newton step at w against gradient and pull."""

    name, answer = "proximal-step", ProximalStepReply

    pull: Array
    damping: float
    scale: float = 1.0
    batch_size: int | None = None
    hessian_batch: int | None = None

    def work(self, place: Workplace) -> ProximalStepReply:
        rows = place.rows(GRADIENT_BATCH, self.batch_size, self.exchange)
        loss, gradient = place.objective.sample(rows).value_and_gradient(self.w)
        rows = place.rows(HESSIAN_BATCH, self.hessian_batch, self.exchange)
        with np.errstate(over="ignore", invalid="ignore"):  # at a model that blew up: the loss shows it
            pull, sample = self.scale * gradient + self.pull, place.objective.sample(rows)
            step = self._by_rows(sample, pull)
            if step is None:
                metric = self.scale * sample.hessian(self.w)
                metric.flat[:: len(metric) + 1] += self.damping
                step = Factored(loss, metric).solve(pull)  # by the inverse that there is where there is no whole one
        return ProximalStepReply(place.worker, self.exchange, step, loss)

    def _by_rows(self, objective: LocalObjective, v: Array) -> Array | None:
        """The step by the rows, where these are fewer than the coefficients, and D has no zero; else None."""
        diagonal = np.broadcast_to(self.scale * objective.penalties + self.damping, v.shape)
        if FEWER * objective.n_rows > v.size or objective.layout.n_outputs > 1 or not (diagonal > 0).all():
            return None
        ((_, _, second),) = objective.second_derivatives(self.w)
        rows = np.sqrt(self.scale * second)[:, None] * with_intercept(objective)
        scaled = rows / diagonal
        inner = rows @ scaled.T
        inner.flat[:: len(inner) + 1] += 1.0
        return np.asarray(v / diagonal - scaled.T @ Factored(0.0, inner).solve(scaled @ v))

    def fault(self, reply: Any, d: int) -> str | None:
        return vectors_fault(reply, {"step": d})

    def work_rows(self, rows: int, entries_per_row: float) -> float:
        hessian_rows = rows if self.hessian_batch is None else self.hessian_batch
        return (rows if self.batch_size is None else self.batch_size) + hessian_rows * entries_per_row / 2
