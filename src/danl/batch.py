r"""All workers of one process at once: their rows in one matrix, their answers in a few passes over it.

The rows are sorted by worker. Few workers take a product each; for many, the columns of worker i's rows are moved to
i d, ..., i d + d - 1, and one transposed product gives every worker's gradient side by side, at the cost of one pooled
gradient. A worker's numbers are those it would send by itself, up to rounding.

Hessians are not needed one by one, only their weighted sum: one product over all rows, made when the server has said
whose count (`add_up`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from danl.kernels import Sandwich, Segments
from danl.local import LocalObjective, assembled, margins
from danl.objectives import Array, second_blocks, value_and_first

Mask = NDArray[np.bool_]

FEW, FEW_SPARSE = 256, 32
"""Workers up to which dense rows, and sparse ones, are gone through worker by worker, with one product each."""


class Batch:
    """The objectives of all workers of this process, evaluated together."""

    def __init__(self, objectives: Sequence[LocalObjective]) -> None:
        first = objectives[0]
        self.layout, self.loss = first.layout, first.loss
        self.bounds = np.concatenate([[0], np.cumsum([each.n_rows for each in objectives])])
        self.penalties = np.array([each.penalty for each in objectives])
        self.X = _stacked_matrix([each.X for each in objectives])
        self.y = _stacked([each.y for each in objectives])
        self.transposed = [each.X.T for each in objectives] if len(objectives) <= FEW else []
        self.row_weights = np.concatenate([each.row_weights for each in objectives])
        self.passes = 0  # over the data: margins, and ways back
        self._newest: tuple[Array, Array] | None = None  # a model and its margins

    @staticmethod
    def possible(objectives: Sequence[LocalObjective]) -> bool:
        """Whether these can be evaluated together: one loss, one layout, all sparse or all dense."""
        first = objectives[0]
        return all(
            each.loss is first.loss
            and each.layout == first.layout
            and sparse.issparse(each.X) == sparse.issparse(first.X)
            for each in objectives
        )

    @property
    def n_workers(self) -> int:
        return len(self.penalties)

    @cached_property
    def owners(self) -> Any:
        """The worker of each row."""
        return np.repeat(np.arange(self.n_workers), np.diff(self.bounds))

    @cached_property
    def segments(self) -> Segments:
        return Segments(self.bounds)

    @cached_property
    def sandwich(self) -> Sandwich:
        return Sandwich(self.X)

    @cached_property
    def apart(self) -> Any:
        """The rows with every worker's columns at a place of their own, (rows, N features)."""
        n = self.layout.n_features
        wide = self.n_workers * n
        kind = np.int32 if max(wide, self.X.nnz) < 2**31 else np.int64
        moved = np.repeat((self.owners * n).astype(kind), np.diff(self.X.indptr)) + self.X.indices.astype(kind)
        made = sparse.csr_matrix((self.X.shape[0], wide))
        made.data, made.indices, made.indptr = self.X.data, moved, self.X.indptr.astype(kind, copy=False)
        return made

    @cached_property
    def apart_transposed(self) -> Any:
        return self.apart.T

    def losses(self, w: Array) -> Array:
        """F_i(w) of every worker."""
        with np.errstate(over="ignore", invalid="ignore"):
            values = self.loss.value(self.y, self.margins(w))
            return self.segments.sums(self.row_weights * values) + self.penalty_at(w)

    def losses_and_gradients(self, w: Array, masks: Mask | None = None) -> tuple[Array, Array]:
        """F_i and grad F_i of every worker, (N,) and (N, d): at w, or with `masks` (N, d) at w * mask of each."""
        with np.errstate(over="ignore", invalid="ignore"):
            z = self.margins(w) if masks is None else self.own_margins(w * masks)
            values, slopes = value_and_first(self.loss, self.y, z)
            losses = self.segments.sums(self.row_weights * values)
            slopes = slopes * (self.row_weights if slopes.ndim == 1 else self.row_weights[:, None])
            gradients = self.pulled_back(slopes)
            penalised = np.where(self.layout.penalised, w, 0.0) if self.layout.intercept else w
            if masks is None:
                gradients += np.multiply.outer(self.penalties, penalised)
                losses += self.penalty_at(w)
            else:
                own = penalised * masks
                gradients += self.penalties[:, None] * own
                losses += 0.5 * self.penalties * np.square(own).sum(axis=1)
        return losses, gradients

    def hessian_sum(self, w: Array, weights: Array, rows: Sequence[Array | None] | None = None) -> Array:
        """sum_i weight_i Hess F_i(w), on all rows or, by worker, on a sample of them.

        Where the newest margins are those of w, they are not computed again.
        """
        row_weights = weights[self.owners] * self.row_weights
        z = self.margins(w)
        X, y, sandwich = self.X, self.y, self.sandwich
        if rows is not None and any(own is not None for own in rows):
            taken, scale = self._taken(rows)
            X, y, z, row_weights = X[taken], y[taken], z[taken], scale * row_weights[taken]
            sandwich = Sandwich(X)
        with np.errstate(over="ignore", invalid="ignore"):
            blocks = ((k, m, row_weights * bend) for k, m, bend in second_blocks(self.loss, y, z))
            whole = assembled(X, blocks, self.layout, sandwich)
        penalty = float(weights @ self.penalties)
        whole[np.diag_indices_from(whole)] += np.where(self.layout.penalised, penalty, 0.0)
        return whole

    def _taken(self, rows: Sequence[Array | None]) -> tuple[Array, Array]:
        """Rows of the samples in the whole, and what each stands for."""
        parts, scales = [], []
        for worker, own in enumerate(rows):
            first, last = int(self.bounds[worker]), int(self.bounds[worker + 1])
            sample = np.arange(last - first) if own is None else own
            parts.append(first + sample)
            scales.append(np.full(len(sample), (last - first) / len(sample)))
        return np.concatenate(parts), np.concatenate(scales)

    # The products with A = (X 1).

    def margins(self, w: Array) -> Array:
        """A w of every row; those of the newest w are kept."""
        if self._newest is None or not np.array_equal(self._newest[0], w):
            self.passes += 1
            self._newest = (w.copy(), margins(self.X, w, self.layout))
        return self._newest[1]

    def own_margins(self, models: Array) -> Array:
        """A w_i of every row of worker i, with models (N, d)."""
        self.passes += 1
        layout = self.layout
        shaped = models.reshape(self.n_workers, layout.n_outputs, layout.columns)
        columns = []
        for k in range(layout.n_outputs):
            own = np.ascontiguousarray(shaped[:, k, : layout.n_features])
            if sparse.issparse(self.X):
                z = self.apart @ own.ravel()
            else:
                parts = zip(self.bounds[:-1], self.bounds[1:], own, strict=True)
                z = np.concatenate([self.X[first:last] @ w for first, last, w in parts])
            columns.append(z + shaped[self.owners, k, -1] if layout.intercept else z)
        return columns[0] if layout.n_outputs == 1 else np.stack(columns, axis=1)

    def pulled_back(self, slopes: Array) -> Array:
        """A_i^T slopes_i of every worker, (N, d)."""
        self.passes += 1
        layout, n = self.layout, self.layout.n_features
        if layout.size == n:
            return self._features_pulled_back(slopes)
        gradients = np.empty((self.n_workers, layout.n_outputs, layout.columns))
        for k in range(layout.n_outputs):
            own = slopes if slopes.ndim == 1 else np.ascontiguousarray(slopes[:, k])
            gradients[:, k, :n] = self._features_pulled_back(own)
            if layout.intercept:
                gradients[:, k, n] = self.segments.sums(own)
        return gradients.reshape(self.n_workers, layout.size)

    def _features_pulled_back(self, slopes: Array) -> Array:
        is_sparse = sparse.issparse(self.X)
        if self.n_workers <= (FEW_SPARSE if is_sparse else FEW):
            parts = zip(self.transposed, self.bounds[:-1], self.bounds[1:], strict=True)
            gradients = np.empty((self.n_workers, self.layout.n_features))
            for row, (columns, first, last) in zip(gradients, parts, strict=True):
                row[:] = columns @ slopes[first:last]
            return gradients
        if is_sparse:
            return np.asarray(self.apart_transposed @ slopes).reshape(self.n_workers, -1)
        return self._dense_of_many(slopes)

    def _dense_of_many(self, slopes: Array) -> Array:
        """Dense rows of very many workers: sums down the columns, some hundred workers at a time."""
        gradients = np.empty((self.n_workers, self.X.shape[1]))
        for first in range(0, self.n_workers, FEW):
            last = min(first + FEW, self.n_workers)
            rows = slice(int(self.bounds[first]), int(self.bounds[last]))
            scaled = self.X[rows] * slopes[rows, None]
            gradients[first:last] = np.add.reduceat(scaled, self.bounds[first:last] - self.bounds[first], axis=0)
        return gradients

    def penalty_at(self, w: Array) -> Array:
        """penalty_i / 2 |w|^2 of every worker."""
        penalised = w[self.layout.penalised] if self.layout.intercept else w
        return 0.5 * float(penalised @ penalised) * self.penalties


def _stacked_matrix(parts: Sequence[Any]) -> Any:
    """The matrices one below the other; where they lie so in memory already, that memory."""
    if not sparse.issparse(parts[0]):
        return _stacked(parts)
    lengths = np.concatenate([[0], *(np.diff(part.indptr) for part in parts)])
    made = sparse.csr_matrix((sum(part.shape[0] for part in parts), parts[0].shape[1]))
    made.data = _stacked([part.data[: part.indptr[-1]] for part in parts])
    made.indices = _stacked([part.indices[: part.indptr[-1]] for part in parts])
    made.indptr = np.cumsum(lengths).astype(parts[0].indptr.dtype)
    return made


def _stacked(parts: Sequence[Any]) -> Any:
    """Arrays one after the other, without a copy where they are consecutive pieces of one array."""
    if len(parts) == 1:
        return parts[0]
    whole = parts[0].base
    if isinstance(whole, np.ndarray) and whole.flags.c_contiguous and whole.dtype == parts[0].dtype:
        place = whole.__array_interface__["data"][0]
        for part in parts:
            if part.base is not whole or part.__array_interface__["data"][0] != place or not part.flags.c_contiguous:
                break
            place += part.nbytes
        else:
            if place == whole.__array_interface__["data"][0] + whole.nbytes and whole.ndim == parts[0].ndim:
                return whole
    return np.concatenate(parts)
