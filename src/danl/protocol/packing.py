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


def _upper_triangle(d: int) -> tuple[IntArray, IntArray]:
    """The places of the upper triangle, row by row; those of small matrices are kept, as they take the most time."""
    return _small_triangle(d) if d <= SMALL else np.triu_indices(d)


@lru_cache(maxsize=8)
def _small_triangle(d: int) -> tuple[IntArray, IntArray]:
    return np.triu_indices(d)


def pack(symmetric: Array) -> Array:
    """The upper triangle of a symmetric matrix, row by row: d (d + 1) / 2 numbers."""
    return symmetric[_upper_triangle(symmetric.shape[0])]


def unpack(packed: Array, d: int) -> Array:
    """The symmetric matrix whose upper triangle `pack` gave; a matrix stays as it is."""
    if packed.ndim == 2:
        return packed
    matrix = np.empty((d, d))
    rows, columns = _upper_triangle(d)
    matrix[rows, columns] = packed
    matrix[columns, rows] = packed
    return matrix
