"""`danl fit FILE... --formula`: every file is a site, and the sites agree on a design before anything is fitted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from danl._version import __version__
from danl.callbacks import MLflow, TensorBoard
from danl.cli.display import console
from danl.cli.job import display, start_of, warnings_shown
from danl.cli.options import RunOptions
from danl.cli.output import ending_of, run_report, say_written, show_result, write_run
from danl.data.reference import ShardReference
from danl.design.analysis import Analysis
from danl.engines import make_engine
from danl.errors import InputError, bad_argument
from danl.methods import make_method
from danl.objective.problem import RemoteProblem
from danl.policies import make_policy, read_profiles
from danl.run.prepared import connected
from danl.run.result import Result
from danl.run.solver import solve
from danl.run.trace import Trace
from danl.wording import counted

if TYPE_CHECKING:
    from danl.statistics.fit import Tables

NOT_WITH_A_FORMULA = {
    "workers": "every file is a site",
    "partition": "every file is a site",
    "site": "give every site's records as a file of its own",
    "n_features": "columns are found by name",
    "zero_based": "columns are found by name",
    "target": "the formula names the outcome",
    "weight": "use --weights",
    "loss": "use --family",
    "intercept": "a formula has one, unless it says - 1",
    "weighting": "every record counts the same",
}
"""Options of a fit that are left out with --formula, and why."""


def analysis_of(options: RunOptions, asked: Mapping[str, Any]) -> Analysis | None:
    """The analysis that the options ask for; None where there is no formula."""
    defaults = {part.name: part.default for part in fields(Analysis)}
    given = {name: value for name, value in asked.items() if value != defaults[name]}
    if asked["formula"] is None:
        for name in given:
            raise InputError(f"{_flag(name)}: says more of a formula, and there is none; add --formula")
        return None
    plain = {part.name: part.default for part in fields(RunOptions)}
    for name, why in NOT_WITH_A_FORMULA.items():
        if getattr(options, name) != plain[name]:
            raise InputError(f"{_flag(name)}: is not for --formula: {why}; leave it out")
    return Analysis(**given)


def asked_for(
    tables: Mapping[str, Any], *, summary: bool, analysis: Analysis | None, l2: float | None
) -> Tables | None:
    """The tables of --summary; None where it is not given."""
    if summary and analysis is None:
        raise InputError("--summary: is of a formula, and there is none; add --formula")
    if not summary or analysis is None:
        for name, value in tables.items():
            if value not in (False, "model"):
                raise InputError(f"{_flag(name)}: is of --summary, which is not given; add --summary")
        return None
    if l2 is not None:
        raise InputError(f"--l2={l2:g}: its tables would not be those of the records; use --alpha")
    from danl.statistics.fit import Tables  # here: other fits do without

    return Tables(**tables).check(analysis)


def sites_of(first: str, others: Sequence[str]) -> list[ShardReference]:
    """A site for every file, called as the file is without its suffix."""
    references = [ShardReference(path=path) for path in (first, *others)]
    names = [reference.called(0) for reference in references]
    for name in names:
        if names.count(name) > 1:
            raise bad_argument("FILE", name, "the name of one file alone", "sites are called as their files are")
    return references


def fit_by_formula(
    options: RunOptions,
    method: str,
    analysis: Analysis,
    files: Sequence[str],
    *,
    tables: Tables | None,
    live: bool,
    loggers: Sequence[MLflow | TensorBoard],
    out: Path | None,
    as_json: bool,
    **arguments: Any,
) -> tuple[Result, bool]:
    """Fit an analysis on the files of sites; the result, and whether all of its files are written."""
    from danl.statistics.fit import fit_of
    from danl.statistics.fit_summary import summary_files
    from danl.statistics.held_engine import HeldEngine

    screen = console()
    references = sites_of(options.data, files)
    problem = RemoteProblem(references, analysis=analysis, alpha=options.alpha, l2=options.l2)
    made = make_method(options.with_batches(method))
    profiles = None if options.profiles is None else read_profiles(options.profiles)
    title = f"{analysis.formula}: {counted(len(references), 'site')}, {analysis.family}"
    trace = Trace() if live or out is not None else None
    with (
        HeldEngine(make_engine(options.engine)) as engine,
        warnings_shown(screen) as said,
        display(options, screen, title, method, trace, live) as shown,
    ):
        problem = connected(problem, engine)
        result = solve(
            problem,
            method=made,
            regions=options.regions,
            policy=make_policy(options.bound_policy(), profiles),
            w0=start_of(options),
            max_rounds=options.rounds,
            tol=options.tol,
            seed=options.seed,
            engine=engine,
            profiles=profiles,
            graph=options.graph,
            callback=[shown, *loggers],
            trace=trace,
            **arguments,
        )
        said.extend(result.notes)
        fit = None if tables is None or result.status == "interrupted" else fit_of(problem, result, engine, tables)
    settings = result.settings
    request = {"danl": __version__, "analysis": analysis.to_dict(), "files": [each.path for each in references]}
    files_of_fit = {} if fit is None else summary_files(fit)
    missing = write_run(out, result, title, request | ending_of(result), screen, more=files_of_fit)
    data = {"data": options.data, "rows": int(sum(settings["rows"])), "sites": settings["sites"]}
    data |= {"formula": analysis.formula, "coefficients": coefficients(result), "left_out": settings["left_out"]}
    report = run_report(options, data, result, None if missing else out)
    if fit is not None:
        report["tables"] = fit.summary().to_dict()
    show_result(screen, title, report, result, as_json=as_json)
    if fit is not None and not as_json:
        print(fit.summary())
    return result, say_written(out, missing, screen)


def coefficients(result: Result) -> dict[str, float]:
    """The coefficients by their names, that of the intercept first."""
    names = [*result.settings["feature_names"], *(["intercept"] if result.settings["intercept"] else [])]
    found = dict(zip(names, result.w.tolist(), strict=True))
    return ({"intercept": found["intercept"]} if result.settings["intercept"] else {}) | found


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
