"""Classifiers without a penalty on data that has no best model: they end, stay finite, and say why."""

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

import danl
from danl import DANLClassifier
from danl.run.separation import classifies_every_row
from tests.estimators.data import linear


def blobs(classes):
    """Classes far from each other."""
    rng = np.random.default_rng(0)
    centres = np.array([[0.0, 5.0], [5.0, 0.0], [-5.0, -5.0]])[:classes]
    return np.vstack([rng.normal(size=(20, 2)) * 0.3 + centre for centre in centres]), np.repeat(range(classes), 20)


def half_known(classes):
    """A feature that is 1 for ten rows of the last class only, and one that tells a little."""
    rng = np.random.default_rng(1)
    X = np.column_stack([rng.normal(size=90), np.arange(90) < 10])
    y = rng.integers(0, classes, size=90)
    y[:10] = classes - 1
    return X.astype(float), y


def fit(model, X, y):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(X, y)
    assert all(each.filename == __file__ for each in caught)
    return [each.message for each in caught]


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize(
    ("method", "policy"), [("danl", None), ("danl", "coverage:psi=1"), ("newton", None), ("gd", None)]
)
def test_perfect_separation_is_named(method, classes, intercept, policy):
    X, y = blobs(classes)
    model = DANLClassifier(C=np.inf, method=method, workers=4, fit_intercept=intercept, policy=policy)
    reported = fit(model, X, y)
    assert [type(each) for each in reported] == [danl.DanlWarning, ConvergenceWarning]
    assert "the data is separable and there is no penalty" in str(reported[0])
    assert "perfect separation: some coefficients classify every row" in str(reported[0])
    assert "add a penalty (a finite C, or alpha above 0): without one this data has no best model" in str(reported[1])
    assert model.result_.status in ("max_rounds", "diverged")
    assert sum("perfect separation" in note for note in model.result_.notes) == 1
    assert np.isfinite(model.coef_).all()
    assert np.isfinite(model.intercept_).all()
    assert np.isfinite(model.predict_proba(X)).all()
    assert model.score(X, y) == 1.0


@pytest.mark.parametrize("classes", [2, 3])
def test_a_summary_of_it_says_that_it_means_nothing(classes):
    X, y = blobs(classes)
    model = DANLClassifier(alpha=0.0, workers=4)
    fit(model, X, y)
    summary = model.summary()
    assert "SEPARABLE: without a penalty there is no best model, and these numbers mean nothing" in summary.notes
    assert "SEPARABLE" in str(summary)


def test_a_run_of_a_few_rounds_proves_it_too():
    """Long before the loss is small: every row is on the right side."""
    X, y = blobs(2)
    reported = fit(DANLClassifier(C=np.inf, method="gd", max_rounds=3), X, y)
    assert "perfect separation" in str(reported[0])


def test_a_loose_tolerance_does_not_call_it_converged():
    X, y = blobs(2)
    model = DANLClassifier(C=np.inf, tol=0.1)
    assert "perfect separation" in str(fit(model, X, y)[0])
    assert model.result_.status == "diverged"


@pytest.mark.parametrize("classes", [2, 3])
def test_a_penalty_makes_it_a_problem_like_any_other(classes):
    X, y = blobs(classes)
    for C in (1.0, 1e6):
        model = DANLClassifier(C=C)
        assert fit(model, X, y) == []
        assert model.result_.status == "converged"


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("method", ["danl", "newton"])
def test_quasi_complete_separation_is_named(method, classes):
    X, y = half_known(classes)
    model = DANLClassifier(C=np.inf, method=method, workers=4)
    reported = fit(model, X, y)
    assert type(reported[0]) is danl.DanlWarning
    assert str(reported[0]).startswith("there is no finite optimum: coefficient 1")
    assert "quasi-complete separation: a feature tells the outcome of some rows alone" in str(reported[0])
    assert [type(each) for each in reported[1:]] == [ConvergenceWarning]
    assert model.result_.status == "diverged"
    assert np.isfinite(model.coef_).all()
    column = model.coef_[-1]
    assert abs(column[1]) > 10 * abs(column[0])


@pytest.mark.parametrize("classes", [2, 3])
def test_a_fit_that_did_not_get_there_says_that_it_may_be_separation(classes):
    X, y = half_known(classes)
    model = DANLClassifier(C=np.inf, method="gd")
    (reported,) = fit(model, X, y)
    assert type(reported) is ConvergenceWarning
    assert "give it more rounds" in str(reported)
    assert "it may also be that there is no best model" in str(reported)
    assert "(separation)" in str(reported)
    with_penalty = DANLClassifier(C=100.0, method="gd", max_rounds=3)
    assert "separation" not in str(fit(with_penalty, X, y)[0])


def test_data_that_is_not_separable_is_not_called_so():
    for kind in ("binary", "classes"):
        model = DANLClassifier(C=np.inf)
        assert fit(model, *linear(kind)) == []
        assert not classifies_every_row(model._problem, model.result_.w)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_rows_on_the_border_are_not_on_the_right_side(sign):
    """w = (1,) has rows at margin 0, and rounding does not make them right or wrong."""
    X = np.array([[1.0], [-1.0], [sign * 1e-17]])
    problem = danl.Problem([danl.Shard.of(X, [1.0, 0.0, 1.0])], alpha=0.0)
    assert not classifies_every_row(problem, np.ones(1))
    assert not classifies_every_row(problem, np.zeros(1))
    without = danl.Problem([danl.Shard.of(X[:2], [1.0, 0.0])], alpha=0.0)
    assert classifies_every_row(without, np.ones(1))
    assert not classifies_every_row(without, -np.ones(1))


@pytest.mark.filterwarnings("ignore::danl.DanlWarning")
@pytest.mark.parametrize("loss", ["logistic", "poisson"])
@pytest.mark.parametrize("method", ["danl", "newton"])
def test_a_reference_level_without_events_is_separation_and_collinear_columns_are_none(method, loss):
    """Its direction is that of the intercept and all other levels: flat in the end, as that of collinear columns is."""
    rng = np.random.default_rng(2)
    others, x = np.arange(300) >= 40, rng.normal(size=300)
    y = np.where(others, rng.random(300) < 0.5, 0.0).astype(float)
    options = {"loss": loss, "alpha": 0.0, "weighting": "samples", "intercept": True}
    X = np.column_stack([x, others])
    result = danl.solve(danl.Problem(danl.partition(X, y, workers=3, seed=0), **options), method=method, tol=1e-10)
    assert result.status == "diverged"
    assert any(note.startswith("there is no finite optimum: ") and "the intercept" in note for note in result.notes)
    X, y = np.column_stack([x, x + 1e-8 * rng.normal(size=300)]), (rng.random(300) < 0.5).astype(float)
    result = danl.solve(danl.Problem(danl.partition(X, y, workers=3, seed=0), **options), method=method, tol=1e-10)
    assert result.status == "max_rounds"
    assert "columns are nearly collinear" in result.notes[-1]
