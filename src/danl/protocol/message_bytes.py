"""What the messages of an exchange weigh.

8 bytes for every float64, 4 for a float32, the half of a symmetric Hessian with its diagonal, one bit per region for a
mask (rounded up to a byte), 16 for the range of a piece. The number of the exchange, the worker's number, the number a
sketch is drawn from and whatever framing an engine adds are not counted.

Of a task that brings its own work, and of its reply, every array counts with its bytes, a mask with its bits, and every
float that is no option with 8. Where workers talk to their neighbours, what each of them sends is up, and what it gets
is down: a vector that goes along an edge is both.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from danl.objective.regions import IntArray, Regions
from danl.policies.masks import mask_bytes, with_a_region
from danl.protocol.hessian_form import piece_of, pieces_of
from danl.protocol.messages import (
    CurvatureTask,
    Exchange,
    GradientTask,
    HessianTask,
    LossTask,
    MomentsTask,
    Reply,
    ScoresTask,
    Task,
    packed_size,
)
from danl.protocol.own_tasks import OwnTask, field_names, parts_of
from danl.protocol.replies import Replies

RANGE = 16
"""Bytes that say which piece of the curvature is asked for: where it begins and where it ends."""


def bytes_down(exchange: Exchange, regions: Regions) -> IntArray:
    """Bytes of the task of every worker that is asked, (n,)."""
    if exchange.edges is not None:
        return _between_neighbours(exchange.edges, exchange.vectors, regions)
    each, task, masks = np.full(len(exchange.workers), task_bytes(exchange.task)), exchange.task, exchange.masks
    for name, values in (exchange.own or {}).items():
        if values.ndim > 1:  # an array of each worker's own, where the task has that of nobody, or none
            each += array_bytes(np.empty(values.shape[1:], values.dtype)) - array_bytes(getattr(task, name))
    if isinstance(task, HessianTask | CurvatureTask):
        if masks is None and exchange.pieces is None:  # the same of all
            first, last, whole = piece_of(task, regions)
            return each if whole or first == last else each + RANGE
        each = np.array([task_bytes(own) for own in exchange.tasks().values()], dtype=np.int64)
        return np.asarray(each + RANGE * pieces_of(exchange, regions)[1])
    if masks is None:
        return each
    each += mask_bytes(masks.shape[1])
    return each if exchange.idle is None else np.where(with_a_region(masks), each, task_bytes(exchange.idle))


def task_bytes(task: Task) -> int:
    """Bytes of a task: its model, and its mask if it has one of its own."""
    if isinstance(task, OwnTask):
        return message_bytes(task)
    w, mask = getattr(task, "w", None), getattr(task, "mask", None)
    return (0 if w is None else int(w.nbytes)) + (0 if mask is None else mask_bytes(mask.size))


def bytes_up(exchange: Exchange, replies: Replies, regions: Regions) -> IntArray:
    """Bytes of every reply, (n,)."""
    n, d = len(replies.workers), len(regions.of_coefficient)
    if exchange.edges is not None:
        there = np.searchsorted(exchange.workers, replies.workers)
        return _between_neighbours(exchange.edges[there], exchange.vectors, regions)
    match exchange.task:
        case GradientTask():
            if replies.masks is None:
                return np.full(n, 8 * (d + 1))
            # Without a region the loss alone.
            with_mask = True if exchange.idle is None else with_a_region(replies.masks)
            each = replies.masks @ (8.0 * regions.sizes)  # whole numbers; BLAS takes a quarter of the time
            return np.asarray(each.astype(np.int64) + 8 + mask_bytes(regions.n_regions) * with_mask)
        case CurvatureTask(compressor=str()):
            return np.array([_compressed_bytes(replies, row, d) for row in range(n)], dtype=np.int64)
        case HessianTask() | CurvatureTask() as task:
            itemsize = 8 if isinstance(task, HessianTask) else np.dtype(task.dtype).itemsize
            if exchange.pieces is None:
                first, last, _ = piece_of(task, regions)
                each = np.full(n, itemsize * (last - first) + 8)
            else:
                pieces = exchange.pieces[np.searchsorted(exchange.workers, replies.workers)]
                each = itemsize * (pieces[:, 1] - pieces[:, 0]) + 8
            if replies.masks is None:
                return each + 8 * d
            asked = exchange.tasks()
            masked = np.array([getattr(asked[who], "mask", None) is not None for who in replies.workers.tolist()], bool)
            return np.asarray(each + 8 * (replies.masks @ regions.sizes) + mask_bytes(regions.n_regions) * masked)
        case OwnTask():
            return np.array([message_bytes(reply) for reply in replies.messages.values()], dtype=np.int64)
        case ScoresTask():
            return np.full(n, 8 * packed_size(d))
        case MomentsTask():
            return np.full(n, 8 * sum(value[0].size for value in replies.values.values() if n))
        case LossTask():
            return np.full(n, 8)
        case _:  # a model and a loss, or mean squares and a constant
            return np.full(n, 8 * (d + 1))


def _compressed_bytes(replies: Replies, row: int, d: int) -> int:
    """A loss, a gradient and the arrays of a compressed Hessian, where one was asked for."""
    message = replies.curvatures.get(int(replies.workers[row]))
    return 8 * (d + 1) + (0 if message is None else message.nbytes)


def message_bytes(message: Task | Reply) -> int:
    """Bytes of a task that brings its own work, or of its reply."""
    total, is_reply = sum(map(message_bytes, parts_of(message))), isinstance(message, Reply)
    for name in field_names(message):
        value = getattr(message, name)
        if isinstance(value, np.ndarray):
            total += array_bytes(value)
        elif is_reply and isinstance(value, float | np.floating):
            total += 8
    return total


def array_bytes(array: np.ndarray[Any, Any] | None) -> int:
    """Bytes of an array of a message; one that is not there has none."""
    if array is None:
        return 0
    return mask_bytes(array.size) if array.dtype == np.bool_ else array.nbytes


def _between_neighbours(edges: IntArray, vectors: int, regions: Regions) -> IntArray:
    return np.asarray(8 * vectors * len(regions.of_coefficient) * edges)
