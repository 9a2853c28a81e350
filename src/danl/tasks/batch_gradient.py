r"""The gradient of a mini-batch at a model, which may be the worker's own: what methods over a graph ask for.

    gradient = grad F_i,S(w),  loss = F_i,S(w)          S: `batch_size` rows of the shard, drawn with replacement

On average over S they are grad F_i(w) and F_i(w), and with `batch_size` None, the whole shard, they are just these. A
`GradientTask` asks the same about one model of all workers, which engines answer for many workers at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from danl.objective.batch import Batch
from danl.protocol.messages import Array, Reply
from danl.protocol.own_tasks import OwnTask, Workplace, batch_of, drawn_by_each, own_models, vectors_fault
from danl.protocol.streams import GRADIENT_BATCH


@dataclass(frozen=True)
class BatchGradientReply(Reply):
    """Gradient and loss at w, of the same rows."""

    gradient: Array
    loss: float


@dataclass(frozen=True)
class BatchGradientTask(OwnTask):
    """Send gradient and loss at w, of a mini-batch or of the whole shard."""

    name, answer = "batch-gradient", BatchGradientReply
    gradient_field = "gradient"

    batch_size: int | None = None

    def work(self, place: Workplace) -> BatchGradientReply:
        rows = place.rows(GRADIENT_BATCH, self.batch_size, self.exchange)
        loss, gradient = place.objective.sample(rows).value_and_gradient(self.w)
        return BatchGradientReply(place.worker, self.exchange, gradient, loss)

    def work_together(self, tasks: Sequence[Any], places: Sequence[Workplace], batch: Batch) -> dict[int, Reply]:
        size = self.batch_size
        rows = None if size is None else drawn_by_each(places, GRADIENT_BATCH, size, self.exchange)
        losses, gradients = batch_of(places, batch, rows).losses_and_gradients(own_models(tasks))
        made = zip(places, gradients, losses.tolist(), strict=True)
        return {place.worker: BatchGradientReply(place.worker, self.exchange, *own) for place, *own in made}

    def fault(self, reply: Any, d: int) -> str | None:
        return vectors_fault(reply, {"gradient": d})

    def work_rows(self, rows: int, entries_per_row: float) -> float:
        return float(rows if self.batch_size is None else self.batch_size)
