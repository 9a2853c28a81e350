"""Warnings, not surprises: one clear line for what a person would want to know before or after a run."""

from __future__ import annotations

import math
import os
import warnings
from typing import Any

import numpy as np

from danl.errors import DanlWarning, InputError
from danl.objectives import Array, Logistic, Multinomial
from danl.problem import Problem, RemoteProblem
from danl.regions import Regions


def warn(message: str) -> None:
    """Warn the caller of the library."""
    warnings.warn(message, DanlWarning, stacklevel=4)  # whoever called danl.solve, as near as may be


def refuse_if_too_large(method: Any, regions: Regions) -> None:
    """Refuse curvature of more than half of the machine's memory: 8 d^2 bytes for methods with whole Hessians.

    A method says how many numbers it holds (`curvature_numbers`); one that does not has nothing to be refused.
    """
    d, memory = regions.n_features, total_memory()
    numbers = getattr(method, "curvature_numbers", None)
    needed = 0 if numbers is None else 8 * numbers(regions)
    if memory is not None and needed > memory / 2:
        what = "a Hessian" if needed == 8 * d**2 else "curvature"
        raise InputError(
            f"method={method.name!r}: {d} coefficients make {what} of {needed / 1e9:.1f} GB, more than half of this "
            f"machine's {memory / 1e9:.1f} GB; use method='danl' with curvature='lowrank:50', 'diag' or, with many "
            "regions, 'block', or method='gd' or 'fedavg'"
        )


def may_be_separated(problem: Problem | RemoteProblem) -> bool:
    """Whether the problem is one that separation leaves without an optimum."""
    return isinstance(problem.loss, Logistic | Multinomial) and not problem.penalties.any()


def separated(problem: Problem | RemoteProblem, objective: float) -> bool:
    """Whether a value of the objective proves that the problem has no optimum because some w classifies every row.

    For problems that may be (`may_be_separated`). A row's loss is below log 2 only where it is on the right side, so an
    objective below log 2 times the smallest weight of any row proves that every row is.
    """
    if isinstance(problem, Problem):
        rows = zip(problem.weights, problem.locals, strict=True)
        smallest = min(float(weight) * float(local.row_weights.min()) for weight, local in rows)
    elif np.array_equal(problem.rows, problem.total_weights):
        smallest = float(np.min(problem.weights / problem.rows))
    else:
        return False  # rows that are elsewhere, of weights that are not known
    return objective < math.log(2.0) * smallest


SEPARATED = (
    "the data is separable and there is no penalty: the coefficients grow without end and the objective has no "
    "optimum (perfect separation: some coefficients classify every row); set alpha or l2 > 0, or C of an estimator"
)


CERTAIN = 1e-10
"""A fitted probability this near to 0 or 1 is one that without a penalty would go on to it."""


def warn_if_nearly_separated(problem: Problem, w: Array) -> None:
    """Say where a fit that may be separated gives some rows a probability of 0 or 1: coefficients may have no end."""
    certain = sum(int(np.count_nonzero(local.certainty(w) < CERTAIN)) for local in problem.locals)
    if certain:
        warn(
            f"{certain} rows have fitted probabilities of 0 or 1, to within {CERTAIN:g}, and there is no penalty: some "
            "coefficients may grow without end (quasi-complete separation: a feature tells the class of some rows "
            "alone); look for standard errors that are very large, drop that feature, or set alpha or C"
        )


def total_memory() -> int | None:
    """Bytes of this machine's memory, where the system tells."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None
