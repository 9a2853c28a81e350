r"""What variance reduction asks for: how the gradient of one mini-batch changes from one model to another.

    difference = grad F_i,S(w) - grad F_i,S(before)          S: `batch_size` rows of the shard, drawn with replacement

Both gradients are of the same rows, so that their noise falls with |w - before|. `before` is the snapshot of SVRG, and
the model before this one in SPIDER's recursion. On average over S it is grad F_i(w) - grad F_i(before), and with
`batch_size` None, the whole shard, it is just that.
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
class DifferenceReply(Reply):
    """The change of the gradient, and the loss at w: both of the same rows."""

    difference: Array
    loss: float


@dataclass(frozen=True)
class DifferenceTask(OwnTask):
    """Send the gradient at w less that at `before`, on one mini-batch."""

    name, answer = "difference", DifferenceReply

    before: Array
    batch_size: int | None = None

    def work(self, place: Workplace) -> DifferenceReply:
        rows = place.rows(GRADIENT_BATCH, self.batch_size, self.exchange)
        objective = place.objective.sample(rows)
        _, gradient_before = objective.value_and_gradient(self.before)
        loss, gradient = objective.value_and_gradient(self.w)  # last, as the margins of the newest model are kept
        return DifferenceReply(place.worker, self.exchange, gradient - gradient_before, loss)

    def work_together(self, tasks: Sequence[Any], places: Sequence[Workplace], batch: Batch) -> dict[int, Reply]:
        size = self.batch_size
        rows = None if size is None else drawn_by_each(places, GRADIENT_BATCH, size, self.exchange)
        here = batch_of(places, batch, rows)
        _, gradients_before = here.losses_and_gradients(own_models(tasks, "before"))
        losses, gradients = here.losses_and_gradients(own_models(tasks))
        made = zip(places, gradients - gradients_before, losses.tolist(), strict=True)
        return {place.worker: DifferenceReply(place.worker, self.exchange, *own) for place, *own in made}

    def fault(self, reply: Any, d: int) -> str | None:
        return vectors_fault(reply, {"difference": d})

    def work_rows(self, rows: int, entries_per_row: float) -> float:
        return 2.0 * (rows if self.batch_size is None else self.batch_size)
