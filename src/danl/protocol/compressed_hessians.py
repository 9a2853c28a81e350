r"""Hessians that travel compressed: what a worker sends of its own, and what the server makes of it.

    worker    C(Hess F_i(w) - penalty)              of the data's part alone, a sum over the worker's rows
    server    sum_i weight_i (C(...) + penalty)     the penalty is known, and added back as it is

A compressor (`danl.protocol.compressors`) of the data's part leaves the penalty whole. `identity` and `rankr` make a
matrix without a negative direction of one that has none. Of the others no entry of the diagonal becomes negative; what
directions do is left to the projection.

A worker whose Hessian is not finite, or whose message would not be, sends an empty one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from danl.protocol.compressors import Compressed, make_compressor
from danl.protocol.messages import Array, CurvatureReply, CurvatureTask, packed_size

EMPTY = Compressed()


def compressed_hessian(task: CurvatureTask, matrix: Array, rng: np.random.Generator) -> Compressed:
    """The message of the data's part of a Hessian, with its numbers as they are sent."""
    assert task.compressor is not None
    if task.kind != "full" or task.first or task.last not in (None, packed_size(len(matrix))):
        raise ValueError(f"{task.compressor}: a compressor is of whole Hessians, at once")
    compressor = make_compressor(task.compressor)
    with np.errstate(over="ignore", invalid="ignore"):  # of a matrix that is not finite
        message = compressor.compress(matrix, rng)
        sent = Compressed(message.numbers.astype(task.dtype, copy=False), message.places, message.codes)
        faulty = compressor.fault(_in_float64(sent), len(matrix)) is not None
        return Compressed(np.empty(0, task.dtype), EMPTY.places, EMPTY.codes) if faulty else sent


def message_of(reply: CurvatureReply) -> Compressed:
    """What a reply brought."""
    numbers: Any = reply.numbers  # float32 where these were asked for
    places = EMPTY.places if reply.places is None else reply.places
    return Compressed(numbers, places, EMPTY.codes if reply.codes is None else reply.codes)


def is_empty(message: Compressed) -> bool:
    """Whether the Hessian was not finite."""
    return not (message.numbers.size or message.places.size or message.codes.size)


def message_fault(task: CurvatureTask, message: Compressed, d: int) -> str | None:
    """What is wrong with the form of a message that is not empty; None where nothing is."""
    if not isinstance(message.numbers, np.ndarray) or message.numbers.dtype != np.dtype(task.dtype):
        return f"its curvature is not an array of {task.dtype}"
    assert task.compressor is not None
    return None if is_empty(message) else make_compressor(task.compressor).fault(_in_float64(message), d)


def restored(task: CurvatureTask, message: Compressed, penalties: Array) -> Array:
    """The Hessian of a message, (d, d), with its penalty; of an empty one it is not finite."""
    d = penalties.size
    if is_empty(message):
        return np.full((d, d), np.inf)
    assert task.compressor is not None
    matrix = make_compressor(task.compressor).restore(_in_float64(message), d)
    matrix.flat[:: d + 1] += penalties
    return matrix


def _in_float64(message: Compressed) -> Compressed:
    return Compressed(message.numbers.astype(np.float64, copy=False), message.places, message.codes)
