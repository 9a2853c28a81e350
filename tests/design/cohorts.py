"""Records of patients who do not exist, as frames and as the files of sites, and the pooled answer of statsmodels."""

import numpy as np
import pandas as pd

import danl

FORMULA = 'death ~ age*sex + C(smoking, reference="never") + log(bmi)'


def cohort(n=240, seed=0, missing=12):
    """A frame with words, numbers, a few missing values, and a column that nobody asks for."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": rng.normal(60, 10, n).round(1),
            "smoking": rng.choice(["never", "former", "current"], n),
            "bmi": rng.normal(26, 3, n).round(2),
            "sex": rng.choice(["f", "m"], n),
            "note": "a, b; 'c'",
            "days": rng.integers(1, 400, n),
            "visits": rng.poisson(2.0, n),
        }
    )
    slope = 0.05 * (frame.age - 60) + (frame.smoking == "current") * 1.0 - 0.3 * (frame.sex == "m")
    frame["death"] = np.where(rng.random(n) < 1 / (1 + np.exp(-slope)), "yes", "no")
    for name in ("bmi", "smoking"):
        frame.loc[rng.choice(n, missing, replace=False), name] = None
    return frame


def written(frame, folder, sites=3, seed=0):
    """The rows of a frame as the files of sites, each with the columns in an order of its own."""
    rng = np.random.default_rng(seed)
    references = []
    for number, rows in enumerate(np.array_split(rng.permutation(len(frame)), sites)):
        path = folder / f"site-{number}.csv"
        frame.iloc[rows][list(rng.permutation(frame.columns))].to_csv(path, index=False)
        references.append(danl.ShardReference(path=path))
    return references


def held(frames):
    """Frames as the sites of one process."""
    return [
        danl.ShardReference(load=lambda frame=frame: frame, name=f"site-{number}")
        for number, frame in enumerate(frames)
    ]


def fitted(references, analysis, **more):
    """The run to the optimum, as precisely as it can be had."""
    return danl.solve(danl.RemoteProblem(references, analysis=analysis), tol=1e-13, **more)


def by_name(result):
    """The coefficients by their names."""
    names = [*result.settings["feature_names"], *(["intercept"] if result.settings["intercept"] else [])]
    return dict(zip(names, result.w.tolist(), strict=True))
