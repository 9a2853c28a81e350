"""Records of three sites with factors, counts, amounts, missing values and wards; and statsmodels' families."""

from __future__ import annotations

from functools import cache

import numpy as np
import pandas as pd

FAMILIES = {
    "gaussian": "pressure",
    "binomial": "death",
    "poisson": "falls",
    "gamma": "cost",
    "negative-binomial:alpha=0.7": "visits",
}
"""Families, and the outcome of each."""
SIZES = {"north": 140, "south": 90, "west": 70}


@cache
def frames(seed=3):
    """A frame a site; a few values are missing, and columns come in other orders."""
    made = {}
    for number, (name, rows) in enumerate(SIZES.items()):
        rng = np.random.default_rng([seed, number])
        age, dose = rng.normal(60, 12, rows), rng.normal(size=rows)
        smoking = rng.choice(["never", "former", "current"], rows, p=[0.5, 0.3, 0.2])
        days = rng.integers(1, 9, rows).astype(float)
        eta = 0.03 * (age - 60) + 0.3 * dose + 0.4 * (smoking == "current") - 0.2 * number
        mean, trials = days * np.exp(eta - 1), rng.integers(1, 6, rows)
        frame = pd.DataFrame(
            {
                "age": age,
                "dose": dose,
                "smoking": smoking,
                "days": days,
                "copies": rng.integers(1, 4, rows),
                "ward": rng.choice([f"w{ward}" for ward in range(12)], rows),
                "pressure": 120 + 8 * eta + rng.normal(scale=5, size=rows),
                "death": (rng.random(rows) < 1 / (1 + np.exp(0.5 - eta))).astype(int),
                "falls": rng.poisson(mean),
                "cost": rng.gamma(2, mean / 2) + 1e-3,
                "visits": rng.negative_binomial(1 / 0.7, 1 / (1 + 0.7 * mean)),
                "trials": trials,
                "cured": rng.binomial(trials, 1 / (1 + np.exp(-eta))),
            }
        )
        frame.loc[[4, 11 + number], "age"] = np.nan
        frame.loc[7, "smoking"] = None
        made[name] = frame[list(frame.columns[number:]) + list(frame.columns[:number])]
    return made


def pooled():
    """The complete records of all sites, with their site."""
    together = pd.concat([frame.assign(site=name) for name, frame in frames().items()], ignore_index=True)
    return together.dropna().reset_index(drop=True)


def matrix(*, site_effects=False, data=None):
    """What `y ~ age + dose + C(smoking, reference='never')` makes, by hand: constant first."""
    data = pooled() if data is None else data
    columns = [np.ones(len(data)), data.age, data.dose]
    columns += [(data.smoking == level).astype(float) for level in ("current", "former")]
    columns += [(data.site == name).astype(float) for name in ("south", "west")] if site_effects else []
    return np.column_stack(columns)


def their_family(name):
    import statsmodels.api as sm

    families = sm.families
    return {
        "gaussian": families.Gaussian(),
        "binomial": families.Binomial(),
        "poisson": families.Poisson(),
        "gamma": families.Gamma(families.links.Log()),
        "negative-binomial": families.NegativeBinomial(alpha=0.7),
    }[name.partition(":")[0]]
