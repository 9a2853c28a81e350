r"""Columns whose mean is large beside their spread, and the same model with and without these means.

With an intercept b that has no penalty, any c may be subtracted from the columns without changing the problem:

    a . v + b  =  (a - c) . v + (b + c . v)

The coefficients v are the same; only the intercept is another. What changes is the arithmetic: with a mean of 1e7 and
a spread of 1 the Hessian of the columns as they are has lost the spread to rounding, that of a - c has not. So the
workers are asked for the means (`danl.protocol.messages.MomentsTask`), columns that need it are centred where the rows
are, and the model is given back for the columns as they were.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from danl.objective.layout import Layout
from danl.objective.losses import Array

LARGE = 100.0
"""A mean of more than so many standard deviations is subtracted: it would cost four digits of the Hessian."""

ROUNDING = 1e3 * float(np.finfo(float).eps)
"""A spread of less than this share of the mean is rounding: such a column is a constant, and stays where it is."""


def centre_of(means: Array, variances: Array) -> Array | None:
    """What to subtract from columns with these means and variances; None where nothing is."""
    spread = np.sqrt(np.maximum(variances, 0.0))
    large = (np.abs(means) > LARGE * spread) & (spread > ROUNDING * np.abs(means))
    centre = np.where(large, means, 0.0)
    return centre if np.isfinite(centre).all() and centre.any() else None


def centred(X: Any, centre: Array) -> Any:
    """X - centre. Sparse columns whose mean is large are nearly full: they are, then."""
    if not sparse.issparse(X):
        return X - centre
    (columns,) = np.nonzero(centre)
    rows = X.shape[0]
    start = np.arange(rows + 1) * columns.size
    means = sparse.csr_array((np.tile(centre[columns], rows), np.tile(columns, rows), start), shape=X.shape)
    return type(X)(sparse.csr_array(X) - means)


def to_centred(w: Array, layout: Layout, centre: Array | None) -> Array:
    """The model for centred columns."""
    return w if centre is None else _with_intercepts(w, layout, centre, 1.0)


def from_centred(w: Array, layout: Layout, centre: Array | None) -> Array:
    """The model for the columns as they were."""
    return w if centre is None else _with_intercepts(w, layout, centre, -1.0)


def covariance_from_centred(matrix: Array, layout: Layout, centre: Array | None) -> Array:
    """A covariance of the model for centred columns, for the columns as they were."""
    if centre is None:
        return matrix
    one = np.eye(layout.columns)
    one[-1, : layout.n_features] = -centre
    change = np.kron(np.eye(layout.n_outputs), one)
    return np.asarray(change @ matrix @ change.T)


def _with_intercepts(w: Array, layout: Layout, centre: Array, sign: float) -> Array:
    coefficients, intercepts = layout.split(w)
    return layout.join(coefficients, intercepts + sign * (coefficients @ centre))
