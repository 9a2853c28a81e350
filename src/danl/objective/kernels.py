r"""The products that take the time: X w, X^T slopes of each worker's rows, and X^T diag(weights) X.

The rows of many workers are gone through in blocks that stay in the cache (`RowBlock`). One transpose product with the
block-diagonal matrix of the workers' rows gives the gradients of all workers of a block, at the cost of one pooled
gradient, however many they are.

X^T diag(weights) X is done by the kernel that is fastest for the matrix: blocks of rows and BLAS where it is dense or
nearly so, tabmat's sandwich product for large sparse ones, scipy's product for small ones (importing tabmat takes
longer).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

try:  # what scipy's products end in; a small one spends as long on the way there
    from scipy.sparse._sparsetools import csc_matvec as _csc_matvec
    from scipy.sparse._sparsetools import csr_matvec as _csr_matvec
except ImportError:  # not public: another scipy may have moved it
    _csc_matvec = _csr_matvec = None

from danl.checks import is_installed
from danl.data.shard import rows_of

Array = NDArray[np.float64]
BLOCK_BYTES = 1 << 18
"""Bytes of a block of rows in a dense product: what stays in a core's own cache while it is used."""
BLOCK_ENTRIES = 1 << 17
"""Stored entries of a block of rows in a sparse product: the same, 12 bytes each."""
CHUNK_ENTRIES = 1 << 16
"""Stored entries of a chunk whose values are the same: they and their places, 12 bytes each, stay in that cache."""
NEARLY_DENSE = 0.24
"""Share of stored entries above which dense blocks beat a sparse product (measured; d^2 against 16 times entries^2)."""
LARGE = 5_000_000
"""Products of stored entries above which a sparse product is worth importing tabmat for (some 30 ms of scipy's)."""
SMALL_WORKER = 10_000
"""Stored entries of a worker below which its rows are gone through with the others', selected or not."""
MANY_WORKERS = 64
"""Workers of a block from which on dense rows are summed down the columns, not worker by worker."""
SEGMENT = 64
"""Numbers that are added up one after the other; their sums are added up in turn, so that rounding stays small."""


def times(X: Any, w: Array) -> Array:
    """X w of rows that are dense or CSR."""
    if not sparse.issparse(X) or w.shape != X.shape[1:]:  # scipy says what is wrong
        return np.asarray(X @ w)
    product = np.zeros(X.shape[0])
    _add_times(X, w, product)
    return product


def transpose_times(X: Any, slopes: Array) -> Array:
    """X^T slopes of rows that are dense or CSR, whose transpose is CSC."""
    if not sparse.issparse(X) or slopes.shape != X.shape[:1]:
        return np.asarray(X.T @ slopes)
    product = np.zeros(X.shape[1])
    _add_transpose_times(X, slopes, product)
    return product


def _add_times(X: Any, w: Array, product: Array) -> None:
    """Add X w of CSR rows."""
    if _csr_matvec is None:
        product += X @ w
    else:
        _csr_matvec(*X.shape, X.indptr, X.indices, X.data, w, product)


def _add_transpose_times(X: Any, slopes: Array, product: Array) -> None:
    """Add X^T slopes of CSR rows."""
    if _csc_matvec is None:
        product += X.T @ slopes
    else:
        _csc_matvec(*reversed(X.shape), X.indptr, X.indices, X.data, slopes, product)


def repeated_value(X: Any) -> float | None:
    """The number that all stored entries are (1, in data of categories), or None where they differ."""
    parts = (X.data[first : first + BLOCK_ENTRIES] for first in range(0, X.nnz, BLOCK_ENTRIES))
    return float(X.data[0]) if X.nnz and all((part == X.data[0]).all() for part in parts) else None


class RowChunks:
    """CSR rows cut into chunks: the rows of some workers alone, and no values to read where all are the same number.

    A chunk is a matrix of its own, in the memory of the whole. Where `value` is the one number that is stored, chunks
    are about CHUNK_ENTRIES large and have the same values in memory, which stay in the core's cache: a third of the
    bytes is left to go through, the places of the entries.
    """

    def __init__(self, X: Any, bounds: Sequence[int], value: float | None = None) -> None:
        """Worker i has the rows from bounds[i] to bounds[i + 1]."""
        self.shape = X.shape
        self._chunks: list[tuple[int, slice, Any]] = []
        for worker, (first, last) in enumerate(pairwise(bounds)):
            for a, b in pairwise(row_cuts(X, CHUNK_ENTRIES, first, last) if value is not None else [first, last]):
                self._chunks.append((worker, slice(a, b), rows_of(X, a, b)))
        if value is not None:
            values = np.full(max((chunk.nnz for _, _, chunk in self._chunks), default=0), value)
            for _, _, chunk in self._chunks:
                chunk.data = values[: chunk.nnz]

    def times(self, w: Array, selected: Sequence[bool] | None = None) -> Array:
        """X w; with a row of `w` for every worker, of each with its own. Those not selected have zeros."""
        assert w.shape[-1] == self.shape[1]
        product = np.zeros(self.shape[0])
        for worker, rows, chunk in self._chunks:
            if selected is None or selected[worker]:
                _add_times(chunk, w if w.ndim == 1 else w[worker], product[rows])
        return product

    def transpose_times(self, slopes: Array, selected: Sequence[bool] | None = None) -> Array:
        """X_i^T slopes_i of every worker, (workers, columns); zeros of those not selected."""
        assert slopes.shape == self.shape[:1]
        products = np.zeros((self._chunks[-1][0] + 1, self.shape[1]))
        for worker, rows, chunk in self._chunks:
            if selected is None or selected[worker]:
                _add_transpose_times(chunk, slopes[rows], products[worker])
        return products


class RowBlock:
    """Consecutive rows that stay in the cache: those of some workers, or some of those of one."""

    def __init__(
        self, X: Any, first: int, last: int, workers: slice, bounds: NDArray[np.int64], value: float | None = None
    ) -> None:
        """Rows `first` to `last` of X; `value` is the one number that is stored, if it is one."""
        self.rows, self.workers, self.X = slice(first, last), workers, rows_of(X, first, last)
        self.n_rows, self.n_features = last - first, int(X.shape[1])
        self.n_workers = workers.stop - workers.start
        self.starts = np.maximum(bounds[workers.start : workers.stop], first) - first
        self._value = value
        # Sparse rows of workers that are large enough are gone through worker by worker.
        self._sparse = sparse.issparse(X)
        self._each = self._sparse and (self.n_workers == 1 or self.X.nnz >= SMALL_WORKER * self.n_workers)

    @cached_property
    def _chunks(self) -> RowChunks:
        return RowChunks(self.X, [*(self.starts.tolist() if self._each else [0]), self.n_rows], self._value)

    @cached_property
    def _block_diagonal(self) -> RowChunks:
        """The matrix with every worker's columns at a place of their own, (rows, workers * features)."""
        entries = np.diff(np.append(self.X.indptr[self.starts], self.X.indptr[-1]))  # of each worker
        width = self.n_workers * self.n_features
        kind = np.int32 if width < 2**31 else np.int64
        shifts = np.repeat(np.arange(self.n_workers, dtype=kind) * kind(self.n_features), entries)
        matrix = sparse.csr_matrix((self.n_rows, width))
        matrix.indices = (shifts + self.X.indices).astype(kind, copy=False)
        matrix.data, matrix.indptr = self.X.data, self.X.indptr
        return RowChunks(matrix, [0, self.n_rows], self._value)

    def times(self, w: Array, selected: Sequence[bool] | None = None) -> Array:
        """X w; with the workers' models (workers, features), X_i w_i of every row of worker i."""
        if not self._sparse:
            if w.ndim == 1:
                return np.asarray(self.X @ w)
            return np.concatenate([own @ model for own, model in zip(self._by_worker(self.X), w, strict=True)])
        if self._each:
            return self._chunks.times(w, selected)
        return self._chunks.times(w) if w.ndim == 1 else self._block_diagonal.times(w.ravel())

    def transpose_times(self, slopes: Array, selected: Sequence[bool] | None = None) -> Array:
        """X_i^T slopes_i of every worker, (workers, features)."""
        if self._each:
            return self._chunks.transpose_times(slopes, selected)
        if self._sparse:
            return self._block_diagonal.transpose_times(slopes).reshape(self.n_workers, self.n_features)
        if self.n_workers >= MANY_WORKERS:
            return np.asarray(np.add.reduceat(self.X * slopes[:, None], self.starts, axis=0))
        pairs = zip(self._by_worker(self.X), self._by_worker(slopes), strict=True)
        return np.stack([own_slopes @ own for own, own_slopes in pairs])

    def sums(self, slopes: Array) -> Array:
        """The sum over each worker's rows, (workers,)."""
        return np.asarray(np.add.reduceat(slopes, self.starts))

    def _by_worker(self, rows: Any) -> list[Any]:
        return np.split(rows, self.starts[1:])


class Sandwich:
    """X^T diag(weights) X for one X and many weights of the rows."""

    def __init__(self, X: Any) -> None:
        self._X = X
        self.calls = 0

    def __call__(self, weights: Array) -> Array:
        """The product, dense."""
        self.calls += 1
        return self._kernel(weights)

    @cached_property
    def _kernel(self) -> Callable[[Array], Array]:
        X = self._X
        if not sparse.issparse(X):
            return lambda weights: blocked(X, weights)
        n_rows, d = X.shape
        if X.nnz > NEARLY_DENSE * n_rows * d:
            dense = X.toarray()  # at most three times the memory of the sparse one
            return lambda weights: blocked(dense, weights)
        work = float(np.square(np.diff(X.indptr).astype(float)).sum())
        if (work > LARGE or "tabmat" in sys.modules) and is_installed("tabmat"):
            return tabmat_sandwich(X)
        return lambda weights: scipy_sandwich(X, weights)


def tabmat_sandwich(X: Any) -> Callable[[Array], Array]:
    """The product of a large sparse matrix: tabmat's, block by block of rows that stay in the cache."""
    from tabmat import SparseMatrix

    bounds = row_cuts(X, BLOCK_ENTRIES)
    blocks = []
    for first, last in pairwise(bounds):
        rows = rows_of(X, first, last)
        blocks.append(SparseMatrix(sparse.csc_matrix(rows)))
        blocks[-1]._array_csr = rows  # which it would make again from its columns

    def product(weights: Array) -> Array:
        total = np.zeros((X.shape[1], X.shape[1]))
        for block, (first, last) in zip(blocks, pairwise(bounds), strict=True):
            total += block.sandwich(weights[first:last])
        return total

    return product


def row_cuts(X: Any, most: int, first: int = 0, last: int | None = None) -> list[int]:
    """Where blocks of sparse rows begin, and where the last one ends: each of about `most` stored entries or fewer."""
    last = int(X.shape[0]) if last is None else last
    start, end = int(X.indptr[first]), int(X.indptr[last])
    cuts = np.searchsorted(X.indptr, np.linspace(start, end, max(1, -(-(end - start) // most)) + 1)[1:-1])
    return [first, *np.unique(cuts[(cuts > first) & (cuts < last)]).tolist(), last]


def scipy_sandwich(X: Any, weights: Array) -> Array:
    """The product of a small sparse matrix."""
    scaled = sparse.csr_matrix((X.data * np.repeat(weights, np.diff(X.indptr)), X.indices, X.indptr), shape=X.shape)
    return np.asarray((X.T @ scaled).toarray())


def blocked(X: Any, weights: Array) -> Array:
    """The product of a dense matrix, block by block of rows that stay in the cache."""
    n_rows, d = X.shape
    rows = max(BLOCK_BYTES // (8 * d), 16)
    product = np.zeros((d, d))
    convex = bool((weights >= 0).all())
    root = np.sqrt(weights) if convex else weights
    for first in range(0, n_rows, rows):
        block = X[first : first + rows]
        scaled = block * root[first : first + rows, None]
        product += scaled.T @ (scaled if convex else block)  # a matrix times its own transpose takes half of the work
    return product


class Segments:
    """Sums over consecutive stretches of a vector, the workers' rows of a stack, each row with its weight."""

    def __init__(self, bounds: NDArray[np.int64], weights: Array | None = None) -> None:
        sizes = np.diff(bounds)
        pieces = -(-sizes // SEGMENT)
        self._outer = np.concatenate([[0], np.cumsum(pieces)[:-1]])
        within = np.arange(int(pieces.sum())) - np.repeat(self._outer, pieces)
        self._inner = np.repeat(bounds[:-1], pieces) + SEGMENT * within
        self._weights = weights

    def sums(self, values: Array) -> Array:
        """One sum a stretch."""
        weighted = values if self._weights is None else self._weights * values
        return np.asarray(np.add.reduceat(np.add.reduceat(weighted, self._inner), self._outer))

    def sums_of_logarithms(self, numbers: Array) -> Array:
        """One sum of logarithms a stretch; without weights by the logarithms of products: one for many numbers."""
        if self._weights is not None:
            return self.sums(np.log(numbers))
        return np.asarray(np.add.reduceat(np.log(np.multiply.reduceat(numbers, self._inner)), self._outer))
