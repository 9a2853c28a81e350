r"""What tables of a fitted model are made of, in one question: plain sums over a worker's rows at w, s the row weights.

    sums          records, their weight, and at w and at the model without features what likelihoods are made of: `SUMS`
    gradient      sum s first a                                  0 over all workers at the best model
    expected      sum s E[second] a a^T                          the information; standard errors of a right model
    observed      sum s second a a^T                             sent where it is another
    meat          sum over units of g_u g_u^T                    the middle of the sandwich

A unit is a record (g_u its gradient, times the root of its weight: a weight is so many records) or a cluster of records
(g_u the sum of theirs). Clusters are a site's own: a cluster that two sites share counts as two. Nothing is averaged,
and no penalty is in any of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy import sparse

from danl.objective.likelihood import expected_information, family_of, pearson, pearson_terms, saturated, trial_terms
from danl.objective.local_objective import LocalObjective, assembled
from danl.protocol.messages import Array, Reply, pack, packed_size
from danl.protocol.own_tasks import FewRowsError, OwnTask, Workplace, vectors_fault

Units = Literal["none", "records", "clusters"]
SUMS = (
    "records",
    "rows",
    "weight",
    "target",
    "loss",
    "saturated",
    "of_records",
    "choices",
    "pearson",
    "null_loss",
    "null_first",
    "null_second",
    "clusters",
    "margin",
    "margin_square",
)
"""What `FitReply.sums` has, in this order: numbers of records and rows, sum s, sum s y, sum s loss, the terms of
`danl.objective.likelihood`, loss and derivatives at the margin `null` (plus offsets), clusters, sum s z, sum s z^2."""


@dataclass(frozen=True)
class FitReply(Reply):
    """The sums; matrices as their upper triangles (see `pack`), empty where they are not asked for."""

    trains = False

    sums: Array
    gradient: Array
    expected: Array
    observed: Array
    meat: Array


@dataclass(frozen=True)
class FitTask(OwnTask):
    """Send what the tables of a fitted model are made of; `null` is the intercept of a model without features."""

    name, answer = "fit-questions", FitReply
    by_default = True

    null: float
    units: Units = "none"
    trials: bool = False
    """Whether weights are trials of a record, and not so many records."""
    both: bool = False
    """Whether observed and expected information differ: those of losses that are not canonical."""

    def work(self, place: Workplace) -> FitReply:
        objective = place.objective
        y, s = objective.y, weights_of(objective)
        z = objective.margins(self.w)
        first, second = objective.loss.first(y, z), objective.loss.second(y, z)
        of_units = units_of(objective, self.units, place.least_rows, trials=self.trials)
        expected = expected_information(objective.loss, z) if self.both else None
        nothing = np.empty(0)
        return FitReply(
            place.worker,
            self.exchange,
            self._sums(objective, s, z, of_units),
            objective.transpose_product(s * first),
            information(objective, s * (second if expected is None else expected)),
            information(objective, s * second) if self.both else nothing,
            nothing if of_units is None else meat(objective, s * first, of_units, s),
        )

    def _sums(self, objective: LocalObjective, s: Array, z: Array, of_units: UnitsOfRows | None) -> Array:
        loss, y, records = objective.loss, objective.y, objective.records
        null_loss, null_first, null_second = null_sums(objective, self.null, s)
        binomial = family_of(loss) == "binomial"
        less, choices = trial_terms(y, s, records) if binomial else (0.0, 0.0)
        n_records = len(y) if records is None else int(records.max()) + 1
        values = {
            "records": n_records,
            "rows": len(y),
            "weight": s.sum(),
            "target": s @ y,
            "loss": s @ loss.value(y, z),
            "saturated": saturated(loss, y, s),
            "of_records": less,
            "choices": choices,
            "pearson": pearson(loss, y, z, s, records),
            "null_loss": null_loss,
            "null_first": null_first,
            "null_second": null_second,
            "clusters": of_units.count if of_units is not None and self.units == "clusters" else 0,
            "margin": s @ z,
            "margin_square": s @ np.square(z),
        }
        return np.array([values[name] for name in SUMS], dtype=np.float64)

    def margins_besides(self, objective: LocalObjective) -> tuple[Array]:
        return (null_margins(objective, self.null),)

    def terms_besides(self, objective: LocalObjective) -> tuple[Array]:
        z, s = objective.margins(self.w), weights_of(objective)
        return (pearson_terms(objective.loss, objective.y, z, s, objective.records),)

    @property
    def squares_slopes(self) -> bool:
        return self.units != "none"

    def fault(self, reply: Any, d: int) -> str | None:
        packed = packed_size(d)
        lengths = {"sums": len(SUMS), "gradient": d, "expected": packed, "observed": packed if self.both else 0}
        fault = vectors_fault(reply, lengths | {"meat": 0 if self.units == "none" else packed})
        if fault is None and not (reply.sums[: SUMS.index("weight") + 1] > 0).all():
            return "its numbers of records and rows are not above 0"
        return fault

    def work_rows(self, rows: int, entries_per_row: float) -> float:
        return rows * (2 + entries_per_row)


@dataclass(frozen=True)
class UnitsOfRows:
    """Which unit each row is of, numbered from 0; None where each row is one of its own."""

    of_rows: np.ndarray[Any, np.dtype[np.int64]] | None
    count: int
    by_weight: bool
    """Whether a unit of weight s is s units."""


def units_of(objective: LocalObjective, units: Units, least_rows: int, *, trials: bool) -> UnitsOfRows | None:
    """The units of the rows that the meat of a sandwich is made of.

    Few clusters of which one has few records would tell of these: `FewRowsError`. So would few records that share a
    cluster: what the sum over clusters has more than that over records is of these alone.
    """
    if units == "none":
        return None
    records = objective.records
    if units == "records":
        return UnitsOfRows(records, objective.n_rows if records is None else int(records.max()) + 1, not trials)
    clusters = objective.clusters
    if clusters is None:
        clusters = np.zeros(objective.n_rows, dtype=np.int64)
    _, of_rows = np.unique(clusters, return_inverse=True)
    own = records_in(objective, of_rows, int(of_rows.max()) + 1)
    if (1 < len(own) < least_rows and own.min() < least_rows) or 0 < own[own > 1].sum() < least_rows:
        raise FewRowsError("few clusters, or few that share one, have fewer records")
    return UnitsOfRows(of_rows.astype(np.int64), len(own), False)


def records_in(objective: LocalObjective, cell_of: Any, cells: int) -> np.ndarray[Any, np.dtype[np.intp]]:
    """The records in each cell: two rows of one are one, and those of weight 0 are none."""
    counted = np.flatnonzero(weights_of(objective) > 0)
    if objective.records is None:
        return np.bincount(cell_of[counted], minlength=cells)
    pairs = np.unique(np.stack([cell_of[counted], objective.records[counted]]), axis=1)
    return np.bincount(pairs[0], minlength=cells)


def null_sums(objective: LocalObjective, null: float, s: Array) -> tuple[float, float, float]:
    """Loss and derivatives in the intercept, of the model without features."""
    loss, y, z = objective.loss, objective.y, null_margins(objective, null)
    return float(s @ loss.value(y, z)), float(s @ loss.first(y, z)), float(s @ loss.second(y, z))


def null_margins(objective: LocalObjective, null: float) -> Array:
    """The margins of the model that has the intercept `null`, offsets and no features."""
    return np.asarray(np.full(len(objective.y), null) + (0.0 if objective.offset is None else objective.offset))


def weights_of(objective: LocalObjective) -> Array:
    """s: the rows' own weights."""
    return np.ones(objective.n_rows) if objective.weights is None else objective.weights


def information(objective: LocalObjective, weights: Array) -> Array:
    """A^T diag(weights) A, packed; no penalty."""
    return pack(assembled(objective.X, [(0, 0, weights)], objective.layout, objective.sandwich))


def meat(objective: LocalObjective, slopes: Array, units: UnitsOfRows, weights: Array) -> Array:
    """The sum over units of g_u g_u^T, packed; `slopes` have the rows' weights in them."""
    if units.of_rows is None:
        shares = np.square(slopes)
        if units.by_weight:
            shares = np.divide(shares, weights, out=np.zeros_like(slopes), where=weights > 0)
        return information(objective, shares)
    places = units.of_rows, np.arange(len(slopes))
    chosen = sparse.csr_array((slopes, places), shape=(units.count, len(slopes)))
    sums = chosen @ objective.X
    sums = sums.toarray() if sparse.issparse(sums) else np.asarray(sums)
    if objective.intercept:
        sums = np.column_stack([sums, chosen.sum(axis=1)])
    return pack(sums.T @ sums)
