"""What the gradient memory makes of a curvature that is not a whole matrix; the whole one it takes by itself.

The formulas are those of `danl.core.memory`, with products Pi v in place of rows and columns of Pi.
"""

from __future__ import annotations

import numpy as np

from danl.core.curvature import Curvature
from danl.core.memory import Memory
from danl.core.messages import Array
from danl.core.structured import Curved
from danl.regions import Regions


def corrected(memory: Memory, weights: Array, curvature: Curved, w: Array, regions: Regions) -> Array:
    """The gradient at w that the fragments and the curvature between their models and w make up."""
    if isinstance(curvature, Curvature):
        return memory.corrected(weights, curvature.hessian, w, regions)
    gradient = memory.mean_all(weights)
    offsets = memory.mean_offsets(weights, w)  # (Q, d)
    moved = np.flatnonzero(offsets.any(axis=1))
    if moved.size:
        bent = curvature.times(offsets[moved].T)  # (d, moved)
        for column, q in enumerate(moved):
            own = regions.indices(int(q))
            gradient[own] += bent[own, column]
    return gradient


def predicted_changes(memory: Memory, curvature: Curved, w: Array, step: Array, regions: Regions) -> Array:
    """What the memory says of every worker's change over a step: grad_i . step + (1/2) step^T Pi step, (N,)."""
    if isinstance(curvature, Curvature):
        hessian = curvature.hessian
        return memory.slopes(hessian, w, step, regions) + 0.5 * float(step @ hessian @ step)
    parts = np.where(regions.of_feature == np.arange(regions.n_regions)[:, None], step, 0.0)  # (Q, d)
    bent = curvature.times(parts.T).T
    numbers = {number: row for row, number in enumerate(memory.models)}
    at_models = np.stack(list(memory.models.values())) @ bent.T  # (R, Q)
    rows = np.vectorize(numbers.__getitem__, otypes=[np.intp])(memory.stamps)  # (N, Q)
    carried = bent @ w - at_models[rows, np.arange(regions.n_regions)]  # (N, Q)
    slopes = memory.fragments @ step + carried.sum(axis=1)
    return np.asarray(slopes + 0.5 * float(step @ bent.sum(axis=0)))
