"""Separation: where a classifier without a penalty has no optimum, and what the end of a fit can tell of it.

    perfect           some w classifies every row: scaled up, it makes the loss as small as one likes
    quasi-complete    the same with rows on the border: some probabilities go to 0 or 1, some coefficients have no end

A model that classifies every row proves the first, wherever the run stopped. Fitted probabilities tell of the second.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from danl.local import LocalObjective
from danl.objectives import Array, Logistic, Multinomial
from danl.problem import Problem
from danl.result import Result
from danl.warn import SEPARATED, warn, warn_if_nearly_separated

ROUNDING = 1e-12
"""A row that is on the right side by less than this share of the largest margin is on the border."""


def may_be_separated(problem: Problem) -> bool:
    """Whether the problem is one that separation leaves without an optimum."""
    return isinstance(problem.loss, Logistic | Multinomial) and not problem.penalties.any()


def look_for_separation(problem: Problem, result: Result) -> Result:
    """Warn where the model proves perfect separation, or looks like the quasi-complete one."""
    if SEPARATED in result.notes or not may_be_separated(problem):
        return result
    if classifies_every_row(problem, result.w):
        warn(SEPARATED)
        status = "diverged" if result.status == "converged" else result.status
        return replace(result, status=status, notes=(*result.notes, SEPARATED))
    warn_if_nearly_separated(problem, result.w)
    return result


def classifies_every_row(problem: Problem, w: Array) -> bool:
    """Whether every row is on the right side of w, and not by rounding."""
    lead = np.concatenate([_lead(local, w) for local in problem.locals])
    return bool(lead.min() > ROUNDING * np.abs(lead).max())


def _lead(local: LocalObjective, w: Array) -> Array:
    """By how much the margin of a row's own class is ahead of the next."""
    z = local.margins(w)
    if z.ndim == 1:
        return np.asarray((2.0 * local.y - 1.0) * z)
    rows, own = np.arange(local.n_rows), local.y.astype(np.intp)
    others = z.copy()
    others[rows, own] = -np.inf
    return np.asarray(z[rows, own] - others.max(axis=1))
