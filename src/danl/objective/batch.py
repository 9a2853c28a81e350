r"""All workers of one process at once: their rows in one matrix, their answers in a few passes over it.

The rows are sorted by worker and gone through in blocks that stay in a core's cache from the margins to the transpose
product. One such product with the block-diagonal matrix of the workers' rows gives the gradients of all workers of a
block, at the cost of one pooled gradient, however many they are. A worker's numbers are those of its `LocalObjective`,
up to rounding.

Hessians are not needed one by one, only their weighted sum: one product over all rows, made when the server has said
whose count (`Batch.hessian_sum`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from danl.data.shard import stacked, stacked_rows
from danl.frozen import cached_property
from danl.objective import kernels
from danl.objective.kernels import Sandwich, repeated_value
from danl.objective.layout import Layout
from danl.objective.local_objective import (
    LocalObjective,
    assembled,
    margins,
    margins_without_features,
    stacked_offsets,
)
from danl.objective.losses import Array, Loss, target_terms, value_and_first, weighted_second_derivatives
from danl.objective.row_blocks import MANY_WORKERS, Mask, RowBlock, row_blocks
from danl.objective.row_samples import RowSample, curvature_of_rows, weighted_rows
from danl.objective.segments import Segments
from danl.objective.threads import allowed, shared

IntArray = NDArray[np.int64]
Made = TypeVar("Made")

SMALL_LOSS = 0.01
"""Average losses below this are added up by themselves: 1 + exp(-s z) has rounded away too much of them."""
SHARED_WORK, ROW = 1_000_000, 10
"""Stored entries from which on threads are worth their while; the loss of a row takes as long as so many entries."""
MANY_NUMBERS = 1 << 17
"""Arrays that do not stay in a core's own cache."""


def _exp_value_and_first(loss: Any, y: Array, z: Array, _: Array | None) -> tuple[Array, Array]:
    made: tuple[Array, Array] = loss.exp_value_and_first(y, z)
    return made


class Batch:
    """The objectives F_1, ..., F_N of all workers of this process, evaluated together."""

    def __init__(
        self,
        X: Any,
        y: Array,
        own_weights: Array | None,  # of the rows, where they differ
        bounds: IntArray,  # worker i has the rows from bounds[i] to bounds[i + 1]
        penalties: Array,
        loss: Loss,
        layout: Layout,
        offset: Array | None = None,  # of the rows, where there is one
    ) -> None:
        self.X, self.y, self.own_weights, self.offset, self.bounds = X, y, own_weights, offset, bounds
        self.penalties, self.loss, self.layout, self.n_workers = penalties, loss, layout, len(penalties)
        # Of each worker: what turns its sums into averages.
        self.scale = 1.0 / np.diff(bounds) if own_weights is None else np.ones(self.n_workers)
        # Where all rows of a worker weigh the same, the shorter of slopes and gradients is scaled.
        self.scale_after = own_weights is None and self.n_workers * layout.n_coefficients < len(y)
        self._same_penalty = float(penalties[0]) if (penalties == penalties[0]).all() else 0.0
        self._segments = Segments(bounds, own_weights)
        # What the loss of every row is made of, with its derivative; and the sums of the losses over the workers' rows.
        self._evaluate: Callable[[Array, Array, Array | None], tuple[Array, Array]] = partial(value_and_first, loss)
        self._terms = target_terms(loss, y)
        self._sums: Callable[[Array], Array] = self._segments.sums
        self._logarithmic = hasattr(loss, "exp_value_and_first")  # isinstance of a protocol takes longer than a round
        if self._logarithmic:
            self._evaluate, self._sums = partial(_exp_value_and_first, loss), self._segments.sums_of_logarithms
        self._dense = not sparse.issparse(X)
        self.wanted_threads: int | None = None  # threads
        self._cut: dict[int, list[RowBlock]] = {}  # by the number of threads
        self.passes = 0  # over the data: margins, and transpose products
        self._newest: tuple[Array, Array] | None = None  # a model and its margins
        self._exponentials: Array | None = None  # 1 + exp(-s z) of a logistic loss there, where they were made

    @classmethod
    def of(cls, objectives: Sequence[LocalObjective], y: Array | None = None) -> Batch:
        """Those of these workers, of one loss and one layout; `y` are their targets, where these are together."""
        weighted = any(each.weights is not None for each in objectives)
        return cls(
            stacked_rows([each.X for each in objectives]),
            stacked([each.y for each in objectives]) if y is None else y,
            np.concatenate([each.row_weights for each in objectives]) if weighted else None,
            np.concatenate([[0], np.cumsum([each.n_rows for each in objectives])]),
            np.array([each.penalty for each in objectives]),
            objectives[0].loss,
            objectives[0].layout,
            stacked_offsets(objectives),
        )

    @cached_property
    def row_weights(self) -> Array:
        """What each row counts in its worker's average."""
        return self.scale[self.owners] if self.own_weights is None else self.own_weights

    @cached_property
    def owners(self) -> IntArray:
        """The worker of each row."""
        return np.repeat(np.arange(self.n_workers), np.diff(self.bounds))

    @cached_property
    def sandwich(self) -> Sandwich:
        return Sandwich(self.X)

    @cached_property
    def blocks(self) -> list[RowBlock]:
        """The rows in blocks: as many whole workers as fit into one, large workers in parts."""
        return row_blocks(self.X, self.bounds, self._ends, self._value)

    def _blocks_for(self, threads: int) -> list[RowBlock]:
        """The rows in blocks for so many threads: a single one is cut between workers, which may change the rounding of
        dense products.
        """
        if threads == 1 or len(self.blocks) > 1 or (self._dense and self.n_workers >= MANY_WORKERS):
            return self.blocks
        if threads not in self._cut:
            shares = np.linspace(0, self._ends[-1], threads + 1)
            cuts = np.unique(np.abs(self._ends[:, None] - shares).argmin(axis=0)).tolist()
            rows = self.bounds.tolist()
            made = [(rows[a], rows[b], slice(a, b)) for a, b in pairwise(cuts)]
            self._cut[threads] = [RowBlock(self.X, *each, self.bounds, self._value) for each in made]
        return self._cut[threads]

    def _of_blocks(self, function: Callable[[RowBlock], Made], blocks: Sequence[RowBlock], threads: int) -> list[Made]:
        """What a function makes of the blocks, in their order."""
        if threads == 1:
            return [function(block) for block in blocks]

        def quietly(block: RowBlock) -> Made:
            with np.errstate(over="ignore", invalid="ignore"):  # which each thread has its own of
                return function(block)

        return shared(quietly, blocks, threads, blas=self._dense)

    @cached_property
    def _value(self) -> float | None:
        """The one number that is stored, if it is one."""
        return None if self._dense else repeated_value(self.X)

    @cached_property
    def _ends(self) -> IntArray:
        """Stored entries up to each of the bounds."""
        return np.asarray(self.bounds * self.X.shape[1] if self._dense else self.X.indptr[self.bounds], dtype=np.int64)

    @cached_property
    def numbers(self) -> int:
        """Of the larger of the data and all gradients."""
        return int(max(self._ends[-1], self.n_workers * self.layout.n_coefficients))

    def use_threads(self, threads: int | None) -> None:
        """Let so many threads work on it; None: as many as this process may use."""
        self.wanted_threads = self.sandwich.threads = threads

    @property
    def threads(self) -> int:
        """How many threads a pass over the data is worth."""
        return allowed(self.wanted_threads) if self._work >= SHARED_WORK else 1

    @cached_property
    def _work(self) -> int:
        return int(self._ends[-1]) + ROW * len(self.y)

    def losses(self, w: Array) -> Array:
        """F_i(w) of every worker."""
        return self.losses_at(w, self.margins(w))

    def losses_at(self, w: Array, z: Array) -> Array:
        """The same, where the margins z of w are known."""
        with np.errstate(over="ignore", invalid="ignore"):
            return self.scale * self._segments.sums(self.loss.value(self.y, z)) + self._penalty(self._penalised(w))

    def value_and_gradient(self, w: Array, weights: Array) -> tuple[float, Array]:
        """sum_i weight_i F_i(w) and its gradient."""
        losses, gradients = self.losses_and_gradients(w)
        counted = weights != 0  # a worker that does not count may be infinite
        if not counted.all():
            weights, losses, gradients = weights[counted], losses[counted], gradients[counted]
        with np.errstate(over="ignore", invalid="ignore"):
            return float(weights @ losses), weights @ gradients

    def losses_and_gradients(
        self, w: Array, masks: Mask | None = None, workers: IntArray | None = None, holders: IntArray | None = None
    ) -> tuple[Array, Array]:
        """F_i and grad F_i of every worker, (N,) and (N, d): at w, with `masks` (N, d) at w * mask of each.

        With w (N, d) every worker has a model of its own.
        Where only the losses of some `workers` are wanted, or the gradients of some `holders` among them, the rows of
        the others are undefined.
        """
        layout, model = self.layout, w if masks is None else w * masks
        shape = (self.n_workers, layout.n_outputs, layout.columns)
        penalised = self._penalised(model)
        common = model.ndim == 1
        model = model.reshape(shape[1:] if common else shape)
        selected = self._selected(workers)
        holding = selected if holders is None or holders is workers else self._selected(holders)
        threads = self.threads
        blocks = self._blocks_for(threads)
        at_once = len(blocks) == 1 and layout.n_coefficients == layout.n_features
        begin = self._common_row(penalised) if at_once and blocks[0].many_small_workers else None
        gradients = np.zeros(0 if at_once else shape)

        def evaluate(block: RowBlock) -> tuple[Array, Array, Array | None]:
            """Margins, what the losses are made of, and products that are not in the gradients already."""
            here = None if selected is None else selected[block.workers]
            if here is not None and not here.any():
                return np.zeros((block.n_rows, layout.n_outputs)[: layout.n_outputs]), np.ones(block.n_rows), None
            z, value, slopes = self._evaluated(block, model, here)
            there = None if holding is None else holding[block.workers]
            if begin is not None:
                return z, value, block.transpose_times_plus(slopes, begin)
            if at_once:
                return z, value, block.transpose_times(slopes, there)
            own = gradients[block.workers] if block.whole else np.zeros((block.n_workers, *shape[1:]))
            self._add_transpose_product(block, slopes, own, there)
            return z, value, None if block.whole else own

        with np.errstate(over="ignore", invalid="ignore"):
            evaluated = self._of_blocks(evaluate, blocks, threads)
            row_margins, values, products = zip(*evaluated, strict=True)
            if at_once and products[0] is not None:
                gradients = products[0]
            elif at_once:  # nobody was asked
                gradients = np.zeros(shape)
            else:
                for block, product in zip(blocks, products, strict=True):
                    if product is not None:
                        gradients[block.workers] += product
            z = row_margins[0] if len(row_margins) == 1 else np.concatenate(row_margins)
            value = values[0] if len(values) == 1 else np.concatenate(values)
            losses = self._averages(value, z, workers) + self._penalty(penalised)
            gradients = gradients.reshape(self.n_workers, layout.n_coefficients)
            if self.scale_after:
                gradients *= self.scale[:, None]
            if begin is None and gradients.size >= MANY_NUMBERS and penalised.ndim == 1 and self._same_penalty:
                kernels.add_to_rows(gradients, self._same_penalty * penalised)
            elif begin is None:
                gradients += (self._same_penalty or self.penalties[:, None]) * penalised
        if common and selected is None:
            self._newest = (w.copy(), z)
            self._exponentials = value if self._logarithmic else None
        self.passes += 2
        return losses, gradients

    def _evaluated(self, block: RowBlock, model: Array, selected: Mask | None = None) -> tuple[Array, Array, Array]:
        """Margins of the rows of a block, what the losses are made of, and slopes, scaled unless that comes after."""
        z = self._margins(block, model, selected)
        terms = None if self._terms is None else self._terms[block.rows]
        value, slopes = self._evaluate(self.y[block.rows], z, terms)
        if self.scale_after:
            return z, value, slopes
        weights = self.row_weights[block.rows]
        return z, value, slopes * (weights if slopes.ndim == 1 else weights[:, None])

    def _averages(self, value: Array, z: Array, workers: IntArray | None) -> Array:
        """The losses without their penalty, of what those of the rows are made of; small ones are added up anew."""
        losses = self.scale * self._sums(value)
        wanted = losses if workers is None else losses[workers]
        rounded = self._logarithmic or self._terms is not None
        if rounded and not (wanted.min() > SMALL_LOSS and wanted.max() < np.inf):
            losses = self.scale * self._segments.sums(self.loss.value(self.y, z))
        return losses

    def _common_row(self, penalised: Array) -> Array | None:
        """The penalty's part of many gradients, where products can begin with it: it is short, and the same of all."""
        if self.n_workers * len(penalised) < MANY_NUMBERS or 2 * len(penalised) > kernels.LONG_ROW:
            return None
        same = penalised.ndim == 1 and self._same_penalty and not self.scale_after
        return self._same_penalty * penalised if same else None

    def _selected(self, workers: IntArray | None) -> Mask | None:
        """Of every worker whether it is one of these; None where all are."""
        if workers is None or workers.size == self.n_workers:
            return None
        selected = np.zeros(self.n_workers, dtype=bool)
        selected[workers] = True
        return selected

    def _margins(self, block: RowBlock, model: Array, selected: Mask | None = None) -> Array:
        """A w, and the offset, of every row."""
        z = self._products(block, model, selected)
        return z if self.offset is None else z + self.offset[block.rows]

    def _products(self, block: RowBlock, model: Array, selected: Mask | None = None) -> Array:
        """A w of every row, with a model (outputs, columns); A_i w_i with one for every worker, (N, outputs, columns).

        The rows of workers that are not selected are undefined.
        """
        layout, common = self.layout, model.ndim == 2
        if common:
            nothing = margins_without_features(block.n_rows, model, layout)
            if nothing is not None:
                return nothing
        if common and layout.n_outputs > 1:
            return margins(block.X, model.ravel(), layout)  # all outputs in one pass
        own = model if common else model[block.workers]
        columns = []
        for k in range(layout.n_outputs):
            z = block.times(np.ascontiguousarray(own[..., k, : layout.n_features]), selected)
            if layout.intercept:
                z += own[k, -1] if common else model[self.owners[block.rows], k, -1]
            columns.append(z)
        return columns[0] if layout.n_outputs == 1 else np.stack(columns, axis=1)

    def _add_transpose_product(self, block: RowBlock, slopes: Array, gradients: Array, selected: Mask | None) -> None:
        """Add A_i^T slopes_i of the block's workers to their gradients, (n, outputs, columns)."""
        n = self.layout.n_features
        if self.layout.n_outputs > 1 and block.few_dense_workers:
            for worker, X, own in block.each_with(slopes):  # all outputs in one pass
                gradients[worker, :, :n] += own.T @ X
                if self.layout.intercept:
                    gradients[worker, :, n] += own.sum(axis=0)
            return
        for k in range(self.layout.n_outputs):
            own = slopes if slopes.ndim == 1 else np.ascontiguousarray(slopes[:, k])
            gradients[:, k, :n] += block.transpose_times(own, selected)
            if self.layout.intercept:
                gradients[:, k, n] += block.sums(own)

    def _penalised(self, model: Array) -> Array:
        """The model, or the workers' models, with 0 for what there is no penalty on."""
        return np.where(self.layout.penalised, model, 0.0) if self.layout.intercept else model

    def _penalty(self, penalised: Array) -> Array:
        """penalty_i / 2 |w|^2 of every worker, at one model or at each worker's own."""
        if penalised.ndim == 1:
            return 0.5 * float(penalised @ penalised) * self.penalties
        return np.asarray(0.5 * self.penalties * np.square(penalised).sum(axis=1))

    def hessian_sum(self, w: Array, weights: Array, sample: RowSample | None = None) -> Array:
        """sum_i weight_i Hess F_i(w), on all rows or on a sample of them.

        Where the newest margins are those of w, they are not computed again. Rows of workers without weight are not
        gone through.
        """
        X, y, z, counted = self.X, self.y, self.margins(w), None
        sandwich: Callable[[Array], Array] = self.sandwich
        if sample is not None:
            rows, row_weights = weighted_rows(sample, self.bounds, weights * self.scale)
            row_weights = row_weights if self.own_weights is None else row_weights * self.own_weights[rows]
            X, y, z = X[rows], y[rows], z[rows]
            sandwich = Sandwich(X)
        else:
            row_weights = weights[self.owners] * self.row_weights
            if np.count_nonzero(weights) < len(weights):
                (counted,) = np.nonzero((weights != 0)[self.owners])
                sandwich = partial(self.sandwich, rows=counted)
        second = weighted_second_derivatives(self.loss, y, z, row_weights, counted)
        return assembled(X, second, self.layout, sandwich, float(weights @ self.penalties))

    def hessians_times(self, curvatures: Array, vectors: Array) -> Array:
        """Hess F_i v_i of every worker, (N, d), by the rows' second derivatives with their weights; one output."""
        layout, products = self.layout, np.zeros((self.n_workers, 1, self.layout.columns))
        own = vectors.reshape(self.n_workers, 1, layout.columns)
        with np.errstate(over="ignore", invalid="ignore"):
            for block in self.blocks:
                slopes = curvatures[block.rows] * self._products(block, own)
                self._add_transpose_product(block, slopes, products[block.workers], None)
            self.passes += 2
            return products[:, 0] + self.penalties[:, None] * self._penalised(vectors)

    def curvature_of_rows(self, w: Array) -> Array:
        """What the second derivatives of each row count in its worker's average; exact enough to draw rows by."""
        z = self.margins(w)
        return curvature_of_rows(self.loss, self.y, z, self.own_weights, self._exponentials)

    def margins(self, w: Array) -> Array:
        """A w, and the offset, of every row; those of the newest w are kept."""
        if self._newest is None or not np.array_equal(self._newest[0], w):
            self.passes += 1
            model = w.reshape(self.layout.n_outputs, self.layout.columns)
            threads = self.threads
            with np.errstate(over="ignore", invalid="ignore"):
                margins_of = partial(self._margins, model=model)
                parts = self._of_blocks(margins_of, self._blocks_for(threads), threads)
            self._newest = (w.copy(), parts[0] if len(parts) == 1 else np.concatenate(parts))
            self._exponentials = None
        return self._newest[1]
