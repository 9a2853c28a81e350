r"""How well a binary model predicts, over all sites, from counts of outcomes in bins of the margin: AUC, calibration.

Bins are ranges of the margin, about as many as the records allow, made of its mean and deviation over the sites, with
an edge at the threshold. A site hides small counts; what it hides of each outcome is known as a total, and spread
evenly over its hidden bins, so the numbers are near those of the records, and `hidden` says what share was spread.

    AUC             sum over bins of others below, and half of those in the same bin, over all pairs
    calibration     groups of about a tenth of the records: the mean prediction beside the share of events
    thresholds      true and false positives and negatives where an event is predicted from there on
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.special import expit, logit, ndtri

from danl.objective.problem import Problem, RemoteProblem
from danl.protocol.messages import Array
from danl.protocol.own_tasks import HIDDEN
from danl.statistics.fit_answers import FitAnswers, ask
from danl.statistics.held_engine import HeldEngine

RECORDS_A_BIN = 20
"""Of the smallest site, about."""
FEWEST_BINS, MOST_BINS = 10, 60
GROUPS = 10
THRESHOLD = 0.5


@dataclass(frozen=True)
class Group:
    """A group of the calibration table."""

    predicted: float
    observed: float
    records: float


@dataclass(frozen=True)
class Diagnostics:
    """What the bins tell."""

    auc: float
    calibration: tuple[Group, ...]
    threshold: float
    true_positive: float
    false_positive: float
    true_negative: float
    false_negative: float
    bins: int
    hidden: float
    """The share of the records whose bin a site did not tell."""

    @property
    def sensitivity(self) -> float:
        """Of the events, the share that is predicted."""
        return _share(self.true_positive, self.false_negative)

    @property
    def specificity(self) -> float:
        """Of the others, the share that is predicted to be none."""
        return _share(self.true_negative, self.false_positive)

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self) | {"sensitivity": self.sensitivity, "specificity": self.specificity}


def _share(one: float, other: float) -> float:
    return one / (one + other) if one + other > 0 else float("nan")


def diagnostics_of(
    problem: Problem | RemoteProblem, answers: FitAnswers, engine: HeldEngine, *, threshold: float = THRESHOLD
) -> Diagnostics:
    """Ask the sites for the counts, one exchange, and make the tables of them."""
    edges, cut = _edges(answers, threshold)
    asked = ask(problem.centred_by(answers.centre), "binned-counts", answers.w, engine, edges=edges)
    asked = asked.of(answers.asked.workers).by_somebody("diagnostics")
    places = [answers.asked.workers.tolist().index(worker) for worker in asked.workers.tolist()]
    own = [answers.of_worker(place) for place in places]
    weights = np.array([each["weight"] for each in own])
    targets = np.array([each["target"] for each in own])
    events, spread_events = filled(asked.arrays["events"], targets)
    others, spread_others = filled(asked.arrays["others"], weights - targets)
    known = asked.arrays["predicted"]
    middle = expit(np.concatenate([[edges[0]], (edges[1:] + edges[:-1]) / 2, [edges[-1]]]))
    hidden = (asked.arrays["events"] == HIDDEN) | (asked.arrays["others"] == HIDDEN)
    predicted = np.where(hidden, (events + others) * middle, known).sum(axis=0)
    events, others = events.sum(axis=0), others.sum(axis=0)
    return Diagnostics(
        auc=auc_of(events, others),
        calibration=calibration_of(events, others, predicted),
        threshold=threshold,
        true_positive=float(events[cut:].sum()),
        false_positive=float(others[cut:].sum()),
        true_negative=float(others[:cut].sum()),
        false_negative=float(events[:cut].sum()),
        bins=len(edges) + 1,
        hidden=float((spread_events + spread_others) / weights.sum()),
    )


def _edges(answers: FitAnswers, threshold: float) -> tuple[Array, int]:
    """Edges of bins, and the place of the first bin from the threshold on."""
    sums = answers.sums
    mean = sums["margin"] / sums["weight"]
    deviation = np.sqrt(max(sums["margin_square"] / sums["weight"] - mean**2, 0.0)) or 1.0
    smallest = min(answers.of_worker(place)["records"] for place in range(len(answers.asked.workers)))
    bins = int(np.clip(smallest / RECORDS_A_BIN, FEWEST_BINS, MOST_BINS))
    inner = mean + deviation * ndtri(np.arange(1, bins) / bins)
    at = float(logit(threshold))
    edges = np.unique(np.append(inner, at))
    return edges, int(np.searchsorted(edges, at)) + 1


def filled(counts: Array, totals: Array) -> tuple[Array, float]:
    """Counts (sites, bins) with each site's hidden ones in equal parts; and how many records these are."""
    hidden = counts == HIDDEN
    rest = np.maximum(totals - np.where(hidden, 0.0, counts).sum(axis=1), 0.0)
    each = np.divide(rest, hidden.sum(axis=1), out=np.zeros_like(rest), where=hidden.any(axis=1))
    return np.where(hidden, each[:, None], counts), float(rest[hidden.any(axis=1)].sum())


def auc_of(events: Array, others: Array) -> float:
    """The chance that an event has a higher margin than another record; bins in increasing order."""
    pairs = events.sum() * others.sum()
    below = np.cumsum(others) - others
    return float((events @ (below + 0.5 * others)) / pairs) if pairs > 0 else float("nan")


def calibration_of(events: Array, others: Array, predicted: Array) -> tuple[Group, ...]:
    """Consecutive bins put together to about a tenth of the records each."""
    counts = events + others
    share = np.cumsum(counts) - 0.5 * counts
    group_of = np.minimum((GROUPS * share / counts.sum()).astype(int), GROUPS - 1)
    groups = []
    for group in np.unique(group_of[counts > 0]):
        here = group_of == group
        n = float(counts[here].sum())
        groups.append(Group(float(predicted[here].sum()) / n, float(events[here].sum()) / n, n))
    return tuple(groups)
