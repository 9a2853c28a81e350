r"""The products that take the time: X w, X^T slopes, and X^T diag(weights) X.

The last is done by the kernel that is fastest for the matrix: blocks of rows and BLAS where it is dense or
nearly so, tabmat's sandwich product for large sparse ones, scipy's product for small ones (importing tabmat takes
longer).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from danl.checks import is_installed
from danl.data.shard import rows_of
from danl.frozen import cached_property
from danl.objective.threads import allowed, shared

Array = NDArray[np.float64]
Places = NDArray[np.int64]
BLOCK_BYTES = 1 << 18
"""Bytes of a block of rows in a dense product: what stays in a core's own cache while it is used."""
BLOCK_ENTRIES = 1 << 17
"""Stored entries of a block of rows in a sparse product: the same, 12 bytes each."""
CHUNK_ENTRIES = 1 << 16
"""Stored entries of a chunk whose values are the same: they and their places, 12 bytes each, stay in that cache."""
LONG_ROW = 4096
"""Numbers of an inner loop whose beginning and end no longer count."""
NEARLY_DENSE = 0.24
"""Share of stored entries above which dense blocks beat a sparse product (measured; d^2 against 16 times entries^2)."""
NARROW, SHARED_NUMBERS = 256, 1_000_000
"""Columns up to which, and numbers of a dense matrix from which on, its product is shared among threads."""
PRODUCTS, SPARSE_PRODUCTS = 1 << 20, 1 << 23
"""Numbers of the products of blocks that wait for being added up, of dense rows and of sparse ones."""
LARGE = 5_000_000
"""Products of stored entries above which a sparse product is worth importing tabmat for (some 30 ms of scipy's)."""


def _csr_matvec(rows: int, columns: int, indptr: Any, indices: Any, data: Any, w: Array, product: Array) -> None:
    """Add X w of CSR rows, as scipy's inner loop does."""
    product += sparse.csr_matrix((data, indices, indptr), shape=(rows, columns)) @ w


def _csc_matvec(rows: int, columns: int, indptr: Any, indices: Any, data: Any, slopes: Array, product: Array) -> None:
    """Add X slopes of CSC columns: X^T slopes of the CSR rows that have the same arrays."""
    product += sparse.csc_matrix((data, indices, indptr), shape=(rows, columns)) @ slopes


def _csr_todense(rows: int, columns: int, indptr: Any, indices: Any, data: Any, dense: Array) -> None:
    """Add CSR rows to dense ones."""
    dense += sparse.csr_matrix((data, indices, indptr), shape=(rows, columns)).toarray()


try:  # what scipy's products end in; a small one spends as long on the way there
    from scipy.sparse._sparsetools import csc_matvec as csc_matvec
    from scipy.sparse._sparsetools import csr_matmat as csr_matmat
    from scipy.sparse._sparsetools import csr_matvec as csr_matvec
    from scipy.sparse._sparsetools import csr_todense as csr_todense
except ImportError:  # not public: another scipy may have moved it
    csc_matvec, csr_matvec, csr_todense, csr_matmat = _csc_matvec, _csr_matvec, _csr_todense, None


def times(X: Any, w: Array) -> Array:
    """X w of rows that are dense or CSR."""
    if not sparse.issparse(X) or w.shape != X.shape[1:]:  # scipy says what is wrong
        return np.asarray(X @ w)
    product = np.zeros(X.shape[0])
    csr_matvec(*X.shape, X.indptr, X.indices, X.data, w, product)
    return product


def transpose_times(X: Any, slopes: Array) -> Array:
    """X^T slopes of rows that are dense or CSR, whose transpose is CSC."""
    if not sparse.issparse(X) or slopes.shape != X.shape[:1]:
        return np.asarray(X.T @ slopes)
    product = np.zeros(X.shape[1])
    csc_matvec(*reversed(X.shape), X.indptr, X.indices, X.data, slopes, product)
    return product


def squares_transpose_times(X: Any, slopes: Array) -> Array:
    """(X * X)^T slopes, the squares made of a few rows at a time."""
    if sparse.issparse(X):
        product = np.zeros(X.shape[1])
        for first, last in pairwise(row_boundaries(X, BLOCK_ENTRIES)):
            few = slice(X.indptr[first], X.indptr[last])
            arrays = X.indptr[first : last + 1] - few.start, X.indices[few], np.square(X.data[few])
            csc_matvec(X.shape[1], last - first, *arrays, slopes[first:last], product)
        return product
    return np.asarray(sum((slopes[part] @ np.square(X[part]) for part in few_rows(X)), np.zeros(X.shape[1])))


def few_rows(X: Any) -> list[slice]:
    """Dense rows a few at a time, so that a copy of them stays in the cache."""
    size = max(BLOCK_ENTRIES // int(X.shape[1]), 16)
    return [slice(first, first + size) for first in range(0, len(X), size)]


def add_to_rows(rows: Array, row: Array) -> None:
    """Add one row to all, in place; of many short rows several at a time, so that the inner loop is a long one."""
    count, d = rows.shape
    at_once = LONG_ROW // d
    if count < 2 * at_once or at_once < 2 or not rows.flags.c_contiguous:
        rows += row
        return
    most = count - count % at_once
    several = rows[:most].reshape(-1, at_once * d)
    several += np.tile(row, at_once)
    rows[most:] += row


def filled_rows(count: int, row: Array) -> Array:
    """Many rows that all are this one; several at a time, too."""
    d, at_once = len(row), max(LONG_ROW // len(row), 1)
    most = count - count % at_once
    rows = np.empty((count, d))
    rows[:most].reshape(-1, at_once * d)[:] = np.tile(row, at_once)
    rows[most:] = row
    return rows


def repeated_value(X: Any) -> float | None:
    """The number that all stored entries are (1, in data of categories), or None where they differ."""
    parts = (X.data[first : first + BLOCK_ENTRIES] for first in range(0, X.nnz, BLOCK_ENTRIES))
    return float(X.data[0]) if X.nnz and all((part == X.data[0]).all() for part in parts) else None


def csr_chunks(
    X: Any, bounds: Sequence[int], value: float | None
) -> list[tuple[int, slice, int, tuple[Any, Any, Any]]]:
    """Chunks of CSR rows: part of `bounds`, rows, how many they are, and the arrays of a CSR matrix.

    Where `value` is the one number that is stored, chunks are about CHUNK_ENTRIES large and have the same values in
    memory, which stay in the core's cache: a third of the bytes is left to go through, the places of the entries.
    """
    cuts = []
    for part, (first, last) in enumerate(pairwise(bounds)):
        ends = [first, last] if value is None else row_boundaries(X, CHUNK_ENTRIES, first, last)
        cuts += [(part, a, b, X.indptr[a], X.indptr[b]) for a, b in pairwise(ends)]
    same = None if value is None else np.full(max((end - start for *_, start, end in cuts), default=0), value)
    chunks = []
    for part, a, b, start, end in cuts:
        data = X.data[start:end] if same is None else same[: end - start]
        chunks.append((part, slice(a, b), b - a, (X.indptr[a : b + 1] - start, X.indices[start:end], data)))
    return chunks


def block_diagonal(X: Any, starts: NDArray[np.int64]) -> Any:
    """The CSR matrix whose blocks are the rows that begin at `starts`, each with its columns at places of their own."""
    n_rows, n_columns = X.shape
    entries = np.diff(np.append(X.indptr[starts], X.indptr[-1]))  # of each block
    kind: Any = np.int32 if len(starts) * n_columns < 2**31 else np.int64
    shifts = np.repeat(np.arange(len(starts), dtype=kind) * kind(n_columns), entries)
    matrix = sparse.csr_matrix((n_rows, len(starts) * n_columns))
    matrix.indices = (shifts + X.indices).astype(kind, copy=False)
    matrix.data, matrix.indptr = X.data, X.indptr
    return matrix


class Sandwich:
    """X^T diag(weights) X for one X and many weights of the rows."""

    def __init__(self, X: Any) -> None:
        self._X = X
        self.calls = 0
        self.threads: int | None = None  # as many as this process may use

    def __call__(self, weights: Array, rows: Places | None = None) -> Array:
        """The product, dense; over some of the rows alone, in increasing order, where only these count."""
        self.calls += 1
        return self._kernel(weights, rows)

    def _dense(self, X: Any, weights: Array, rows: Places | None) -> Array:
        return dense_sandwich(X, weights, rows, self.threads)

    @cached_property
    def _kernel(self) -> Callable[[Array, Places | None], Array]:
        X = self._X
        if not sparse.issparse(X):
            return partial(self._dense, X)
        n_rows, d = X.shape
        if X.nnz > NEARLY_DENSE * n_rows * d:
            return partial(self._dense, X)
        work = float(np.square(np.diff(X.indptr).astype(float)).sum())
        if (work > LARGE or "tabmat" in sys.modules) and is_installed("tabmat"):
            return tabmat_sandwich(X, lambda: self.threads)
        return partial(scipy_sandwich, X, columns=X.tocsc())


def tabmat_sandwich(X: Any, wanted: Callable[[], int | None] = lambda: 1) -> Callable[[Array, Places | None], Array]:
    """The product of a large sparse matrix: tabmat's, block by block of rows that stay in the cache."""
    from tabmat import SparseMatrix

    bounds = row_boundaries(X, BLOCK_ENTRIES)
    blocks = []
    for first, last in pairwise(bounds):
        rows = rows_of(X, first, last)
        blocks.append((SparseMatrix(sparse.csc_matrix(rows)), first, last))
        blocks[-1][0]._array_csr = rows  # which it would make again from its columns

    def product(weights: Array, rows: Places | None = None) -> Array:
        total = np.zeros((X.shape[1], X.shape[1]))

        def of_block(block: tuple[Any, int, int]) -> Array | None:
            matrix, first, last = block
            own = None if rows is None else within(rows, first, last).astype(np.int32)
            return matrix.sandwich(weights[first:last], own) if own is None or own.size else None

        at_once = max(1, SPARSE_PRODUCTS // total.size)
        threads = allowed(wanted()) if at_once > 1 and len(blocks) > 1 else 1
        for first in range(0, len(blocks), at_once):  # products that are too large are left to OpenMP, one by one
            for part in shared(of_block, blocks[first : first + at_once], threads, openmp=at_once > 1):
                if part is not None:
                    total += part
        return total

    return product


def row_boundaries(X: Any, most: int, first: int = 0, last: int | None = None) -> list[int]:
    """Where blocks of sparse rows begin, and where the last one ends: each of about `most` stored entries or fewer."""
    last = int(X.shape[0]) if last is None else last
    start, end = int(X.indptr[first]), int(X.indptr[last])
    if end - start <= most:
        return [first, last]
    cuts = np.searchsorted(X.indptr, np.linspace(start, end, max(1, -(-(end - start) // most)) + 1)[1:-1])
    return [first, *np.unique(cuts[(cuts > first) & (cuts < last)]).tolist(), last]


def within(rows: Places, first: int, last: int) -> Places:
    """Those of the rows that are in a block from `first` to `last`, counted from its beginning."""
    start, end = np.searchsorted(rows, (first, last))
    return rows[start:end] - first


def scipy_sandwich(X: Any, weights: Array, rows: Places | None = None, columns: Any = None) -> Array:
    """The product of a small sparse matrix; `columns` is the same one by columns, where that was made before."""
    if rows is not None:
        X, weights, columns = X[rows], weights[rows], None
    scaled = X.data * np.repeat(weights, np.diff(X.indptr))
    if csr_matmat is None:
        return np.asarray((X.T @ sparse.csr_matrix((scaled, X.indices, X.indptr), shape=X.shape)).toarray())
    # A product is counted through before it is made; here it is known how large it can be.
    d, columns = X.shape[1], X.tocsc() if columns is None else columns
    most = min(d * d, int(np.square(np.diff(X.indptr), dtype=np.int64).sum()))
    kind = X.indices.dtype
    ends, places, entries = np.empty(d + 1, dtype=kind), np.empty(most, dtype=kind), np.empty(most)
    ends_of_columns = columns.indptr.astype(kind, copy=False), columns.indices.astype(kind, copy=False)
    csr_matmat(d, d, *ends_of_columns, columns.data, X.indptr, X.indices, scaled, ends, places, entries)
    product, stop = np.zeros(d * d), int(ends[-1])
    product[np.repeat(np.arange(0, d * d, d), np.diff(ends)) + places[:stop]] = entries[:stop]
    return product.reshape(d, d)


def dense_rows(X: Any, first: int, last: int, room: Array) -> Array:
    """Sparse rows as dense ones, put at the beginning of what there is room in."""
    block = room[: last - first]
    block[...] = 0.0
    start, end = X.indptr[first], X.indptr[last]
    csr_todense(*block.shape, X.indptr[first : last + 1] - start, X.indices[start:end], X.data[start:end], block)
    return block


def dense_sandwich(X: Any, weights: Array, rows: Places | None = None, threads: int | None = 1) -> Array:
    """The product of a matrix that is dense or nearly so, block by block of dense rows that stay in the cache."""
    n_rows, d = X.shape
    size = max(BLOCK_BYTES // (8 * d), d // 4)  # of wide rows as many as make the product worth adding
    convex, is_sparse, rooms = bool(weights.min(initial=0.0) >= 0), sparse.issparse(X), list[Array]()
    root = np.sqrt(weights) if convex else weights

    def of_block(first: int) -> Array | None:
        last = min(first + size, n_rows)
        counted: Any = slice(None) if rows is None else within(rows, first, last)
        if rows is not None and not counted.size:
            return None
        try:  # new memory for every block would take as long as its product
            room = rooms.pop()
        except IndexError:  # one for every thread
            room = np.empty((min(size, n_rows), d))
        block = dense_rows(X, first, last, room) if is_sparse else X[first:last]
        block, own = block[counted], root[first:last, None][counted]
        with np.errstate(over="ignore", invalid="ignore"):  # which each thread has its own of
            scaled = np.multiply(block, own, out=room[: len(own)] if convex or not is_sparse else None)
            made = np.asarray(scaled.T @ (scaled if convex else block))  # times its own transpose: half of the work
        rooms.append(room)
        return made

    if n_rows <= size and rows is None:
        return np.asarray(of_block(0))
    product = np.zeros((d, d))
    # A wide matrix is left to the threads of BLAS: its products would take more room than the matrix.
    several = allowed(threads) if d <= NARROW and n_rows * d >= SHARED_NUMBERS else 1
    at_once = max(several, PRODUCTS // (d * d))
    starts = range(0, n_rows, size)
    waves = [starts[first : first + at_once] for first in range(0, len(starts), at_once)]
    for wave in waves:
        for part in map(of_block, wave) if several == 1 else shared(of_block, wave, several, blas=True):
            if part is not None:
                product += part
            del part  # before the next one is made
    return product
