"""A line search's question: the losses at several trial models at once, so that one exchange settles the step.

    F_i(w + length * direction)    for length = base^0, base^-1, ..., base^-(count - 1)

Margins are linear: two passes over the rows are enough, for A w and A direction, and every length is a sum of the two.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from danl.objective.local_objective import margins
from danl.protocol.messages import Array, Reply
from danl.protocol.own_tasks import OwnTask, Workplace, vectors_fault


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
        # A trial far off may overflow: it is as bad as a number can be, and no fault of the worker's.
        most = float(np.finfo(float).max)
        return TrialLossesReply(place.worker, self.exchange, np.nan_to_num(losses, nan=most, posinf=most), loss)

    def fault(self, reply: Any, d: int) -> str | None:
        return vectors_fault(reply, {"losses": self.count})

    def work_rows(self, rows: int, entries_per_row: float) -> float:
        return float(rows)
