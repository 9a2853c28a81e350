r"""Parts of a worker's Hessian, computed without the whole of it: its diagonal, blocks of it, products with a matrix.

With A = (X 1), row weights r and the second derivatives b_km of the loss in the margins of outputs k and m, the Hessian
is made of the blocks  H_km = A^T diag(r b_km) A  (one block where there is one output), and

    diagonal       of H_kk = (A * A)^T (r b_kk)
    block          of coordinates J: columns of A alone
    product        (H V)_k = A^T sum_m diag(r b_km) A V_m

each plus the penalty on the coordinates that have one. `times` is of the data's part, without the penalty.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import sparse

from danl.core.messages import Array, CurvatureTask, pack
from danl.core.structure import Structure, sketch_matrix
from danl.local import LocalObjective
from danl.objectives import second_blocks
from danl.regions import IntArray, Regions

CHUNK = 4_000_000
"""Numbers that the margins of a product with a matrix may have at a time."""


def piece(objective: LocalObjective, task: CurvatureTask, regions: Regions, rows: Array | None) -> Array:
    """The numbers a task asks for, on all rows or on a sample of them."""
    w, structure = task.w, Structure.of(task)
    with np.errstate(over="ignore", invalid="ignore"):  # at a model that blew up: the loss tells
        match structure.kind:
            case "full":
                return pack(objective.hessian(w, rows))
            case "block":
                groups = [regions.indices(q) for q in range(regions.n_regions)]
                return np.concatenate([pack(block) for block in blocks(objective, w, groups, rows)])
            case "diag":
                return diagonal(objective, w, rows)
            case "lowrank":
                omega = sketch_matrix(task.sketch, w.size, structure.columns(w.size))
                sketched = times(objective, w, omega, rows)
                return np.concatenate([diagonal(objective, w, rows), sketched.ravel()])


def diagonal(objective: LocalObjective, w: Array, rows: Array | None = None) -> Array:
    """The diagonal of the Hessian, (d,)."""
    X, bends = _bends(objective, w, rows)
    layout = objective.layout
    squares = X.multiply(X) if sparse.issparse(X) else np.square(X)
    parts = np.empty((layout.n_outputs, layout.columns))
    for k, m, bend in bends:
        if k == m:
            parts[k, : layout.n_features] = squares.T @ bend
            if objective.intercept:
                parts[k, -1] = bend.sum()
    return np.asarray(parts.ravel() + objective.penalties)


def blocks(objective: LocalObjective, w: Array, groups: list[IntArray], rows: Array | None = None) -> Iterator[Array]:
    """The blocks of the Hessian on groups of coordinates, (len, len) each."""
    X, bends = _bends(objective, w, rows)
    X = X.tocsc() if sparse.issparse(X) else X
    penalties = np.broadcast_to(objective.penalties, w.shape)
    columns = objective.layout.columns
    for group in groups:
        block = np.zeros((group.size, group.size))
        output, column = np.divmod(group, columns)
        places = {int(k): np.flatnonzero(output == k) for k in np.unique(output)}
        parts = {k: _columns(objective, X, column[own]) for k, own in places.items()}
        for k, m, bend in bends:
            if k in places and m in places:
                part = _between(parts[k], bend, parts[m])
                block[np.ix_(places[k], places[m])] = part
                block[np.ix_(places[m], places[k])] = part.T
        block[np.diag_indices_from(block)] += penalties[group]
        yield block


def times(objective: LocalObjective, w: Array, V: Array, rows: Array | None = None) -> Array:
    """(H - penalty) V for a matrix V, (d, columns): a few columns at a time."""
    X, bends = _bends(objective, w, rows)
    layout = objective.layout
    shape = (layout.n_outputs, layout.columns, V.shape[1])
    cut, product = V.reshape(shape), np.empty(shape)
    step = max(1, CHUNK // max(1, X.shape[0] * layout.n_outputs))
    for first in range(0, V.shape[1], step):
        few = slice(first, first + step)
        margins = [_margins(objective, X, cut[k, :, few]) for k in range(layout.n_outputs)]
        pulled = [np.zeros_like(each) for each in margins]
        for k, m, bend in bends:
            pulled[k] += bend[:, None] * margins[m]
            if k != m:
                pulled[m] += bend[:, None] * margins[k]
        for k, each in enumerate(pulled):
            product[k, : layout.n_features, few] = X.T @ each
            if objective.intercept:
                product[k, -1, few] = each.sum(axis=0)
    return product.reshape(V.shape)


def _bends(objective: LocalObjective, w: Array, rows: Array | None) -> tuple[Any, list[tuple[int, int, Array]]]:
    """The rows, and (k, m, r b_km) for every pair of outputs k <= m."""
    X, y, row_weights = objective.X, objective.y, objective.row_weights
    if rows is not None:  # each of them stands for as many as there are more
        X, y, row_weights = X[rows], y[rows], (objective.n_rows / len(rows)) * row_weights[rows]
    parts = w.reshape(objective.layout.n_outputs, -1)
    z = np.column_stack([_margins(objective, X, part[:, None]) for part in parts])
    z = z[:, 0] if objective.layout.n_outputs == 1 else z
    return X, [(k, m, row_weights * bend) for k, m, bend in second_blocks(objective.loss, y, z)]


def _margins(objective: LocalObjective, X: Any, V: Array) -> Array:
    """A V for coefficients of one output, (columns, any)."""
    n = objective.layout.n_features
    return np.asarray(X @ V[:n] + V[n:].sum(axis=0))


def _columns(objective: LocalObjective, X: Any, which: IntArray) -> Any:
    """Columns of A = (X 1), in increasing order: the ones are the last."""
    n = objective.layout.n_features
    if which.size == 0 or which[-1] < n:
        return X[:, which]
    ones = np.ones((X.shape[0], 1))
    if sparse.issparse(X):
        return sparse.hstack([X[:, which[:-1]], ones], format="csc")
    return np.hstack([X[:, which[:-1]], ones])


def _between(left: Any, bend: Array, right: Any) -> Array:
    """left^T diag(bend) right, dense."""
    if sparse.issparse(left):
        return np.asarray((left.T @ right.multiply(bend[:, None]).tocsc()).toarray())
    return np.asarray(left.T @ (right * bend[:, None]))
