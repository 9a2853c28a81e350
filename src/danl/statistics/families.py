r"""Deviance, likelihood, AIC and dispersion of a fitted model, from the workers' sums: statsmodels' GLM to the digits.

With the sums of `danl.tasks.fit_questions` over all workers, n records (weights count as repeated ones) and p the rank:

    deviance          2 (loss - of_records)
    residual df       n - p
    dispersion phi    pearson / (n - p) for gaussian and gamma; 1 for the others
    log-likelihood    -n / 2 (log(2 pi D / n) + 1)                        gaussian, with its own variance D / n
                      saturated - loss + choices                          binomial, Poisson, negative binomial
                      sum s (v log(v y / m) - v y / m - log Gamma(v) - log y)    gamma, v = 1 / phi
    AIC               -2 log-likelihood + 2 p
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

EXACT_FIT = 1e-9
"""As many coefficients as records, up to this share: there are no residuals."""
TITLES = {
    "gaussian": "Linear regression",
    "binomial": "Logistic regression",
    "poisson": "Poisson regression, log link",
    "gamma": "Gamma regression, log link",
    "negative-binomial": "Negative binomial regression, log link",
}
LINKS = {"gaussian": "identity", "binomial": "logit"}
"""The others have a log link."""
RATIOS = {"binomial": "odds ratio", "poisson": "rate ratio", "gamma": "mean ratio", "negative-binomial": "rate ratio"}
"""What exp(coefficient) is called."""
EVENTS = {"binomial": "events", "poisson": "events", "negative-binomial": "events"}
"""What the sum of the outcome is called, where it has a name."""


@dataclass(frozen=True)
class FitNumbers:
    """One number each of the whole fit."""

    family: str
    records: int
    weight: float
    """n: records, or the sum of their weights."""
    events: float | None
    deviance: float
    null_deviance: float
    log_likelihood: float
    aic: float
    pearson_chi2: float
    dispersion: float
    rank: int
    df_resid: float
    df_null: float


def fit_numbers(
    family: str,
    sums: Mapping[str, float],
    *,
    rank: int,
    null_deviance: float,
    trials: bool = False,
    weighted: bool = False,
) -> FitNumbers:
    """The numbers of a fit with these sums over all workers.

    Outcomes that are successes of `trials`, of records that are `weighted` besides, have no likelihood here.
    """
    records, weight, loss = int(sums["records"]), sums["weight"], sums["loss"]
    n = float(records) if trials else weight
    df = n - rank
    df = df if df > EXACT_FIT * n else math.nan
    deviance = max(2.0 * (loss - sums["of_records"]), 0.0)
    dispersion = sums["pearson"] / df if family in ("gaussian", "gamma") else 1.0
    match family:
        case "gaussian":
            likelihood = -0.5 * n * (math.log(2 * math.pi * deviance / n) + 1.0) if deviance > 0 else math.inf
        case "gamma" if dispersion == 0:
            likelihood = math.inf
        case "gamma":
            v = 1.0 / dispersion
            likelihood = v * n * math.log(v) - v * (0.5 * deviance + n) - n * math.lgamma(v) - sums["saturated"]
        case _:
            likelihood = sums["saturated"] - loss + sums["choices"]
    if trials and weighted:
        likelihood = math.nan
    return FitNumbers(
        family=family,
        records=records,
        weight=n,
        events=sums["target"] if family in EVENTS else None,
        deviance=deviance,
        null_deviance=null_deviance,
        log_likelihood=likelihood,
        aic=2.0 * rank - 2.0 * likelihood,
        pearson_chi2=sums["pearson"],
        dispersion=dispersion,
        rank=rank,
        df_resid=df,
        df_null=n - 1.0,
    )
