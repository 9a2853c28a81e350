"""Separation: where a classifier without a penalty has no optimum, and what the end of a fit can tell of it.

    perfect           some w classifies every row: scaled up, it makes the loss as small as one likes
    quasi-complete    the same with rows on the border: some probabilities go to 0 or 1, some coefficients have no end

A model that classifies every row proves the first, wherever the run stopped. Fitted probabilities tell of the second.
"""

from __future__ import annotations

import numpy as np

from danl.local import LocalObjective
from danl.objectives import Array
from danl.problem import Problem
from danl.result import Result
from danl.solver import without_optimum
from danl.warn import SEPARATED, may_be_separated, warn_if_nearly_separated

ROUNDING = 1e-12
"""A row that is on the right side by less than this share of the largest margin is on the border."""


def look_for_separation(problem: Problem, result: Result) -> Result:
    """Warn where the model proves perfect separation, or looks like the quasi-complete one."""
    if SEPARATED in result.notes or not may_be_separated(problem):
        return result
    if classifies_every_row(problem, result.w):
        return without_optimum(result)
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
