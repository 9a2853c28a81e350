r"""Whether one record makes up an answer: the weights that records enter it with, and the columns they stand in.

An answer about a model w is a sum over rows a_j with weights, r_j those of the rows themselves:

    gradient, scores     r_j |first(y_j, z_j)|          Hessian     r_j second(y_j, z_j)

By choosing w, a server chooses these weights. Where exp(z) of one row outgrows the others, or all rows but one are so
certain that their slopes vanish, the sum is that row. So with p_j the share of a record in the sum of the weights, none
may be above `max_share`: the dominance rule of statistical offices (Hundepool et al., Statistical Disclosure Control,
Wiley 2012). Between two models of a huge logistic w only the rows change sides that are near the boundary, and there
alone the curvature is not 0: of losses with bounded curvature, 1 / sum_j p_j^2 of the curvature, the effective number
of records (Kish, Survey Sampling, 1965), must be at least `min_cell`. Both are looked at whatever is asked about a
model, as differences of losses are gradients, and those of gradients Hessians.

Columns can do the same: one in which two records differ from all others gives these records' slopes, and so does the
difference of two columns that are alike but for one record, or a subgroup of which a model is certain but for one. So
no record may have more than `max_share` of any combination of the columns, or nearly all of one that is weighted by the
curvature: of 10 to 100 records, one has more than 0.8 of such a combination in every tenth fit of counts, and more than
0.98 in one of a hundred.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import sparse

from danl.data.shard import Shard
from danl.objective.local_objective import LocalObjective
from danl.objective.losses import Array, weighted_second_derivatives

COLUMNS_AT_A_TIME, ROWS_AT_A_TIME = 64, 4_096
"""Columns and rows that are looked at together."""
OF_THE_REST = 0.1
"""What others must have of a combination weighted by curvature, as a share of what they must have elsewhere."""
FLAT = 1e-12
"""Combinations of columns flatter than this share of the steepest are rounding."""
Codes = np.ndarray[Any, np.dtype[np.intp]]


def record_codes(shard: Shard) -> Codes:
    """The record of every row, from 0: rows of one record, such as its successes and failures, count as one."""
    codes: Codes = np.unique(shard.rows, return_inverse=True)[1].astype(np.intp)
    return codes


def n_records(shard: Shard) -> int:
    """The records that count: those with a row of weight above 0."""
    counted = shard.rows if shard.weights is None else shard.rows[shard.weights > 0]
    return len(np.unique(counted))


def dominated(
    objective: LocalObjective, shard: Shard, z: Array | None, max_share: float, min_cell: int, *, columns: bool = True
) -> str | None:
    """What of an answer about margins z one record would make up, or too few of them; None where all is well.

    Without a z: about the rows and their weights alone; `columns`: combinations of columns are looked at, too.
    """
    codes, own = record_codes(shard), objective.row_weights
    if fault := _too_few(_by_record(own, codes), max_share, min_cell):
        return f"of the rows' weights {fault}"
    if z is None:
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        slopes = objective.loss.first(objective.y, z)
        sizes = own * (np.abs(slopes) if slopes.ndim == 1 else np.sqrt(np.square(slopes).sum(axis=1)))
        pairs = weighted_second_derivatives(objective.loss, objective.y, z, own)
        curvature = _by_record(sum((weights for k, m, weights in pairs if k == m), np.zeros(len(own))), codes)
    if sizes.any() and (fault := _too_few(_by_record(sizes, codes), max_share, 1)):
        return f"of the slopes at this model {fault}"
    if objective.loss.third_bound == 0.0:
        return None  # its curvature is that of the rows at every model
    effective = min_cell if math.isfinite(objective.loss.second_bound) else 1
    if fault := _too_few(curvature, max_share, effective):
        return f"of the curvature at this model {fault}"
    nearly_all = 1 - OF_THE_REST * (1 - max_share)
    if columns and _stands_alone(shard, curvature, nearly_all):
        return f"of the curvature at this model {_ALONE.format(nearly_all)}"
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


_ALONE = "one record has more than the share {:g} in a combination of the columns"


def _stands_alone(shard: Shard, weights: Array, max_share: float) -> bool:
    """Whether one record i has more than `max_share` of sum |a_i . v| for some v; a_i = weight (columns, 1, offset).

    Its leverage h_i = a_i . (A^T A)^+ a_i is the largest share that it has of sum (a_i . v)^2, at v = (A^T A)^+ a_i
    (Belsley, Kuh & Welsch, Regression Diagnostics, Wiley 1980). A share p of the sizes is at least one of
    p^2 / (p^2 + (1 - p)^2) of the squares: records of that leverage are looked at, each in its direction.
    """
    if max_share >= 1:
        return False
    rows, share = np.unique(shard.rows, return_index=True)[1], weights / weights.max()
    extra = np.column_stack([np.ones(shard.n_rows), *([] if shard.offset is None else [shard.offset])])

    def parts() -> Iterator[Array]:
        for first in range(0, len(rows), ROWS_AT_A_TIME):
            chosen = rows[first : first + ROWS_AT_A_TIME]
            own = np.column_stack([_dense(shard.X[chosen]), extra[chosen]])
            yield share[first : first + ROWS_AT_A_TIME, None] * own

    inverse = _inverse(sum((part.T @ part for part in parts()), np.zeros(())))
    least = max_share**2 / (max_share**2 + (1 - max_share) ** 2)
    found = []
    for part in parts():
        towards = part @ inverse
        found.append(towards[np.einsum("ij,ij->i", towards, part) > least])
    directions = np.concatenate(found)
    if not len(directions):
        return False
    sums, largest = np.zeros(len(directions)), np.zeros(len(directions))
    for part in parts():
        sizes = np.abs(part @ directions.T)
        sums, largest = sums + sizes.sum(axis=0), np.maximum(largest, sizes.max(axis=0))
    return bool((largest > max_share * sums).any())


def _inverse(gram: Array) -> Array:
    """The pseudo-inverse, in units of the columns."""
    scale = np.sqrt(gram.diagonal())
    scale = np.divide(1.0, scale, out=np.zeros_like(scale), where=scale > 0)
    values, vectors = np.linalg.eigh(scale[:, None] * gram * scale)
    kept = values > FLAT * values[-1]
    vectors = scale[:, None] * vectors[:, kept]
    return np.asarray((vectors / values[kept]) @ vectors.T)


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
    weights = np.ones(shard.n_rows) if shard.weights is None else shard.weights
    records, rows = np.unique(shard.rows[weights > 0], return_index=True)
    X = shard.X[np.flatnonzero(weights > 0)[rows]]
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
    sides = [len(np.unique(shard.rows[(weights > 0) & side])) for side in (shard.y == 1, shard.y != 1)]
    if binary and 0 < min(sides) < min_cell:
        return f"fewer than {min_cell} records have one of the two outcomes"
    own = _by_record(weights, record_codes(shard))
    told_else = shard.n_features >= len(records) or _too_few(own, max_share, 1)  # by rules of their own
    return None if told_else or not _stands_alone(shard, own, max_share) else _ALONE.format(max_share)


def _from_median(X: Any) -> Array:
    """Differences from the columns' medians, which is where most records are, if they are in one place."""
    dense = _dense(X)
    return np.asarray(dense - np.median(dense, axis=0))


def _dense(X: Any) -> Array:
    return np.asarray(X.toarray() if sparse.issparse(X) else X)


def _columns(shard: Shard, found: list[int]) -> str:
    """Columns in a message: by name, or by place counted from 1."""
    names = [str(column + 1) if shard.feature_names is None else shard.feature_names[column] for column in found[:3]]
    more = f" and {len(found) - 3} more" if len(found) > 3 else ""
    return f"column{'s' if len(found) > 1 else ''} {', '.join(names)}{more}"
