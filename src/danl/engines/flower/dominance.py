r"""Whether one record makes up an answer: the weights that records enter it with, and the columns they stand in.

An answer about a model w is a sum over rows a_j with weights, r_j those of the rows themselves:

    gradient, scores     r_j |first(y_j, z_j)|          Hessian     r_j second(y_j, z_j)

By choosing w, a server chooses these weights. Where exp(z) of one row outgrows the others, or all rows but one are so
certain that their slopes vanish, the sum is that row. So with p_j the share of a record in the sum of the weights, none
may be above `max_share`: the dominance rule of statistical offices (Hundepool et al., Statistical Disclosure Control,
Wiley 2012). Between two models of a huge logistic w only the rows change sides that are near the boundary, and there
alone the curvature is not 0: of losses with bounded curvature, 1 / sum_j p_j^2 of the curvature, the effective number
of records (Kish, Survey Sampling, 1965), must be at least `min_cell`. Both are looked at whatever is asked about a
model, as differences of losses are gradients, and those of gradients Hessians. A squared loss weights the rows the same
at every model; there the model does not matter.

A column can do the same: one in which two records differ from all others gives these records' slopes.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy import sparse

from danl.data.shard import Shard
from danl.objective.local_objective import LocalObjective
from danl.objective.losses import Array, weighted_second_derivatives

COLUMNS_AT_A_TIME = 64
"""Columns that are looked at together."""
Codes = np.ndarray[Any, np.dtype[np.intp]]


def record_codes(shard: Shard) -> Codes:
    """The record of every row, from 0: rows of one record, such as its successes and failures, count as one."""
    codes: Codes = np.unique(shard.rows, return_inverse=True)[1].astype(np.intp)
    return codes


def n_records(shard: Shard) -> int:
    """The records that count: those with a row of weight above 0."""
    counted = shard.rows if shard.weights is None else shard.rows[shard.weights > 0]
    return len(np.unique(counted))


def dominated(objective: LocalObjective, codes: Codes, w: Array | None, max_share: float, min_cell: int) -> str | None:
    """What of an answer about w one record would make up, or too few of them; None where all is well.

    Without a w: about the rows and their weights alone.
    """
    own = objective.row_weights
    if fault := _too_few(_by_record(own, codes), max_share, min_cell):
        return f"of the rows' weights {fault}"
    if w is None or objective.loss.third_bound == 0.0:
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        z = objective.margins(w)
        slopes = objective.loss.first(objective.y, z)
        sizes = own * (np.abs(slopes) if slopes.ndim == 1 else np.sqrt(np.square(slopes).sum(axis=1)))
        pairs = weighted_second_derivatives(objective.loss, objective.y, z, own)
        curvature = sum((weights for k, m, weights in pairs if k == m), np.zeros(len(own)))
    if sizes.any() and (fault := _too_few(_by_record(sizes, codes), max_share, 1)):
        return f"of the slopes at this model {fault}"
    effective = min_cell if math.isfinite(objective.loss.second_bound) else 1
    if fault := _too_few(_by_record(curvature, codes), max_share, effective):
        return f"of the curvature at this model {fault}"
    return None


def _by_record(weights: Array, codes: Codes) -> Array:
    if len(codes) == codes.max() + 1:
        return weights
    return np.asarray(np.bincount(codes, weights), dtype=np.float64)


def _too_few(weights: Array, max_share: float, effective: int) -> str | None:
    """What is wrong with weights of the records; where they sum to nothing, or to no number, none of them is known."""
    if max_share >= 1 and effective <= 1:
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        total = float(weights.sum())
        if not 0 < total < math.inf:
            return "nothing is left that can be told apart"
        shares = weights / total
        largest, few = float(shares.max()), 1.0 / float(shares @ shares)
    if largest > max_share:
        return f"one record has more than the share {max_share:g}"
    return f"fewer than {effective} records have nearly all" if few < effective else None


def overshoots(objective: LocalObjective, w: Array) -> bool:
    """Whether the rows are fitted worse at w than by a constant, and their loss can grow without bound.

    A step that was too long, on the way to the optimum: its answer is as good as that of a loss that overflowed.
    """
    if math.isfinite(objective.loss.second_bound):
        return False
    layout, loss = objective.layout, objective.loss
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        null = np.full(objective.n_rows, np.log(objective.row_weights @ objective.y))
        here, there = (float(objective.row_weights @ loss.value(objective.y, z)) for z in (objective.margins(w), null))
    return layout.n_outputs == 1 and math.isfinite(there) and not here <= there


def column_fault(shard: Shard, max_share: float, min_cell: int, *, binary: bool) -> str | None:
    """The columns, and the binary outcome, that too few records differ in, or that are nearly one record's."""
    if max_share >= 1 and min_cell <= 1:
        return None
    counted = slice(None) if shard.weights is None else shard.weights > 0
    X, y = shard.X[counted], shard.y[counted]
    rare, dominant = list[int](), list[int]()
    for first in range(0, X.shape[1], COLUMNS_AT_A_TIME):
        part = X[:, first : first + COLUMNS_AT_A_TIME]
        away = np.abs(_from_median(part))
        differ, sums = np.count_nonzero(away, axis=0), away.sum(axis=0)
        few = (differ > 0) & (differ < min_cell)
        rare += (first + np.flatnonzero(few)).tolist()
        dominant += (first + np.flatnonzero(~few & (away.max(axis=0) > max_share * sums))).tolist()
    if rare:
        return f"in {_columns(shard, rare)} fewer than {min_cell} records differ from the others"
    if dominant:
        return f"in {_columns(shard, dominant)} one record has more than the share {max_share:g} of the spread"
    least = min(np.count_nonzero(y == 1), np.count_nonzero(y != 1)) if binary else 0
    return f"fewer than {min_cell} records have one of the two outcomes" if 0 < least < min_cell else None


def _from_median(X: Any) -> Array:
    """Differences from the columns' medians, which is where most records are, if they are in one place."""
    dense = X.toarray() if sparse.issparse(X) else X
    return np.asarray(dense - np.median(dense, axis=0))


def _columns(shard: Shard, found: list[int]) -> str:
    """Columns in a message: by name, or by place counted from 1."""
    names = [str(column + 1) if shard.feature_names is None else shard.feature_names[column] for column in found[:3]]
    more = f" and {len(found) - 3} more" if len(found) > 3 else ""
    return f"column{'s' if len(found) > 1 else ''} {', '.join(names)}{more}"
