r"""The products that take the time: X w, X^T slopes of each worker's rows, and X^T diag(bend) X.

The last is done by the kernel that is fastest for the matrix: blocks of rows and BLAS where it is dense or nearly so,
tabmat's sandwich product for large sparse ones, scipy's product for small ones (importing tabmat takes longer).
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

from danl.data.rows import rows_of

Array = NDArray[np.float64]
BLOCK_BYTES = 1 << 18
"""Bytes of a block of rows in a dense product: what stays in a core's own cache while it is used."""
BLOCK_ENTRIES = 1 << 17
"""Stored entries of a block of rows in a sparse product: the same, 12 bytes each."""
SLAB_ENTRIES = 1 << 16
"""Stored entries of a slab whose values are the same: they and their places, 12 bytes each, stay in that cache."""
NEARLY_DENSE = 0.24
"""Share of stored entries above which dense blocks beat a sparse product (measured; d^2 against 16 times entries^2)."""
LARGE = 5_000_000
"""Products of stored entries above which a sparse product is worth importing tabmat for (some 30 ms of scipy's)."""
FEW, MANY_NUMBERS = 4, 1 << 17
"""At most one in four of the workers, and arrays that do not stay in a core's own cache."""
SEGMENT = 64
"""Numbers that are added up one after the other; their sums are added up in turn, so that rounding stays small."""


def few_of_many(count: int, n_workers: int, numbers: int) -> bool:
    """Whether it pays to touch what belongs to `count` of the workers alone, of so many numbers that all have."""
    return FEW * count <= n_workers and numbers >= MANY_NUMBERS


class Sandwich:
    """X^T diag(bend) X for one X and many bends."""

    def __init__(self, X: Any) -> None:
        self._X = X
        self.calls = 0

    def __call__(self, bend: Array) -> Array:
        """The product, dense."""
        self.calls += 1
        return self._kernel(bend)

    @cached_property
    def _kernel(self) -> Callable[[Array], Array]:
        X = self._X
        if not sparse.issparse(X):
            return lambda bend: blocked(X, bend)
        n_rows, d = X.shape
        if X.nnz > NEARLY_DENSE * n_rows * d:
            dense = X.toarray()  # at most three times the memory of the sparse one
            return lambda bend: blocked(dense, bend)
        work = float(np.square(np.diff(X.indptr).astype(float)).sum())
        if "tabmat" in sys.modules or work > LARGE:
            return tabmat_sandwich(X)
        return lambda bend: scipy_sandwich(X, bend)


def times(X: Any, w: Array) -> Array:
    """X w of rows that are dense or CSR."""
    if not sparse.issparse(X) or w.shape != X.shape[1:]:  # scipy says what is wrong
        return np.asarray(X @ w)
    product = np.zeros(X.shape[0])
    _add_times(X, w, product)
    return product


def transposed_times(X: Any, slopes: Array) -> Array:
    """X^T slopes of rows that are dense or CSR, whose transpose is CSC."""
    if not sparse.issparse(X) or slopes.shape != X.shape[:1]:
        return np.asarray(X.T @ slopes)
    product = np.zeros(X.shape[1])
    _add_transposed_times(X, slopes, product)
    return product


def _add_times(X: Any, w: Array, product: Array) -> None:
    """Add X w of CSR rows."""
    if _csr_matvec is None:
        product += X @ w
    else:
        _csr_matvec(*X.shape, X.indptr, X.indices, X.data, w, product)


def _add_transposed_times(X: Any, slopes: Array, product: Array) -> None:
    """Add X^T slopes of CSR rows."""
    if _csc_matvec is None:
        product += X.T @ slopes
    else:
        _csc_matvec(*reversed(X.shape), X.indptr, X.indices, X.data, slopes, product)


def repeated_value(X: Any) -> float | None:
    """The number that all stored entries are (1, in data of categories), or None where they differ."""
    parts = (X.data[first : first + BLOCK_ENTRIES] for first in range(0, X.nnz, BLOCK_ENTRIES))
    return float(X.data[0]) if X.nnz and all((part == X.data[0]).all() for part in parts) else None


class Slabs:
    """CSR rows cut into slabs: the rows of some owners alone, and no values to read where all are the same number.

    A slab is a matrix of its own, in the memory of the whole. Where `value` is the one number that is stored, slabs are
    about SLAB_ENTRIES large and have the same values in memory, which stay in the core's cache: a third of the bytes
    is left to go through, the places of the entries.
    """

    def __init__(self, X: Any, bounds: Sequence[int], value: float | None = None) -> None:
        """Owner i has the rows from bounds[i] to bounds[i + 1]."""
        self.shape = X.shape
        self._slabs: list[tuple[int, slice, Any]] = []
        for owner, (first, last) in enumerate(pairwise(bounds)):
            for a, b in pairwise(row_cuts(X, SLAB_ENTRIES, first, last) if value is not None else [first, last]):
                self._slabs.append((owner, slice(a, b), rows_of(X, a, b)))
        if value is not None:
            values = np.full(max((slab.nnz for _, _, slab in self._slabs), default=0), value)
            for _, _, slab in self._slabs:
                slab.data = values[: slab.nnz]

    def times(self, w: Array, owners: Sequence[bool] | None = None) -> Array:
        """X w; with a row of `w` for every owner, of each with its own. Those that are not asked for have zeros."""
        assert w.shape[-1] == self.shape[1]
        product = np.zeros(self.shape[0])
        for owner, rows, slab in self._slabs:
            if owners is None or owners[owner]:
                _add_times(slab, w if w.ndim == 1 else w[owner], product[rows])
        return product

    def transposed_times(self, slopes: Array, owners: Sequence[bool] | None = None) -> Array:
        """X_i^T slopes_i of every owner, (owners, columns); zeros of those that are not asked for."""
        assert slopes.shape == self.shape[:1]
        products = np.zeros((self._slabs[-1][0] + 1, self.shape[1]))
        for owner, rows, slab in self._slabs:
            if owners is None or owners[owner]:
                _add_transposed_times(slab, slopes[rows], products[owner])
        return products


def tabmat_sandwich(X: Any) -> Callable[[Array], Array]:
    """The product of a large sparse matrix: tabmat's, block by block of rows that stay in the cache."""
    from tabmat import SparseMatrix

    bounds = row_cuts(X, BLOCK_ENTRIES)
    blocks = []
    for first, last in pairwise(bounds):
        rows = rows_of(X, first, last)
        blocks.append(SparseMatrix(sparse.csc_matrix(rows)))
        blocks[-1]._array_csr = rows  # which it would make again from its columns

    def product(bend: Array) -> Array:
        made = np.zeros((X.shape[1], X.shape[1]))
        for block, (first, last) in zip(blocks, pairwise(bounds), strict=True):
            made += block.sandwich(bend[first:last])
        return made

    return product


def row_cuts(X: Any, most: int, first: int = 0, last: int | None = None) -> list[int]:
    """Where blocks of sparse rows begin, and where the last one ends: each of about `most` stored entries or fewer."""
    last = int(X.shape[0]) if last is None else last
    start, end = int(X.indptr[first]), int(X.indptr[last])
    cuts = np.searchsorted(X.indptr, np.linspace(start, end, max(1, -(-(end - start) // most)) + 1)[1:-1])
    return [first, *np.unique(cuts[(cuts > first) & (cuts < last)]).tolist(), last]


def scipy_sandwich(X: Any, bend: Array) -> Array:
    """The product of a small sparse matrix."""
    scaled = sparse.csr_matrix((X.data * np.repeat(bend, np.diff(X.indptr)), X.indices, X.indptr), shape=X.shape)
    return np.asarray((X.T @ scaled).toarray())


def blocked(X: Any, bend: Array) -> Array:
    """The product of a dense matrix, block by block of rows that stay in the cache."""
    n_rows, d = X.shape
    rows = max(BLOCK_BYTES // (8 * d), 16)
    product = np.zeros((d, d))
    convex = bool((bend >= 0).all())
    root = np.sqrt(bend) if convex else bend
    for first in range(0, n_rows, rows):
        block = X[first : first + rows]
        scaled = block * root[first : first + rows, None]
        product += scaled.T @ (scaled if convex else block)  # a matrix times its own transpose takes half of the work
    return product


class Segments:
    """Sums over consecutive stretches of a vector, the workers' rows of a stack."""

    def __init__(self, bounds: NDArray[np.int64]) -> None:
        sizes = np.diff(bounds)
        pieces = -(-sizes // SEGMENT)
        self._outer = np.concatenate([[0], np.cumsum(pieces)[:-1]])
        within = np.arange(int(pieces.sum())) - np.repeat(self._outer, pieces)
        self._inner = np.repeat(bounds[:-1], pieces) + SEGMENT * within

    def sums(self, values: Array) -> Array:
        """One sum a stretch; of a matrix, down its columns."""
        return np.asarray(np.add.reduceat(np.add.reduceat(values, self._inner, axis=0), self._outer, axis=0))

    def sums_of_logarithms(self, numbers: Array) -> Array:
        """One sum of logarithms a stretch, by the logarithms of products: one for many numbers."""
        return np.asarray(np.add.reduceat(np.log(np.multiply.reduceat(numbers, self._inner)), self._outer))
