r"""All workers of one process at once: their rows in one matrix, their answers in a few passes over it.

The rows are sorted by worker and gone through in blocks that stay in a core's cache from the margins to the way back.
With the columns of a block's i-th worker moved to i d, ..., i d + d - 1, one transposed product gives the gradients of
all of its workers side by side, at the cost of one pooled gradient, however many they are. A worker's numbers are those
it would send by itself, up to rounding.

Hessians are not needed one by one, only their weighted sum: one product over all rows, made when the server has said
whose count (`add_up`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from danl.data.rows import rows_of
from danl.objective.kernels import Sandwich, Segments, Slabs, few_of_many, repeated_value
from danl.objective.layout import Layout
from danl.objective.local import LocalObjective, assembled, margins
from danl.objective.losses import Array, LogarithmicLoss, Loss, second_blocks

Mask = NDArray[np.bool_]

BLOCK_ENTRIES = 1 << 20
"""Stored entries of a block of sparse rows, 12 bytes each, and numbers of a block of dense ones: what stays in the
cache the cores share. Smaller blocks are slower: going back and forth between two loops costs more than it saves."""
SMALL_LOSS = 0.01
"""Average losses below this are added up by themselves: 1 + exp(-s z) has rounded away too much of them."""
ALL = slice(None)
SMALL_WORKER = 10_000
"""Stored entries of a worker below which its rows are gone through with the others', asked or not."""
MANY = 64
"""Workers of a block from which on dense rows are summed down the columns, not worker by worker."""


class Block:
    """Consecutive rows that stay in the cache: those of some workers, or some of those of one."""

    def __init__(
        self, X: Any, first: int, last: int, workers: slice, bounds: NDArray[np.int64], value: float | None = None
    ) -> None:
        self.rows, self.workers, self.X = slice(first, last), workers, rows_of(X, first, last)
        self.count = workers.stop - workers.start
        self.starts = np.maximum(bounds[workers.start : workers.stop], first) - first
        self._value = value  # that all stored entries are
        self._n = int(X.shape[1])

    @cached_property
    def large(self) -> bool:
        """Whether its workers are large enough to be gone through one by one."""
        return bool(sparse.issparse(self.X) and (self.count == 1 or self.X.nnz >= SMALL_WORKER * self.count))

    @cached_property
    def slabs(self) -> Slabs:
        bounds = self.starts.tolist() if self.large else [0]
        return Slabs(self.X, [*bounds, self.X.shape[0]], self._value)

    @cached_property
    def apart(self) -> Slabs:
        """The rows with every worker's columns at a place of their own, (rows, count * features)."""
        entries = np.diff(np.append(self.X.indptr[self.starts], self.X.indptr[-1]))  # of each worker
        wide = self.count * self._n
        kind = np.int32 if wide < 2**31 else np.int64
        made = sparse.csr_matrix((self.X.shape[0], wide))
        moved = np.repeat(np.arange(self.count, dtype=kind) * kind(self._n), entries) + self.X.indices
        made.data, made.indices, made.indptr = self.X.data, moved.astype(kind, copy=False), self.X.indptr
        return Slabs(made, [0, self.X.shape[0]], self._value)

    def margins(self, w: Array, asked: Sequence[bool] | None = None) -> Array:
        """X w; with the workers' models (count, features), X_i w_i of every row of worker i."""
        if not sparse.issparse(self.X):
            if w.ndim == 1:
                return np.asarray(self.X @ w)
            return np.concatenate([own @ each for own, each in zip(self._each(self.X), w, strict=True)])
        if self.large:
            return self.slabs.times(w, asked)
        return self.slabs.times(w) if w.ndim == 1 else self.apart.times(w.ravel())

    def pulled_back(self, slopes: Array, asked: Sequence[bool] | None = None) -> Array:
        """X_i^T slopes_i of every worker, (count, features)."""
        if self.large:
            return self.slabs.transposed_times(slopes, asked)
        if sparse.issparse(self.X):
            return self.apart.transposed_times(slopes).reshape(self.count, self._n)
        if self.count >= MANY:
            return np.asarray(np.add.reduceat(self.X * slopes[:, None], self.starts, axis=0))
        return np.stack([each @ own for own, each in zip(self._each(self.X), self._each(slopes), strict=True)])

    def sums(self, slopes: Array) -> Array:
        """The sum over each worker's rows, (count,)."""
        return np.asarray(np.add.reduceat(slopes, self.starts))

    def _each(self, rows: Any) -> list[Any]:
        return np.split(rows, self.starts[1:])


class Batch:
    """The objectives of all workers of this process, evaluated together."""

    def __init__(
        self,
        X: Any,
        y: Array,
        own_weights: Array | None,  # of the rows, where they differ
        bounds: NDArray[np.int64],
        penalties: Array,
        loss: Loss,
        layout: Layout,
    ) -> None:
        self.X, self.y, self.own_weights, self.bounds, self.penalties = X, y, own_weights, bounds, penalties
        self.loss, self.layout = loss, layout
        # Of each worker: what turns its sums into averages.
        self.scale = 1.0 / np.diff(self.bounds) if own_weights is None else np.ones(self.n_workers)
        # Where all rows of a worker weigh the same, the shorter of slopes and gradients is scaled.
        self.scale_after = self.own_weights is None and self.n_workers * self.layout.size < len(self.y)
        self._same_penalty = float(self.penalties[0]) if (self.penalties == self.penalties[0]).all() else 0.0
        self._logarithmic = self.loss if isinstance(self.loss, LogarithmicLoss) else None
        self.passes = 0  # over the data: margins, and ways back
        self._newest: tuple[Array, Array] | None = None  # a model and its margins

    @classmethod
    def of(cls, objectives: Sequence[LocalObjective]) -> Batch:
        """Those of these workers, for which it must be `possible`."""
        weighted = any(each.weights is not None for each in objectives)
        return cls(
            _stacked_matrix([each.X for each in objectives]),
            _stacked([each.y for each in objectives]),
            np.concatenate([each.row_weights for each in objectives]) if weighted else None,
            np.concatenate([[0], np.cumsum([each.n_rows for each in objectives])]),
            np.array([each.penalty for each in objectives]),
            objectives[0].loss,
            objectives[0].layout,
        )

    def part(self, workers: NDArray[np.int64]) -> Batch | None:
        """The batch of a few of many workers; None where it is as good to go through all of them."""
        if not len(workers) or not few_of_many(len(workers), self.n_workers, self._numbers):
            return None
        counts = np.diff(self.bounds)[workers]
        bounds = np.concatenate([[0], np.cumsum(counts)])
        rows = np.repeat(self.bounds[workers] - bounds[:-1], counts) + np.arange(bounds[-1])
        own_weights = None if self.own_weights is None else self.own_weights[rows]
        return Batch(self.X[rows], self.y[rows], own_weights, bounds, self.penalties[workers], self.loss, self.layout)

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
    def row_weights(self) -> Array:
        """What each row counts in its worker's average."""
        return self.scale[self.owners] if self.own_weights is None else self.own_weights

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
    def blocks(self) -> list[Block]:
        """The rows in blocks: as many whole workers as fit into one, large workers in parts."""
        ends = self.X.indptr[self.bounds] if sparse.issparse(self.X) else self.bounds * self.X.shape[1]
        ends = ends.astype(np.int64)
        value = repeated_value(self.X) if sparse.issparse(self.X) else None
        made: list[Block] = []
        first = 0
        while first < self.n_workers:
            fits = int(np.searchsorted(ends, ends[first] + BLOCK_ENTRIES, side="right")) - 1
            last = max(fits, first + 1)
            parts = 1 if fits > first else -(-int(ends[last] - ends[first]) // BLOCK_ENTRIES)
            rows = np.linspace(self.bounds[first], self.bounds[last], parts + 1).astype(int).tolist()
            made += [Block(self.X, a, b, slice(first, last), self.bounds, value) for a, b in pairwise(rows) if a < b]
            first = last
        return made

    @cached_property
    def _numbers(self) -> int:
        """Of the larger of the data and all gradients."""
        stored = self.X.nnz if sparse.issparse(self.X) else self.X.size
        return int(max(stored, self.n_workers * self.layout.size))

    def losses(self, w: Array) -> Array:
        """F_i(w) of every worker."""
        with np.errstate(over="ignore", invalid="ignore"):
            return self.scale * self._sums(self.loss.value(self.y, self.margins(w))) + self.penalty_at(w)

    def losses_and_gradients(
        self,
        w: Array,
        masks: Mask | None = None,
        workers: NDArray[np.int64] | None = None,
        holders: NDArray[np.int64] | None = None,
    ) -> tuple[Array, Array]:
        """F_i and grad F_i of every worker, (N,) and (N, d): at w, or with `masks` (N, d) at w * mask of each.

        Where only the losses of some `workers` are wanted, or the gradients of some `holders` among them, what there is
        of the others means nothing.
        """
        layout = self.layout
        shape = (self.n_workers, layout.n_outputs, layout.columns)
        models = w.reshape(shape[1:]) if masks is None else (w * masks).reshape(shape)
        asked, holding = self._asked(workers), self._asked(workers if holders is None else holders)
        at_once = len(self.blocks) == 1 and layout.size == layout.n_features
        gradients = np.zeros(0 if at_once else shape)
        newest, told = [], []  # margins, and what the losses are made of, block by block
        with np.errstate(over="ignore", invalid="ignore"):
            for block in self.blocks:
                here = None if asked is None else asked[block.workers]
                if here is not None and not any(here):
                    length = block.rows.stop - block.rows.start
                    newest.append(np.zeros(length if layout.n_outputs == 1 else (length, layout.n_outputs)))
                    told.append(np.ones(length))
                    continue
                z = self._margins(block, models, here)
                values, slopes = self._values_and_slopes(block.rows, z)
                there = None if holding is None else holding[block.workers]
                if at_once:
                    gradients = block.pulled_back(slopes, there)
                else:
                    self._pull_back(block, slopes, gradients, there)
                newest.append(z)
                told.append(values)
            flat = gradients.reshape(self.n_workers, layout.size)
            if self.scale_after:
                flat *= self.scale[:, None]
            z = _joined(newest)
            losses = self._losses(_joined(told), z, ALL if workers is None else workers)
            if masks is None:
                self._add_penalty(w, losses, flat)
            else:
                pruned = self._penalised(w) * masks
                flat += self.penalties[:, None] * pruned
                losses += 0.5 * self.penalties * np.square(pruned).sum(axis=1)
        if masks is None and asked is None:
            self._newest = (w.copy(), z)
        self.passes += 2
        return losses, flat

    def _asked(self, workers: NDArray[np.int64] | None) -> list[bool] | None:
        """Of every worker whether it is one of these; None where all are."""
        if workers is None or len(workers) == self.n_workers:
            return None
        asked = np.zeros(self.n_workers, dtype=bool)
        asked[workers] = True
        return asked.tolist()

    def _values_and_slopes(self, rows: slice, z: Array) -> tuple[Array, Array]:
        """The loss of every row, or exp of it where that is cheaper; and its derivative times the row's own weight."""
        y = self.y[rows]
        if self._logarithmic is not None:
            values, slopes = self._logarithmic.exp_value_and_first(y, z)
        else:
            values, slopes = self.loss.value(y, z), self.loss.first(y, z)
        if self.scale_after:
            return values, slopes
        weights = self.row_weights[rows]
        return values, slopes * (weights if slopes.ndim == 1 else weights[:, None])

    def _losses(self, values: Array, z: Array, workers: NDArray[np.int64] | slice = ALL) -> Array:
        """The workers' averages of the losses, from the values that `_values_and_slopes` told; of some, at least."""
        if self._logarithmic is not None:
            logarithms = self.segments.sums_of_logarithms
            losses = self.scale * (logarithms(values) if self.own_weights is None else self._sums(np.log(values)))
            if losses[workers].min() > SMALL_LOSS and losses[workers].max() < np.inf:
                return losses
            values = self.loss.value(self.y, z)
        return self.scale * self._sums(values)

    def _sums(self, values: Array) -> Array:
        return self.segments.sums(values if self.own_weights is None else self.own_weights * values)

    def _margins(self, block: Block, models: Array, asked: Sequence[bool] | None = None) -> Array:
        """A w of every row, with a model (outputs, columns); A_i w_i with one for every worker, (N, outputs, columns).

        Workers that are not asked have zeros, or what they would have been told.
        """
        layout, own = self.layout, models if models.ndim == 2 else models[block.workers]
        if models.ndim == 2 and layout.n_outputs > 1:
            return margins(block.X, models.ravel(), layout)  # all outputs in one pass
        columns = []
        for k in range(layout.n_outputs):
            z = block.margins(np.ascontiguousarray(own[..., k, : layout.n_features]), asked)
            if layout.intercept:
                z += own[k, -1] if models.ndim == 2 else models[self.owners[block.rows], k, -1]
            columns.append(z)
        return columns[0] if layout.n_outputs == 1 else np.stack(columns, axis=1)

    def _pull_back(self, block: Block, slopes: Array, gradients: Array, asked: Sequence[bool] | None) -> None:
        """Add A_i^T slopes_i of the block's workers to the gradients, (N, outputs, columns)."""
        n = self.layout.n_features
        for k in range(self.layout.n_outputs):
            own = slopes if slopes.ndim == 1 else np.ascontiguousarray(slopes[:, k])
            gradients[block.workers, k, :n] += block.pulled_back(own, asked)
            if self.layout.intercept:
                gradients[block.workers, k, n] += block.sums(own)

    def hessian_sum(self, w: Array, weights: Array, rows: Sequence[Array | None] | None = None) -> Array:
        """sum_i weight_i Hess F_i(w), on all rows or, by worker, on a sample of them.

        Where the newest margins are those of w, they are not computed again.
        """
        z = self.margins(w)
        if rows is not None and any(own is not None for own in rows):
            taken, counts = self._taken(rows)
            X, y, z = self.X[taken], self.y[taken], z[taken]
            of_worker = np.repeat(weights * self.scale * np.diff(self.bounds) / counts, counts)
            row_weights = of_worker if self.own_weights is None else of_worker * self.own_weights[taken]
            sandwich = Sandwich(X)
        else:
            X, y, sandwich = self.X, self.y, self.sandwich
            row_weights = weights[self.owners] * self.row_weights
        with np.errstate(over="ignore", invalid="ignore"):
            blocks = ((k, m, row_weights * bend) for k, m, bend in second_blocks(self.loss, y, z))
            whole = assembled(X, blocks, self.layout, sandwich)
        penalty = float(weights @ self.penalties)
        whole.flat[:: len(whole) + 1] += np.where(self.layout.penalised, penalty, 0.0)
        return whole

    def _taken(self, rows: Sequence[Array | None]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Rows of the samples in the whole, and how many there are of each worker."""
        bounds = self.bounds.tolist()
        parts = [
            np.arange(first, last) if own is None else first + own
            for own, (first, last) in zip(rows, pairwise(bounds), strict=True)
        ]
        return np.concatenate(parts), np.array([len(part) for part in parts])

    def margins(self, w: Array) -> Array:
        """A w of every row; those of the newest w are kept."""
        if self._newest is None or not np.array_equal(self._newest[0], w):
            self.passes += 1
            model = w.reshape(self.layout.n_outputs, self.layout.columns)
            self._newest = (w.copy(), _joined([self._margins(block, model) for block in self.blocks]))
        return self._newest[1]

    def penalty_at(self, w: Array) -> Array:
        """penalty_i / 2 |w|^2 of every worker."""
        penalised = self._penalised(w)
        return 0.5 * float(penalised @ penalised) * self.penalties

    def _penalised(self, w: Array) -> Array:
        """The model with 0 for what there is no penalty on."""
        return np.where(self.layout.penalised, w, 0.0) if self.layout.intercept else w

    def _add_penalty(self, w: Array, losses: Array, gradients: Array) -> None:
        penalised = self._penalised(w)
        gradients += self._same_penalty * penalised if self._same_penalty else self.penalties[:, None] * penalised
        losses += self.penalty_at(w)


def _joined(parts: list[Array]) -> Array:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


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
