r"""A proximal Newton step: the worker's own curvature, damped, against its gradient and the pull of its neighbours.

    step = (scale Hess F_i,R(w) + damping I)^-1 (scale grad F_i,S(w) + pull)

S and R are mini-batches of `batch_size` and `hessian_batch` rows, drawn with replacement and independently, so that the
noise of the Hessian and that of the gradient do not go together; None is the whole shard. `scale` is what F_i counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from danl.protocol.messages import Array, Reply
from danl.protocol.own_tasks import OwnTask, Workplace, vectors_fault
from danl.protocol.streams import GRADIENT_BATCH, HESSIAN_BATCH
from danl.tasks.newton_directions import Factored


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
            metric = self.scale * place.objective.sample(rows).hessian(self.w)
            metric.flat[:: len(metric) + 1] += self.damping
            pull = self.scale * gradient + self.pull
            step = Factored(loss, metric).solve(pull)  # by the inverse that there is where there is no whole one
        return ProximalStepReply(place.worker, self.exchange, step, loss)

    def fault(self, reply: Any, d: int) -> str | None:
        return vectors_fault(reply, {"step": d})

    def work_rows(self, rows: int, entries_per_row: float) -> float:
        hessian_rows = rows if self.hessian_batch is None else self.hessian_batch
        return (rows if self.batch_size is None else self.batch_size) + hessian_rows * entries_per_row / 2
