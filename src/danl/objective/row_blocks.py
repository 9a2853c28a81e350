"""Blocks of rows that stay in the cache, of one worker or of many: X w, and X_i^T slopes_i of every worker.

Workers that are large enough are gone through one by one. The rows of small ones are put together in one
block-diagonal matrix, so that a product is a few calls however many workers there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from danl.data.shard import rows_of
from danl.frozen import cached_property
from danl.objective import kernels
from danl.objective.losses import Array

Mask = NDArray[np.bool_]
Places = NDArray[np.int64]
BLOCK_ENTRIES = 1 << 20
"""Stored entries of a block of sparse rows, 12 bytes each, and numbers of a block of dense ones: what stays in the
cache the cores share. Smaller blocks are slower: going back and forth between two loops costs more than it saves."""
SMALL_WORKER = 10_000
"""Stored entries of a worker below which its rows are gone through with the others', selected or not."""
LARGE_BLOCK = 1 << 17
"""Numbers of a block of dense rows from which on the calls of its workers' products no longer count."""
MANY_WORKERS = 64
"""Workers of a block from which on dense rows are summed down the columns, not worker by worker."""


class RowChunks:
    """CSR rows cut into chunks, so that those of some workers can be gone through alone (`kernels.csr_chunks`)."""

    def __init__(self, X: Any, bounds: Sequence[int], value: float | None = None) -> None:
        """Worker i has the rows from bounds[i] to bounds[i + 1]."""
        self.shape = X.shape
        self.chunks = kernels.csr_chunks(X, bounds, value)

    def times(self, w: Array, selected: Mask | None = None) -> Array:
        """X w; with a row of `w` for every worker, of each with its own. Those not selected have zeros."""
        assert w.shape[-1] == self.shape[1]
        product = np.zeros(self.shape[0])
        for worker, rows, count, arrays in self.chunks:
            if selected is None or selected[worker]:
                model = w if w.ndim == 1 else w[worker]
                kernels.csr_matvec(count, self.shape[1], *arrays, model, product[rows])
        return product

    def transpose_times(self, slopes: Array, selected: Mask | None = None, begin: Array | None = None) -> Array:
        """X_i^T slopes_i of every worker, (workers, columns); zeros of those not selected; added to `begin`."""
        assert slopes.shape == self.shape[:1]
        products = np.zeros((self.chunks[-1][0] + 1, self.shape[1])) if begin is None else begin
        for worker, rows, count, arrays in self.chunks:
            if selected is None or selected[worker]:
                kernels.csc_matvec(self.shape[1], count, *arrays, slopes[rows], products[worker])
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
        self.whole = bool(bounds[workers.start] == first and bounds[workers.stop] == last)  # all rows of its workers
        self.starts = np.maximum(bounds[workers.start : workers.stop], first) - first
        self._value = value
        # Sparse rows of workers that are large enough are gone through worker by worker.
        self._sparse = sparse.issparse(X)
        self._each = self._sparse and (self.n_workers == 1 or self.X.nnz >= SMALL_WORKER * self.n_workers)
        self.many_small_workers = self._sparse and not self._each  # then all products are one, block-diagonal

    @cached_property
    def _chunks(self) -> RowChunks:
        return RowChunks(self.X, [*(self.starts.tolist() if self._each else [0]), self.n_rows], self._value)

    @cached_property
    def _block_diagonal(self) -> RowChunks:
        matrix = kernels.block_diagonal(self.X, self.starts)
        return RowChunks(matrix, [0, self.n_rows], self._value)

    def times(self, w: Array, selected: Mask | None = None) -> Array:
        """X w; with the workers' models (workers, features), X_i w_i of every row of worker i."""
        if not self._sparse:
            if w.ndim == 1:
                return np.asarray(self.X @ w)
            return np.concatenate([own @ model for own, model in zip(self._own_rows, w, strict=True)])
        if self._each:
            return self._chunks.times(w, selected)
        return self._chunks.times(w) if w.ndim == 1 else self._block_diagonal.times(w.ravel())

    def transpose_times_plus(self, slopes: Array, row: Array) -> Array:
        """X_i^T slopes_i + row of many small workers, (workers, features)."""
        begin = kernels.filled_rows(self.n_workers, row)
        self._block_diagonal.transpose_times(slopes, begin=begin.reshape(1, -1))
        return begin

    def transpose_times(self, slopes: Array, selected: Mask | None = None) -> Array:
        """X_i^T slopes_i of every worker, (workers, features)."""
        if self._each:
            return self._chunks.transpose_times(slopes, selected)
        if self._sparse:
            return self._block_diagonal.transpose_times(slopes).reshape(self.n_workers, self.n_features)
        if self.n_workers >= MANY_WORKERS:
            return np.asarray(np.add.reduceat(self.X * slopes[:, None], self.starts, axis=0))
        products = np.empty((self.n_workers, self.n_features))
        if self.X.size > LARGE_BLOCK:
            for product, own_rows, own_slopes in zip(products, self._own_rows, self._by_worker(slopes), strict=True):
                np.dot(own_slopes, own_rows, out=product)  # matmul would keep other threads waiting
            return products
        for workers, rows, own in self._alike:
            count, size, _ = own.shape
            np.matmul(slopes[rows].reshape(count, 1, size), own, out=products[workers, None])
        return products

    @property
    def few_dense_workers(self) -> bool:
        return not self._sparse and self.n_workers < MANY_WORKERS

    def each_with(self, slopes: Array) -> Iterator[tuple[int, Any, Array]]:
        """Every worker of the block by its place in it, its rows here, and what belongs to them."""
        return zip(range(self.n_workers), self._own_rows, self._by_worker(slopes), strict=True)

    def sums(self, slopes: Array) -> Array:
        """The sum over each worker's rows, (workers,)."""
        return np.asarray(np.add.reduceat(slopes, self.starts))

    @cached_property
    def _stretches(self) -> list[slice]:
        ends = [*self.starts.tolist(), self.n_rows]
        return [slice(first, last) for first, last in pairwise(ends)]

    @cached_property
    def _alike(self) -> list[tuple[slice, slice, Any]]:
        """Neighbours with as many rows each: who, where these are, and the rows, (workers, rows of one, features)."""
        ends, sizes = [*self.starts.tolist(), self.n_rows], [own.stop - own.start for own in self._stretches]
        changes = [i for i in range(1, self.n_workers) if sizes[i] != sizes[i - 1]]
        made = []
        for a, b in pairwise([0, *changes, self.n_workers]):
            rows = slice(ends[a], ends[b])
            made.append((slice(a, b), rows, self.X[rows].reshape(b - a, sizes[a], self.n_features)))
        return made

    @cached_property
    def _own_rows(self) -> list[Any]:
        return self._by_worker(self.X)

    def _by_worker(self, rows: Any) -> list[Any]:
        return [rows[own] for own in self._stretches]


def row_blocks(X: Any, bounds: Places, ends: Places, value: float | None) -> list[RowBlock]:
    """The rows in blocks: as many whole workers as fit into one; large workers in parts.

    Worker i has the rows from bounds[i] to bounds[i + 1]; `ends` are the stored entries up to each of these.
    """
    made, first, n_workers = list[RowBlock](), 0, len(bounds) - 1
    while first < n_workers:
        fits = int(np.searchsorted(ends, ends[first] + BLOCK_ENTRIES, side="right")) - 1
        last = max(fits, first + 1)
        parts = 1 if fits > first else -(-int(ends[last] - ends[first]) // BLOCK_ENTRIES)
        rows = np.linspace(bounds[first], bounds[last], parts + 1).astype(int).tolist()
        made += [RowBlock(X, a, b, slice(first, last), bounds, value) for a, b in pairwise(rows) if a < b]
        first = last
    return made
