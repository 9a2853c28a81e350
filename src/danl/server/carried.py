"""What the gradient memory makes of a curvature that is not a whole matrix; the whole one it takes by itself.

The formulas are those of `danl.server.memory`, with one product Pi (w - v) for every model v that some fragment refers
to in place of rows and columns of Pi.
"""

from __future__ import annotations

import numpy as np

from danl.objective.regions import Regions
from danl.protocol.messages import Array
from danl.server.curvature import Curvature
from danl.server.memory import Memory
from danl.server.partial_curvature import Curved


def corrected(memory: Memory, weights: Array, curvature: Curved, w: Array, regions: Regions) -> Array:
    """The gradient at w that the fragments and the curvature between their models and w make up."""
    if isinstance(curvature, Curvature):
        return memory.corrected(weights, curvature.hessian, w, regions)
    numbers, bent = _bent(memory, curvature, w)
    shares = np.einsum("i,iqr->qr", weights, memory.stamps[:, :, None] == numbers)  # (Q, R)
    carried = np.einsum("dr,dr->d", shares[regions.of_feature], bent)
    return np.asarray(memory.mean_all(weights) + carried)


def predicted_changes(memory: Memory, curvature: Curved, w: Array, step: Array, regions: Regions) -> Array:
    """What the memory says of every worker's change over a step: grad_i . step + (1/2) step^T Pi step, (N,)."""
    if isinstance(curvature, Curvature):
        hessian = curvature.hessian
        return memory.slopes(hessian, w, step, regions) + 0.5 * float(step @ hessian @ step)
    numbers, bent = _bent(memory, curvature, w)
    count, of_feature = regions.n_regions, regions.of_feature
    slopes = np.stack([np.bincount(of_feature, step * column, minlength=count) for column in bent.T])  # (R, Q)
    which = np.searchsorted(numbers, memory.stamps)  # (N, Q)
    carried = slopes[which, np.arange(count)].sum(axis=1)
    return np.asarray(memory.fragments @ step + carried + 0.5 * float(step @ curvature.times(step)))


def _bent(memory: Memory, curvature: Curved, w: Array) -> tuple[Array, Array]:
    """The numbers of the models behind the fragments, in order, and Pi (w - v) of each: (R,) and (d, R)."""
    numbers = np.array(sorted(memory.models))
    return numbers, curvature.times(np.column_stack([w - memory.models[int(number)] for number in numbers]))
