"""Any order of columns, of rows, of levels and of sites, and any split of the rows: the same model."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import danl
from tests.design.cohorts import FORMULA, cohort, fitted, held

FRAME = cohort(n=150, seed=3, missing=6)
ANALYSIS = danl.Analysis(FORMULA, family="binomial")
WHOLE = fitted(held([FRAME]), ANALYSIS)


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    sites=st.integers(1, 7),
    alphabetical=st.booleans(),
)
def test_the_model_is_the_same_whoever_has_which_rows(seed, sites, alphabetical):
    rng = np.random.default_rng(seed)
    rows = np.argsort(FRAME.smoking.fillna(""), kind="stable") if alphabetical else rng.permutation(len(FRAME))
    cuts = np.sort(rng.choice(np.arange(1, len(FRAME)), sites - 1, replace=False))
    frames = [FRAME.iloc[part][list(rng.permutation(FRAME.columns))] for part in np.split(np.asarray(rows), cuts)]
    frames = [frame for frame in frames if len(frame.dropna(subset=["age", "smoking", "bmi", "sex", "death"]))]
    lost = len(FRAME.dropna()) - sum(len(frame.dropna()) for frame in frames)
    assert lost == 0
    result = fitted(held([frames[place] for place in rng.permutation(len(frames))]), ANALYSIS)
    assert result.settings["feature_names"] == WHOLE.settings["feature_names"]
    assert sum(result.settings["rows"]) == WHOLE.settings["rows"][0]
    np.testing.assert_allclose(result.w, WHOLE.w, rtol=1e-6, atol=1e-7)
