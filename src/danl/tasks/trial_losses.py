"""A line search's question: the losses at several trial models at once, so that one exchange settles the step.

    F_i(w + length * direction)    for length = base^0, base^-1, ..., base^-(count - 1)

Margins are linear: two passes over the rows are enough, for A w and A direction, and every length is a sum of the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from danl.objective.batch import Batch
from danl.objective.local_objective import margins
from danl.protocol.messages import Array, Reply
from danl.protocol.own_tasks import OwnTask, Workplace, batch_of, vectors_fault


def as_bad_as_can_be(losses: ArrayLike) -> Array:
    """Losses of which those that overflowed are finite: a trial far off is no fault of the worker's."""
    most = float(np.finfo(float).max)
    return np.nan_to_num(losses, nan=most, posinf=most)


@dataclass(frozen=True)
class TrialLossesReply(Reply):
    """The losses at the trial models, the longest step first, and the loss at w."""

    trains = False

    losses: Array
    loss: float


@dataclass(frozen=True)
class TrialLossesTask(OwnTask):
    """Send the loss at w and those at `count` models along a direction, each step 1 / `base` as long as the last."""

    name, answer = "losses", TrialLossesReply

    direction: Array
    base: float
    count: int

    def lengths(self) -> Array:
        """The lengths of the steps."""
        return self.base ** -np.arange(self.count, dtype=float)

    def work(self, place: Workplace) -> TrialLossesReply:
        objective, w = place.objective, self.w
        loss, here = objective.value(w), objective.margins(w)
        along = margins(objective.X, self.direction, objective.layout)
        own, half = objective.row_weights, objective.penalties * 0.5
        with np.errstate(over="ignore", invalid="ignore"):
            losses = [
                float(own @ objective.loss.value(objective.y, here + length * along))
                + float(np.sum(half * np.square(w + length * self.direction)))
                for length in self.lengths().tolist()
            ]
        return TrialLossesReply(place.worker, self.exchange, as_bad_as_can_be(losses), loss)

    def work_together(self, tasks: Sequence[Any], places: Sequence[Workplace], batch: Batch) -> dict[int, Reply] | None:
        if not all(task is self for task in tasks):
            return None
        here = batch_of(places, batch, None)
        w, z, along = self.w, here.margins(self.w), margins(here.X, self.direction, here.layout)
        with np.errstate(over="ignore", invalid="ignore"):
            trials = ((w + length * self.direction, z + length * along) for length in self.lengths().tolist())
            losses = np.stack([here.losses_at(*trial) for trial in trials], axis=1)
        made = zip(places, as_bad_as_can_be(losses), here.losses_at(w, z).tolist(), strict=True)
        return {place.worker: TrialLossesReply(place.worker, self.exchange, *each) for place, *each in made}

    def fault(self, reply: Any, d: int) -> str | None:
        return vectors_fault(reply, {"losses": self.count})

    def work_rows(self, rows: int, entries_per_row: float) -> float:
        return float(rows)
