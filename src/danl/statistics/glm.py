"""`danl.glm`: a generalised linear model by a formula, over sites or over the groups of a frame; a `GLMFit` comes back.

fit = danl.glm("death ~ age + C(smoking, reference='never')", sites={"north": "north.csv", "south": "south.csv"},
               family="binomial", site_effects=True)
print(fit.summary())
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

from danl.checks import check_number
from danl.data.records import FRAME
from danl.data.reference import ShardReference
from danl.design.analysis import Analysis
from danl.engines import Engine
from danl.errors import InputError, bad_argument
from danl.methods import AnyMethod
from danl.objective.problem import RemoteProblem
from danl.statistics.fit import MAX_ROUNDS, TOL, GLMFit, Tables, fit_problem

ONE_SITE = "all"
"""What the site is called where there is one."""


def glm(
    formula: str | Analysis | None = None,
    data: Any = None,
    *,
    sites: Any = None,
    site: str | None = None,
    outcome: str | None = None,
    columns: Sequence[str] | None = None,
    family: str = "gaussian",
    event: str | None = None,
    offset: str | None = None,
    weights: str | None = None,
    trials: str | None = None,
    missing: Literal["complete", "error"] = "complete",
    site_effects: bool = False,
    cluster: str | None = None,
    covariance: str = "model",
    small_sample: bool = True,
    meta: bool = False,
    diagnostics: bool = False,
    standardise: bool = False,
    alpha: float = 0.0,
    engine: str | Engine = "local",
    method: str | AnyMethod = "danl",
    tol: float = TOL,
    max_rounds: int = MAX_ROUNDS,
    callback: Any = None,
) -> GLMFit:
    """Fit a generalised linear model to records that stay at their sites.

    Parameters
    ----------
    formula : str or Analysis
        ``outcome ~ age + C(smoking, reference="never") + log(bmi)``; or a `danl.Analysis`, which has the next arguments
        already.
    data : frame or file, optional
        The records, where they are in one place. With `site`, a column's name, each of its values is a site.
    sites : mapping of name to file or frame, or sequence of ShardReference, optional
        The records of each site. Neither is given where the engine finds its sites itself (Flower).
    outcome, columns : str, sequence of str, optional
        Instead of a formula.
    family : str
        "gaussian", "binomial", "poisson", "gamma" (log link) or "negative-binomial:alpha=1.0".
    event : str, optional
        Of a binomial outcome in words, the one that is counted.
    offset, weights, trials : str, optional
        Columns: what is added to the linear predictor, such as ``log(days)``; how many records one stands for; and
        of how many trials a binomial outcome is the number of successes.
    missing : "complete" or "error"
        Records with a missing value are left out and counted, or refused.
    site_effects : bool
        A fixed effect of every site but the first.
    cluster : str, optional
        "site" or a column: clustered standard errors. Clusters are within sites.
    covariance : "model", "HC0" or "HC1"
        Of the coefficients, where there are no clusters: the model's, or robust to a wrong variance.
    small_sample : bool
        Whether clustered standard errors have the correction G / (G - 1) (n - 1) / (n - p).
    meta : bool
        Fit each site by itself as well, and combine the fits: fixed and random effects, Q, I^2 and tau^2.
    diagnostics : bool
        Of a binomial model: AUC, calibration and a classification table, from counts in bins.
    standardise : bool
        Show coefficients per standard deviation of their columns besides.
    alpha : float
        A penalty alpha / 2 |coefficients|^2 on the averaged loss; 0 is none.
    engine, method, tol, max_rounds, callback
        As in `danl.solve`.

    Returns
    -------
    GLMFit
        ``print(fit.summary())``, ``fit.save(folder)``, ``fit.predict(frame)``.

    """
    asked: dict[str, Any] = {"outcome": outcome, "columns": columns}
    asked |= {"family": family, "event": event, "offset": offset, "weights": weights, "trials": trials}
    asked |= {"missing": missing, "site_effects": site_effects, "cluster": cluster}
    analysis = formula.alone(**asked) if isinstance(formula, Analysis) else Analysis(formula=formula, **asked)
    penalty = check_number("alpha", alpha, "0 is no penalty", least=0.0)
    return fit_problem(
        RemoteProblem(references_of(data, sites, site), analysis=analysis, alpha=penalty),
        engine=engine,
        tables=Tables(covariance, small_sample, meta, diagnostics, standardise).check(analysis),
        method=method,
        tol=tol,
        max_rounds=max_rounds,
        callback=callback,
    )


def references_of(data: Any, sites: Any, site: str | None = None) -> tuple[ShardReference, ...]:
    """Where the records of each site are; none where the engine knows."""
    if data is not None and sites is not None:
        raise InputError("data and sites: give one of them; sites={'north': 'north.csv'} names each site's records")
    if sites is not None:
        if site is not None:
            raise bad_argument("site", site, "left out", "it is for data=, a frame with the records of all sites")
        if isinstance(sites, Mapping):
            return tuple(_reference(str(name), each) for name, each in sites.items())
        if isinstance(sites, ShardReference | str | Path):
            sites = [sites]
        if not isinstance(sites, Iterable) or hasattr(sites, "columns"):
            allowed = "a mapping of names to files or data frames, or a list of these"
            raise bad_argument("sites", type(sites).__name__, allowed, "a single frame is data=")
        given = list(sites)
        return tuple(each if isinstance(each, ShardReference) else _reference("", each) for each in given)
    if data is None:
        return ()
    whole = _reference(ONE_SITE, data, "data")
    if site is None:
        return (whole,)
    if not hasattr(data, "columns"):
        raise bad_argument("site", site, "left out for a file", "read it first: data=pandas.read_csv(...)")
    if site not in list(data.columns):
        raise bad_argument("site", site, "a column of data")
    if not hasattr(data, "groupby"):
        raise bad_argument("data", type(data).__name__, "a pandas frame, where site= parts it")
    if data[site].isna().any():
        raise bad_argument("site", site, "a column without missing values", "drop these records")
    return tuple(_reference(str(name), group) for name, group in data.groupby(site, sort=True, observed=True))


def _reference(name: str, records: Any, argument: str = "sites") -> ShardReference:
    if isinstance(records, ShardReference):
        return records
    if isinstance(records, str | os.PathLike):
        return ShardReference(path=os.fspath(records), name=name)
    if not hasattr(records, "columns"):
        each = " for each site" if argument == "sites" else ""
        raise bad_argument(argument, type(records).__name__, f"a file or a data frame{each}", FRAME)
    load: Callable[[], Any] = partial(_same, records)
    return ShardReference(load=load, name=name)


def _same(records: Any) -> Any:
    return records
