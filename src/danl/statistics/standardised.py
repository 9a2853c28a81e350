"""Coefficients per standard deviation, by moments that the sites exchange: means and squares of every column.

The model is the same; a coefficient and its standard error are multiplied by the deviation of their column over all
sites. Columns of levels, 0 and 1, have one as well; their coefficients are easier to read as they are.
"""

from __future__ import annotations

import numpy as np

from danl.objective.problem import Problem, RemoteProblem
from danl.protocol.messages import Array
from danl.statistics.fit_answers import FitAnswers, ask
from danl.statistics.held_engine import HeldEngine
from danl.tasks.binned_counts import HIDDEN
from danl.tasks.column_counts import NUMBERS


def pooled_moments(weights: Array, means: Array, squares: Array) -> tuple[Array, Array]:
    """Means and standard deviations (n - 1) of columns over all sites, of each site's sums about its own means."""
    total = weights.sum()
    mean = weights @ means / total
    around = (squares + weights[:, None] * np.square(means - mean)).sum(axis=0)
    hidden = (squares == HIDDEN).any(axis=0)  # a site does not tell
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(hidden, np.nan, mean), np.where(hidden, np.nan, np.sqrt(around / (total - 1.0)))


def scales_of(problem: Problem | RemoteProblem, answers: FitAnswers, engine: HeldEngine) -> list[float]:
    """The standard deviation of every column of the design: one exchange."""
    groups = np.full(answers.layout.n_features + 1, NUMBERS)
    asked = ask(problem, "column-counts", np.zeros_like(answers.w), engine, groups=groups, edges=np.empty(0)).arrays
    _, deviations = pooled_moments(asked["weight"][:, 0], asked["means"], asked["squares"])
    return list(map(float, deviations[: answers.layout.n_features]))
