"""The run configuration of the app: its keys, their defaults, and how they become arguments of `danl.solve`.

Values are what Flower's run configuration can hold: words, numbers and booleans. An empty word stands for "not given".
The defaults are those of the pooled fit as statisticians ask for it: an intercept, rows that count alike, no penalty.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tomli_w

from danl.design.analysis import Analysis
from danl.errors import bad_argument
from danl.objective.layout import BY_CLASS
from danl.spec import unknown_name
from danl.statistics.cohort import analysis_of as cohort_analysis
from danl.statistics.fit import Tables

Value = str | int | float | bool
ERROR = "error.txt"
"""The file that stands in `out` in place of a result, and says what is wrong."""
KEYS: dict[str, tuple[Value, str]] = {
    "method": ("danl", "danl, danl-masked, danl-paper, newton, gd, fedavg, ...; options as fedavg:steps=5"),
    "policy": ("full", "who trains what: full, coverage:psi=3, random:keep=0.5, ..."),
    "graph": ("", "who talks to whom, for methods without a server: ring, grid, complete, erdos:p=0.4; empty: ring"),
    "regions": ("", "a number, sizes such as 30,30,63, or classes; empty: 4"),
    "formula": ("", "instead of a loss: outcome ~ age + C(smoking); docs/data.md says what may stand in it"),
    "family": ("gaussian", "with a formula: gaussian, binomial, poisson, gamma or negative-binomial:alpha=1.0"),
    "event": ("", "of a binomial outcome in words: the one that is counted; empty: the later in order"),
    "offset": ("", "with a formula: a column, or log(column), that is added to the linear predictor"),
    "weights": ("", "with a formula: the column with the weight of each record"),
    "trials": ("", "with a formula: the column with how many trials the successes are of"),
    "missing": ("complete", "with a formula: complete leaves out records with missing values, error refuses them"),
    "site-effects": (False, "with a formula: an effect of every site"),
    "cluster": ("", "with a formula: what standard errors are clustered by, site or a column"),
    "summary": (False, "with a formula: write tables and model.json, too"),
    "covariance": ("model", "with summary: standard errors of the model, or robust: HC0, HC1"),
    "meta": (False, "with summary: each site's own fit, combined, besides"),
    "diagnostics": (False, "with summary, binomial: AUC, calibration and classification"),
    "standardise": (False, "with summary: coefficients per standard deviation besides"),
    "cohort": (False, "instead of a fit: a table of the records, of the columns of a formula, or of these:"),
    "columns": ("", "with cohort, in place of a formula: age,smoking; the first holds numbers"),
    "loss": (
        "logistic",
        "logistic, multinomial:classes=3, squared, poisson, gamma, negative-binomial:alpha=0.5 or squared_hinge",
    ),
    "l2": ("", "a penalty that is the paper's lambda, in place of alpha"),
    "alpha": (0.0, "an absolute penalty; 0: none, empty: that of l2, or l2=1e-4"),
    "weighting": ("samples", "samples: rows count alike, the pooled fit; uniform: sites count alike"),
    "intercept": (True, "fit an intercept, without a penalty"),
    "init": ("zero", "the start: zero, or fedavg:rounds=10"),
    "rounds": (100, "most exchanges after the first one"),
    "tol": (1e-8, "stop at this decrement"),
    "seed": (0, "of masks and mini-batches"),
    "sites": (1, "sites that must be there before the run starts"),
    "deadline": (300.0, "seconds an exchange may take"),
    "wait": (120.0, "seconds to wait for the sites"),
    "out": ("", "folder for the result, at the server; empty: danl-run-<run id>"),
}
"""The default of each key, and what it is for."""
DEFAULTS = {key: default for key, (default, _) in KEYS.items()}
OF_A_FORMULA = ("family", "event", "offset", "weights", "trials", "missing", "site-effects", "cluster")
"""Keys that say more of a formula."""
OF_A_SUMMARY = ("covariance", "meta", "diagnostics", "standardise")
"""Keys that say more of the tables."""
OF_A_COHORT = ("cohort", "columns", "formula", "family", "sites", "deadline", "wait", "out")
"""Keys that a table of the cohort knows."""


def solve_arguments(config: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Arguments of the problem, of `danl.solve` and of the engine."""
    values = _values(config)
    if values["columns"]:
        raise bad_argument("columns", values["columns"], "given with cohort=true", "a fit needs a formula")
    l2, alpha = _number("l2", values["l2"]), _number("alpha", values["alpha"])
    problem: dict[str, Any] = {"l2": l2, "alpha": None if l2 is not None and alpha == 0 else alpha}
    analysis = analysis_of(values)
    if analysis is not None:
        problem["analysis"] = analysis
    else:
        problem["loss"], problem["weighting"] = str(values["loss"]), str(values["weighting"])
        problem["intercept"] = bool(values["intercept"])
    init = str(values["init"])
    run = {
        "method": str(values["method"]),
        "policy": str(values["policy"]),
        "graph": str(values["graph"]) or None,
        "regions": _regions(str(values["regions"])),
        "w0": None if init == "zero" else init,
        "max_rounds": values["rounds"],
        "tol": _number("tol", values["tol"]),
        "seed": values["seed"],
    }
    return problem, run, _of_the_engine(values)


def cohort_arguments(config: Mapping[str, Any]) -> tuple[Analysis, dict[str, Any]]:
    """What a table of the cohort is of, and arguments of the engine."""
    values = _values(config)
    for key, value in values.items():
        if key not in OF_A_COHORT and value != DEFAULTS[key]:
            raise bad_argument(key, value, "left out with cohort=true", "nothing is fitted")
    asked = cohort_analysis(values["formula"] or None, values["columns"] or None, values["family"])
    return asked, _of_the_engine(values)


def _values(config: Mapping[str, Any]) -> dict[str, Any]:
    for key in config:
        if key not in DEFAULTS:
            raise unknown_name("run-config key", key, DEFAULTS)
    return DEFAULTS | dict(config)


def _of_the_engine(values: Mapping[str, Any]) -> dict[str, Any]:
    seconds = {name: _number(name, values[name]) for name in ("deadline", "wait")}
    return {"sites": values["sites"]} | seconds


def analysis_of(values: Mapping[str, Any]) -> Analysis | None:
    """The analysis of a run configuration; None where it has no formula."""
    given = {key: values[key] for key in OF_A_FORMULA if values[key] != DEFAULTS[key]}
    if not values["formula"]:
        for key in given:
            raise bad_argument(
                key, values[key], "given with a formula", "leave it out, or write formula='outcome ~ age'"
            )
        return None
    if values["loss"] != DEFAULTS["loss"]:
        raise bad_argument("loss", values["loss"], "left out where there is a formula", "the family says it")
    return Analysis(formula=values["formula"], **{key.replace("-", "_"): value for key, value in given.items()})


def tables_of(config: Mapping[str, Any]) -> Tables | None:
    """The tables that a run configuration asks for; None where it asks for none."""
    values = DEFAULTS | dict(config)
    if not values["summary"]:
        for key in OF_A_SUMMARY:
            if values[key] != DEFAULTS[key]:
                raise bad_argument(key, values[key], "given with summary=true", "leave it out")
        return None
    if not values["formula"]:
        raise bad_argument("summary", values["summary"], "given with a formula", "leave it out, or write one")
    if values["l2"]:
        raise bad_argument(
            "l2", values["l2"], "left out with summary=true", "tables are those of the records; use alpha"
        )
    analysis = analysis_of(values)
    assert analysis is not None
    return Tables(**{key: values[key] for key in OF_A_SUMMARY}).check(analysis)


def commented_toml(config: Mapping[str, Any]) -> str:
    """The run configuration in TOML, with what each key is for."""
    return "".join(f"{tomli_w.dumps({key: value}).rstrip()}  # {KEYS[key][1]}\n" for key, value in config.items())


def _number(name: str, value: Any) -> float | None:
    if value == "":
        return None
    try:
        return float(value)
    except (TypeError, ValueError):
        raise bad_argument(name, value, "a number, or empty") from None


def _regions(text: str) -> str | None:
    """Regions as text; names of features are not known at the server."""
    if text and text != BY_CLASS and not all(part.strip().isdecimal() for part in text.split(",")):
        raise bad_argument("regions", text, "a number, sizes such as 30,30,63, or 'classes'")
    return text or None
