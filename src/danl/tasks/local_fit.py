r"""A site's own fit: the best model of its rows alone, and its covariance, for a study-level meta-analysis.

Fisher scoring from the pooled model w: with I the expected information and g the gradient, both of the rows' sum,

    w <- w - t I^-1 g        t halved until the loss does not rise

on the numbers of w that are `chosen` (effects of sites are not) and that the site can tell of: a column that is 0 in
all of its rows is left out. Where what is left cannot be told apart, or there is no best model, the reply says so. It
says so, too, where the model leaves nothing but rounding: standard errors of 0 would outweigh all others. A squared
loss is a quadratic: its second step is the last, which mends the rounding of the first.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from danl.objective.likelihood import expected_information, family_of, pearson, pearson_terms
from danl.objective.local_objective import LocalObjective
from danl.protocol.messages import Array, Mask, Reply, pack, packed_size, unpack
from danl.protocol.own_tasks import OwnTask, Workplace, vectors_fault
from danl.tasks.fit_questions import information, weights_of

STEPS, HALVINGS = 25, 30
"""Steps, of which a few are enough where there is a best model, and halvings of each."""
ENOUGH = 1e-9
"""A Newton decrement, in standard errors, that ends the steps."""
SINGULAR = 1e-12
"""Information flatter than this share of the steepest, in units of the columns, tells nothing."""
ROUNDING = 1e-10
"""Residuals of a gaussian model below this share of its outcomes are rounding; of a gamma model, below `ENOUGH`."""
FITTED, ALIASED, NO_OPTIMUM, TOO_FEW, EXACT = 0.0, 1.0, 2.0, 3.0, 4.0
"""How a site's fit ended."""
FACTS = ("ended", "records", "weight", "dispersion", "rank")


@dataclass(frozen=True)
class LocalFitReply(Reply):
    """The model (0 where `told` is 0), its covariance packed, and `FACTS`; zeros where there is no fit."""

    trains = False

    model: Array
    told: Array
    covariance: Array
    facts: Array


@dataclass(frozen=True)
class LocalFitTask(OwnTask):
    """Send the best model of the worker's rows alone, and its covariance."""

    name, answer = "local-fit", LocalFitReply
    by_default = True

    chosen: Mask
    trials: bool = False

    def work(self, place: Workplace) -> LocalFitReply:
        objective, d = place.objective, self.w.size
        told, (ended, w, covariance, dispersion) = self._fitted(objective)
        if ended != FITTED:
            w, covariance, dispersion = np.zeros(d), np.zeros((d, d)), 0.0
        n_records = objective.n_rows if objective.records is None else int(objective.records.max()) + 1
        facts = np.array([ended, n_records, weights_of(objective).sum(), dispersion, told.sum()], dtype=np.float64)
        return LocalFitReply(place.worker, self.exchange, w, told.astype(np.float64), pack(covariance), facts)

    def _fitted(self, objective: LocalObjective) -> tuple[Mask, tuple[float, Array, Array, float]]:
        """Which numbers can be told, and what there is of them."""
        told = self.chosen & (objective.mean_squares() > 0)
        return told, _fit(objective, np.where(told, self.w, 0.0), told, trials=self.trials)

    def margins_besides(self, objective: LocalObjective) -> list[Array]:
        """Those at the best model, which the covariance is of."""
        ended, w, _, _ = self._fitted(objective)[1]
        return [objective.margins(w)] if ended == FITTED else []

    def terms_besides(self, objective: LocalObjective) -> list[Array]:
        """Of the dispersion, where there is one."""
        if family_of(objective.loss) not in ("gaussian", "gamma"):
            return []
        s, records = weights_of(objective), objective.records
        return [pearson_terms(objective.loss, objective.y, z, s, records) for z in self.margins_besides(objective)]

    def fault(self, reply: Any, d: int) -> str | None:
        return vectors_fault(reply, {"model": d, "told": d, "covariance": packed_size(d), "facts": len(FACTS)})

    def work_rows(self, rows: int, entries_per_row: float) -> float:
        return 10.0 * rows * (1 + entries_per_row / 2)


def _fit(objective: LocalObjective, w: Array, told: Mask, *, trials: bool) -> tuple[float, Array, Array, float]:
    """How it ended, the model, its covariance and the dispersion."""
    loss, y, s, d = objective.loss, objective.y, weights_of(objective), w.size
    family = family_of(loss)
    n_records = objective.n_rows if objective.records is None else int(objective.records.max()) + 1
    left = (n_records if trials else float(s.sum())) - float(told.sum())
    if left <= 0:
        return TOO_FEW, w, np.zeros((d, d)), 0.0
    value = _value(objective, w, s)
    for number in range(STEPS):
        z = objective.margins(w)
        expected = expected_information(loss, z)
        matrix = unpack(information(objective, s * (loss.second(y, z) if expected is None else expected)), d)
        inverse = _inverse(matrix[np.ix_(told, told)])
        if inverse is None:
            return ALIASED, w, np.zeros((d, d)), 0.0
        gradient = objective.transpose_product(s * loss.first(y, z))[told]
        step = np.zeros(d)
        step[told] = -inverse @ gradient
        decrement = math.sqrt(max(-float(gradient @ step[told]), 0.0))
        if number == 2 if family == "gaussian" else decrement <= ENOUGH:
            dispersion = 1.0
            if family in ("gaussian", "gamma"):
                dispersion = pearson(loss, y, z, s, objective.records) / left
                rounding = ROUNDING**2 * float(s @ np.square(y)) / left if family == "gaussian" else ENOUGH**2
                if dispersion <= rounding:
                    return EXACT, w, np.zeros((d, d)), 0.0
            covariance = np.zeros((d, d))
            covariance[np.ix_(told, told)] = dispersion * inverse
            return FITTED, w, covariance, dispersion
        for halving in range(HALVINGS):
            trial = w + 0.5**halving * step
            after = _value(objective, trial, s)
            if after <= value + 1e-12 * abs(value):
                break
        w, value = trial, after
    return NO_OPTIMUM, w, np.zeros((d, d)), 0.0


def _value(objective: LocalObjective, w: Array, s: Array) -> float:
    with np.errstate(over="ignore", invalid="ignore"):
        return float(s @ objective.loss.value(objective.y, objective.margins(w)))


def _inverse(matrix: Array) -> Array | None:
    """Of a positive definite matrix; None where it has a flat direction in the units of its columns."""
    with np.errstate(divide="ignore"):
        scale = 1.0 / np.sqrt(matrix.diagonal())
    if not np.isfinite(scale).all():
        return None
    values, vectors = np.linalg.eigh(scale[:, None] * matrix * scale)
    if not values[0] > SINGULAR * values[-1]:
        return None
    return np.asarray(scale[:, None] * ((vectors / values) @ vectors.T) * scale)
