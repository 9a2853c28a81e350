r"""What a table of the cohort is made of: of every column of the design, and the outcome, moments or counts.

    numbers    sum s x / sum s, sum s (x - mean)^2 about the site's own mean, and counts of rows between edges
    levels     the rows of each level of a column of words, the reference level first

`groups` says which columns are levels of one column of words: they have the same number there, and numbers have -1.
Edges are the server's, made of moments: no smallest and no largest value is ever told. Counts of few rows are hidden at
the site, and with them as many others that none is the rest of a total (`danl.tasks.binned_counts.binned`); so are the
moments of a column of two values of which one is rare.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from danl.objective.local_objective import LocalObjective
from danl.protocol.messages import Array, Reply
from danl.protocol.own_tasks import HIDDEN, OwnTask, Workplace, vectors_fault
from danl.tasks.binned_counts import binned, check_edges
from danl.tasks.fit_questions import records_in, weights_of

NUMBERS = -1.0


@dataclass(frozen=True)
class ColumnsReply(Reply):
    """The sum of the weights; means and squares about them of numbers, 0 of levels; squares of -1 say both are hidden.

    `counts` has the bins of each column of numbers, one column after the other; `levels` those of each group.
    """

    trains = False

    weight: Array
    means: Array
    squares: Array
    counts: Array
    levels: Array


@dataclass(frozen=True)
class ColumnsTask(OwnTask):
    """Send moments and counts of the columns and of the outcome, which is the last.

    `edges` has `n_edges` of each column of numbers; 0 asks for moments and levels alone.
    """

    name, answer = "column-counts", ColumnsReply
    by_default = True
    cells = True

    groups: Array
    edges: Array
    n_edges: int = 0

    def work(self, place: Workplace) -> ColumnsReply:
        objective, least = place.objective, place.min_cell
        s, X = weights_of(objective), objective.X
        table = np.column_stack([X.toarray() if sparse.issparse(X) else X, objective.y])
        weight = float(s.sum())
        means = (s @ table) / weight
        squares = s @ np.square(table - means)
        for column in range(table.shape[1]):
            if self.groups[column] != NUMBERS or _tells_of_few(objective, table[:, column], least):
                means[column], squares[column] = 0.0, 0.0 if self.groups[column] != NUMBERS else HIDDEN
        counts, levels = [np.empty(0)], [np.empty(0)]
        if self.n_edges:
            parted = self.edges.reshape(-1, self.n_edges)
            check_edges(parted)
            for place_of, edges in zip(np.flatnonzero(self.groups == NUMBERS), parted, strict=True):
                bins = np.searchsorted(edges, table[:, place_of], side="right")
                counts.append(binned(bins, s, self.n_edges + 1, least, objective.records))
        for group in np.unique(self.groups[self.groups != NUMBERS]):
            own = table[:, self.groups == group]
            level = np.where((own != 0).any(axis=1), 1 + np.argmax(own != 0, axis=1), 0)
            levels.append(binned(level, s, own.shape[1] + 1, least, objective.records))
        flat = np.concatenate(counts), np.concatenate(levels)
        return ColumnsReply(place.worker, self.exchange, np.array([weight]), means, squares, *flat)

    def fault(self, reply: Any, d: int) -> str | None:
        numbers, words = self.groups == NUMBERS, self.groups != NUMBERS
        lengths = {"weight": 1, "means": len(self.groups), "squares": len(self.groups)}
        lengths["counts"] = int(numbers.sum()) * (self.n_edges + 1) if self.n_edges else 0
        lengths["levels"] = int(np.count_nonzero(words)) + len(np.unique(self.groups[words]))
        return vectors_fault(reply, lengths)

    def work_rows(self, rows: int, entries_per_row: float) -> float:
        return rows * (2 + 2 * entries_per_row)


def _tells_of_few(objective: LocalObjective, column: Array, least: int) -> bool:
    """Whether a column has two values, and so few records one of them that its mean tells how many."""
    own = column[weights_of(objective) > 0]
    two = own[0], next(iter(own[own != own[0]]), own[0])
    if not np.isin(own, two).all() or two[0] == two[1]:
        return False
    return bool(records_in(objective, (column == two[0]).astype(np.intp), 2).min() < least)
