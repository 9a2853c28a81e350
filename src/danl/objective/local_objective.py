r"""F_i of one worker: all the mathematics a worker does on its own rows.

    F_i(w) = sum_j r_ij loss(y_ij, z_ij)  +  (penalty / 2) |w without its intercepts|^2        r_ij = s_ij / W_i

with margins z = X coefficients + intercept + offset: one number a row, or one for every class. With `first` and
`second` the derivatives of the loss in the margins and A = (X 1), the gradient is A^T (r first) and the Hessian
A^T diag(r second) A; with several margins both are made of such blocks, one for a class, or for a pair of them.
`danl.objective.batch` does the same for many workers at once, with the same margins, second derivatives and products.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from danl._scipy import expit, softmax
from danl.frozen import at_once, cached_property
from danl.objective.kernels import Sandwich, few_rows, repeated_value, squares_transpose_times, times, transpose_times
from danl.objective.layout import Layout
from danl.objective.losses import Array, Loss, outputs_of, value_and_first, weighted_second_derivatives
from danl.objective.null_model import null_target

Number = TypeVar("Number", np.float64, np.int64)
ROWS_AT_A_TIME = 65_536
"""Rows that are looked at together where a copy of them is made."""
CLEARLY = 1e-6
"""Variances above this share of the mean squares are not lost in their rounding."""


@at_once
@dataclass(frozen=True)
class LocalObjective:
    """F_i, on a shard's rows or on a sample of them."""

    X: Any  # CSR or dense, (rows, features)
    y: Array
    weights: Array | None
    loss: Loss
    penalty: float
    intercept: bool = False
    offset: Array | None = None  # of every row, where there is one
    clusters: NDArray[np.int64] | None = None  # of every row; for standard errors
    records: NDArray[np.int64] | None = None  # that the rows are of, where some are of the same

    @property
    def n_rows(self) -> int:
        return int(self.y.shape[0])

    @cached_property
    def layout(self) -> Layout:
        """The places of the model's numbers in w."""
        return Layout(int(self.X.shape[1]), outputs_of(self.loss), self.intercept)

    @cached_property
    def row_weights(self) -> Array:
        """s_ij / W_i: what each row counts in the average."""
        if self.weights is None:
            return np.full(self.n_rows, 1.0 / self.n_rows)
        return np.asarray(self.weights / self.weights.sum())

    @cached_property
    def sandwich(self) -> Sandwich:
        return Sandwich(self.X)

    @cached_property
    def penalties(self) -> Array | float:
        """The penalty on every number of w: one for all of them, or none on the intercepts."""
        return np.where(self.layout.penalised, self.penalty, 0.0) if self.intercept else self.penalty

    def sample(self, rows: NDArray[np.int64] | None, counts: Array | None = None) -> LocalObjective:
        """The same on some of the rows; None for all of them. On average over samples it is F_i, weights or not.

        Each of the rows stands for as many as `counts` says, or for n_rows / len(rows).
        """
        if rows is None:
            return self
        others = _of_some(self.offset, rows), _of_some(self.clusters, rows), _of_some(self.records, rows)
        made = LocalObjective(self.X[rows], self.y[rows], None, self.loss, self.penalty, self.intercept, *others)
        row_weights = (self.n_rows / len(rows) if counts is None else counts) * self.row_weights[rows]
        made.__dict__.update(layout=self.layout, row_weights=row_weights)
        return made

    def value(self, w: Array) -> float:
        """F_i(w)."""
        with np.errstate(over="ignore", invalid="ignore"):
            return float(self.row_weights @ self.loss.value(self.y, self.margins(w))) + self._penalty_at(w)

    def value_and_gradient(self, w: Array) -> tuple[float, Array]:
        """F_i(w) and its gradient."""
        with np.errstate(over="ignore", invalid="ignore"):  # a model that blew up: the loop sees inf and ends the run
            value, slopes = value_and_first(self.loss, self.y, self.margins(w))
            slopes = self.row_weights * slopes if slopes.ndim == 1 else self.row_weights[:, None] * slopes
            total = float(self.row_weights @ value) + self._penalty_at(w)
            return total, self.transpose_product(slopes) + self.penalties * w

    def _penalty_at(self, w: Array) -> float:
        penalised = w[self.layout.penalised] if self.intercept else w
        return 0.5 * self.penalty * float(penalised @ penalised)

    def hessian(self, w: Array) -> Array:
        """The Hessian of F_i at w, dense (d, d)."""
        return assembled(self.X, self.second_derivatives(w), self.layout, self.sandwich, self.penalty)

    def data_hessian(self, w: Array) -> Array:
        """The same without the penalty."""
        return assembled(self.X, self.second_derivatives(w), self.layout, self.sandwich)

    def second_derivatives(self, w: Array) -> Iterator[tuple[int, int, Array]]:
        """(k, m, r b_km) for every pair of outputs k <= m: second derivatives of the loss, with the rows' weights."""
        with np.errstate(over="ignore", invalid="ignore"):
            z = self.margins(w)
        return weighted_second_derivatives(self.loss, self.y, z, self.row_weights)

    def scores(self, w: Array) -> Array:
        """sum_j r_ij^2 g_ij g_ij^T, dense (d, d): the rows' own gradients, for standard errors that trust no model."""
        with np.errstate(over="ignore", invalid="ignore"):
            slopes = self.loss.first(self.y, self.margins(w)).reshape(self.n_rows, -1)
            slopes = self.row_weights[:, None] * slopes
        outputs = slopes.shape[1]
        pairs = ((k, m, slopes[:, k] * slopes[:, m]) for k in range(outputs) for m in range(k, outputs))
        return assembled(self.X, pairs, self.layout, self.sandwich)

    def moments(self) -> tuple[Array, Array, Array]:
        """Over the rows: mean and variance of every column, mean of the target or the share of each class.

        With an offset the mean is the one where that is 0 (`danl.objective.null_model`).
        """
        r, X, outputs = self.row_weights, self.X, self.layout.n_outputs
        means = transpose_times(X, r)
        if self.offset is not None:
            return means, variances(X, r, means), np.array([null_target(self.loss, self.y, self.offset, r)])
        of_class: Any = np.array([r @ self.y]) if outputs == 1 else np.bincount(self.y.astype(np.intp), r, outputs)
        return means, variances(X, r, means), of_class

    def certainty(self, w: Array) -> Array:
        """How far each row's likeliest class is from probability 1: logistic and multinomial losses.

        An offset makes a class certain without the coefficients: it is left out.
        """
        z = self.margins_without_offset(w)
        if z.ndim == 1:
            return np.asarray(expit(-np.abs(z)))
        return np.asarray(1.0 - softmax(z, axis=1).max(axis=1))

    def margins(self, w: Array) -> Array:
        """A w, and the offset, of every row; those of the newest w are kept."""
        newest = self.newest
        if newest is None or not np.array_equal(newest[0], w):
            z = margins(self.X, w, self.layout)
            newest = (w.copy(), z if self.offset is None else z + self.offset)
            self.put_back(*newest)
        return newest[1]

    def margins_without_offset(self, w: Array) -> Array:
        """A w of every row: what the coefficients tell."""
        return self.margins(w) if self.offset is None else margins(self.X, w, self.layout)

    @property
    def newest(self) -> tuple[Array, Array] | None:
        """The newest w, and its margins."""
        kept: tuple[Array, Array] | None = self.__dict__.get("_newest")
        return kept

    def put_back(self, w: Array, z: Array) -> None:
        """Take z for the margins of w, as they were computed on these rows before."""
        self.__dict__["_newest"] = (w, z)

    def transpose_product(self, slopes: Array) -> Array:
        """A^T slopes, laid out like w."""
        return transpose_product(self.X, slopes, self.layout)

    def smoothness(self) -> float:
        """The Lipschitz constant of F_i's gradient: second_bound * |A^T S A| + penalty (inf for Poisson)."""
        return self.loss.second_bound * self.gram_norm + self.penalty

    def mean_squares(self) -> Array:
        """The diagonal of A^T diag(row_weights) A, for every output."""
        one = np.asarray(self.squares.T @ self.row_weights)
        return np.tile(np.append(one, np.ones(int(self.intercept))), self.layout.n_outputs)

    @cached_property
    def gram_norm(self) -> float:
        """The largest eigenvalue of A^T diag(row_weights) A."""
        from scipy.sparse.linalg import LinearOperator, eigsh

        one = Layout(self.layout.n_features, 1, self.intercept)
        d = one.n_coefficients
        if d == 1:
            return float(self.row_weights @ self.row_norms**2)
        if not self.mean_squares().any():  # rows of zeros, which Lanczos' method has no start for
            return 0.0

        def gram(v: Array) -> Array:
            return transpose_product(self.X, self.row_weights * margins(self.X, v.ravel(), one), one)

        start = np.random.default_rng(0).standard_normal(d)  # ARPACK's own start is random: keep runs alike
        return float(eigsh(LinearOperator((d, d), matvec=gram, dtype=float), k=1, v0=start)[0][0])

    @cached_property
    def row_norms(self) -> Array:
        """|a_ij| for every row, with the one of its intercept."""
        return np.asarray(np.sqrt(np.asarray(self.squares.sum(axis=1)).ravel() + self.intercept))

    @cached_property
    def relative_squares(self) -> Array:
        """sum_c a_jc^2 / mean_square_c of every row: what it adds to the columns, beside what is there of each."""
        value = repeated_value(self.X) if sparse.issparse(self.X) else None
        if value is not None:  # its squares are as many times themselves
            own = times(self.X, _inverse(np.abs(transpose_times(self.X, self.row_weights))))
            return np.abs(own) + float(self.intercept)
        inverse = _inverse(squares_transpose_times(self.X, self.row_weights))
        if sparse.issparse(self.X):
            own = times(self.squares, inverse)
        else:
            own = np.concatenate([np.square(self.X[part]) @ inverse for part in few_rows(self.X)])
        return own + float(self.intercept)

    @property
    def squares(self) -> Any:
        """The entries of X squared."""
        return _squared(self.X) if sparse.issparse(self.X) else np.square(self.X)


def _of_some(values: NDArray[Number] | None, rows: NDArray[np.int64]) -> NDArray[Number] | None:
    return None if values is None else values[rows]


def _inverse(squares: Array) -> Array:
    """Of what is above 0; a column without entries has none to count."""
    return np.divide(1.0, squares, out=np.zeros_like(squares), where=squares > 0)


def variances(X: Any, row_weights: Array, means: Array) -> Array:
    """Of the columns about their means, from their squares; about the means themselves where these are large.

    Squares less squared means lose what a large mean hides.
    """
    squares = squares_transpose_times(X, row_weights)
    found = squares - np.square(means)
    return found if (found >= CLEARLY * squares).all() else _careful_variances(X, row_weights, means)


def _careful_variances(X: Any, row_weights: Array, means: Array) -> Array:
    rows, columns = X.shape
    if not sparse.issparse(X):
        parts = [slice(first, first + ROWS_AT_A_TIME) for first in range(0, rows, ROWS_AT_A_TIME)]
        return np.asarray(np.sum([row_weights[part] @ np.square(X[part] - means) for part in parts], axis=0))
    stored = sparse.csr_array(X)
    weights = np.repeat(row_weights, np.diff(stored.indptr))
    found = np.bincount(stored.indices, weights * np.square(stored.data - means[stored.indices]), columns)
    there = np.bincount(stored.indices, minlength=columns) == rows
    left_out = np.where(there, 0.0, 1.0 - np.bincount(stored.indices, weights, columns))
    return np.asarray(found + left_out * np.square(means))


def _squared(X: Any) -> Any:
    """The entries of a sparse matrix squared, at the same places."""
    made = type(X)(X.shape)
    made.data, made.indices, made.indptr = np.square(X.data), X.indices, X.indptr  # known to be right: not looked at
    return made


def margins(X: Any, w: Array, layout: Layout) -> Array:
    """A w: (rows,), or (rows, outputs)."""
    nothing = margins_without_features(X.shape[0], w, layout)
    if nothing is not None:
        return nothing
    if layout.n_coefficients == layout.n_features:
        return times(X, w)
    rows = w.reshape(layout.n_outputs, layout.columns)
    z = X @ rows[:, : layout.n_features].T
    if layout.intercept:
        z = z + rows[:, -1]
    return np.asarray(z[:, 0] if layout.n_outputs == 1 else z)


def margins_without_features(n_rows: int, w: Array, layout: Layout) -> Array | None:
    """A w where all coefficients are 0, as at the start; None where some are not."""
    rows = w.reshape(layout.n_outputs, layout.columns)
    if rows[:, : layout.n_features].any():
        return None
    shape = (n_rows, layout.n_outputs) if layout.n_outputs > 1 else (n_rows,)
    z = np.zeros(shape)
    if layout.intercept:
        z += rows[:, -1]
    return z


def stacked_offsets(objectives: Sequence[LocalObjective]) -> Array | None:
    """The offsets of all rows, 0 for workers without one; None where nobody has one."""
    if all(each.offset is None for each in objectives):
        return None
    return np.concatenate([np.zeros(each.n_rows) if each.offset is None else each.offset for each in objectives])


def transpose_product(X: Any, slopes: Array, layout: Layout) -> Array:
    """A^T slopes, as a vector laid out like w."""
    if layout.n_coefficients == layout.n_features:
        return transpose_times(X, slopes)
    slopes = slopes.reshape(len(slopes), layout.n_outputs)
    return layout.join((X.T @ slopes).T, slopes.sum(axis=0))


def assembled(
    X: Any,
    pairs: Iterable[tuple[int, int, Array]],
    layout: Layout,
    sandwich: Callable[[Array], Array],
    penalty: float = 0.0,
) -> Array:
    """The symmetric matrix whose block of outputs k <= m is A^T diag(weights) A, plus the penalty on the diagonal."""
    n, columns, d = layout.n_features, layout.columns, layout.n_coefficients
    with np.errstate(over="ignore", invalid="ignore"):  # at a model that blew up: the loss tells
        if d == n:
            ((_, _, weights),) = pairs
            matrix = sandwich(weights)
        else:
            matrix = np.empty((d, d))
            for k, m, weights in pairs:
                here, there = slice(k * columns, (k + 1) * columns), slice(m * columns, (m + 1) * columns)
                block = matrix[here, there]
                block[:n, :n] = sandwich(weights)
                if layout.intercept:
                    block[:n, n] = block[n, :n] = X.T @ weights
                    block[n, n] = weights.sum()
                if k != m:
                    matrix[there, here] = block  # symmetric itself
    if penalty:
        matrix.flat[:: d + 1] += np.where(layout.penalised, penalty, 0.0)
    return matrix
