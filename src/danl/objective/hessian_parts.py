r"""Parts of a worker's Hessian, computed without the whole of it: its diagonal, blocks of it, products with a matrix.

With A = (X 1), row weights r and the second derivatives b_km of the loss in the margins of outputs k and m, the Hessian
is made of the blocks  H_km = A^T diag(r b_km) A  (one block where there is one output), and

    diagonal       of H_kk = (A * A)^T (r b_kk)
    block          of coordinates J: columns of A alone
    rows           J of the whole: the columns J of A, times A
    product        (H V)_k = A^T sum_m diag(r b_km) A V_m

each plus the penalty on the coordinates that have one. `times` is of the data's part, without the penalty.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from danl.objective.batch import Batch
from danl.objective.kernels import squares_transpose_times
from danl.objective.local_objective import LocalObjective
from danl.objective.losses import Array, weighted_second_derivatives
from danl.objective.regions import IntArray, Regions

CHUNK = 4_000_000
"""Numbers that the margins of a product with a matrix may have at a time."""


def diagonal(objective: LocalObjective, w: Array) -> Array:
    """The diagonal of the Hessian, (d,)."""
    layout = objective.layout
    parts = np.empty((layout.n_outputs, layout.columns))
    for k, m, weights in objective.second_derivatives(w):
        if k == m:
            parts[k, : layout.n_features] = squares_transpose_times(objective.X, weights)
            if layout.intercept:
                parts[k, -1] = weights.sum()
    return np.asarray(parts.ravel() + objective.penalties)


def diagonal_sum(batch: Batch, w: Array, weights: Array) -> Array:
    """The diagonal of sum_i weight_i Hess F_i(w) of the workers of a batch."""
    layout, n, z = batch.layout, batch.layout.n_features, batch.margins(w)
    row_weights, parts = weights[batch.owners] * batch.row_weights, np.zeros((layout.n_outputs, layout.columns))
    for block in batch.blocks:
        own = block.rows
        with np.errstate(over="ignore", invalid="ignore"):
            for k, m, second in weighted_second_derivatives(batch.loss, batch.y[own], z[own], row_weights[own]):
                if k == m:
                    parts[k, :n] += squares_transpose_times(block.X, second)
                    parts[k, n:] += second.sum()
    return np.asarray(parts.ravel() + np.where(layout.penalised, float(weights @ batch.penalties), 0.0))


def blocks(objective: LocalObjective, w: Array, regions: Regions) -> Array:
    """The blocks of the Hessian, one for every region: their upper triangles, packed one after the other."""
    X, columns = objective.X, objective.layout.columns
    packing = _Packing.of(regions)
    packed = np.zeros(packing.start[-1])
    if sparse.issparse(X):
        parts, row_of = _cut_by_region(objective, regions)
        for k, m, weights in objective.second_derivatives(w):
            product = (parts[k].T @ sparse.diags(weights[row_of]) @ parts[m]).tocoo()
            upper = product.row <= product.col
            packed[packing.places(product.row[upper], product.col[upper])] = product.data[upper]
    else:
        A = np.hstack([X, np.ones((len(X), 1))]) if objective.intercept else X
        pairs = list(objective.second_derivatives(w))
        for q in range(regions.n_regions):
            output, column = np.divmod(regions.indices(q), columns)
            block = np.zeros((output.size, output.size))
            for k, m, weights in pairs:
                part = A[:, column[output == k]].T @ (A[:, column[output == m]] * weights[:, None])
                block[np.ix_(output == k, output == m)] = part  # pairs k <= m: what is packed of it
            packed[packing.start[q] : packing.start[q + 1]] = block[np.triu_indices(len(block))]
    every = np.arange(w.size)
    packed[packing.places(every, every)] += objective.penalties
    return packed


def piece(objective: LocalObjective, w: Array, first: int, last: int) -> Array:
    """The numbers from place `first` to `last` of the Hessian's packed upper triangle.

    Only the rows of the Hessian that have some of them are computed, and held.
    """
    layout, d = objective.layout, w.size
    starts = diagonal_places(d)  # where each row begins
    top, end = np.searchsorted(starts, [first, last - 1], side="right") - [1, 0]
    coordinates = np.arange(top, end)
    output, column = np.divmod(coordinates, layout.columns)
    strip = np.zeros((coordinates.size, layout.n_outputs, layout.columns))
    for k, m, weights in objective.second_derivatives(w):
        for own, other in {(k, m), (m, k)}:
            here = np.flatnonzero(output == own)
            if here.size:
                strip[here, other] = _rows_of_product(objective, column[here], weights)
    rows = strip.reshape(coordinates.size, d)
    rows[np.arange(coordinates.size), coordinates] += np.broadcast_to(objective.penalties, d)[coordinates]
    packed = np.concatenate([row[i:] for i, row in zip(coordinates, rows, strict=True)])
    return packed[first - starts[top] : last - starts[top]].copy()


def diagonal_places(d: int) -> IntArray:
    """Where the diagonal of a d x d matrix is in its packed upper triangle, (d,)."""
    return np.asarray(np.cumsum(np.arange(d + 1, 1, -1)) - (d + 1))


def _rows_of_product(objective: LocalObjective, columns: IntArray, weights: Array) -> Array:
    """Rows of A^T diag(weights) A, dense."""
    X, n = objective.X, objective.layout.n_features
    features = columns[columns < n]
    own = X[:, features]
    scaled = sparse.diags(weights) @ own if sparse.issparse(X) else own * weights[:, None]
    product = scaled.T @ X
    made = np.zeros((columns.size, objective.layout.columns))
    made[: features.size, :n] = product.toarray() if sparse.issparse(product) else product
    if objective.intercept:
        made[: features.size, n] = own.T @ weights
        if columns.size > features.size:  # the last row is that of the intercept
            made[-1, :n], made[-1, n] = X.T @ weights, weights.sum()
    return made


def times(objective: LocalObjective, w: Array, V: Array) -> Array:
    """(H - penalty) V for a matrix V, (d, columns): a few columns at a time."""
    X, layout, n = objective.X, objective.layout, objective.layout.n_features
    pairs = list(objective.second_derivatives(w))
    shape = (layout.n_outputs, layout.columns, V.shape[1])
    cut, product = V.reshape(shape), np.empty(shape)
    step = max(1, CHUNK // max(1, X.shape[0] * layout.n_outputs))
    for first in range(0, V.shape[1], step):
        few = slice(first, first + step)
        margins = [np.asarray(X @ part[:n] + part[n:].sum(axis=0)) for part in cut[:, :, few]]
        slopes = [np.zeros_like(each) for each in margins]
        for k, m, weights in pairs:
            slopes[k] += weights[:, None] * margins[m]
            if k != m:
                slopes[m] += weights[:, None] * margins[k]
        for k, each in enumerate(slopes):
            product[k, :n, few] = X.T @ each
            if layout.intercept:
                product[k, -1, few] = each.sum(axis=0)
    return product.reshape(V.shape)


@dataclass(frozen=True)
class _Packing:
    """Where the entries of the blocks are among the packed numbers."""

    region: IntArray  # (d,): of each coordinate
    inside: IntArray  # (d,): its place in the region
    sizes: IntArray  # (Q,)
    start: IntArray  # (Q + 1,): of each block

    @classmethod
    def of(cls, regions: Regions) -> _Packing:
        sizes, inside = regions.sizes, np.empty(len(regions.of_coefficient), dtype=np.int64)
        for q in range(regions.n_regions):
            inside[regions.indices(q)] = np.arange(sizes[q])
        return cls(regions.of_coefficient, inside, sizes, np.concatenate([[0], np.cumsum(sizes * (sizes + 1) // 2)]))

    def places(self, row: IntArray, column: IntArray) -> IntArray:
        """The place of entries (row, column), row <= column, both in one region."""
        q, i, j = self.region[row], self.inside[row], self.inside[column]
        return np.asarray(self.start[q] + i * self.sizes[q] - i * (i - 1) // 2 + (j - i))


def _cut_by_region(objective: LocalObjective, regions: Regions) -> tuple[list[Any], IntArray]:
    """A for every output, on the coordinates of w, its rows cut into one for every region; and whose rows they are.

    Rows of different regions have no entry in common, so that products of the columns are those of blocks only.
    """
    layout, entries = objective.layout, objective.X.tocoo()
    row, column, value = entries.row, entries.col, entries.data
    if layout.intercept:
        every = np.arange(objective.n_rows)
        row, column = np.append(row, every), np.append(column, np.full(every.size, layout.n_features))
        value = np.append(value, np.ones(every.size))
    columns = [k * layout.columns + column.astype(np.int64) for k in range(layout.n_outputs)]
    pieces = [row.astype(np.int64) * regions.n_regions + regions.of_coefficient[own] for own in columns]
    present, number = np.unique(np.concatenate(pieces), return_inverse=True)
    shape = (present.size, layout.n_coefficients)
    cut = np.split(number, layout.n_outputs)
    parts = [sparse.csr_array((value, (new, own)), shape=shape) for new, own in zip(cut, columns, strict=True)]
    return parts, present // regions.n_regions
