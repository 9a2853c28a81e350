"""How often all three hospitals are asked: danl.glm, and the loops of ds.glm and v6-glm, for docs/other-glms.md.

The two loops are those of datashield/dsBaseClient, R/ds.glm.R, and vantage6/v6-glm-py, central.py: the start, the steps
and the criterion that ends them. They run here on the pooled rows, as the sums over sites are the pooled ones; neither
system is started. Counted is every question that all sites answer, before, during and after the fit. What ds.glm's
users ask before, to make factors and offsets, is not counted.

Run it with `python examples/hospitals/rounds.py`; it needs danl[formula], pandas and statsmodels.
"""

from pathlib import Path

import numpy as np
import pandas as pd
import statsmodels.api as sm
from formulaic import Formula

import danl

FILES = {site: Path(__file__).with_name(f"{site}.csv") for site in ("north", "south", "island")}
FAMILIES = {"gaussian": sm.families.Gaussian(), "binomial": sm.families.Binomial(), "poisson": sm.families.Poisson()}
MODELS = [
    ("gaussian", "pressure", "age + sex + smoking + bmi"),
    ("binomial", "readmitted", "age + sex + smoking + bmi"),
    ("poisson", "visits", "age + sex + smoking"),
]
BEFORE = 2
"""danl: the survey of the columns, and the counts of the design."""


def scoring_step(y, X, family, eta):
    """The right side and the matrix of a step of Fisher scoring, with the working residuals."""
    mu = family.link.inverse(eta)
    slope = family.link.inverse_deriv(eta)
    weights = slope**2 / family.variance(mu)
    return X.T @ (weights[:, None] * X), weights, (y - mu) / slope


def as_ds_glm(y, X, family):
    """From zeros, until the deviance changes by 1e-8 of itself plus 0.1; one question an iteration, and one before."""
    coef, old = np.zeros(X.shape[1]), 9.99e99
    for iteration in range(1, 21):
        information, weights, residuals = scoring_step(y, X, family, X @ coef)
        deviance = family.deviance(y, family.link.inverse(X @ coef))
        coef = coef + np.linalg.solve(information, X.T @ (weights * residuals))
        if abs(deviance - old) / (abs(deviance) + 0.1) <= 1e-8:
            return coef, 1 + iteration  # glmDS1, then glmDS2
        old = deviance
    raise RuntimeError("ds.glm's loop did not converge")


def as_v6_glm(y, X, family):
    """From means near y, until the deviance changes by 1e-8 of itself; two questions an iteration: sums, deviances."""
    eta, old = family.link(family.starting_mu(y)), 0.0
    for iteration in range(1, 26):
        information, weights, residuals = scoring_step(y, X, family, eta)
        coef = np.linalg.solve(information, X.T @ (weights * (eta + residuals)))
        eta = X @ coef
        deviance = family.deviance(y, family.link.inverse(eta))
        if abs(old - deviance) / deviance < 1e-8:
            return coef, 2 * iteration
        old = deviance
    raise RuntimeError("v6-glm's loop did not converge")


def main():
    """Print a line a model: questions to all sites, and the largest difference of a coefficient from statsmodels'."""
    frame = pd.concat([pd.read_csv(path) for path in FILES.values()], ignore_index=True)
    frame["readmitted"] = (frame["readmitted"] == "yes").astype(float)
    print(f"{'':10}{'ds.glm':>16}{'v6-glm':>16}{'danl.glm':>16}")
    for name, outcome, columns in MODELS:
        y, X = (np.asarray(part, float) for part in Formula(f"{outcome} ~ {columns}").get_model_matrix(frame))
        y, family = y[:, 0], FAMILIES[name]
        pooled = sm.GLM(y, X, family).fit(tol=1e-15, maxiter=100).params
        fit = danl.glm(f"{outcome} ~ {columns}", sites=FILES, family=name, event="yes" if name == "binomial" else None)
        found = [as_ds_glm(y, X, family), as_v6_glm(y, X, family), (fit.coef, fit.exchanges + BEFORE)]
        cells = [f"{asked} ({np.abs(coef - pooled).max():.0e})" for coef, asked in found]
        print(f"{name:10}" + "".join(f"{cell:>16}" for cell in cells))


if __name__ == "__main__":
    main()
