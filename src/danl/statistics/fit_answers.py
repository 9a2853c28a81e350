r"""What the sites answer about a fitted model, and the covariances of its coefficients that follow.

With I the expected information, H the observed, M the meat of the units (`danl.tasks.fit_questions`), all sums over
every row of every site, phi the dispersion, n records (with weights their sum: a weight is so many records), p the rank
and G clusters:

    model      phi I^-1
    HC0        H^-1 M H^-1                  robust to a wrong variance; units are records
    HC1        HC0 n / (n - p)
    cluster    H^-1 M H^-1                  units are clusters, times G / (G - 1) (n - 1) / (n - p)
               with the small-sample correction, which is the default here and in statsmodels

Clusters by site need no meat of the sites: the gradient of a site is what its cluster adds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from danl.errors import InputError
from danl.methods.follow_up import FollowUp
from danl.objective.centring import covariance_from_centred, to_centred
from danl.objective.layout import Layout
from danl.objective.likelihood import FAMILY_OF_LOSS, family_of
from danl.objective.problem import Problem, RemoteProblem
from danl.protocol.messages import Array, Failure, unpack
from danl.run.history import Row
from danl.run.result import Result
from danl.run.solver import solve
from danl.statistics.families import EXACT_FIT
from danl.statistics.held_engine import HeldEngine
from danl.statistics.inference import inverse_of
from danl.tasks.fit_questions import SUMS, Units

NOT_CANONICAL = ("gamma", "negative-binomial")
"""Families whose observed information depends on the outcomes."""
NULL_STEPS = 30
"""Newton steps to the model without features."""
NULL_DECREMENT = 1e-12
"""What is left of its deviance, as a share, that ends them."""
CANCELLED = 0.99
"""Of a gaussian one, the share that may be taken off: more would take digits with it."""


@dataclass(frozen=True)
class Asked:
    """The answers to one question: an array of each field, a row a worker of `workers`; and who did not answer."""

    workers: NDArray[np.int64]
    arrays: dict[str, Array]
    failures: tuple[Failure, ...]
    rows: tuple[Row, ...]

    def of(self, workers: NDArray[np.int64]) -> Asked:
        """The same of some workers: those whose records are in a table."""
        kept = np.isin(self.workers, workers)
        return replace(
            self, workers=self.workers[kept], arrays={name: each[kept] for name, each in self.arrays.items()}
        )

    def by_somebody(self, name: str) -> Asked:
        """The same, where anybody answered."""
        if not len(self.workers):
            whys = sorted({failure.detail for failure in self.failures})
            raise InputError(f"{name}: no site answered: {'; '.join(whys) or 'the run ended before'}")
        return self


def why_silent(name: str, failure: Failure) -> str:
    """A site, and why it did not answer; a site of Flower's says its name itself."""
    return f"{name}: {failure.detail.removeprefix(f'site {name}: ')}"


def ask(problem: Problem | RemoteProblem, task: str, w: Array, engine: HeldEngine, **options: Any) -> Asked:
    """Ask every worker one question about w; an error where nobody answers."""
    return ask_together(problem, {task: options}, w, engine)[task].by_somebody(task)


def ask_together(
    problem: Problem | RemoteProblem, questions: Mapping[str, Mapping[str, Any]], w: Array, engine: HeldEngine
) -> dict[str, Asked]:
    """Ask every worker several questions about w, by their names with what else they have: one exchange.

    Some may have no answer from anybody (`Asked.by_somebody`).
    """
    result = solve(problem, method=FollowUp(tuple(questions.items())), w0=w, monitor=False, engine=engine)
    answers = {}
    for name in questions:
        fields = [key for key in result.products if key.startswith(f"{name}.")]
        own: dict[str, Any] = {key.removeprefix(f"{name}."): result.products[key] for key in fields}
        workers, silent = (own.pop(key, ()) for key in ("workers", "silent"))
        failures = {failure.worker: failure for failure in silent}
        failures |= {failure.worker: failure for failure in result.failures if failure.worker not in workers}
        answers[name] = Asked(np.asarray(workers), own, tuple(failures.values()), tuple(result.history))
    return answers


@dataclass(frozen=True)
class FitAnswers:
    """What the sites said of the model w, on columns from which `centre` was subtracted."""

    w: Array
    layout: Layout
    centre: Array | None
    family: str
    asked: Asked
    penalty: float
    """On half the square of every coefficient, in the sum over the rows."""
    null_deviance: float
    rows: tuple[Row, ...]
    besides: Mapping[str, Asked]
    """What was asked in the same exchange; of the same workers."""
    kept_back: tuple[Failure, ...] = ()
    """Who told everything but the sums over the units: without theirs there is no meat."""

    @property
    def sums(self) -> dict[str, float]:
        """`SUMS` over all workers."""
        return dict(zip(SUMS, self.asked.arrays["sums"].sum(axis=0).tolist(), strict=True))

    def of_worker(self, place: int) -> dict[str, float]:
        """`SUMS` of the worker at a place of `asked.workers`."""
        return dict(zip(SUMS, self.asked.arrays["sums"][place].tolist(), strict=True))

    def _matrix(self, name: str) -> Array:
        return unpack(self.asked.arrays[name].sum(axis=0), self.layout.n_coefficients)

    @property
    def _penalties(self) -> Array:
        return np.where(self.layout.penalised, self.penalty, 0.0)

    @property
    def expected(self) -> Array:
        """I, with the penalty."""
        return self._matrix("expected") + np.diag(self._penalties)

    @property
    def observed(self) -> Array:
        """H, with the penalty."""
        both = self.asked.arrays["observed"].shape[1] > 0
        return self._matrix("observed") + np.diag(self._penalties) if both else self.expected

    def distance(self, dispersion: float) -> float:
        """How far w is from the best model of those that answered: the Newton decrement in standard errors.

        Where there are no residuals there are none, and the distance is 0.
        """
        gradient = self.asked.arrays["gradient"].sum(axis=0) + self._penalties * self.w
        inverse = inverse_of(self.observed, self.layout)[0]
        return float(np.sqrt(max(gradient @ inverse @ gradient, 0.0) / dispersion)) if dispersion > 0 else 0.0

    def clusters(self, kind: str) -> int:
        """How many there are; covariances need two."""
        return len(self.asked.workers) if kind == "cluster by site" else int(self.sums["clusters"])

    def covariance(self, kind: str, *, dispersion: float, n: float, correction: bool = True) -> tuple[Array, int, int]:
        """Of the numbers of w, for the columns as they were; the rank, and the number of clusters (0 of the others)."""
        observed = kind != "model"
        inverse, unknown, rank = inverse_of(self.observed if observed else self.expected, self.layout)
        clusters, factor = 0, 1.0
        left = n - rank if n - rank > EXACT_FIT * n else np.nan
        if kind == "model":
            covariance = dispersion * inverse
        else:
            if kind == "cluster by site":
                gradients = self.asked.arrays["gradient"]
                middle = gradients.T @ gradients
            else:
                middle = self._matrix("meat")
            if kind.startswith("cluster"):
                clusters = self.clusters(kind)
                if correction:
                    factor = clusters / (clusters - 1.0) * (n - 1.0) / left
            elif kind == "HC1":
                factor = n / left
            covariance = factor * inverse @ middle @ inverse
        covariance = covariance_from_centred(covariance, self.layout, self.centre)
        if self.centre is not None and self.layout.intercept:
            unknown = unknown.copy()
            unknown[-1] |= bool((unknown[:-1] & (self.centre != 0)).any())
        covariance[unknown, :] = covariance[:, unknown] = np.nan
        return covariance, rank, clusters


def ask_about_fit(
    problem: Problem | RemoteProblem,
    result: Result,
    engine: HeldEngine,
    *,
    units: Units = "none",
    trials: bool = False,
    besides: Mapping[str, Mapping[str, Any]] | None = None,
) -> FitAnswers:
    """Ask the workers what the tables of a fitted model are made of, and other questions `besides`: one exchange.

    With offsets, or without an intercept, the model without features takes some more; so does a site that keeps its
    sums over the units to itself: all are asked again without these, so that the tables are of the same records.
    """
    family, layout = family_of(problem.loss), result.layout
    asked_of = problem.centred_by(result.centre)
    w = to_centred(result.w, layout, result.centre)
    null = float(result.w0[-1]) if layout.intercept and not np.any(result.w0[:-1]) else 0.0
    options = {"null": null, "units": units, "both": family in NOT_CANONICAL, "trials": trials}
    answers = ask_together(asked_of, {"fit-questions": options, **(besides or {})}, w, engine)
    asked, kept_back = answers.pop("fit-questions"), tuple[Failure, ...]()
    refused = [failure for failure in asked.failures if failure.kind == "refused"]
    if units != "none" and refused:
        without = ask_together(asked_of, {"fit-questions": options | {"units": "none"}}, w, engine)["fit-questions"]
        kept_back = tuple(failure for failure in refused if failure.worker in without.workers)
        asked = replace(without if kept_back else asked, rows=(*asked.rows, *without.rows))
    asked = asked.by_somebody("fit-questions")
    deviance, rows = _null_deviance(asked_of, engine, null, asked, family)
    assert problem.alpha is not None
    weight = float(asked.arrays["sums"][:, SUMS.index("weight")].sum())
    exchanges = (*asked.rows, *rows)
    penalty = problem.alpha * weight
    others = {name: each.of(asked.workers) for name, each in answers.items()}
    return FitAnswers(w, layout, result.centre, family, asked, penalty, deviance, exchanges, others, kept_back)


def _null_deviance(
    problem: Problem | RemoteProblem, engine: HeldEngine, null: float, fit: Asked, family: str
) -> tuple[float, Sequence[Row]]:
    """The deviance of the best model without features: known at once with a log link, else by Newton's method.

    It is of the workers that answered about the fit; nan where one of them does not answer about it.
    """
    rows: list[Row] = []
    totals = dict(zip(SUMS, fit.arrays["sums"].sum(axis=0).tolist(), strict=True))
    sums = np.array([totals[name] for name in ("null_loss", "null_first", "null_second")])
    for _ in range(NULL_STEPS):
        loss, first, second = sums.tolist()
        if (least := _least_of_a_log_link(family, loss, first, second)) is not None:
            return 2.0 * (least - totals["of_records"]), rows
        left = 0.5 * first * (first / second) if second > 0 else 0.0
        enough = CANCELLED if family == "gaussian" else NULL_DECREMENT  # a quadratic's is what is left, to the rounding
        if left <= enough * abs(loss) or not second > 0:
            return 2.0 * (loss - left - totals["of_records"]), rows
        step = first / second
        null -= step if family == "gaussian" else float(np.clip(step, -5.0, 5.0))
        asked = ask(problem, "null-model", np.zeros(problem.n_coefficients), engine, null=null)
        asked = asked.of(fit.workers)
        sums, rows = asked.arrays["sums"].sum(axis=0), [*rows, *asked.rows]
        if len(asked.workers) < len(fit.workers):
            break
    return np.nan, rows


def _least_of_a_log_link(family: str, loss: float, first: float, second: float) -> float | None:
    """The least loss over the intercept, from that at one: of Poisson and gamma, as exp(intercept) is a ratio of sums.

    Poisson: second = sum s exp(z), second - first = sum s y. Gamma: second = sum s y exp(-z), second + first = sum s.
    """
    wanted = {"poisson": second - first, "gamma": second + first}.get(family, 0.0)
    if not min(wanted, second) > 0:
        return None
    return loss + wanted - second - wanted * float(np.log(wanted / second))


__all__ = ["FAMILY_OF_LOSS", "Asked", "FitAnswers", "ask", "ask_about_fit", "ask_together"]
