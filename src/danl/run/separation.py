"""Separation: where a classifier without a penalty has no optimum, and what a run can tell of it.

    perfect           some w classifies every row: scaled up, it makes the loss as small as one likes
    quasi-complete    the same with rows on the border: some probabilities go to 0 or 1, some coefficients have no end

A model that classifies every row proves the first, wherever the run stopped. Fitted probabilities tell of the second,
and so do steps that stay large while nothing is gained by them, whatever the loss (`danl.methods.stopping`).
"""

from __future__ import annotations

import math

import numpy as np

from danl.errors import warn
from danl.frozen import replace
from danl.methods.stopping import NO_OPTIMUM
from danl.objective.local_objective import LocalObjective
from danl.objective.log_link import NegativeBinomial, Poisson
from danl.objective.losses import Array, Logistic, Multinomial
from danl.objective.problem import Problem, RemoteProblem
from danl.run.result import Result

ROUNDING = 1e-12
"""A row that is on the right side by less than this share of the largest margin is on the border."""
SEPARATED = (
    "the data is separable and there is no penalty: the coefficients grow without end and the objective has no "
    "optimum (perfect separation: some coefficients classify every row); set alpha or l2 > 0, or C of an estimator"
)
CERTAIN = 1e-10
"""A fitted probability this near to 0 or 1 is one that without a penalty would go on to it."""


def may_be_separated(problem: Problem | RemoteProblem) -> bool:
    """Whether the problem is one that separation leaves without an optimum."""
    return isinstance(problem.loss, Logistic | Multinomial) and not problem.penalties.any()


def separation_bound(problem: Problem | RemoteProblem) -> float:
    """An objective below this proves that there is no optimum, because some w classifies every row; 0 where it cannot.

    A row's loss is below log 2 only where it is on the right side, so an objective below log 2 times the smallest
    weight of any row proves that every row is.
    """
    if not may_be_separated(problem) or problem.has_offset:
        return 0.0  # with an offset a row may be on the right side whatever the coefficients
    if isinstance(problem, Problem):
        rows = zip(problem.weights, problem.local_objectives, strict=True)
        smallest = min(float(weight) * float(local.row_weights.min()) for weight, local in rows)
    elif np.array_equal(problem.rows, problem.total_weights):
        smallest = float(np.min(problem.weights / problem.rows))
    else:
        return 0.0  # rows that are elsewhere, of weights that are not known
    return math.log(2.0) * smallest


def look_for_separation(problem: Problem | RemoteProblem, result: Result) -> Result:
    """Warn where the model proves perfect separation, or looks like the quasi-complete one."""
    here = problem if isinstance(problem, Problem) else None
    if may_be_separated(problem):
        objective = here.objective(result.w) if here else result.objective
        if objective < separation_bound(problem) or (here and classifies_every_row(here, result.w)):
            warn(SEPARATED)
            status = "diverged" if result.status == "converged" else result.status  # whatever the gradient
            return replace(result, status=status, notes=(*result.notes, SEPARATED))
    if here and not problem.penalties.any() and not endless(result):
        _warn_of_certain_rows(here, result.w)
    return result


def endless(result: Result) -> bool:
    """Whether a run has found that there is no optimum."""
    return any(note == SEPARATED or note.startswith(NO_OPTIMUM) for note in result.notes)


def _warn_of_certain_rows(problem: Problem, w: Array) -> None:
    """Say where rows are fitted for certain, as 0 or 1 or as a mean of nothing: coefficients may have no end."""
    if isinstance(problem.loss, Logistic | Multinomial):
        count = sum(int(np.count_nonzero(local.certainty(w) < CERTAIN)) for local in problem.local_objectives)
        rows = "rows have fitted probabilities of 0 or 1"
        why = "quasi-complete separation: a feature tells the class of some rows alone"
    elif isinstance(problem.loss, Poisson | NegativeBinomial):
        margins = np.concatenate([local.margins_without_offset(w) for local in problem.local_objectives])
        targets = np.concatenate([local.y for local in problem.local_objectives])
        count = int(np.count_nonzero((margins < np.max(margins) + np.log(CERTAIN)) & (targets == 0)))
        rows, why = "rows without events have fitted means of 0 beside the others'", "a group has no event"
    else:
        return
    if count:
        warn(
            f"{count} {rows}, to within {CERTAIN:g}, and there is no penalty: some coefficients may grow without end "
            f"({why}); look for standard errors that are very large, drop that feature, or set alpha or C"
        )


def classifies_every_row(problem: Problem, w: Array) -> bool:
    """Whether every row is on the right side of w, and not by rounding."""
    lead = np.concatenate([_lead(local, w) for local in problem.local_objectives])
    return bool(lead.min() > ROUNDING * np.abs(lead).max())


def _lead(local: LocalObjective, w: Array) -> Array:
    """By how much the margin of a row's own class is ahead of the next."""
    z = local.margins_without_offset(w)
    if z.ndim == 1:
        return np.asarray((2.0 * local.y - 1.0) * z)
    rows, own = np.arange(local.n_rows), local.y.astype(np.intp)
    others = z.copy()
    others[rows, own] = -np.inf
    return np.asarray(z[rows, own] - others.max(axis=1))
