"""`GLMFit`: a fitted generalised linear model over sites, as a statistician reads it; and the fit that makes it.

`fit_problem` runs the method, and then asks the sites once about the fitted model: everything in the tables comes from
that one exchange, each site's own fit and the deviations of the columns included. `danl.glm` is its door for formulas.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from danl.checks import check_choice, check_flag, check_share
from danl.design.analysis import Analysis
from danl.design.design import Design
from danl.errors import InputError, bad_argument, warn
from danl.methods import AnyMethod
from danl.objective.likelihood import family_of
from danl.objective.problem import Problem, RemoteProblem
from danl.protocol.messages import Array
from danl.run.prepared import connected
from danl.run.result import Result
from danl.run.separation import endless
from danl.run.solver import solve
from danl.statistics.diagnostics import Diagnostics, diagnostics_of
from danl.statistics.families import FitNumbers, fit_numbers
from danl.statistics.fit_answers import FitAnswers, ask_about_fit, why_silent
from danl.statistics.held_engine import HeldEngine
from danl.statistics.meta import MetaAnalysis, meta_analysis
from danl.statistics.standardised import question, scales_of
from danl.statistics.summary import INTERCEPT, lines_of
from danl.tasks.fit_questions import Units
from danl.wording import listed

Made = TypeVar("Made")
COVARIANCES = ("model", "HC0", "HC1")
TOL = 1e-10
MAX_ROUNDS = 200
NO_LIKELIHOOD = "no log-likelihood and no AIC: records have both trials and weights, and these are sent as one number"
OTHER_SITES = 1e-3
"""Standard errors that the model may be from the best one of those that answered; further off, they are others."""


@dataclass(frozen=True)
class Tables:
    """What is to be told of a fitted model beside its coefficients; `danl.glm` has the same arguments."""

    covariance: str = "model"
    small_sample: bool = True
    meta: bool = False
    diagnostics: bool = False
    standardise: bool = False

    def __post_init__(self) -> None:
        check_choice("covariance", self.covariance, COVARIANCES)
        for name in ("small_sample", "meta", "diagnostics", "standardise"):
            check_flag(name, getattr(self, name))

    def check(self, analysis: Analysis) -> Tables:
        """These tables, if they are some of this analysis: what its fit would leave out is refused before it starts."""
        robust = self.covariance != "model"
        if robust and analysis.cluster is not None:
            allowed = f"left out with cluster={analysis.cluster!r}"
            raise bad_argument("covariance", self.covariance, allowed, "clustered standard errors are robust, too")
        if robust and analysis.trials is not None and analysis.weights is not None:
            raise bad_argument("covariance", self.covariance, "'model' where records have both trials and weights")
        if self.diagnostics and analysis.family_name != "binomial":
            raise bad_argument("diagnostics", True, "left out", f"it is for family='binomial', not {analysis.family!r}")
        return self


@dataclass(frozen=True)
class SiteNumbers:
    """What one site has in a fit."""

    name: str
    records: int
    weight: float
    events: float | None
    left_out: int
    """Records without a value in some column of the model."""
    unknown_levels: int
    """Complete records with a level that is not part of the design."""
    deviance: float
    pearson_chi2: float


@dataclass(frozen=True, eq=False)
class GLMFit:
    """A fitted model: coefficients, their covariance, and the numbers of the fit.

    `print(fit.summary())` shows it; `fit.save(folder)` writes it; `fit.predict(frame)` applies it.
    """

    names: tuple[str, ...]
    """Of the coefficients, the intercept first."""
    coef: Array
    covariance: Array
    covariance_kind: str
    """model, HC0, HC1, cluster (by a column) or cluster by site."""
    numbers: FitNumbers
    sites: tuple[SiteNumbers, ...]
    absent: tuple[str, ...]
    """Sites that did not answer about the fitted model, and why: their records are in none of the numbers."""
    result: Result = field(repr=False)
    exchanges: int = 0
    """Of the fit and of all questions after it."""
    design: Design | None = field(repr=False, default=None)
    n_clusters: int = 0
    small_sample: bool = True
    notes: tuple[str, ...] = ()
    meta: MetaAnalysis | None = field(repr=False, default=None)
    diagnostics: Diagnostics | None = field(repr=False, default=None)
    scales: Array | None = field(repr=False, default=None)
    """The standard deviation of each column over all sites, in the order of the names; nan of the intercept."""

    @property
    def family(self) -> str:
        """gaussian, binomial, poisson, gamma or negative-binomial."""
        return self.numbers.family

    @property
    def std_err(self) -> Array:
        """Standard errors of the coefficients."""
        with np.errstate(invalid="ignore"):
            return np.sqrt(self.covariance.diagonal())

    @property
    def params(self) -> dict[str, float]:
        """The coefficients by their names."""
        return dict(zip(self.names, self.coef.tolist(), strict=True))

    @property
    def converged(self) -> bool:
        """Whether the fit reached its tolerance."""
        return self.result.status == "converged"

    def summary(self, *, level: float = 0.95) -> Any:
        """The tables: `print` it, or take `to_frame`, `to_csv` or `to_json`."""
        from danl.statistics.fit_summary import FitSummary

        check_share("level", level, "for example 0.95", zero=False, one=False)
        return FitSummary.of(self, level)

    def save(self, folder: str | Path, *, level: float = 0.95) -> None:
        """Write the run's files, coefficients.csv, summary.txt, summary.json and model.json into a folder."""
        from danl.run.result import files_of, write_files
        from danl.statistics.fit_summary import summary_files

        write_files(folder, files_of(self.result) | summary_files(self, level))

    def predict(self, data: Any, *, site: str | None = None) -> Array:
        """The mean of each record of a frame, or of a CSV or Parquet file; nan where a value is missing.

        With effects of sites `site` says whose is meant.
        """
        from danl.statistics.model_file import Model

        return Model.of(self).predict(data, site=site)

    def __repr__(self) -> str:
        records = f"{self.numbers.records} records at {len(self.sites)} sites"
        return f"GLMFit({self.family}, {len(self.names)} coefficients, {records}, {self.result.status})"


def fit_problem(
    problem: Problem | RemoteProblem,
    *,
    engine: Any = "local",
    tables: Tables | None = None,
    method: str | AnyMethod = "danl",
    tol: float = TOL,
    max_rounds: int = MAX_ROUNDS,
    **options: Any,
) -> GLMFit:
    """Fit a problem, ask about the model, and make the tables; other `options` are those of `danl.solve`."""
    with HeldEngine(engine) as held:
        if isinstance(problem, RemoteProblem):
            problem = connected(problem, held)
        result = solve(problem, method=method, engine=held, tol=tol, max_rounds=max_rounds, **options)
        return fit_of(problem, result, held, tables)


def fit_of(
    problem: Problem | RemoteProblem, result: Result, engine: HeldEngine, tables: Tables | None = None
) -> GLMFit:
    """The fit that a run ended with: what the sites answer about its model."""
    tables, family = tables or Tables(), family_of(problem.loss)
    if problem.weighting != "samples" or problem.alpha is None:
        raise bad_argument(
            "weighting", problem.weighting, "'samples', with alpha= and not l2=", "tables count records, not sites"
        )
    design: Design | None = getattr(problem, "design", None)
    analysis = None if design is None else design.analysis
    cluster = None if analysis is None else analysis.cluster
    trials = analysis is not None and analysis.trials is not None
    weighted = analysis is not None and analysis.weights is not None
    kind = tables.covariance if cluster is None else "cluster by site" if cluster == "site" else "cluster"
    units: Units = "clusters" if kind == "cluster" else "records" if kind in ("HC0", "HC1") else "none"
    besides: dict[str, dict[str, Any]] = {}
    chosen = np.array([not _is_site_effect(design, place) for place in range(result.layout.n_coefficients)])
    if tables.meta:
        besides["local-fit"] = {"chosen": chosen, "trials": trials}
    if tables.standardise:
        besides["column-counts"] = question(result.layout.n_features)
    answers = ask_about_fit(problem, result, engine, units=units, trials=trials, besides=besides)
    labels = [info.site or f"worker-{place}" for place, info in enumerate(problem.shard_info)]
    lacking: list[str] = []
    if why := _why_not(kind, answers, units, labels):
        lacking.append(f"STANDARD ERRORS OF THE MODEL in place of {kind}: {why}")
        warn(f"glm: {lacking[0]}")
        kind = "model"
    sums, order = answers.sums, lines_of(result.layout)
    rank = answers.covariance("model", dispersion=1.0, n=1.0)[1]
    numbers = fit_numbers(
        family, sums, rank=rank, null_deviance=answers.null_deviance, trials=trials, weighted=weighted
    )
    matrix, _, clusters = answers.covariance(
        kind, dispersion=numbers.dispersion, n=numbers.weight, correction=tables.small_sample
    )
    names = _names(problem)

    def made(wanted: bool, make: Callable[[], Made]) -> Made | None:
        """A table beside the coefficients; a note where the sites do not tell enough for it."""
        try:
            return make() if wanted else None
        except InputError as error:
            lacking.append(str(error))
            warn(f"glm: {error}")
            return None

    meta = made(tables.meta, lambda: meta_analysis(answers, names, labels, chosen))
    scales = made(tables.standardise, lambda: scales_of(answers))
    diagnostics = made(tables.diagnostics and family == "binomial", lambda: diagnostics_of(problem, answers, engine))
    return GLMFit(
        names=names,
        coef=result.w[order],
        covariance=matrix[np.ix_(order, order)],
        covariance_kind=kind,
        numbers=numbers,
        sites=tuple(_sites(problem, answers, labels)),
        absent=tuple(why_silent(labels[failure.worker], failure) for failure in answers.asked.failures),
        result=result,
        exchanges=len(result.history) + len(answers.rows) + (diagnostics is not None),
        design=design,
        n_clusters=clusters,
        small_sample=tables.small_sample,
        notes=(
            *_notes(problem, result, answers, numbers.dispersion, labels),
            *(() if endless(result) else _aliased(names, matrix.diagonal()[order])),
            *((NO_LIKELIHOOD,) if trials and weighted else ()),
            *lacking,
        ),
        meta=meta,
        diagnostics=diagnostics,
        scales=None if scales is None else np.array([np.nan, *scales] if result.layout.intercept else scales),
    )


def _why_not(kind: str, answers: FitAnswers, units: Units, labels: Sequence[str]) -> str:
    """Why there are no standard errors of a kind; empty where there are. The fit is not lost for that."""
    if answers.kept_back:
        who = listed(labels[failure.worker] for failure in answers.kept_back)
        why = f"{who} did not tell the sums over {units} ({answers.kept_back[0].detail})"
        return f"{why}; take larger {units}, or cluster='site'"
    if kind.startswith("cluster") and answers.clusters(kind) < 2:
        return "all records are in one cluster, and there should be some dozens"
    return ""


def _names(problem: Problem | RemoteProblem) -> tuple[str, ...]:
    found = problem.feature_names or [f"x{column}" for column in range(problem.n_features)]
    return (INTERCEPT, *found) if problem.intercept else tuple(found)


def _is_site_effect(design: Design | None, place: int) -> bool:
    """Whether a number of w is the effect of a site."""
    if design is None or place >= len(design.columns):
        return False
    return any(part.kind == "site" for part in design.columns[place].parts)


def _sites(problem: Problem | RemoteProblem, answers: FitAnswers, labels: Sequence[str]) -> list[SiteNumbers]:
    made = []
    for place, worker in enumerate(answers.asked.workers.tolist()):
        own, info = answers.of_worker(place), problem.shard_info[worker]
        made.append(
            SiteNumbers(
                name=labels[worker],
                records=int(own["records"]),
                weight=own["weight"],
                events=None if answers.family in ("gaussian", "gamma") else own["target"],
                left_out=info.left_out,
                unknown_levels=info.unknown_levels,
                deviance=2.0 * (own["loss"] - own["of_records"]),
                pearson_chi2=own["pearson"],
            )
        )
    return made


def _aliased(names: Sequence[str], variances: Array) -> tuple[str, ...]:
    """Which coefficients the records do not tell apart."""
    unknown = [name for name, own in zip(names, variances.tolist(), strict=True) if math.isnan(own)]
    if not unknown or len(unknown) == len(names):  # none, or no residuals
        return ()
    return (
        f"ALIASED: the records do not tell {listed(unknown)} apart: these coefficients mean nothing alone; drop one",
    )


def _notes(
    problem: Problem | RemoteProblem, result: Result, answers: FitAnswers, dispersion: float, labels: Sequence[str]
) -> tuple[str, ...]:
    """What a reader of the tables must know."""
    notes = [*getattr(problem, "notes", ()), *result.notes]
    if problem.alpha:
        notes.append(
            f"PENALISED (alpha {problem.alpha:.3g} on the averaged loss): estimates are shrunk towards zero, and "
            "standard errors are conditional on the penalty"
        )
    doubt = ""
    if endless(result):
        doubt = "SEPARABLE: without a penalty there is no best model, and these numbers mean nothing"
    elif result.status != "converged":
        doubt = f"NOT CONVERGED ({result.status}): these are not the numbers of the best model"
    elif (distance := answers.distance(dispersion)) > OTHER_SITES:
        missing = listed(labels[failure.worker] for failure in answers.asked.failures)
        who = f"{missing} did not answer about it" if missing else "some sites took part in one and not the other"
        doubt = (
            f"OTHER RECORDS: the model is {distance:.2g} standard errors from the best one of the sites that "
            f"answered about it; {who}: fit again with the sites that stay"
        )
    if doubt and not endless(result):  # of that the run has warned
        warn(f"glm: {doubt}")
    if doubt:
        notes.append(doubt)
    return tuple(dict.fromkeys(notes))
