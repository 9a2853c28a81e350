r"""Outcomes counted in bins of what the model predicts: for calibration, AUC and a classification table over all sites.

A bin is a range of margins; of each, the events and the others in it, and the sum of the predicted probabilities. A
count below the site's smallest cell is not sent, but -1. A count that could be had as the rest of a total is not sent
either: of each outcome either no cell is hidden, or two and together enough.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from danl.errors import InputError
from danl.objective.likelihood import record_sums
from danl.protocol.messages import Array, Reply
from danl.protocol.own_tasks import HIDDEN, OwnTask, Workplace, untold, vectors_fault
from danl.tasks.fit_questions import weights_of


@dataclass(frozen=True)
class BinnedReply(Reply):
    """Of each bin the others and the events; and the predicted sum of both, 0 where one of them is hidden."""

    trains = False

    others: Array
    events: Array
    predicted: Array


@dataclass(frozen=True)
class BinnedTask(OwnTask):
    """Send counts of a binary outcome in bins of the margins; `edges` part them, without the outer two."""

    name, answer = "binned-counts", BinnedReply
    by_default = True
    cells = True

    edges: Array

    def work(self, place: Workplace) -> BinnedReply:
        check_edges(self.edges)
        if not place.objective.loss.binary:  # else records of a bin would be in none of its two cells
            what = "binned-counts: the outcome must be a binary one"
            raise InputError(what, redacted=what)
        objective, bins = place.objective, len(self.edges) + 1
        z, s, y = objective.margins(self.w), weights_of(objective), objective.y
        bin_of = np.searchsorted(self.edges, z, side="right")
        others, events = (
            binned(
                bin_of[own], s[own], bins, place.min_cell, None if objective.records is None else objective.records[own]
            )
            for own in (y == 0, y == 1)
        )
        predicted = record_sums(s * objective.loss.mean(z), bin_of)  # type: ignore[attr-defined]
        predicted = np.pad(predicted, (0, bins - len(predicted)))
        predicted[(others == HIDDEN) | (events == HIDDEN)] = 0.0
        return BinnedReply(place.worker, self.exchange, others, events, predicted)

    def fault(self, reply: Any, d: int) -> str | None:
        bins = len(self.edges) + 1
        return vectors_fault(reply, {"others": bins, "events": bins, "predicted": bins})

    def work_rows(self, rows: int, entries_per_row: float) -> float:
        return 2.0 * rows


def check_edges(edges: Array) -> None:
    """Refuse edges that are in no order."""
    if not (np.isfinite(edges).all() and (np.diff(edges, axis=-1) >= 0).all()):
        raise InputError("edges: must be finite and not fall", redacted="edges: must be finite and not fall")


def binned(bin_of: NDArray[np.intp], weights: Array, bins: int, least: int, records: Any = None) -> Array:
    """The sum of the weights in each bin, `HIDDEN` where too few records would be told of (`untold`).

    A row of weight 0 is none; two rows of one of the `records` are one.
    """
    counts, counted = np.bincount(bin_of, weights, bins), bin_of[weights > 0]
    if records is not None:
        counted = np.unique(np.stack([counted, records[weights > 0]]), axis=1)[0]
    return np.where(untold(np.bincount(counted, minlength=bins), least), HIDDEN, counts)
