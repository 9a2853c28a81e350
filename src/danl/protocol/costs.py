"""What an exchange costs in seconds, on machines whose profiles are known; its bytes are in
`danl.protocol.message_bytes`.

Work is counted in passes over a row: its margin, and its part of the gradient, a transpose product; each goes once
through the stored entries of the row and is half a pass. A loss is the margin alone. A gradient at w is both; on a
share of the coordinates the transpose product costs that share, and only the gradient of a pruned model costs the share
of both (`danl.policies.profiles`, which `ResourceAware` plans with). A Hessian is a gradient and, for the outer product
of a row, half a pass for every stored entry. A part of it costs: blocks, their share of the outer products; a diagonal,
a transpose product; a sketch, a transpose product for its diagonal and a pass for every column, which is a product with
the Hessian. A piece of the numbers costs its share of them, with a gradient on a share of the coordinates as above.
A worker keeps the margins of the newest model it was asked about: where it is asked about that model again, they cost
nothing (`Exchange.kept`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from danl.objective.regions import IntArray, Regions
from danl.policies.profiles import Profile, gradient_passes, seconds
from danl.protocol import messages as msg
from danl.protocol.hessian_form import HessianForm, piece_of
from danl.protocol.message_bytes import bytes_down, bytes_up
from danl.protocol.messages import Array, Exchange, Mask, packed_size
from danl.protocol.own_tasks import OwnTask
from danl.protocol.replies import Replies


def seconds_each(
    exchange: Exchange,
    replies: Replies,
    profiles: Sequence[Profile],
    rows: Array,
    entries_per_row: Array,
    regions: Regions,
) -> Array:
    """Seconds of every worker, (N,); nan where it did not answer."""
    each = np.full(len(profiles), np.nan)
    loads = zip(*(part.tolist() for part in loads_of(exchange, replies, rows, entries_per_row, regions)), strict=True)
    for worker, (work, down, up) in zip(replies.workers.tolist(), loads, strict=True):
        each[worker] = seconds(profiles[worker], work_rows=work, bytes_down=down, bytes_up=up)
    return each


def loads_of(
    exchange: Exchange, replies: Replies, rows: Array, entries_per_row: Array, regions: Regions
) -> tuple[Array, IntArray, IntArray]:
    """Of everyone who answered: passes over a row, bytes of its task, bytes of its reply."""
    workers, tasks, shares = replies.workers, exchange.tasks(), np.ones(len(replies.workers))
    if replies.masks is not None:
        shares = replies.masks @ regions.sizes / regions.n_coefficients
    down = bytes_down(exchange, regions)[np.searchsorted(exchange.workers, workers)]
    own = zip(workers.tolist(), shares.tolist(), strict=True)
    work = [work_rows(tasks[i], share, int(rows[i]), float(entries_per_row[i]), regions) for i, share in own]
    passes = np.array(work, dtype=float)
    if exchange.kept is not None:  # margins that are there already
        passes -= np.where(np.isin(workers, exchange.workers[exchange.kept]), rows[workers] / 2, 0.0)
    return passes, down, bytes_up(exchange, replies, regions)


def work_rows(task: msg.Task, share: float, rows: int, entries_per_row: float, regions: Regions) -> float:
    """Passes over a row that a task takes on a shard of so many rows; `share` is that of the coordinates it trains."""

    def sampled(size: int | None) -> int:
        return rows if size is None else min(size, rows)

    match task:
        case OwnTask():
            return task.work_rows(rows, entries_per_row)
        case msg.GradientTask(batch_size=size, whole_loss=whole, submodel=submodel):
            pruned = submodel == "pruned"
            beyond = rows - sampled(size) if whole else 0  # rows of which the loss alone is asked
            return float(sampled(size) * gradient_passes(share, pruned=pruned) + beyond * (share if pruned else 1) / 2)
        case msg.HessianTask(batch_size=size, hessian_batch=hessian_size):
            return sampled(size) + sampled(hessian_size) * entries_per_row / 2
        case msg.CurvatureTask(kind=kind, batch_size=size, hessian_batch=hessian_size):
            numbers, d = HessianForm.of(task).numbers(regions), regions.n_coefficients
            outer = numbers / packed_size(d) * entries_per_row / 2
            columns = numbers / d - 1  # beside the diagonal
            hessian = sampled(hessian_size) * (outer if kind in ("full", "block") else columns + 0.5)
            first, last, _ = piece_of(task, regions)
            return float(sampled(size) * gradient_passes(share, pruned=False) + hessian * ((last - first) / numbers))
        case msg.ScoresTask():
            return rows * (1 + entries_per_row / 2)
        case msg.LossTask():
            return rows / 2
        case msg.LocalStepsTask(steps=steps, batch_size=size):
            return steps * sampled(size)
        case msg.MomentsTask():
            return rows
        case _:  # a smoothness constant: some ten passes of an eigenvalue iteration
            return 10.0 * rows


def work_of_each(task: msg.Task, shares: Array, rows: ArrayLike, entries_per_row: Array, regions: Regions) -> Array:
    """The same of every worker, (N,)."""
    own = zip(shares.tolist(), np.asarray(rows).tolist(), entries_per_row.tolist(), strict=True)
    return np.array([work_rows(task, share, int(count), per_row, regions) for share, count, per_row in own])


def pruning_error(exchange: Exchange, replies: Replies, trained: Mask, regions: Regions) -> float:
    """max_i |w - w_i|^2 over the gradients of this exchange; `trained` are their masks, (N, Q)."""
    task = exchange.task
    if not isinstance(task, msg.GradientTask) or task.submodel != "pruned":
        return 0.0
    pruned = ~trained[replies.senders][:, regions.of_coefficient]
    return max((float(np.sum(np.square(task.w[own]))) for own in pruned), default=0.0)
