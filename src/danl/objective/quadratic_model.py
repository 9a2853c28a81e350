r"""The quadratic model of a worker's objective about w: products with its Hessian, and no d x d matrix.

    F_i(w + u) ~ F_i(w) + g . u + u . H u / 2
    g = A^T (r first) + penalty w             H = A^T diag(r second) A + penalty I

With A = (X 1), row weights r and `first` and `second` the derivatives of the loss in the margins at w, the model's own
gradient costs one pass over the rows, whatever of g and H it is made of:

    g + H u = A^T r (first + second * (A u)) + penalty (w + u)

With several outputs `second` is a matrix for every row. The penalty is on what has one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from danl.data.shard import rows_of
from danl.objective.layout import Layout
from danl.objective.local_objective import LocalObjective, margins, transpose_product
from danl.objective.losses import Array, value_and_first


@dataclass(frozen=True)
class QuadraticModel:
    """g and H at w, as what they are made of: rows, and derivatives of the loss with the rows' weights."""

    X: Any
    layout: Layout
    loss: float  # F_i(w)
    first: Array  # r first, (rows,) or (rows, outputs)
    second: Array  # r second, (rows,) or (rows, outputs, outputs)
    w: Array
    penalties: Array | float

    @classmethod
    def of(cls, objective: LocalObjective, w: Array) -> QuadraticModel:
        """The model of an objective at w, on its rows or on a sample of them."""
        loss, y, own = objective.loss, objective.y, objective.row_weights
        with np.errstate(over="ignore", invalid="ignore"):  # at a model that blew up: the loss shows it
            z = objective.margins(w)
            value, first = value_and_first(loss, y, z)
            second = loss.second(y, z)
            penalised = np.where(objective.layout.penalised, w, 0.0)
            total = float(own @ value) + 0.5 * objective.penalty * float(penalised @ penalised)
            own_first = own * first if first.ndim == 1 else own[:, None] * first
            own_second = own * second if second.ndim == 1 else own[:, None, None] * second
        return cls(objective.X, objective.layout, total, own_first, own_second, w, objective.penalties)

    def gradient(self) -> Array:
        """The gradient at u = 0: g."""
        return transpose_product(self.X, self.first, self.layout) + self.penalties * self.w

    def gradient_at(self, u: Array) -> Array:
        """The gradient at u: g + H u, in one pass."""
        return transpose_product(self.X, self.first + self._slopes(u), self.layout) + self.penalties * (self.w + u)

    def times(self, v: Array) -> Array:
        """H v."""
        return transpose_product(self.X, self._slopes(v), self.layout) + self.penalties * v

    def _slopes(self, v: Array) -> Array:
        """R second * (A v)."""
        along = margins(self.X, v, self.layout)
        return self.second * along if along.ndim == 1 else np.einsum("nkm,nm->nk", self.second, along)

    def part(self, begin: int, end: int, times: float) -> QuadraticModel:
        """The model of consecutive rows, each of which counts so many times as much; the loss stays that of all."""
        X, rows = rows_of(self.X, begin, end), slice(begin, end)
        own = times * self.first[rows], times * self.second[rows]
        return QuadraticModel(X, self.layout, self.loss, *own, self.w, self.penalties)

    def curvature_of_rows(self) -> Array:
        """A bound on the largest eigenvalue of every row's second derivatives, with its weight: row sums."""
        return self.second if self.second.ndim == 1 else np.abs(self.second).sum(axis=2).max(axis=1)
