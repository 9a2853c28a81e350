"""Sums over the rows of each of many workers, whose rows lie one after the other."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from danl.objective.losses import Array

SEGMENT = 64
"""Numbers that are added up one after the other; their sums are added up in turn, so that rounding stays small."""


class Segments:
    """Sums over consecutive stretches of a vector, the workers' rows of a stack, each row with its weight."""

    def __init__(self, bounds: NDArray[np.int64], weights: Array | None = None) -> None:
        sizes = np.diff(bounds)
        pieces = -(-sizes // SEGMENT)
        self._outer = np.concatenate([[0], np.cumsum(pieces)[:-1]])
        within = np.arange(int(pieces.sum())) - np.repeat(self._outer, pieces)
        self._inner = np.repeat(bounds[:-1], pieces) + SEGMENT * within
        self._weights = weights
        self._whole = bool((pieces == 1).all())

    def sums(self, values: Array) -> Array:
        """One sum a stretch."""
        weighted = values if self._weights is None else self._weights * values
        return self._added_up(np.add.reduceat(weighted, self._inner))

    def sums_of_logarithms(self, numbers: Array) -> Array:
        """One sum of logarithms a stretch; without weights by the logarithms of products: one for many numbers."""
        if self._weights is not None:
            return self.sums(np.log(numbers))
        return self._added_up(np.log(np.multiply.reduceat(numbers, self._inner)))

    def _added_up(self, pieces: Array) -> Array:
        return pieces if self._whole else np.asarray(np.add.reduceat(pieces, self._outer))
