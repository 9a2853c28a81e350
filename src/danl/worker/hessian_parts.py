r"""Parts of a worker's Hessian, computed without the whole of it: its diagonal, blocks of it, products with a matrix.

With A = (X 1), row weights r and the second derivatives b_km of the loss in the margins of outputs k and m, the Hessian
is made of the blocks  H_km = A^T diag(r b_km) A  (one block where there is one output), and

    diagonal       of H_kk = (A * A)^T (r b_kk)
    block          of coordinates J: columns of A alone
    product        (H V)_k = A^T sum_m diag(r b_km) A V_m

each plus the penalty on the coordinates that have one. `times` is of the data's part, without the penalty.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from danl.objective.local import LocalObjective
from danl.objective.losses import second_blocks
from danl.objective.regions import IntArray, Regions
from danl.protocol.hessian_form import Structure, sketch_matrix
from danl.protocol.messages import Array, CurvatureTask, pack

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
                return blocks(objective, w, regions, rows)
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


def blocks(objective: LocalObjective, w: Array, regions: Regions, rows: Array | None = None) -> Array:
    """The blocks of the Hessian, one for every region, packed one after the other."""
    X, bends = _bends(objective, w, rows)
    places = _Places.of(regions)
    packed = np.zeros(places.total)
    if sparse.issparse(X):
        parts, row_of = _cut_apart(objective, X, regions)
        for k, m, bend in bends:
            product = (parts[k].T @ sparse.diags(bend[row_of]) @ parts[m]).tocoo()
            upper = product.row <= product.col
            packed[places.of_pairs(product.row[upper], product.col[upper])] = product.data[upper]
    else:
        A = np.hstack([X, np.ones((len(X), 1))]) if objective.intercept else X
        for q in range(regions.n_regions):
            output, column = np.divmod(regions.indices(q), objective.layout.columns)
            block = np.zeros((output.size, output.size))
            for k, m, bend in bends:
                part = A[:, column[output == k]].T @ (A[:, column[output == m]] * bend[:, None])
                block[np.ix_(output == k, output == m)] = part  # pairs k <= m: what is packed of it
            packed[places.start[q] : places.start[q + 1]] = pack(block)
    every = np.arange(w.size)
    packed[places.of_pairs(every, every)] += objective.penalties
    return packed


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


@dataclass(frozen=True)
class _Places:
    """Where the entries of the blocks are among the packed numbers."""

    of_feature: IntArray
    sizes: IntArray
    start: IntArray  # (Q + 1,): of each block
    inside: IntArray  # (d,): the place of a coordinate in its region

    @classmethod
    def of(cls, regions: Regions) -> _Places:
        sizes = regions.sizes
        inside = np.empty(regions.n_features, dtype=np.int64)
        for q in range(regions.n_regions):
            inside[regions.indices(q)] = np.arange(sizes[q])
        start = np.concatenate([[0], np.cumsum(sizes * (sizes + 1) // 2)])
        return cls(regions.of_feature, sizes, start, inside)

    @property
    def total(self) -> int:
        return int(self.start[-1])

    def of_pairs(self, row: IntArray, column: IntArray) -> IntArray:
        """The place of entries (row, column), row <= column, both in one region."""
        q, i, j = self.of_feature[row], self.inside[row], self.inside[column]
        return np.asarray(self.start[q] + i * self.sizes[q] - i * (i - 1) // 2 + (j - i))


def _cut_apart(objective: LocalObjective, X: Any, regions: Regions) -> tuple[list[Any], IntArray]:
    """A for every output, on the coordinates of w, its rows cut into one for every region; and whose rows they are.

    Rows of different regions have no entry in common, so that products of the columns are those of blocks only.
    """
    layout, entries = objective.layout, X.tocoo()
    row, column, value = entries.row, entries.col, entries.data
    if objective.intercept:
        every = np.arange(X.shape[0])
        row, column = np.append(row, every), np.append(column, np.full(every.size, layout.n_features))
        value = np.append(value, np.ones(every.size))
    columns = [k * layout.columns + column.astype(np.int64) for k in range(layout.n_outputs)]
    pieces = [row.astype(np.int64) * regions.n_regions + regions.of_feature[own] for own in columns]
    there, number = np.unique(np.concatenate(pieces), return_inverse=True)
    shape = (there.size, layout.size)
    cut = np.split(number, layout.n_outputs)
    parts = [sparse.csr_array((value, (new, own)), shape=shape) for new, own in zip(cut, columns, strict=True)]
    return parts, there // regions.n_regions
