"""The model without features at an intercept: its loss and two derivatives, three sums over a worker's rows.

Where rows have offsets, or the model no intercept, its best intercept is not known beforehand: the server finds it by
Newton's method, a question a step (`danl.statistics.null_deviance`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from danl.objective.local_objective import LocalObjective
from danl.protocol.messages import Array, Reply
from danl.protocol.own_tasks import OwnTask, Workplace, vectors_fault
from danl.tasks.fit_questions import null_margins, null_sums, weights_of


@dataclass(frozen=True)
class NullReply(Reply):
    """sum s loss, sum s first and sum s second."""

    trains = False

    sums: Array


@dataclass(frozen=True)
class NullTask(OwnTask):
    """Send loss and derivatives of the model that has this intercept, the offsets, and nothing else."""

    name, answer = "null-model", NullReply
    by_default = True

    null: float

    def work(self, place: Workplace) -> NullReply:
        sums = null_sums(place.objective, self.null, weights_of(place.objective))
        return NullReply(place.worker, self.exchange, np.array(sums))

    def margins_besides(self, objective: LocalObjective) -> tuple[Array]:
        return (null_margins(objective, self.null),)

    def fault(self, reply: Any, d: int) -> str | None:
        return vectors_fault(reply, {"sums": 3})

    def work_rows(self, rows: int, entries_per_row: float) -> float:
        return float(rows)
