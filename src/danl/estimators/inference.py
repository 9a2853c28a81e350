r"""Standard errors from what the workers tell of the fitted model: the Hessian there, and if asked the rows' scores.

With H the Hessian of the averaged objective (its penalty included), S the sum of the weights, and M the sum of the
outer products of the rows' gradients, weights included and divided by S^2,

    observed    phi (S H)^-1        phi = 1, and the residual variance for a squared loss
    sandwich    H^-1 M H^-1         (HC0): right for the mean model even where its variance is wrong

Weights count as repeated rows in the first, as design weights in the second. A multinomial fit's coefficients are those
that sum to zero over the classes; a shift of all classes has no variance because it is not estimated.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import linalg

from danl.core.messages import Array
from danl.engines import Engine
from danl.errors import InputError
from danl.history import Row
from danl.layout import Layout
from danl.problem import Problem
from danl.regions import Regions
from danl.result import Result
from danl.solver import observed_information
from danl.warn import warn

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

    def covariance(self, layout: Layout, kind: str) -> Array:
        """Of the numbers of w, laid out as they are; nan where the data says nothing about a coefficient."""
        inverse = _inverse(self.hessian, _shifts(layout))
        if kind == "observed":
            return self.dispersion(layout, inverse) / self.total_weight * inverse
        assert self.scores is not None
        return np.asarray(inverse @ self.scores @ inverse)

    def dispersion(self, layout: Layout, inverse: Array | None = None) -> float:
        """phi: 1, or the variance of the residuals for a squared loss."""
        if self.loss != "squared":
            return 1.0
        inverse = _inverse(self.hessian, _shifts(layout)) if inverse is None else inverse
        penalty = np.where(layout.penalised, self.alpha, 0.0)
        used = layout.size - float(np.nansum(penalty * inverse.diagonal()))  # the trace of (H - penalty) H^-1
        left = self.total_weight - used
        return 2.0 * self.total_weight * self.mean_loss / left if left > 0 else np.nan


def observed(
    problem: Problem, result: Result, regions: Regions, engine: str | Engine, *, scores: bool
) -> tuple[Inference, tuple[Row, ...]]:
    """Ask the workers; return what they told and the rows of the exchanges it took."""
    layout = result.layout
    w = centred(result.w, layout)
    told = observed_information(problem, w, regions=regions, scores=scores, engine=engine)
    if told.status != "converged":
        missing = sorted({failure.worker for failure in told.failures})
        raise InputError(
            f"summary: workers {missing} did not answer ({told.status}); standard errors need all of them, try again"
        )
    assert problem.alpha is not None
    penalty = 0.5 * problem.alpha * float(np.sum(np.square(w[layout.penalised])))
    made = Inference(
        loss=problem.loss.name.partition(":")[0],
        w=w,
        hessian=told.products["hessian"],
        scores=told.products.get("scores"),
        total_weight=float(problem.total_weights.sum()),
        n_rows=int(problem.rows.sum()),
        n_workers=problem.n_workers,
        alpha=problem.alpha,
        mean_loss=float(told.products["loss"]) - penalty,
    )
    return made, tuple(told.history)


def centred(w: Array, layout: Layout) -> Array:
    """The same model with coefficients that sum to zero over the classes."""
    if layout.n_outputs == 1:
        return w
    rows = w.reshape(layout.n_outputs, layout.columns)
    return np.asarray((rows - rows.mean(axis=0)).ravel())


def _shifts(layout: Layout) -> Array | None:
    """Directions that move all classes alike: an orthonormal basis, (d, columns); None where there is one output."""
    if layout.n_outputs == 1:
        return None
    return np.kron(np.full((layout.n_outputs, 1), layout.n_outputs**-0.5), np.eye(layout.columns))


def _inverse(hessian: Array, shifts: Array | None) -> Array:
    """The inverse on everything but the shifts; nan for coefficients the data says nothing about."""
    if shifts is not None:
        hessian = hessian + float(np.mean(hessian.diagonal())) * shifts @ shifts.T
    diagonal = hessian.diagonal()
    scale = 1.0 / np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
    values, vectors = linalg.eigh(scale[:, None] * hessian * scale)
    flat = values <= SINGULAR * values[-1]
    inverse = (vectors[:, ~flat] / values[~flat]) @ vectors[:, ~flat].T
    if flat.any():
        unknown = np.square(vectors[:, flat]).sum(axis=1) > 1e-6
        warn(
            f"the data says nothing about {int(flat.sum())} direction(s) of the coefficients (features that are "
            f"collinear or constant, or separation): {int(unknown.sum())} of them have no standard error; drop a "
            "feature or add a penalty"
        )
        inverse[unknown, :] = inverse[:, unknown] = np.nan
    inverse = scale[:, None] * inverse * scale
    if shifts is not None:
        keep = np.eye(len(inverse)) - shifts @ shifts.T
        inverse = keep @ inverse @ keep
    return np.asarray(inverse)
