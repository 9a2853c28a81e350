r"""Standard errors from what the workers report at the fitted model: the Hessian, and if asked for the rows' scores.

With H the Hessian of the averaged objective (its penalty included), S the sum of the weights, and M the sum of the
outer products of the rows' gradients, weights included and divided by S^2,

    observed    phi (S H)^-1        phi = 1, and for squared and gamma losses the deviance over its degrees of freedom
    sandwich    H^-1 M H^-1         (HC0): right for the mean model even where its variance is wrong

Weights count as repeated rows in the first, as design weights in the second. A multinomial fit's coefficients are those
that sum to zero over the classes; a shift of all classes has no variance because it is not estimated.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from danl.engines import Engine
from danl.errors import InputError, warn
from danl.objective.centring import covariance_from_centred, to_centred
from danl.objective.layout import Layout
from danl.objective.problem import Problem, RemoteProblem
from danl.objective.regions import Regions
from danl.protocol.messages import Array
from danl.run.history import Row
from danl.run.result import Result
from danl.run.solver import observed_information
from danl.server.curvature import with_unit_diagonal

DISPERSED = ("squared", "gamma")
"""Losses whose dispersion is estimated: each is half a deviance."""
OTHER_ROWS, ROUNDED = 1e-6, 1e-9
"""A loss at the fitted model that differs by more than this share, and that of the largest of the fit, is that of other
rows."""
SINGULAR = 1e-12
"""A direction of the scaled information flatter than this share of the steepest is one the data says nothing about."""


@dataclass(frozen=True)
class Inference:
    """What standard errors are made of; plain numbers and arrays."""

    loss: str
    w: Array
    hessian: Array
    scores: Array | None
    total_weight: float
    n_rows: int
    n_workers: int
    alpha: float
    mean_loss: float  # without the penalty
    centre: Array | None = None  # what was subtracted from the columns for the Hessian and the scores

    def covariance(self, layout: Layout, kind: str) -> tuple[Array, float]:
        """Of the numbers of w, laid out as they are, and phi; nan where the data says nothing about a coefficient."""
        inverse, unknown, rank = inverse_of(self.hessian, layout)
        phi = self._dispersion(layout, inverse, rank)
        if kind == "observed":
            covariance = phi / self.total_weight * inverse
        else:
            assert self.scores is not None
            covariance = inverse @ self.scores @ inverse
        covariance = covariance_from_centred(covariance, layout, self.centre)
        if self.centre is not None and layout.intercept:  # an intercept is made of coefficients, too
            rows = unknown.reshape(layout.n_outputs, layout.columns)
            rows[:, -1] |= (rows[:, : layout.n_features] & (self.centre != 0)).any(axis=1)
        covariance[unknown, :] = covariance[:, unknown] = np.nan
        return covariance, phi

    def _dispersion(self, layout: Layout, inverse: Array, rank: int) -> float:
        """phi: 1, or what the deviance is a degree of freedom, the residual variance of a squared loss; nan without."""
        if self.loss not in DISPERSED:
            return 1.0
        penalty = np.where(layout.penalised, self.alpha, 0.0)
        used = rank - float(penalty @ inverse.diagonal())  # the trace of (H - penalty) H^-1
        left = self.total_weight - used
        return 2.0 * self.total_weight * self.mean_loss / left if left > 1e-9 * self.total_weight else np.nan


def _refuse_other_rows(answer: Result, result: Result) -> None:
    """Rows are not copied for a fit: refuse to tell errors of a model by rows that are others now."""
    then, now = result.history[-1].objective, float(answer.products.get("loss", np.nan))
    largest = float(np.nanmax(np.abs(result.history.column("objective"))))  # a perfect fit has rounding alone
    if math.isfinite(then) and abs(now - then) > OTHER_ROWS * abs(then) + ROUNDED * largest:
        raise InputError(
            "summary: the rows are not those the model was fitted to; X or y was changed in place since: fit again, or "
            "give fit a copy"
        )


def request_inference(
    problem: Problem | RemoteProblem,
    result: Result,
    regions: Regions,
    engine: str | Engine,
    *,
    scores: bool,
    known: Inference | None = None,
) -> tuple[Inference, tuple[Row, ...]]:
    """Ask the workers for what is not known yet; return it all, and the rows of the exchanges it took.

    A problem by reference must know its workers (`RemoteProblem.described`).
    """
    layout = result.layout
    w = sum_to_zero(result.w, layout)
    asked = problem.centred_by(result.centre)
    at = to_centred(w, layout, result.centre)
    answer = observed_information(asked, at, regions=regions, scores=scores, hessian=known is None, engine=engine)
    wanted = ({"hessian"} if known is None else set()) | ({"scores"} if scores else set())
    if not wanted <= set(answer.products):  # where there is no optimum the run is called diverged, and has them
        missing = sorted({failure.worker for failure in answer.failures})
        raise InputError(
            f"summary: workers {missing} did not answer ({answer.status}); standard errors need all of them, try again"
        )
    _refuse_other_rows(answer, result)
    if known is not None:
        return replace(known, scores=answer.products["scores"]), tuple(answer.history)
    assert problem.alpha is not None
    penalty = 0.5 * problem.alpha * float(np.sum(np.square(w[layout.penalised])))
    made = Inference(
        loss=problem.loss.name.partition(":")[0],
        w=w,
        hessian=answer.products["hessian"],
        scores=answer.products.get("scores"),
        total_weight=float(problem.total_weights.sum()),
        n_rows=int(problem.rows.sum()),
        n_workers=problem.n_workers,
        alpha=problem.alpha,
        mean_loss=float(answer.products["loss"]) - penalty,
        centre=result.centre,
    )
    return made, tuple(answer.history)


def sum_to_zero(w: Array, layout: Layout) -> Array:
    """The same model with coefficients that sum to zero over the classes."""
    if layout.n_outputs == 1:
        return w
    rows = w.reshape(layout.n_outputs, layout.columns)
    return np.asarray((rows - rows.mean(axis=0)).ravel())


def inverse_of(hessian: Array, layout: Layout) -> tuple[Array, NDArray[np.bool_], int]:
    """The inverse on all directions the data determines, the coefficients it does not determine, and the rank.

    A shift of all classes alike is not estimated: the inverse has nothing in it.
    """
    outputs, columns = layout.n_outputs, layout.columns
    shifts = np.kron(np.full((outputs, outputs), 1.0 / outputs), np.eye(columns))  # the projection on them
    if outputs > 1:  # give them a curvature of the size of their feature's, so that there is something to invert
        sizes = hessian.diagonal().reshape(outputs, columns).mean(axis=0)
        hessian = hessian + shifts * np.tile(np.where(sizes > 0, sizes, 1.0), outputs)
    scaled, scale = with_unit_diagonal(hessian)
    values, vectors = linalg.eigh(scaled)
    flat = values <= SINGULAR * values[-1]
    inverse = scale[:, None] * ((vectors[:, ~flat] / values[~flat]) @ vectors[:, ~flat].T) * scale
    unknown = np.square(vectors[:, flat]).sum(axis=1) > 1e-6
    if flat.any():
        warn(
            f"the data says nothing about {int(flat.sum())} direction(s) of the coefficients (features that are "
            f"collinear or constant, or separation): {int(unknown.sum())} of them have no standard error; drop a "
            "feature or add a penalty"
        )
    if outputs > 1:
        keep = np.eye(layout.n_coefficients) - shifts
        inverse = keep @ inverse @ keep
    return np.asarray(inverse), unknown, int(np.count_nonzero(~flat))
