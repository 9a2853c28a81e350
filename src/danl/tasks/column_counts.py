r"""What a table of the cohort is made of: of every column of the design, and the outcome, moments and binned counts.

    moments    sum s, sum s x, sum s (x - mean)^2 about the site's own mean
    counts     how many rows (weighted) are in each bin between the edges of the column, and outside

Edges are the server's, made of moments: no smallest and no largest value is ever told. Small counts are hidden at the
site (`danl.tasks.binned_counts.binned`). Columns of 0 and 1 are levels: their bins are the two counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from danl.protocol.messages import Array, Reply
from danl.protocol.own_tasks import OwnTask, Workplace, vectors_fault
from danl.tasks.binned_counts import SMALLEST_CELL, binned
from danl.tasks.fit_questions import weights_of


@dataclass(frozen=True)
class ColumnsReply(Reply):
    """The sum of the weights, then means and sums of squares about them; the outcome's are last. Then the counts."""

    trains = False

    weight: Array
    means: Array
    squares: Array
    counts: Array


@dataclass(frozen=True)
class ColumnsTask(OwnTask):
    """Send moments of the columns and of the outcome, and counts between `edges`, so many of each column.

    `n_edges` of 0 asks for moments alone.
    """

    name, answer = "column-counts", ColumnsReply

    edges: Array
    n_edges: int = 0

    def work(self, place: Workplace) -> ColumnsReply:
        objective = place.objective
        s, X = weights_of(objective), objective.X
        X = X.toarray() if sparse.issparse(X) else np.asarray(X)
        table = np.column_stack([X, objective.y])
        weight = float(s.sum())
        means = (s @ table) / weight
        squares = s @ np.square(table - means)
        counts = []
        if self.n_edges:
            least = getattr(place, "min_cell", SMALLEST_CELL)
            for column, edges in zip(table.T, self.edges.reshape(-1, self.n_edges), strict=True):
                bins = np.searchsorted(edges, column, side="right")
                counts.append(binned(bins, s, self.n_edges + 1, least))
        flat = np.concatenate(counts) if counts else np.empty(0)
        return ColumnsReply(place.worker, self.exchange, np.array([weight]), means, squares, flat)

    def fault(self, reply: Any, d: int) -> str | None:
        columns = len(getattr(reply, "means", ()))
        if not d <= columns <= d + 1:
            return "its means are not one a column"
        counts = columns * (self.n_edges + 1) if self.n_edges else 0
        return vectors_fault(reply, {"weight": 1, "means": columns, "squares": columns, "counts": counts})

    def work_rows(self, rows: int, entries_per_row: float) -> float:
        return rows * (2 + 2 * entries_per_row)
