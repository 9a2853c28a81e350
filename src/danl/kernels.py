r"""The two products that take the time: sums over the rows of each worker, and X^T diag(bend) X.

The second is done by the kernel that is fastest for the matrix: blocks of rows and BLAS where it is dense or nearly so,
tabmat's sandwich product for large sparse ones, scipy's product for small ones (importing tabmat takes longer).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
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

Array = NDArray[np.float64]
BLOCK_BYTES = 1 << 18
"""Bytes of a block of rows in a dense product: what stays in a core's own cache while it is used."""
BLOCK_ENTRIES = 1 << 17
"""Stored entries of a block of rows in a sparse product: the same, 12 bytes each."""
NEARLY_DENSE = 0.24
"""Share of stored entries above which dense blocks beat a sparse product (measured; d^2 against 16 times entries^2)."""
LARGE = 5_000_000
"""Products of stored entries above which a sparse product is worth importing tabmat for (some 30 ms of scipy's)."""
SEGMENT = 64
"""Numbers that are added up one after the other; their sums are added up in turn, so that rounding stays small."""


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
    if not parts_are_cheap(X) or w.shape != X.shape[1:]:  # scipy says what is wrong
        return np.asarray(X @ w)
    product = np.zeros(X.shape[0])
    add_part_times(X, w, 0, len(product), product)
    return product


def transposed_times(X: Any, slopes: Array) -> Array:
    """X^T slopes of rows that are dense or CSR, whose transpose is CSC."""
    if not parts_are_cheap(X) or slopes.shape != X.shape[:1]:
        return np.asarray(X.T @ slopes)
    product = np.zeros(X.shape[1])
    add_part_transposed_times(X, slopes, 0, len(slopes), product)
    return product


def parts_are_cheap(X: Any) -> bool:
    """Whether products with some of the rows cost no more than their share."""
    return _csr_matvec is not None and sparse.issparse(X)


def add_part_times(X: Any, w: Array, first: int, last: int, out: Array) -> None:
    """Add X w of consecutive CSR rows to `out`."""
    assert w.shape == X.shape[1:]
    assert out.shape == (last - first,)
    _csr_matvec(last - first, X.shape[1], X.indptr[first : last + 1], X.indices, X.data, w, out)


def add_part_transposed_times(X: Any, slopes: Array, first: int, last: int, out: Array) -> None:
    """Add X^T slopes of consecutive CSR rows to `out`."""
    assert slopes.shape == (last - first,)
    assert out.shape == X.shape[1:]
    _csc_matvec(X.shape[1], last - first, X.indptr[first : last + 1], X.indices, X.data, slopes, out)


def tabmat_sandwich(X: Any) -> Callable[[Array], Array]:
    """The product of a large sparse matrix: tabmat's, block by block of rows that stay in the cache."""
    from tabmat import SparseMatrix

    bounds = row_blocks(X)
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


def row_blocks(X: Any) -> list[int]:
    """Where blocks of sparse rows begin, and where the last one ends: each small enough for a core's own cache."""
    n_rows, count = int(X.shape[0]), max(1, -(-int(X.nnz) // BLOCK_ENTRIES))
    cuts = np.searchsorted(X.indptr, np.linspace(0, X.nnz, count + 1)[1:-1])
    return [0, *np.unique(cuts[(cuts > 0) & (cuts < n_rows)]).tolist(), n_rows]


def rows_of(X: Any, first: int, last: int) -> Any:
    """Consecutive rows, in the memory of the whole."""
    if not sparse.issparse(X):
        return X[first:last]
    start, end = X.indptr[first], X.indptr[last]
    part = sparse.csr_matrix((last - first, X.shape[1]))
    part.data, part.indices = X.data[start:end], X.indices[start:end]
    part.indptr = X.indptr[first : last + 1] - start
    return part


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
