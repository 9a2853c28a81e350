r"""What the length of a stochastic step is chosen by: gradient and loss at w, and three constants of the worker's rows.

With F_i(w) the mean of F_ij(w) over the rows j of the shard, each with the penalty,

    smoothness        L_i, of F_i's gradient: |grad F_i(u) - grad F_i(v)| <= L_i |u - v|
    row_smoothness    the largest such constant of one F_ij: what a mini-batch of one row has
    noise             the mean over j of |grad F_ij(w) - grad F_i(w)|^2: the variance of a mini-batch of one row at w

A batch of b rows, drawn with replacement, has the variance noise / b. The constants are infinite where the loss has no
bound on its curvature (Poisson).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from danl.objective.local_objective import LocalObjective
from danl.protocol.messages import Array, Reply
from danl.protocol.own_tasks import OwnTask, Workplace, vectors_fault


@dataclass(frozen=True)
class StepConstantsReply(Reply):
    """Whole gradient and loss at w, and the constants."""

    gradient: Array
    smoothness: float
    row_smoothness: float
    noise: float
    loss: float


@dataclass(frozen=True)
class StepConstantsTask(OwnTask):
    """Send the gradient and the loss at w, and what a step's length is chosen by."""

    name, answer = "step-constants", StepConstantsReply
    gradient_field = "gradient"

    def work(self, place: Workplace) -> StepConstantsReply:
        objective = place.objective
        loss, gradient = objective.value_and_gradient(self.w)
        constants = objective.smoothness(), row_smoothness(objective), gradient_noise(objective, self.w, gradient)
        return StepConstantsReply(place.worker, self.exchange, gradient, *constants, loss)

    def fault(self, reply: Any, d: int) -> str | None:
        if not all(isinstance(value, float) and value >= 0 for value in (reply.row_smoothness, reply.noise)):
            return "its constants are no numbers of at least 0"
        return vectors_fault(reply, {"gradient": d})

    def work_rows(self, rows: int, entries_per_row: float) -> float:
        return 12.0 * rows  # the gradient, some ten passes of an eigenvalue iteration, the squares of the rows


def row_smoothness(objective: LocalObjective) -> float:
    """The largest smoothness of one row: n r_ij times the bound of the loss times |a_ij|^2, and the penalty."""
    bound = objective.loss.second_bound
    if not math.isfinite(bound):
        return math.inf
    largest = float((objective.row_weights * objective.row_norms**2).max(initial=0.0))
    return bound * objective.n_rows * largest + objective.penalty


def gradient_noise(objective: LocalObjective, w: Array, gradient: Array) -> float:
    """The variance of the gradient of one row, drawn with equal chances; the penalty has none."""
    with np.errstate(over="ignore", invalid="ignore"):  # at a model that blew up: the loss shows it
        slopes = objective.loss.first(objective.y, objective.margins(w)).reshape(objective.n_rows, -1)
        sizes = np.square(slopes).sum(axis=1) * np.square(objective.row_weights * objective.row_norms)
        mean = gradient - objective.penalties * w
        noise = objective.n_rows * float(sizes.sum()) - float(mean @ mean)
    return max(noise, 0.0)
