"""Consecutive rows of a matrix, dense or sparse, without a copy."""

from __future__ import annotations

from typing import Any

from scipy import sparse


def rows_of(X: Any, first: int, last: int) -> Any:
    """Consecutive rows, in the memory of the whole."""
    if not sparse.issparse(X):
        return X[first:last]
    start, end = X.indptr[first], X.indptr[last]
    part = sparse.csr_matrix((last - first, X.shape[1]))
    part.data, part.indices = X.data[start:end], X.indices[start:end]
    part.indptr = X.indptr[first : last + 1] - start
    return part
