"""Symmetric matrices as their upper triangles, row by row: how Hessians travel."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from danl.objective.regions import IntArray

Array = NDArray[np.float64]
SMALL = 512
"""Sides of a matrix up to which the places of its triangle are kept: finding them takes most of the time."""


def packed_size(d: int) -> int:
    """Numbers in the upper triangle of a d x d matrix."""
    return d * (d + 1) // 2


def _places(d: int) -> tuple[IntArray, IntArray]:
    """Where the numbers of the triangle are in the matrix, and those of the matrix, (d, d), in the triangle."""
    rows, columns = np.triu_indices(d)
    square = np.empty((d, d), dtype=np.int64)
    square[rows, columns] = square[columns, rows] = np.arange(len(rows))
    return rows * d + columns, square


_small_places = lru_cache(maxsize=64)(_places)


def pack(symmetric: Array) -> Array:
    """The upper triangle of a symmetric matrix, row by row: d (d + 1) / 2 numbers."""
    d = symmetric.shape[0]
    return symmetric.take(_small_places(d)[0]) if d <= SMALL else symmetric[np.triu_indices(d)]


def unpack(packed: Array, d: int) -> Array:
    """The symmetric matrix whose upper triangle `pack` gave; a matrix stays as it is."""
    if packed.ndim == 2:
        return packed
    if d <= SMALL:
        return packed.take(_small_places(d)[1])
    matrix = np.empty((d, d))
    rows, columns = np.triu_indices(d)
    matrix[rows, columns] = packed
    matrix[columns, rows] = packed
    return matrix
