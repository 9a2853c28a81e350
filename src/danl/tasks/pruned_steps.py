r"""Local SGD on a pruned model: what a worker of pruned-sgd does in a round.

    v = w * mask                                                     the regions that the mask leaves out are 0
    repeat `steps` times:   v <- v - learning_rate grad F_i,S(v) * mask

S are `batch_size` rows of the shard, drawn with replacement and anew for every step; None is the whole shard. The
worker sends the coordinates of v that the mask keeps, in increasing order, and its loss where it began: that of the
pruned model on the rows of the first step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from danl.objective.batch import Batch
from danl.protocol.messages import Array, Mask, Reply
from danl.protocol.own_tasks import OwnTask, Workplace, batch_of, drawn_by_each, vectors_fault
from danl.protocol.streams import LOCAL_STEPS


@dataclass(frozen=True)
class PrunedStepsReply(Reply):
    """The regions that were trained, their coordinates, and the loss before; mask None: all of them."""

    mask: Mask | None
    fragment: Array
    loss: float


@dataclass(frozen=True)
class PrunedStepsTask(OwnTask):
    """Prune w to the regions of the mask, take gradient steps there, and send the coordinates that are kept."""

    name, answer = "pruned-steps", PrunedStepsReply

    steps: int
    learning_rate: float
    batch_size: int | None = None
    mask: Mask | None = None
    """The regions that are kept, (Q,); None: all of them."""
    kept: int = 0
    """How many coordinates these are: what the reply is held against."""

    def work(self, place: Workplace) -> PrunedStepsReply:
        objective, v, start_loss = place.objective, self.w.copy(), np.nan
        kept = np.ones(v.size, dtype=bool) if self.mask is None else place.regions.expand(self.mask)
        v[~kept] = 0.0
        size = self.batch_size
        rows = None if size is None else place.rows(LOCAL_STEPS, self.steps * size, self.exchange)
        batches = [None] * self.steps if rows is None else list(rows.reshape(self.steps, -1))
        for step, batch in enumerate(batches):
            loss, gradient = objective.sample(batch).value_and_gradient(v)
            start_loss = loss if step == 0 else start_loss
            v[kept] -= self.learning_rate * gradient[kept]
        return PrunedStepsReply(place.worker, self.exchange, self.mask, v[kept], start_loss)

    def work_together(self, tasks: Sequence[Any], places: Sequence[Workplace], batch: Batch) -> dict[int, Reply]:
        v, size, regions = np.array([task.w for task in tasks]), self.batch_size, places[0].regions
        masks = [np.ones(self.w.size, dtype=bool) if each.mask is None else regions.expand(each.mask) for each in tasks]
        kept, start = np.array(masks), np.full(len(tasks), np.nan)
        v[~kept] = 0.0
        drawn = size and drawn_by_each(places, LOCAL_STEPS, self.steps * size, self.exchange)
        here = None if drawn else batch_of(places, batch, None)
        for step in range(self.steps):
            if drawn and size:
                here = batch_of(places, batch, [rows[step * size : (step + 1) * size] for rows in drawn])
            assert here is not None
            losses, gradients = here.losses_and_gradients(v)
            start = losses if step == 0 else start
            v -= self.learning_rate * np.where(kept, gradients, 0.0)
        made = zip(tasks, places, v, kept, start.tolist(), strict=True)
        return {
            place.worker: PrunedStepsReply(place.worker, self.exchange, task.mask, own[mask], loss)
            for task, place, own, mask, loss in made
        }

    def fault(self, reply: Any, d: int) -> str | None:
        planned, mask = self.mask, reply.mask
        same = mask is None if planned is None else isinstance(mask, np.ndarray) and np.array_equal(mask, planned)
        if not same:
            return "it answered for another mask than the one planned"
        return vectors_fault(reply, {"fragment": d if self.mask is None else int(self.kept)})

    def work_rows(self, rows: int, entries_per_row: float) -> float:
        share = 1.0 if self.mask is None else float(self.mask.mean())  # of the regions: as if they were alike
        return self.steps * share * (rows if self.batch_size is None else self.batch_size)
