"""Coefficients per standard deviation, by moments that the sites exchange: means and squares of every column.

The model is the same; a coefficient and its standard error are multiplied by the deviation of their column over all
sites. Columns of levels, 0 and 1, have one as well; their coefficients are easier to read as they are.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from danl.protocol.messages import Array
from danl.protocol.own_tasks import HIDDEN
from danl.statistics.fit_answers import FitAnswers
from danl.tasks.column_counts import NUMBERS


def pooled_moments(weights: Array, means: Array, squares: Array) -> tuple[Array, Array]:
    """Means and standard deviations (n - 1) of columns over all sites, of each site's sums about its own means."""
    total = weights.sum()
    mean = weights @ means / total
    around = (squares + weights[:, None] * np.square(means - mean)).sum(axis=0)
    hidden = (squares == HIDDEN).any(axis=0)  # a site does not tell
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(hidden, np.nan, mean), np.where(hidden, np.nan, np.sqrt(around / (total - 1.0)))


def question(n_features: int) -> dict[str, Any]:
    """What column-counts is asked for moments."""
    return {"groups": np.full(n_features + 1, NUMBERS), "edges": np.empty(0)}


def scales_of(answers: FitAnswers) -> list[float]:
    """The standard deviation of every column of the design."""
    asked = answers.besides["column-counts"].by_somebody("standardise").arrays
    _, deviations = pooled_moments(asked["weight"][:, 0], asked["means"], asked["squares"])
    return list(map(float, deviations[: answers.layout.n_features]))
