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
0.98 in one of a hundred. Nor may a combination that the records have be without curvature: a model that is certain of a
whole subgroup shows nothing of where it parts it.

The outcome is a column like the others, a class of it one each: X^T y is in every gradient. Squares of slopes (scores)
tell X^T diag(y) X besides: there no record may have nearly all of a combination among those of an outcome.

And a margin that is a small difference of large numbers is a step function, by rounding: a step can be put between two
records. What it is added up of may be large, and not by far.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import sparse

from danl.data.shard import Shard
from danl.objective.local_objective import LocalObjective
from danl.objective.losses import Array, outputs_of, weighted_second_derivatives

COLUMNS_AT_A_TIME, ROWS_AT_A_TIME = 64, 4_096
"""Columns and rows that are looked at together."""
OF_THE_REST = 0.1
"""What others must have of a combination weighted by curvature, as a share of what they must have elsewhere."""
FLAT = 1e-12
"""Combinations of columns flatter than this share of the steepest are rounding."""
LARGE = 1e4
"""What a margin may be added up of, in the units that the loss is curved in: its rounding is then below 1e-11."""
Codes = np.ndarray[Any, np.dtype[np.intp]]


def record_codes(shard: Shard) -> Codes:
    """The record of every row, from 0: rows of one record, such as its successes and failures, count as one."""
    codes: Codes = np.unique(shard.rows, return_inverse=True)[1].astype(np.intp)
    return codes


def n_records(shard: Shard) -> int:
    """The records that count: those with a row of weight above 0."""
    counted = shard.rows if shard.weights is None else shard.rows[shard.weights > 0]
    return len(np.unique(counted))


def weight_fault(shard: Shard, max_share: float) -> str | None:
    """What is wrong with the sum of the records' weights; None where nothing is."""
    if shard.weights is None:
        return None
    fault = _too_few(_by_record(shard.weights, record_codes(shard)), max_share, 1)
    return None if fault is None else f"of the rows' weights {fault}"


def dominated(
    objective: LocalObjective,
    shard: Shard,
    z: Array | None,
    max_share: float,
    min_cell: int,
    *,
    columns: bool = True,
    squares: bool = False,
) -> str | None:
    """What of an answer about margins z one record would make up, or too few of them; None where all is well.

    Without a z: about the rows and their weights alone; `columns`: combinations of columns are looked at, too;
    `squares`: the answer has squares of the slopes.
    """
    codes, own, loss, y = record_codes(shard), objective.row_weights, objective.loss, objective.y
    if fault := _too_few(_by_record(own, codes), max_share, min_cell):
        return f"of the rows' weights {fault}"
    if z is None:
        return None
    nearly_all = 1 - OF_THE_REST * (1 - max_share)
    with np.errstate(over="ignore", invalid="ignore"):
        slopes = loss.first(y, z)
        sizes = own * (np.abs(slopes) if slopes.ndim == 1 else np.sqrt(np.square(slopes).sum(axis=1)))
        pairs = list(weighted_second_derivatives(loss, y, z, own))
        curvature = _by_record(sum((weights for k, m, weights in pairs if k == m), np.zeros(len(own))), codes)
    if sizes.any() and (fault := _too_few(_by_record(sizes, codes), max_share, 1)):
        return f"of the slopes at this model {fault}"
    if columns and squares:
        outcomes = _by_record(own, codes) * _outcomes(shard, outputs_of(loss)).T
        of_outcomes = np.array([each for o in outcomes for each in (o - o.min(), o.max() - o)])
        if _one_has_a_column(shard, of_outcomes, nearly_all):
            return f"of the squares of slopes, among those of an outcome, {_ALONE.format(nearly_all)}"
        if sizes.any() and _stands_alone(shard, _by_record(sizes, codes)[:, None, None], nearly_all):
            return f"of the squares of slopes {_ALONE.format(nearly_all)}"
    if loss.third_bound == 0.0:
        return None  # its curvature is that of the rows at every model
    effective = min_cell if math.isfinite(loss.second_bound) else 1
    if fault := _too_few(curvature, max_share, effective):
        return f"of the curvature at this model {fault}"
    if not columns or max_share >= 1:
        return None
    outputs = outputs_of(loss)
    blocks = np.empty((len(curvature), outputs, outputs))
    for k, m, weights in pairs:
        blocks[:, k, m] = blocks[:, m, k] = _by_record(weights, codes)
    if _vanishes(shard, blocks, _by_record(own, codes) > 0):
        return "of the curvature at this model nothing is left in a combination of the columns"
    if _stands_alone(shard, blocks, nearly_all):
        return f"of the curvature at this model {_ALONE.format(nearly_all)}"
    return None


def sum_fault(terms: Array, max_share: float) -> str | None:
    """What is wrong with a sum of squares that is told, by its terms of the records; None where nothing is.

    A share p of sizes is p^2 / (p^2 + (1 - p)^2) of their squares.
    """
    fault = _too_few(terms, _of_squares(max_share), 1) if terms.any() else None
    return None if fault is None else f"of a sum of squares at this model {fault}"


def rounds(objective: LocalObjective, w: Array) -> str | None:
    """What is wrong with margins that are small differences of large numbers; None where nothing is.

    The unit is 1 where the loss is curved otherwise elsewhere, and else that of the outcomes.
    """
    layout, y = objective.layout, objective.y
    unit = max(1.0, float(np.sqrt(np.mean(np.square(y))))) if objective.loss.third_bound == 0.0 else 1.0
    coefficients, intercepts = layout.split(np.abs(w))
    with np.errstate(over="ignore", invalid="ignore"):
        beside = intercepts + (0.0 if objective.offset is None else float(np.abs(objective.offset).max()))
        if (coefficients @ _largest(objective.X) + beside <= LARGE * unit).all():
            return None
        sizes = np.asarray(np.abs(objective.X) @ coefficients.T) + beside
    large = not (sizes <= LARGE * unit).all()
    return "margins are differences of numbers so large that rounding parts the records" if large else None


def _largest(X: Any) -> Array:
    """The largest size in each column."""
    ends = [X.max(axis=0), X.min(axis=0)]
    dense = [each.toarray().ravel() if sparse.issparse(each) else np.asarray(each) for each in ends]
    return np.asarray(np.maximum(*np.abs(dense)))


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


def _of_squares(share: float) -> float:
    return share**2 / (share**2 + (1 - share) ** 2)


def _stands_alone(shard: Shard, blocks: Array, max_share: float, more: Array | None = None) -> bool:
    """Whether one record i has more than `max_share` of sum |B_i (a_i . v)| for some v.

    a_i has the columns, 1, the offset, and what `more` there is; B_i is a weight, or of several outputs their matrix.
    With the rows A_i = B_i x a_i of a record, its leverage |A_i (A^T A)^+ A_i^T| is the largest share that it has of
    sum |A_i v|^2 (Belsley, Kuh & Welsch, Regression Diagnostics, Wiley 1980). A share p of the sizes is at least one
    of p^2 / (p^2 + (1 - p)^2) of the squares: records of that leverage are looked at, each in its direction.
    """
    if max_share >= 1:
        return False
    with np.errstate(over="ignore", invalid="ignore"):
        basis = _basis(shard, blocks, more)
        found = []
        for part in _parts(shard, blocks, more):
            towards = part @ basis
            squares = np.square(towards).sum(axis=(1, 2))
            chosen = towards[squares > _of_squares(max_share)]
            vectors, values, _ = np.linalg.svd(np.swapaxes(chosen, 1, 2), full_matrices=False)
            found.append(vectors[values[:, 0] ** 2 > _of_squares(max_share), :, 0] if len(chosen) else chosen[:, 0, :])
        directions = basis @ np.concatenate(found).T
        if not directions.size:
            return False
        sums, largest = np.zeros(directions.shape[1]), np.zeros(directions.shape[1])
        for part in _parts(shard, blocks, more):
            sizes = np.abs(part @ directions).sum(axis=1)
            sums, largest = sums + sizes.sum(axis=0), np.maximum(largest, sizes.max(axis=0))
        return bool(np.any(largest > max_share * sums))


def _vanishes(shard: Shard, blocks: Array, counted: Any) -> bool:
    """Whether a combination of the columns that the counted records have is without weight in all of them."""
    sizes, outputs = np.abs(blocks).max(axis=(1, 2)), blocks.shape[1]
    if outputs == 1 and (sizes[counted] > FLAT**0.5 * sizes.max()).all():
        return False
    least = max(outputs - 1, 1) * _basis(shard, counted[:, None, None].astype(float), None).shape[1]
    return bool(_basis(shard, blocks, None).shape[1] < least)


def _one_has_a_column(shard: Shard, weights: Array, max_share: float) -> bool:
    """Whether one record has more than `max_share` of a column's differences from its median, by one of the weights."""
    rows = np.unique(shard.rows, return_index=True)[1]
    for first in range(0, shard.n_features, COLUMNS_AT_A_TIME):
        away = np.abs(_from_median(shard.X[rows][:, first : first + COLUMNS_AT_A_TIME]))
        for each in weights:
            sizes = each[:, None] * away
            if np.any(sizes.max(axis=0) > max_share * sizes.sum(axis=0)):
                return True
    return False


def _parts(shard: Shard, blocks: Array, more: Array | None) -> Iterator[Array]:
    """The rows A_i of some records at a time, (records, outputs, columns of all outputs)."""
    rows = np.unique(shard.rows, return_index=True)[1]
    beside = [] if shard.offset is None else [shard.offset[rows]]
    beside += [] if more is None else [more]
    extra = np.column_stack([np.ones(len(rows)), *beside])
    blocks = blocks / np.abs(blocks).max()
    step = max(1, ROWS_AT_A_TIME // blocks.shape[1] ** 2)
    for first in range(0, len(rows), step):
        part = slice(first, first + step)
        own = np.column_stack([_dense(shard.X[rows[part]]), extra[part]])
        made = blocks[part, :, :, None] * own[:, None, None, :]
        yield made.reshape(*made.shape[:2], -1)


def _basis(shard: Shard, blocks: Array, more: Array | None) -> Array:
    """V such that A V has orthonormal columns, as many as the rank of A: by its triangle, in units of the columns.

    A^T A would lose what is flatter than the root of the rounding.
    """
    squares: Any = 0.0
    triangle: Any = None
    for part in _parts(shard, blocks, more):
        squares = squares + np.square(part).sum(axis=(0, 1))
    scale = np.sqrt(squares)
    scale = np.divide(1.0, scale, out=np.zeros_like(scale), where=scale > np.finfo(float).tiny ** 0.5)
    for part in _parts(shard, blocks, more):
        stacked = part.reshape(-1, part.shape[2]) * scale
        triangle = np.linalg.qr(stacked if triangle is None else np.vstack([triangle, stacked]), mode="r")
    _, values, vectors = np.linalg.svd(triangle)
    kept = np.flatnonzero(values > FLAT * values[0])
    return np.asarray(scale[:, None] * vectors[kept].T / values[kept])


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


def column_fault(shard: Shard, max_share: float, min_cell: int, *, outputs: int = 1) -> str | None:
    """The columns, outcome included, that too few records differ in, or that are nearly one record's.

    With more than one of the `outputs` each is a class of the outcome.
    """
    if max_share >= 1 and min_cell <= 1:
        return None
    weights = np.ones(shard.n_rows) if shard.weights is None else shard.weights
    records, rows = np.unique(shard.rows[weights > 0], return_index=True)
    X, outcomes = shard.X[np.flatnonzero(weights > 0)[rows]], _outcomes(shard, outputs)
    own = _by_record(weights, record_codes(shard))
    rare, dominant = list[int](), list[int]()
    for first in range(0, X.shape[1] + 1, COLUMNS_AT_A_TIME):
        part = X[:, first : first + COLUMNS_AT_A_TIME]
        if first + COLUMNS_AT_A_TIME > X.shape[1]:
            part = np.column_stack([_dense(part), outcomes[own > 0]])
        away = np.abs(_from_median(part))
        differ, sums = np.count_nonzero(away, axis=0), away.sum(axis=0)
        few = (differ > 0) & (differ < min_cell)
        rare += (first + np.flatnonzero(few)).tolist()
        dominant += (first + np.flatnonzero(~few & (away.max(axis=0) > max_share * sums))).tolist()
    if rare:
        return f"in {_columns(shard, rare)} fewer than {min_cell} records differ from the others"
    if dominant:
        return f"in {_columns(shard, dominant)} one record has more than the share {max_share:g} of the spread"
    told_else = shard.n_features >= len(records) or _too_few(own, max_share, 1)  # by rules of their own
    if told_else or not _stands_alone(shard, own[:, None, None], max_share, outcomes):
        return None
    return _ALONE.format(max_share)


def _outcomes(shard: Shard, outputs: int) -> Array:
    """The outcome of every record, (records, 1), or whether it is of each class; of two rows their mean."""
    weights = np.ones(shard.n_rows) if shard.weights is None else shard.weights
    codes = record_codes(shard)
    y = shard.y[:, None] if outputs == 1 else (shard.y[:, None] == np.arange(outputs)).astype(float)
    sums, totals = (np.array([_by_record(each, codes) for each in w]) for w in ((weights[:, None] * y).T, [weights]))
    return np.asarray(np.divide(sums, totals, out=np.zeros_like(sums), where=totals > 0).T)


def _from_median(X: Any) -> Array:
    """Differences from the columns' medians, which is where most records are, if they are in one place."""
    dense = _dense(X)
    return np.asarray(dense - np.median(dense, axis=0))


def _dense(X: Any) -> Array:
    return np.asarray(X.toarray() if sparse.issparse(X) else X)


def _columns(shard: Shard, found: list[int]) -> str:
    """Columns in a message: by name, or by place counted from 1; those after the last are the outcome's."""
    if found[0] >= shard.n_features:
        return "the outcome"
    found = [each for each in found if each < shard.n_features]
    names = [str(each + 1) if shard.feature_names is None else shard.feature_names[each] for each in found[:3]]
    more = f" and {len(found) - 3} more" if len(found) > 3 else ""
    return f"column{'s' if len(found) > 1 else ''} {', '.join(names)}{more}"
