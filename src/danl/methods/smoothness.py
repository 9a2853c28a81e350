"""The step of a first-order method, asked from the workers: 1 / L with L = sum_i weight_i L_i."""

from __future__ import annotations

import math

from danl.core.aggregate import of_kind, shares
from danl.core.messages import Exchange, Replies, SmoothnessReply, SmoothnessTask
from danl.errors import InputError
from danl.methods.base import Setup, Turn


def ask_smoothness(setup: Setup, turn: Turn) -> Exchange:
    """Ask everyone for the Lipschitz constant of the local gradient."""
    return setup.ask_everyone("smoothness", SmoothnessTask(turn.exchange))


def learning_rate_from(replies: Replies, setup: Setup, *, method: str) -> float:
    """1 / L; a loss without a bound on its curvature has no such step."""
    answers = of_kind(replies, SmoothnessReply)
    share = shares(setup.weights, answers)
    smoothness = sum(share[worker] * reply.smoothness for worker, reply in answers.items())
    if not math.isfinite(smoothness):
        raise InputError(
            "learning_rate=None: this loss has no bound on its curvature to take a step from; "
            f"give one, for example --method {method}:learning_rate=0.01"
        )
    return 1.0 / smoothness if smoothness > 0 else 1.0
