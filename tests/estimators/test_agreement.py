"""The pooled fit's answer: scikit-learn's on all rows at once, however they are divided, masked and weighted."""

from functools import cache

import numpy as np
import pytest
from sklearn.linear_model import GammaRegressor, LinearRegression, LogisticRegression, PoissonRegressor, Ridge

from danl import DANLClassifier, DANLRegressor
from tests.estimators.data import (
    CONTAINERS,
    POLICIES,
    WORKERS,
    breast_cancer,
    diabetes,
    digits,
    linear,
    sites,
    weights,
)

pytestmark = pytest.mark.slow

CLASS_WEIGHTS = {"none": None, "dict": {0: 0.4, 1: 2.5, 2: 1.3}, "balanced": "balanced"}


def logistic(**options):
    return LogisticRegression(**({"solver": "newton-cholesky", "tol": 1e-12, "max_iter": 1000} | options))


def multinomial(**options):
    return logistic(solver="newton-cg", **options)


def same_coefficients(model, expected, rtol=1e-8):
    assert model.result_.status == "converged"
    assert model.coef_.shape == expected.coef_.shape
    np.testing.assert_allclose(model.coef_, expected.coef_, rtol=rtol)
    np.testing.assert_allclose(model.intercept_, expected.intercept_, rtol=rtol)


def same_probabilities(model, expected, X):
    assert model.result_.status == "converged"
    np.testing.assert_array_equal(model.classes_, expected.classes_)
    np.testing.assert_allclose(model.predict_proba(X), expected.predict_proba(X), rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1.0, rtol=1e-12)


# However the rows are divided and masked.


@cache
def on_breast_cancer(intercept):
    return logistic(fit_intercept=intercept).fit(*breast_cancer())


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("sort", [False, True], ids=["iid", "sorted"])
@pytest.mark.parametrize("workers", WORKERS)
def test_binary(workers, sort, intercept):
    X, y = breast_cancer()
    for policy in POLICIES:
        model = DANLClassifier(workers=workers, policy=policy, fit_intercept=intercept)
        same_coefficients(model.fit(X, y, groups=sites(y, workers, sort)), on_breast_cancer(intercept))
        assert model.result_.settings["workers"] == workers


@cache
def on_four_digits(intercept):
    return multinomial(fit_intercept=intercept).fit(*digits(4, 200))


@pytest.mark.parametrize("sort", [False, True], ids=["iid", "sorted"])
@pytest.mark.parametrize(
    ("workers", "policy", "intercept"),
    [
        (1, "random:keep=0.5", True),
        (2, None, False),
        (7, "coverage:psi=1", True),
        (7, "subset:S=1", False),
        (30, "coverage:psi=1", False),
    ],
)
def test_multinomial(workers, policy, intercept, sort):
    X, y = digits(4, 200)
    model = DANLClassifier(workers=workers, policy=policy, fit_intercept=intercept)
    same_probabilities(model.fit(X, y, groups=sites(y, workers, sort)), on_four_digits(intercept), X)
    np.testing.assert_allclose(model.coef_.sum(axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(model.coef_, on_four_digits(intercept).coef_, atol=1e-8)


@pytest.mark.slow
def test_all_ten_digits_at_thirty_sites_that_each_know_one_or_two():
    X, y = digits()
    groups = sites(y, 30, sort=True)
    assert max(len(np.unique(y[groups == site])) for site in range(30)) <= 2
    model = DANLClassifier(policy="coverage:psi=1").fit(X, y, groups=groups)
    same_probabilities(model, multinomial().fit(X, y), X)
    assert model.score(X, y) > 0.98


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("sort", [False, True], ids=["iid", "sorted"])
@pytest.mark.parametrize("workers", WORKERS)
def test_ridge_and_poisson(workers, sort, intercept):
    X, y = diabetes()
    groups = sites(y, workers, sort)
    ridge = Ridge(alpha=1 / 2.5, solver="cholesky", fit_intercept=intercept).fit(X, y)
    poisson = PoissonRegressor(alpha=0.01, solver="newton-cholesky", tol=1e-12, max_iter=1000, fit_intercept=intercept)
    poisson.fit(X, y)
    for policy in POLICIES[:3]:
        options = {"workers": workers, "policy": policy, "fit_intercept": intercept}
        same_coefficients(DANLRegressor(C=2.5, **options).fit(X, y, groups=groups), ridge)
        same_coefficients(DANLRegressor("poisson", alpha=0.01, **options).fit(X, y, groups=groups), poisson)


@pytest.mark.parametrize(
    ("regions", "count"), [(1, 1), (5, 5), ([2, 1, 2], 3), ([[0, 2, 4], [1, 3]], 2), ("2,3", 2)], ids=str
)
def test_however_the_features_are_cut(regions, count):
    for kind in ("binary", "classes"):
        X, y = linear(kind)
        model = DANLClassifier(regions=regions, policy="coverage:psi=1", workers=4).fit(X, y)
        same_probabilities(model, multinomial().fit(X, y), X)
        assert len(model.history_[-1].coverage) == count


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("policy", POLICIES)
def test_a_region_of_every_class(intercept, policy):
    X, y = linear("classes")
    model = DANLClassifier(regions="classes", policy=policy, workers=4, fit_intercept=intercept).fit(X, y)
    same_probabilities(model, multinomial(fit_intercept=intercept).fit(X, y), X)
    assert len(model.history_[-1].coverage) == 3


@pytest.mark.parametrize("policy", ["coverage:psi=1", "random:keep=0.5", "subset:S=1"])
def test_a_feature_that_is_there_twice_and_no_penalty(policy):
    """The two share what one would have; their difference, of which the data says nothing, stays where it was."""
    X, y = linear("binary")
    once = DANLClassifier(C=np.inf, workers=4).fit(X, y)
    twice = DANLClassifier(C=np.inf, workers=4, regions=3, policy=policy).fit(np.column_stack([X, X[:, 0]]), y)
    np.testing.assert_allclose(twice.coef_[0, 0] + twice.coef_[0, 5], once.coef_[0, 0], rtol=1e-7)
    np.testing.assert_allclose(twice.coef_[0, 1:5], once.coef_[0, 1:], rtol=1e-7)
    assert np.abs(twice.coef_).max() < 10


# Weights, containers, penalties.


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("class_weight", CLASS_WEIGHTS)
@pytest.mark.parametrize("weighted", [False, True], ids=["unweighted", "weighted"])
@pytest.mark.parametrize("kind", ["binary", "classes"])
def test_classifier_weights_and_containers(kind, weighted, class_weight, container):
    X, y = linear(kind)
    chosen = CLASS_WEIGHTS[class_weight]
    if kind == "binary" and isinstance(chosen, dict):
        chosen = {label: chosen[label] for label in (0, 1)}
    sample_weight = weights(len(y)) if weighted else None
    expected = (logistic if kind == "binary" else multinomial)(C=0.7, class_weight=chosen)
    expected.fit(X, y, sample_weight=sample_weight)
    for policy, sort in ((None, False), ("coverage:psi=1", True))[container != "dense" :]:
        model = DANLClassifier(C=0.7, class_weight=chosen, workers=5, policy=policy)
        model.fit(CONTAINERS[container](X), y, groups=sites(y, 5, sort), sample_weight=sample_weight)
        same_probabilities(model, expected, X)
        if kind == "binary":
            same_coefficients(model, expected)


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("weighted", [False, True], ids=["unweighted", "weighted"])
def test_regressor_weights_and_containers(weighted, intercept, container):
    sample_weight = weights(200) if weighted else None
    options = {"fit_intercept": intercept}
    X, y = linear("real")
    ridge = Ridge(alpha=1 / 0.3, solver="cholesky", **options).fit(X, y, sample_weight=sample_weight)
    X, counts = linear("count")
    poisson = PoissonRegressor(alpha=0.05, solver="newton-cholesky", tol=1e-12, max_iter=1000, **options)
    poisson.fit(X, counts, sample_weight=sample_weight)
    for policy, sort in ((None, False), ("random:keep=0.5", True)):
        options |= {"workers": 5, "policy": policy}
        model = DANLRegressor(C=0.3, **options)
        X, y = linear("real")
        model.fit(CONTAINERS[container](X), y, groups=sites(y, 5, sort), sample_weight=sample_weight)
        same_coefficients(model, ridge)
        X, y = linear("count")
        model = DANLRegressor("poisson", alpha=0.05, **options)
        model.fit(CONTAINERS[container](X), y, groups=sites(y, 5, sort), sample_weight=sample_weight)
        same_coefficients(model, poisson)
        np.testing.assert_allclose(model.predict(CONTAINERS[container](X)), poisson.predict(X), rtol=1e-8)
        score = poisson.score(X, y, sample_weight=sample_weight)
        assert model.score(X, y, sample_weight=sample_weight) == pytest.approx(score, rel=1e-8)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("weighted", [False, True], ids=["unweighted", "weighted"])
def test_gamma(weighted, intercept):
    sample_weight = weights(200) if weighted else None
    X, y = linear("amount")
    options = {"alpha": 0.05, "fit_intercept": intercept}
    theirs = GammaRegressor(solver="newton-cholesky", tol=1e-12, max_iter=1000, **options)
    theirs.fit(X, y, sample_weight=sample_weight)
    for policy, sort in ((None, False), ("random:keep=0.5", True)):
        model = DANLRegressor("gamma", workers=5, policy=policy, **options)
        model.fit(X, y, groups=sites(y, 5, sort), sample_weight=sample_weight)
        same_coefficients(model, theirs)
        np.testing.assert_allclose(model.predict(X), theirs.predict(X), rtol=1e-8)
        score = theirs.score(X, y, sample_weight=sample_weight)
        assert model.score(X, y, sample_weight=sample_weight) == pytest.approx(score, rel=1e-8)


def test_a_negative_binomial_of_next_to_no_dispersion_is_poisson():
    X, y = linear("count")
    model, poisson = (
        DANLRegressor(loss, alpha=0.05, workers=5).fit(X, y) for loss in ("negative-binomial:alpha=1e-9", "poisson")
    )
    np.testing.assert_allclose(model.coef_, poisson.coef_, rtol=1e-6)
    np.testing.assert_allclose(model.predict(X), poisson.predict(X), rtol=1e-6)
    assert model.score(X, y) == pytest.approx(poisson.score(X, y), rel=1e-6)
    mean = np.full(len(y), y.mean())
    wide = DANLRegressor("negative-binomial:alpha=2", alpha=1e9).fit(X, y)  # coefficients of nothing
    np.testing.assert_allclose(wide.predict(X), mean, rtol=1e-6)
    assert wide.score(X, y) == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("C", [1e-3, 1.0, 1e3])
def test_c_is_that_of_logistic_regression(C):
    X, y = linear("binary")
    same_coefficients(DANLClassifier(C=C).fit(X, y), logistic(C=C).fit(X, y))


def test_alpha_is_one_over_c_and_the_weight_of_the_rows():
    X, y = linear("binary")
    sample_weight = weights(len(y))
    by_C = DANLClassifier(C=0.4).fit(X, y, sample_weight=sample_weight)
    by_alpha = DANLClassifier(C=77.0, alpha=1 / (0.4 * sample_weight.sum())).fit(X, y, sample_weight=sample_weight)
    np.testing.assert_allclose(by_alpha.coef_, by_C.coef_, rtol=1e-10)


def test_no_penalty_is_least_squares():
    X, y = diabetes()
    expected = LinearRegression().fit(X, y)
    same_coefficients(DANLRegressor(C=np.inf, policy="coverage:psi=1").fit(X, y), expected)
    same_coefficients(DANLRegressor(alpha=0, workers=3).fit(X, y), expected)


@pytest.mark.parametrize("method", ["danl", "newton", "newton-undamped", "danl:memory=raw"])
def test_every_method_that_gets_there_gets_the_same_answer(method):
    X, y = breast_cancer()
    same_coefficients(DANLClassifier(method=method).fit(X, y), on_breast_cancer(True))


def test_features_as_they_come():
    """Columns that differ by a factor of 1e5, not scaled."""
    from sklearn.datasets import load_breast_cancer

    X, y = load_breast_cancer(return_X_y=True)
    same_coefficients(DANLClassifier().fit(X, y), logistic(max_iter=10_000).fit(X, y))


@pytest.mark.parametrize("unit", [1e6, 3e6, 1e7])
def test_a_feature_in_a_unit_of_its_own(unit):
    """An income in cents beside an age: the answer is that of scikit-learn, or the fit says that it has none."""
    X, y = linear("binary")
    X = X * [1.0, 1.0, 1.0, 1.0, unit]
    same_coefficients(DANLClassifier().fit(X, y), logistic(tol=1e-7).fit(X, y), rtol=1e-6)


@pytest.mark.parametrize("kind", ["binary", "classes", "count", "real"])
def test_units_do_not_matter_without_a_penalty(kind):
    X, y = linear(kind)
    units = np.array([1e-4, 1.0, 1.0, 1.0, 1e4])
    model = {"count": DANLRegressor("poisson"), "real": DANLRegressor()}.get(kind, DANLClassifier())
    model.set_params(C=np.inf)
    before = model.fit(X, y).coef_.copy()
    np.testing.assert_allclose(model.fit(X * units, y).coef_ * units, before, rtol=1e-6)


def test_labels_of_any_kind():
    X, y = linear("classes")
    for labels in (np.array(["no", "so-so", "yes"]), np.array([7, -1, 3]), np.array([1.0, 4.0, 2.0])):
        expected = multinomial().fit(X, labels[y])
        model = DANLClassifier(workers=3).fit(X, labels[y])
        same_probabilities(model, expected, X)
        np.testing.assert_array_equal(model.predict(X), expected.predict(X))


def test_margins_and_logarithms_agree_with_probabilities():
    for kind in ("binary", "classes"):
        X, y = linear(kind)
        model = DANLClassifier().fit(X, y)
        expected = (logistic if kind == "binary" else multinomial)().fit(X, y)
        np.testing.assert_allclose(model.predict_log_proba(X), expected.predict_log_proba(X), rtol=1e-7)
        np.testing.assert_allclose(model.decision_function(X), expected.decision_function(X), rtol=1e-6, atol=1e-9)
        far = model.predict_log_proba(1e4 * X)
        assert np.isfinite(far).all()
        assert far.min() < -1e4  # where the probability itself is 0


# glmnet, as scikit-learn's own tests have it: sklearn/linear_model/tests/test_logistic.py, _glm/tests/test_glm.py.


def test_glmnet_logistic():
    X = np.array([[-4, -3, -2, -1, 0, 1, 2, 3, 4], [0, 0, 1, 0, 1, 1, 1, 0, 0]]).T
    model = DANLClassifier(C=1 / 9, workers=3)
    model.fit(X, np.array([0, 0, 0, 1, 1, 1, 1, 1, 1]))
    np.testing.assert_allclose(model.intercept_, [0.89230405539], rtol=1e-5)
    np.testing.assert_allclose(model.coef_, [[0.44464569182, 0.01457563448]], rtol=1e-5)
    model.fit(X, np.array([0, 0, 0, 1, 1, 1, 2, 2, 2]))
    np.testing.assert_allclose(model.intercept_, [-0.12004759652, 2.251747383e-01, -0.1051271418], rtol=1e-5)
    expected = [[-0.38023389305, -0.01226499932], [-8.164030176e-05, 4.734548012e-02], [0.3803155334, -0.0350804808]]
    np.testing.assert_allclose(model.coef_, expected, rtol=1e-5, atol=1e-8)


def test_glmnet_poisson():
    X = np.array([[-2, -1, 1, 2], [0, 0, 1, 1]]).T
    model = DANLRegressor("poisson", alpha=1, workers=2).fit(X, np.array([0, 1, 1, 2]))
    np.testing.assert_allclose(model.intercept_, -0.12889386979, rtol=1e-5)
    np.testing.assert_allclose(model.coef_, [0.29019207995, 0.03741173122], rtol=1e-5)


# Workers that are not there, and sites that know little.


@pytest.mark.parametrize("policy", [None, "coverage:psi=1"])
def test_workers_that_come_and_go_change_nothing(policy):
    X, y = breast_cancer()
    model = DANLClassifier(engine="local:dropout=0.3", policy=policy).fit(X, y)
    assert len(model.result_.failures) > 10
    same_coefficients(model, on_breast_cancer(True))


def test_a_site_of_one_class_only():
    X, y = linear("classes")
    groups = np.where(y == 2, "city", np.where(np.arange(len(y)) % 2, "north", "south"))
    model = DANLClassifier().fit(X, y, groups=groups)
    assert sorted(model.result_.settings["rows"]) == sorted(np.unique(groups, return_counts=True)[1])
    same_probabilities(model, multinomial().fit(X, y), X)


def test_a_site_of_one_row():
    X, y = linear("binary")
    groups = np.where(np.arange(len(y)) == 17, 1, 0)
    same_coefficients(DANLClassifier().fit(X, y, groups=groups), logistic().fit(X, y))


def test_more_workers_than_rows_is_a_worker_a_row():
    X, y = linear("binary", 12, 3, seed=2)
    model = DANLClassifier(workers=50).fit(X, y)
    assert model.result_.settings["workers"] == 12
    same_coefficients(model, logistic().fit(X, y))


def test_a_step_that_overflows_is_refused_and_held_against_nobody():
    """A gradient overflows before its loss does: entries of the rows are above 1."""
    rng = np.random.default_rng(45)
    X = rng.normal(size=(1000, 400)) + 5 * rng.normal(size=(1000, 1))
    y = rng.poisson(np.exp(np.clip(0.3 * X[:, :20].mean(axis=1), -3, 3))).astype(float)
    model = DANLRegressor(loss="poisson", workers=1).fit(X, y)
    assert model.result_.status == "converged"
    assert not model.result_.failures
