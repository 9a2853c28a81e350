"""What an exchange costs: bytes on the wire, and seconds on machines whose profiles are known.

Work is counted in passes over a row, there (its margin) and back (its part of the gradient); each way goes once
through the stored entries of the row and is half a pass. A loss is the way there. A gradient at w is both; on a share
of the coordinates it comes back to that share alone, and only that of a pruned model costs the share of both
(`danl.policies.profiles`, which `ResourceAware` plans with). A Hessian is a gradient and, for the outer product of a
row, half a pass for every stored entry. A part of it costs: blocks, their share of the outer products; a diagonal, a
way back; a sketch, a way back for its diagonal and a pass for every column, which is a product with the Hessian.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from danl.objective.regions import IntArray, Regions
from danl.policies.measures import with_a_region
from danl.policies.profiles import Profile, gradient_passes, seconds
from danl.protocol.batches import Stacked, Tasks
from danl.protocol.messages import (
    Array,
    CurvatureReply,
    CurvatureTask,
    Exchange,
    GradientReply,
    GradientTask,
    HessianReply,
    HessianTask,
    LocalStepsTask,
    LossTask,
    Mask,
    MomentsTask,
    Replies,
    Reply,
    ScoresTask,
    Task,
    mask_bytes,
    packed_size,
    payload_bytes,
)


def bytes_of(exchange: Exchange, replies: Replies) -> tuple[int, int]:
    """Bytes up and down: every task that was sent, every reply that came."""
    tasks, received = exchange.tasks, replies.received
    down = _sum(_each_task(tasks), len(tasks)) if isinstance(tasks, Tasks) else sum(map(payload_bytes, tasks.values()))
    if isinstance(received, Stacked):
        return _sum(_each_reply(received), len(received)), down
    return sum(map(payload_bytes, received.values())), down


def bytes_each(exchange: Exchange, replies: Replies, n_workers: int) -> tuple[IntArray, IntArray]:
    """Bytes up and down of every worker, (N,) each; their sums are `bytes_of`."""
    up, down = np.zeros(n_workers, dtype=np.int64), np.zeros(n_workers, dtype=np.int64)
    tasks, received = exchange.tasks, replies.received
    if isinstance(tasks, Tasks):
        down[tasks.workers] = _each_task(tasks)
    else:
        for worker, task in tasks.items():
            down[worker] = payload_bytes(task)
    if isinstance(received, Stacked):
        up[received.workers] = _each_reply(received)
    else:
        for worker, reply in received.items():
            up[worker] = payload_bytes(reply)
    return up, down


def _each_task(tasks: Tasks) -> IntArray | int:
    """Bytes of each of many tasks; one number where they are all alike."""
    if tasks.masks is None or not len(tasks):
        return payload_bytes(tasks.task)
    masked = payload_bytes(tasks.task) + mask_bytes(tasks.masks[0])
    if tasks.idle is None:
        return masked
    return np.where(with_a_region(tasks.masks), masked, payload_bytes(tasks.idle))


def _each_reply(received: Stacked) -> IntArray | int:
    """Bytes of each of many replies; one number where they are all alike."""
    if received.masks is None or received.numbers is None or not len(received):
        d = 0 if received.numbers is None else received.numbers.shape[1]
        hessian = packed_size(d) if received.kind is HessianReply else 0
        return 8 * (d + hessian + 1)
    assert received.regions is not None
    sent: IntArray = 8 * (received.masks @ received.regions.sizes) + 8
    with_mask = with_a_region(received.masks) if received.idle else True  # without a region it is the loss alone
    return np.asarray(sent + mask_bytes(received.masks[0]) * with_mask)


def _sum(each: IntArray | int, count: int) -> int:
    return each * count if isinstance(each, int) else int(each.sum())


def seconds_each(
    exchange: Exchange,
    replies: Replies,
    profiles: Sequence[Profile],
    rows: Array,
    entries_per_row: Array,
    d: int,
) -> Array:
    """Seconds of every worker, (N,); nan where it did not answer."""
    each = np.full(len(profiles), np.nan)
    for worker, reply in replies.received.items():
        task = exchange.tasks[worker]
        work = work_rows(task, reply, int(rows[worker]), float(entries_per_row[worker]), d)
        each[worker] = seconds(
            profiles[worker],
            work_rows=work,
            bytes_down=payload_bytes(task),
            bytes_up=payload_bytes(reply),
        )
    return each


def work_rows(task: Task, reply: Reply, rows: int, entries_per_row: float, d: int) -> float:
    """Passes over a row that a task takes on a shard of so many rows."""

    def sampled(size: int | None) -> int:
        return rows if size is None else min(size, rows)

    match task:
        case GradientTask(batch_size=size, whole_loss=whole, submodel=submodel):
            assert isinstance(reply, GradientReply)
            share, pruned = reply.fragment.size / d, submodel == "pruned"
            beyond = rows - sampled(size) if whole else 0  # rows of which the loss alone is asked
            return float(sampled(size) * gradient_passes(share, pruned=pruned) + beyond * (share if pruned else 1) / 2)
        case HessianTask(batch_size=size, hessian_batch=hessian_size):
            return sampled(size) + sampled(hessian_size) * entries_per_row / 2
        case CurvatureTask(kind=kind, batch_size=size, hessian_batch=hessian_size):
            assert isinstance(reply, CurvatureReply)
            outer = reply.numbers.size / packed_size(d) * entries_per_row / 2
            columns = reply.numbers.size / d - 1  # beside the diagonal
            return sampled(size) + sampled(hessian_size) * (outer if kind in ("full", "block") else columns + 0.5)
        case ScoresTask():
            return rows * (1 + entries_per_row / 2)
        case LossTask():
            return rows / 2
        case LocalStepsTask(steps=steps, batch_size=size):
            return steps * sampled(size)
        case MomentsTask():
            return rows
        case _:  # a smoothness constant: some ten passes of an eigenvalue iteration
            return 10.0 * rows


def pruning_error(exchange: Exchange, replies: Replies, trained: Mask, regions: Regions) -> float:
    """max_i |w - w_i|^2 over the gradients of this exchange; `trained` are their masks, (N, Q)."""
    worst = 0.0
    if isinstance(exchange.tasks, Tasks) and getattr(exchange.tasks.task, "submodel", "full") == "full":
        return worst
    kept = regions.expand(trained)
    for worker in replies.received:
        task = exchange.tasks[worker]
        if isinstance(task, GradientTask) and task.submodel == "pruned":
            worst = max(worst, float(np.sum(np.square(task.w[~kept[worker]]))))
    return worst
