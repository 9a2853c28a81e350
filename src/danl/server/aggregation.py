"""How replies become the server's averages: sums over workers in the order of their numbers.

The order of arrival never matters, so the same replies give the same bits.
"""

from __future__ import annotations

import numpy as np

from danl.objective.regions import IntArray
from danl.protocol.messages import Array, unpack
from danl.protocol.replies import Replies

FEW_NUMBERS = 1 << 16
"""Numbers of which a copy costs less than a loop over their rows."""


def shares(weights: Array, workers: IntArray) -> Array:
    """weight_i of the workers that answered, renormalised to sum to 1 among them."""
    if len(workers) == len(weights):
        return weights
    own = weights[workers]
    return np.asarray(own / own.sum())


def mean_hessian(replies: Replies, weights: Array, d: int) -> Array:
    """Pi = sum_i weight_i Hess F_i (line 5), the weights renormalised among those that answered."""
    packed = replies.curvature_sum
    assert packed is not None, "these replies have no curvature"
    if len(replies.workers) < len(weights):
        packed = packed / float(weights[replies.workers].sum())
    return unpack(packed, d)


def mean_gradient(replies: Replies, weights: Array) -> Array:
    """sum_i weight_i grad F_i of whole gradients (line 7)."""
    assert replies.gradients is not None, "these replies have no gradient"
    own = shares(weights, replies.senders)
    return _in_order(own, replies.gradients) if replies.from_messages else np.asarray(own @ replies.gradients)


def mean_loss(replies: Replies, weights: Array) -> float:
    """sum_i weight_i F_i."""
    return float(shares(weights, replies.workers) @ replies.losses)


def mean_loss_scale(replies: Replies, weights: Array) -> float:
    """sum_i weight_i |F_i| over the workers that answered: the scale of the objective."""
    own = weights if len(replies.workers) == len(weights) else weights[replies.workers]
    total = float(own.sum())
    return float(own @ np.abs(replies.losses)) / total if total > 0 else 0.0


def mean_value(replies: Replies, weights: Array, name: str) -> Array:
    """sum_i weight_i value_i of another field of the replies: the models of FedAvg, for example."""
    return _in_order(shares(weights, replies.workers), replies.values[name])


def mean_of_messages(replies: Replies, weights: Array, field: str) -> Array:
    """sum_i weight_i of a field of the replies to a task that brings its own work, the weights renormalised."""
    total: Array | None = None
    for share, message in zip(shares(weights, replies.workers), replies.messages.values(), strict=True):
        term = share * getattr(message, field)
        total = term if total is None else total + term
    assert total is not None, "nobody answered"
    return total


def _in_order(own: Array, rows: Array) -> Array:
    if rows.ndim == 2 and 0 < rows.size <= FEW_NUMBERS:
        return np.asarray(np.add.accumulate(own[:, None] * rows, axis=0)[-1])
    total = np.zeros(rows.shape[1:])
    for share, row in zip(own, rows, strict=True):
        total = total + share * row
    return total
