"""The question for curvature as a `DANL` puts it, and what comes of the answers: whole Hessians, or parts of them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from danl.protocol.batches import Stacked
from danl.protocol.messages import Array, CurvatureReply, CurvatureTask, HessianReply, HessianTask, Replies, Reply
from danl.server.aggregation import of_kind

if TYPE_CHECKING:
    from danl.methods.danl import DANL


def whole_hessian_task(
    options: DANL, exchange: int, w: Array, batch_size: int | None = None, hessian_batch: int | None = None
) -> HessianTask | CurvatureTask:
    """Ask for the whole Hessian, in the numbers the options say."""
    if options.hessian_dtype == "float64":
        return HessianTask(exchange, w, batch_size, hessian_batch)
    return CurvatureTask(
        exchange, w, "full", batch_size=batch_size, hessian_batch=hessian_batch, dtype=options.hessian_dtype
    )


def widened(replies: Replies) -> Replies:
    """Whole Hessians that came as float32, as those that come as float64."""
    if isinstance(replies.received, Stacked) or not any(
        isinstance(reply, CurvatureReply) for reply in replies.received.values()
    ):
        return replies
    return replace(replies, received={worker: _widened(reply) for worker, reply in replies.received.items()})


def _widened(reply: Reply) -> Reply:
    if not isinstance(reply, CurvatureReply):
        return reply
    packed = reply.numbers.astype(np.float64)
    return HessianReply(reply.worker, reply.exchange, reply.gradient, packed, reply.loss)


def curvature_sum(replies: Replies, weights: Array) -> Array | float:
    """sum_i weight_i numbers_i over the workers that answered, in the order of their numbers."""
    total: Array | float = 0.0
    for worker, reply in of_kind(replies, CurvatureReply).items():
        with np.errstate(invalid="ignore", over="ignore"):  # at a model that blew up: its loss refuses it
            total = total + weights[worker] * reply.numbers.astype(np.float64)
    return total
