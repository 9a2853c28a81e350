"""Warnings, not surprises: one clear line for what a person would want to know before or after a run."""

from __future__ import annotations

import math
import os
import warnings

from danl.errors import DanlWarning
from danl.objectives import Array
from danl.problem import Problem


def warn(message: str) -> None:
    """Warn the caller of the library."""
    warnings.warn(message, DanlWarning, stacklevel=4)  # whoever called danl.solve, as near as may be


def warn_if_too_large(n_features: int) -> None:
    """A dense Hessian takes 8 d^2 bytes: say so where that is more than half of the machine's memory."""
    memory, needed = total_memory(), 8 * n_features**2
    if memory is not None and needed > memory / 2:
        warn(
            f"{n_features} features make a Hessian of {needed / 1e9:.1f} GB, more than half of this machine's "
            f"{memory / 1e9:.1f} GB; use fewer features, method='gd' or method='fedavg'"
        )


def warn_if_separated(problem: Problem, w: Array, status: str) -> None:
    """Say where a logistic problem without penalty has no optimum because some w classifies every row.

    A row's loss is below log 2 exactly when it is on the right side, so an objective below log 2 times the smallest
    weight of any row proves that every row is.
    """
    if problem.loss.name != "logistic" or problem.strong_convexity > 0 or status == "interrupted":
        return
    rows = zip(problem.weights, problem.locals, strict=True)
    smallest = min(float(weight) * float(local.row_weights.min()) for weight, local in rows)
    if problem.objective(w) < math.log(2.0) * smallest:
        warn(
            "the data is separable and there is no penalty: the coefficients grow without end and the objective has no "
            "optimum; set alpha or l2 > 0"
        )


def total_memory() -> int | None:
    """Bytes of this machine's memory, where the system tells."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None
