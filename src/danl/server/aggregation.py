"""How replies become the server's averages: sums over workers in the order of their numbers.

The order of arrival never matters: every sum runs over sorted worker numbers, so the same replies give the same bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar, cast

import numpy as np

from danl.protocol.batches import Stacked, who_answered
from danl.protocol.messages import (
    Array,
    CurvatureReply,
    GradientReply,
    HessianReply,
    LossReply,
    Mask,
    ModelReply,
    Replies,
    packed_size,
    unpack,
)

R = TypeVar("R")


def of_kind(replies: Replies, kind: type[R]) -> Mapping[int, R]:
    """The replies by worker, in the order of worker numbers, all checked to be of one kind."""
    if isinstance(replies.received, Stacked) and replies.received.kind is kind and not replies.received.idle:
        return cast(Mapping[int, R], replies.received)
    ordered = {worker: replies.received[worker] for worker in sorted(replies.received)}
    for worker, reply in ordered.items():
        if not isinstance(reply, kind):
            raise TypeError(f"worker {worker} answered with {type(reply).__name__}, expected {kind.__name__}")
    return cast(dict[int, R], ordered)


def _stacked_shares(weights: Array, stacked: Stacked) -> Array:
    own = weights[stacked.workers]
    return own if len(stacked) == len(weights) else own / own.sum()


def shares(weights: Array, present: Mapping[int, object]) -> dict[int, float]:
    """weight_i of the workers that answered, renormalised to sum to 1 among them."""
    if len(present) == len(weights):
        return {worker: float(weights[worker]) for worker in present}
    total = float(sum(weights[worker] for worker in present))
    return {worker: float(weights[worker]) / total for worker in present}


def hessian_sum(replies: Replies, weights: Array, d: int) -> Array:
    """sum_i weight_i Hess F_i over the workers that answered, packed or whole; added up on the way or here."""
    if replies.hessian is not None:
        return replies.hessian.packed
    packed = np.zeros(packed_size(d))
    for worker, reply in of_kind(replies, HessianReply).items():
        assert reply.packed_hessian is not None
        with np.errstate(invalid="ignore", over="ignore"):  # at a model that blew up: its loss refuses it
            packed += weights[worker] * reply.packed_hessian
    return packed


def mean_hessian(replies: Replies, weights: Array, d: int) -> Array:
    """Pi = sum_i weight_i Hess F_i (line 5), the weights renormalised among those that answered."""
    packed = hessian_sum(replies, weights, d)
    if len(replies.received) < len(weights):
        packed = packed / float(weights[who_answered(replies)].sum())
    return unpack(packed, d)


def mean_gradient(replies: Mapping[int, HessianReply] | Mapping[int, GradientReply], weights: Array, d: int) -> Array:
    """sum_i weight_i grad F_i of unmasked replies (line 7)."""
    if isinstance(replies, Stacked) and replies.numbers is not None:
        return np.asarray(_stacked_shares(weights, replies) @ replies.gradients)
    share = shares(weights, replies)
    gradient = np.zeros(d)
    for worker, reply in replies.items():
        gradient += share[worker] * (reply.gradient if isinstance(reply, HessianReply) else reply.fragment)
    return gradient


def gradients_of(replies: Mapping[int, HessianReply]) -> Array:
    """The gradients of all workers, (N, d)."""
    if isinstance(replies, Stacked) and replies.numbers is not None:
        return replies.gradients
    return np.stack([reply.gradient for reply in replies.values()])


def mean_loss(replies: Mapping[int, HessianReply | GradientReply | LossReply | ModelReply], weights: Array) -> float:
    """sum_i weight_i F_i."""
    if isinstance(replies, Stacked):
        return float(_stacked_shares(weights, replies) @ replies.losses)
    share = shares(weights, replies)
    return float(sum(share[worker] * reply.loss for worker, reply in replies.items()))


def reported_size(replies: Replies, weights: Array) -> float:
    """sum_i weight_i |F_i| over the workers that told their loss: the size of the objective."""
    losses = np.zeros(len(weights))
    if isinstance(replies.received, Stacked):
        losses[replies.received.workers] = np.abs(replies.received.losses)
        here = replies.received.workers
    else:
        here = np.array(sorted(replies.received), dtype=np.int64)
        losses[here] = [abs(getattr(replies.received[int(worker)], "loss", 0.0)) for worker in here]
    total = float(weights[here].sum())
    return float(weights[here] @ losses[here]) / total if total > 0 else 0.0


def mean_model(replies: Mapping[int, ModelReply], weights: Array, d: int) -> Array:
    """sum_i weight_i w_i (FedAvg)."""
    share = shares(weights, replies)
    w = np.zeros(d)
    for worker, reply in replies.items():
        w += share[worker] * reply.w
    return w


def trained_pairs(replies: Replies, n_workers: int, n_regions: int) -> Mask:
    """Which (worker, region) pairs sent something to learn from: the masks that came back, as an (N, Q) array."""
    if isinstance(replies.received, Stacked):
        return replies.received.trained(n_workers, n_regions)
    masks = np.zeros((n_workers, n_regions), dtype=bool)
    for worker, reply in replies.received.items():
        match reply:
            case GradientReply(mask=mask) if mask is not None:
                masks[worker] = mask
            case HessianReply() | CurvatureReply() | GradientReply() | ModelReply():
                masks[worker] = True
    return masks
