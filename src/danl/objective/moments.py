"""Means and variances of the columns of many workers: of small dense ones together, else one after the other.

A worker's numbers are those of `LocalObjective.moments`, the variances up to rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from danl.objective.batch import Batch
from danl.objective.local_objective import CLEARLY, LocalObjective
from danl.objective.losses import Array


def moments_of_each(objectives: Sequence[LocalObjective], batch: Batch) -> tuple[Array, Array, Array]:
    """Means and variances, (N, features), and the mean target or the share of each class, (N, outputs)."""
    small = batch.offset is None and len(batch.blocks) == 1 and batch.blocks[0].few_dense_workers
    together = _together(batch) if small and len(objectives) == batch.n_workers else None
    if together is not None:
        return together
    means, variances, targets = zip(*(own.moments() for own in objectives), strict=True)
    return np.array(means), np.array(variances), np.array(targets)


def _together(batch: Batch) -> tuple[Array, Array, Array] | None:
    """The same in one pass over a block of dense rows; None where a mean is so large that squares hide the variance."""
    (block,), weights, outputs = batch.blocks, batch.row_weights, batch.layout.n_outputs
    means = block.transpose_times(weights)
    squares = np.add.reduceat(weights[:, None] * np.square(block.X), block.starts, axis=0)
    variances = squares - np.square(means)
    if not (variances >= CLEARLY * squares).all():
        return None
    if outputs == 1:
        return means, variances, np.add.reduceat(weights * batch.y, block.starts)[:, None]
    own = [(weights[first:last], batch.y[first:last]) for first, last in pairwise(batch.bounds.tolist())]
    return means, variances, np.array([np.bincount(y.astype(np.intp), r, outputs) for r, y in own])
