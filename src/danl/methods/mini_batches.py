r"""What methods with mini-batches have in common: the size of a batch, what a step's length follows from, averages.

With b rows of each worker, drawn with replacement, and the constants that workers tell (`danl.tasks.step_constants`),

    smoothness          L = sum_i weight_i L_i, of f
    batch_smoothness    max_i weight_i L_rows_i / b: a difference of mini-batch gradients has a variance of at most
                        twice this times the Bregman distance of f between both models
    batch_noise         sum_i weight_i^2 noise_i / b, the variance of a mini-batch gradient where it was measured
    largest             max_i (L_i + L_rows_i / b): with one over it no worker's own mini-batch steps are too long

The weights are those of the workers that answered. With whole shards there is no noise, as if b were infinite.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from danl.checks import check_number, check_whole
from danl.errors import InputError
from danl.methods.base import Setup
from danl.protocol.replies import Replies
from danl.server.aggregation import shares

BATCH_SIZE = 16
"""Rows of a mini-batch, unless another number is asked for."""


def check_steps(method: object) -> None:
    """Check `batch_size` ("all": the whole shard, as None is) and `learning_rate` of a frozen method."""
    size, rate = getattr(method, "batch_size", None), getattr(method, "learning_rate", None)
    if size is not None:
        size = None if size == "all" else check_whole("batch_size", size, next_step="'all' is the whole shard")
        object.__setattr__(method, "batch_size", size)
    if rate is not None:
        rate = check_number("learning_rate", rate, "leave it out for one that follows from the smoothness")
        object.__setattr__(method, "learning_rate", rate)


def batches_of_a_pass(setup: Setup, batch_size: int | None) -> int:
    """How many mini-batches are as many rows as a worker has on average."""
    return 1 if batch_size is None else math.ceil(float(np.mean(setup.setting.rows)) / batch_size)


@dataclass(frozen=True)
class StepConstants:
    """The constants of f, from replies to a `StepConstantsTask`."""

    smoothness: float
    batch_smoothness: float
    batch_noise: float
    largest: float

    @classmethod
    def of(cls, replies: Replies, setup: Setup, batch_size: int | None, instead: str) -> StepConstants:
        """Refuses a loss without a bound on its curvature: an option has to be given, as `instead` shows."""
        weights, sent = shares(setup.weights, replies.workers), list(replies.messages.values())
        smoothness, rows = (
            np.array([each.smoothness for each in sent]),
            np.array([each.row_smoothness for each in sent]),
        )
        if not (np.isfinite(smoothness).all() and np.isfinite(rows).all()):
            option = instead.partition(":")[2].partition("=")[0]
            raise InputError(
                f"{option}=None: this loss has no bound on its curvature to take a step from; "
                f"give one, for example --method {instead}"
            )
        per_batch = np.zeros(len(sent)) if batch_size is None else rows / batch_size
        noise = np.zeros(len(sent)) if batch_size is None else np.array([each.noise for each in sent]) / batch_size
        return cls(
            smoothness=float(weights @ smoothness),
            batch_smoothness=float((weights * per_batch).max()),
            batch_noise=float(np.square(weights) @ noise),
            largest=float((smoothness + per_batch).max()),
        )
