"""What an exchange costs: bytes on the wire, and seconds on machines whose profiles are known.

Work is counted in passes over a row: a gradient on a share of the coordinates costs that share of a pass, a loss half a
pass (the margins without the way back), a Hessian one pass for the gradient and one more for every stored entry of the
row (its outer product). A part of it costs: blocks, their share of the outer products; a diagonal or a sketch, a pass
for every number it has of a coefficient.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from danl.core.messages import (
    Array,
    CurvatureReply,
    CurvatureTask,
    Exchange,
    GradientReply,
    GradientTask,
    HessianTask,
    LocalStepsTask,
    LossTask,
    Mask,
    Replies,
    Reply,
    ScoresTask,
    Task,
    packed_size,
    payload_bytes,
)
from danl.policies.profiles import Profile, seconds


def bytes_of(exchange: Exchange, replies: Replies) -> tuple[int, int]:
    """Bytes up and down: every task that was sent, every reply that came."""
    down = sum(payload_bytes(task) for task in exchange.tasks.values())
    up = sum(payload_bytes(reply) for reply in replies.received.values())
    return up, down


def simulated_seconds(
    exchange: Exchange,
    replies: Replies,
    profiles: Sequence[Profile] | None,
    rows: Array,
    entries_per_row: Array,
    d: int,
) -> float:
    """Seconds of the slowest worker that answered; nan where profiles are not known."""
    if profiles is None:
        return float("nan")
    slowest = 0.0
    for worker, reply in replies.received.items():
        task = exchange.tasks[worker]
        work = work_rows(task, reply, int(rows[worker]), float(entries_per_row[worker]), d)
        taken = seconds(
            profiles[worker],
            work_rows=work,
            bytes_down=payload_bytes(task),
            bytes_up=payload_bytes(reply),
        )
        slowest = max(slowest, taken)
    return slowest


def work_rows(task: Task, reply: Reply, rows: int, entries_per_row: float, d: int) -> float:
    """Passes over a row that a task takes on a shard of so many rows."""

    def sampled(size: int | None) -> int:
        return rows if size is None else min(size, rows)

    match task:
        case GradientTask(batch_size=size, whole_loss=whole):
            assert isinstance(reply, GradientReply)
            beyond = rows - sampled(size) if whole else 0
            return sampled(size) * reply.fragment.size / d + beyond / 2
        case HessianTask(batch_size=size, hessian_batch=hessian_size):
            return sampled(size) + sampled(hessian_size) * entries_per_row
        case CurvatureTask(kind=kind, batch_size=size, hessian_batch=hessian_size):
            assert isinstance(reply, CurvatureReply)
            share = reply.numbers.size / packed_size(d)
            passes = share * entries_per_row if kind in ("full", "block") else reply.numbers.size / d
            return sampled(size) + sampled(hessian_size) * passes
        case ScoresTask():
            return rows * (1 + entries_per_row)
        case LossTask():
            return rows / 2
        case LocalStepsTask(steps=steps, batch_size=size):
            return steps * sampled(size)
        case _:  # a smoothness constant: some ten passes of an eigenvalue iteration
            return 10.0 * rows


def pruning_error(exchange: Exchange, replies: Replies, kept: Mask) -> float:
    """max_i |w - w_i|^2 over the gradients of this exchange; `kept` is the (N, d) expansion of their masks."""
    worst = 0.0
    for worker in replies.received:
        task = exchange.tasks[worker]
        if isinstance(task, GradientTask) and task.submodel == "pruned":
            worst = max(worst, float(np.sum(np.square(task.w[~kept[worker]]))))
    return worst
