"""What a weight is, and what does not matter: the order of the rows, and who holds them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import danl
from danl import DANLClassifier, DANLRegressor
from tests.estimators.data import linear, sites, weights

MODELS = {
    "logistic": (DANLClassifier(workers=4), "binary"),
    "multinomial": (DANLClassifier(workers=4), "classes"),
    "squared": (DANLRegressor(workers=4), "real"),
    "poisson": (DANLRegressor("poisson", workers=4), "count"),
    "gamma": (DANLRegressor("gamma", workers=4), "amount"),
    "negative binomial": (DANLRegressor("negative-binomial:alpha=0.5", workers=4), "count"),
}
seeds = st.integers(0, 2**32 - 1)


def fitted(name, X, y, **arguments):
    model = MODELS[name][0].fit(X, y, **arguments)
    assert model.result_.status == "converged"
    return np.append(np.ravel(model.coef_), model.intercept_)


@pytest.mark.parametrize("name", MODELS)
@settings(max_examples=4, deadline=None)
@given(seed=seeds)
def test_a_row_that_is_there_twice_is_a_row_of_weight_two_and_one_of_weight_zero_is_not_there(name, seed):
    X, y = linear(MODELS[name][1], 60, 3)
    times = np.random.default_rng(seed).integers(0, 4, size=len(y))
    rows = np.repeat(np.arange(len(y)), times)
    weighted = fitted(name, X, y, sample_weight=times)
    np.testing.assert_allclose(weighted, fitted(name, X[rows], y[rows]), rtol=0, atol=1e-8)
    there = times > 0
    np.testing.assert_allclose(weighted, fitted(name, X[there], y[there], sample_weight=times[there]), atol=1e-10)


@pytest.mark.parametrize("name", MODELS)
@settings(max_examples=4, deadline=None)
@given(seed=seeds)
def test_the_order_of_the_rows_and_who_holds_them_do_not_matter(name, seed):
    X, y = linear(MODELS[name][1], 60, 3)
    rng = np.random.default_rng(seed)
    expected = fitted(name, X, y)
    order = rng.permutation(len(y))
    np.testing.assert_allclose(fitted(name, X[order], y[order]), expected, rtol=0, atol=1e-8)
    groups = rng.integers(0, rng.integers(1, 9), size=len(y))
    np.testing.assert_allclose(fitted(name, X, y, groups=groups), expected, rtol=0, atol=1e-8)
    np.testing.assert_allclose(
        fitted(name, X[order], y[order], groups=[f"site {g}" for g in groups]), expected, rtol=0, atol=1e-8
    )


@pytest.mark.parametrize("name", MODELS)
def test_weights_in_groups_in_another_order(name):
    X, y = linear(MODELS[name][1])
    sample_weight, groups = weights(len(y)), sites(y, 5, sort=True)
    order = np.random.default_rng(5).permutation(len(y))
    one = fitted(name, X, y, sample_weight=sample_weight)
    other = fitted(name, X[order], y[order], sample_weight=sample_weight[order], groups=groups[order])
    np.testing.assert_allclose(one, other, rtol=0, atol=1e-8)


def test_a_class_of_weight_zero_is_not_there():
    X, y = linear("classes")
    model = DANLClassifier().fit(X, y, sample_weight=(y != 1).astype(float))
    np.testing.assert_array_equal(model.classes_, [0, 2])
    np.testing.assert_allclose(model.coef_, DANLClassifier().fit(X[y != 1], y[y != 1]).coef_, atol=1e-10)


def test_a_site_of_weight_zero_is_not_there():
    X, y = linear("binary")
    groups = np.arange(len(y)) % 4
    model = DANLClassifier().fit(X, y, groups=groups, sample_weight=(groups != 2).astype(float))
    assert model.result_.settings["workers"] == 3


def test_one_weight_for_all_is_a_number():
    X, y = linear("binary")
    one = DANLClassifier(C=2.0).fit(X, y)
    other = DANLClassifier().fit(X, y, sample_weight=2.0)
    np.testing.assert_allclose(one.coef_, other.coef_, rtol=1e-9)
    assert "200 rows at 10 workers, weights sum to 400" in other.summary().notes[0]


def test_the_seed_divides_the_rows_and_does_not_change_the_answer():
    X, y = linear("binary")
    masked = {"policy": "random:keep=0.5", "method": "danl:masks=always"}
    models = [DANLClassifier(random_state=seed, **masked).fit(X, y) for seed in (None, 0, 1, 1)]
    others = [DANLClassifier(random_state=np.random.RandomState(7)).fit(X, y)]
    for model in models + others:
        np.testing.assert_allclose(model.coef_, models[0].coef_, atol=1e-8)
    assert models[2].coef_.tobytes() == models[3].coef_.tobytes()
    masks = [model.result_.history.column("coverage").tolist() for model in models]
    assert masks[1] != masks[2] == masks[3]


def test_all_of_it_away():
    X, y = linear("binary")
    with pytest.raises(ValueError, match=r"[Ss]ample.weight"):
        DANLClassifier().fit(X, y, sample_weight=np.zeros(len(y)))
    with pytest.raises(ValueError, match="one class only: 1"):
        DANLClassifier().fit(X, y, sample_weight=y)
    with pytest.raises(danl.InputError, match=r"class_weight: gives class 0 the weight 0; it must be above 0"):
        DANLClassifier(class_weight={0: 0.0, 1: 1.0}).fit(X, y)
