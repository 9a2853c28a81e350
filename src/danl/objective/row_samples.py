r"""Rows that stand for all of a worker's: what curvature is computed on where all rows would take too long.

A row drawn with chance pi_j counts 1 / pi_j times, so that a sampled Hessian is right on average. Rows are drawn by
their leverage, as far as the squares of the columns tell it,

    leverage_j = r_j b_j sum_c a_jc^2 / mean_square_c           pi_j = min(1, size * share_j)

so that a column that few rows have an entry in is not lost (Drineas, Mahoney & Muthukrishnan, "Relative-error CUR
matrix decompositions", 2008, draw by the exact ones); and some by r_j b_j alone, so that no row counts for too many.
The draw is systematic: one random number of each worker, then every step of 1 along the sum of its pi_j (Madow, 1949).
Many workers, whose rows lie one after the other, are drawn from in the same few passes as one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from danl.objective.losses import Array, Loss, weighted_second_derivatives

Places = NDArray[np.int64]
BY_LEVERAGE = 0.7
"""The share of the draw that goes by leverage."""
LARGE = 0.25
"""Rows whose chance is to be cut off are looked for among those with more than this first."""
NOTHING = 1e-200
"""Sums below this are no curvature to draw by: a model that blew up, or rows that are all certain."""


@dataclass(frozen=True)
class RowSample:
    """Rows, in increasing order, and how many rows each of them stands for."""

    rows: Places
    counts: Array


def stacked_sample(samples: Sequence[RowSample | None], bounds: Places) -> RowSample:
    """The workers' samples as one of rows that lie one after the other; None for all rows of a worker."""
    rows, counts = [], []
    for own, (first, last) in zip(samples, pairwise(bounds.tolist()), strict=True):
        rows.append(np.arange(first, last) if own is None else first + own.rows)
        counts.append(np.ones(last - first) if own is None else own.counts)
    return RowSample(np.concatenate(rows), np.concatenate(counts))


def weighted_rows(sample: RowSample, bounds: Places, weights: Array) -> tuple[Places, Array]:
    """The rows of workers with a weight, and what each of them counts in a sum of workers with these weights."""
    rows, each = sample.rows, np.diff(np.searchsorted(sample.rows, bounds))
    row_weights = sample.counts * np.repeat(weights, each)
    if np.count_nonzero(weights) == len(weights):
        return rows, row_weights
    counted = np.repeat(weights != 0, each)
    return rows[counted], row_weights[counted]


def curvature_of_rows(
    loss: Loss, y: Array, z: Array, row_weights: Array | None, exponentials: Array | None = None
) -> Array:
    """r_j b_j, over all outputs; None for r_j that are all alike, which does not matter here.

    Of a logistic loss p (1 - p) comes from 1 + t, t = exp(-s z), which may be known: exact enough to draw by.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        if exponentials is None and hasattr(loss, "exp_value_and_first"):
            exponentials = loss.exp_value_and_first(y, z)[0]
        if exponentials is not None and exponentials[0] < np.inf:
            chance = 1.0 / exponentials
            curvature = 1.0 - chance
            curvature *= chance  # in place, here and below: new memory takes longer than the numbers in it
            return curvature if row_weights is None else row_weights * curvature
        parts = weighted_second_derivatives(loss, y, z, np.ones(len(y)) if row_weights is None else row_weights)
        return np.asarray(sum((weights for k, m, weights in parts if k == m), np.zeros(len(y))))


def leverage_sample(curvature: Array, relative_squares: Array, bounds: Places, size: int, draws: Array) -> RowSample:
    """About `size` rows of each worker, all of those who have no more.

    Worker i has the rows from bounds[i] to bounds[i + 1]; `draws` is a random number of each, at least 0 and below 1.
    """
    counts, starts = np.diff(bounds), bounds[:-1]
    sizes = np.minimum(counts, float(size))
    chances = _at_most_one(_chances(curvature, relative_squares, bounds, sizes), bounds, sizes)
    passed = np.cumsum(chances)
    passed += np.repeat(draws - np.append(0.0, passed[bounds[1:-1] - 1]), counts)
    steps = passed.astype(np.int64)
    chosen = np.empty(len(steps), dtype=bool)
    np.not_equal(steps[1:], steps[:-1], out=chosen[1:])
    chosen[starts] = steps[starts] > 0
    rows = np.flatnonzero(chosen)
    return RowSample(rows, 1.0 / chances[rows])


def _chances(curvature: Array, relative_squares: Array, bounds: Places, sizes: Array) -> Array:
    """Of every row, those of a worker adding up to its size; above 1 where a row counts for that much."""
    counts, starts = np.diff(bounds), bounds[:-1]
    with np.errstate(over="ignore", invalid="ignore"):
        leverage = curvature * relative_squares
        of_leverage, of_curvature = np.add.reduceat(leverage, starts), np.add.reduceat(curvature, starts)
        by_leverage = (of_leverage > NOTHING) & (of_leverage < np.inf)
        curved = (of_curvature > NOTHING) & (of_curvature < np.inf) & (sizes < counts)
    if not curved.all():  # rows that are all as good as any, or all wanted
        curvature = np.where(np.repeat(curved, counts), curvature, 1.0)
        of_curvature, by_leverage = np.where(curved, of_curvature, counts), by_leverage & curved
    if not by_leverage.all():  # rows without entries are all that is curved
        leverage = np.where(np.repeat(by_leverage, counts), leverage, 0.0)
        of_leverage = np.where(by_leverage, of_leverage, 1.0)
    share = np.where(by_leverage, BY_LEVERAGE, 0.0)
    leverage *= np.repeat(share * sizes / of_leverage, counts)
    rest = np.repeat((1.0 - share) * sizes / of_curvature, counts)
    rest *= curvature
    leverage += rest
    return leverage


def _at_most_one(chances: Array, bounds: Places, sizes: Array) -> Array:
    """No chance above 1: what is cut off is dealt to the worker's others in proportion, so that the sum stays.

    Times a factor f those of at least 1 / f are certain, and the others share what these leave: f grows until nobody
    else becomes certain.
    """
    for least in (LARGE, 0.0):  # those below are hardly ever certain
        large = np.flatnonzero(chances > least)
        values, cuts = chances[large], np.searchsorted(large, bounds)
        if values.max(initial=0.0) <= 1:
            return chances
        below = sizes - _sums(values, cuts) if least else np.zeros(len(sizes))
        factors, certain, before = np.ones(len(sizes)), np.zeros(len(sizes)), np.full(len(sizes), -1.0)
        while (certain > before).any():
            sure, before = values * np.repeat(factors, np.diff(cuts)) >= 1, certain
            certain, left = _sums(sure, cuts), below + _sums(np.where(sure, 0.0, values), cuts)
            factors = np.maximum(factors, np.divide(sizes - certain, left, out=np.ones(len(sizes)), where=left > 0))
        if least * factors.max() < 1:
            break
    chances *= np.repeat(factors, np.diff(bounds))
    return np.minimum(chances, 1.0, out=chances)


def _sums(values: NDArray[Any], cuts: Places) -> Array:
    """Over stretches that may be empty."""
    sums, some = np.zeros(len(cuts) - 1), cuts[1:] > cuts[:-1]
    sums[some] = np.add.reduceat(values, cuts[:-1][some], dtype=float)
    return sums
