"""The step of a first-order method, asked from the workers: 1 / L with L = sum_i weight_i L_i.

And what its gradients are measured by: with s_j the mean square of column j, the inverse curvature along it is taken to
be  learning_rate * max(s) / s_j,  so that a column's unit does not matter (`danl.methods.ending`).
"""

from __future__ import annotations

import math

import numpy as np

from danl.errors import InputError
from danl.methods.base import Setup, Turn
from danl.protocol.messages import Exchange, SmoothnessTask
from danl.protocol.replies import Replies
from danl.server.aggregation import mean_value
from danl.server.partial_curvature import Diagonal


def ask_smoothness(setup: Setup, turn: Turn) -> Exchange:
    """Ask everyone for the Lipschitz constant of the local gradient."""
    return setup.ask_everyone("smoothness", SmoothnessTask(turn.exchange))


def learning_rate_from(replies: Replies, setup: Setup, *, method: str) -> float:
    """1 / L; a loss without a bound on its curvature has no such step."""
    smoothness = float(mean_value(replies, setup.weights, "smoothness"))
    if not math.isfinite(smoothness):
        raise InputError(
            "learning_rate=None: this loss has no bound on its curvature to take a step from; "
            f"give one, for example --method {method}:learning_rate=0.01"
        )
    return 1.0 / smoothness if smoothness > 0 else 1.0


def metric_from(replies: Replies, setup: Setup, learning_rate: float) -> Diagonal:
    """What gradients are measured by; a column without entries counts as the largest."""
    squares = mean_value(replies, setup.weights, "squares")
    top = float(squares.max(initial=0.0))
    return Diagonal(np.where(squares > 0, squares / top if top > 0 else 1.0, 1.0) / learning_rate)
