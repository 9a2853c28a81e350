"""Inside scikit-learn's machinery, and with pandas and polars frames."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from danl import DANLClassifier, DANLRegressor
from tests.estimators.data import linear

NAMES = ["age", "dose_mg", "weight", "height", "blood_pressure"]


@pytest.fixture
def frame():
    X, y = linear("binary")
    return pd.DataFrame(X, columns=NAMES), y


def test_a_clone_has_the_parameters_and_nothing_else(frame):
    model = DANLClassifier(C=0.3, policy="coverage:psi=1", workers=3).fit(*frame)
    copy = clone(model)
    assert copy.get_params() == model.get_params()
    assert not hasattr(copy, "coef_")
    assert set(vars(copy)) == set(model.get_params())
    with pytest.raises(NotFittedError):
        copy.predict(frame[0])
    assert str(clone(DANLRegressor("poisson", alpha=2))) == "DANLRegressor(alpha=2, loss='poisson')"


def test_a_grid_over_c_finds_what_it_finds_for_logistic_regression(frame):
    X, y = frame
    grid = {"C": [0.001, 0.01, 0.1, 1.0, 10.0]}
    ours = GridSearchCV(DANLClassifier(workers=3), grid, cv=3, scoring="neg_log_loss").fit(X, y)
    theirs = GridSearchCV(LogisticRegression(solver="newton-cholesky", tol=1e-12), grid, cv=3, scoring="neg_log_loss")
    theirs.fit(X, y)
    assert ours.best_params_ == theirs.best_params_
    np.testing.assert_allclose(ours.cv_results_["mean_test_score"], theirs.cv_results_["mean_test_score"], rtol=1e-8)
    np.testing.assert_allclose(ours.best_estimator_.coef_, theirs.best_estimator_.coef_, rtol=1e-7)
    assert list(ours.best_estimator_.summary().names[1:]) == NAMES


def test_cross_validation_takes_weights_and_groups_along(frame):
    X, y = frame
    rng = np.random.default_rng(0)
    params = {"sample_weight": rng.uniform(0.5, 2, size=len(y)), "groups": rng.integers(0, 4, size=len(y))}
    done = cross_validate(DANLClassifier(), X, y, cv=4, params=params, return_estimator=True)
    assert [len(model.result_.settings["rows"]) for model in done["estimator"]] == [4] * 4
    theirs = LogisticRegression(solver="newton-cholesky", tol=1e-12)
    weight = {"sample_weight": params["sample_weight"]}
    np.testing.assert_allclose(done["test_score"], cross_val_score(theirs, X, y, cv=4, params=weight), rtol=1e-12)


def test_cross_validation_of_regressors():
    for loss, kind in (("squared", "real"), ("poisson", "count")):
        X, y = linear(kind)
        scores = cross_val_score(DANLRegressor(loss, workers=3), X, y, cv=3)
        assert (scores > 0.2).all()
        assert cross_val_predict(DANLRegressor(loss, workers=3), X, y, cv=3).shape == y.shape


def test_a_pipeline_that_scales(frame):
    X, y = frame
    ours = make_pipeline(StandardScaler(), DANLClassifier(workers=3)).fit(X, y)
    theirs = make_pipeline(StandardScaler(), LogisticRegression(solver="newton-cholesky", tol=1e-12)).fit(X, y)
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), rtol=1e-8)
    assert ours[-1].summary().names[1:] == ("x0", "x1", "x2", "x3", "x4")  # the scaler gave an array


def test_names_go_through_a_pipeline_that_keeps_them(frame):
    X, y = frame
    model = make_pipeline(StandardScaler(), DANLClassifier(workers=3)).set_output(transform="pandas").fit(X, y)
    assert list(model[-1].feature_names_in_) == NAMES
    assert list(model[-1].summary().to_frame().index) == ["(intercept)", *NAMES]


def test_regions_by_prefix_of_what_an_encoder_made(frame):
    X, y = frame
    X = X.assign(ward=np.array(["north", "south", "west"])[np.arange(len(y)) % 3])[["age", "ward"]]
    encode = ColumnTransformer(
        [("ward", OneHotEncoder(sparse_output=False), ["ward"])],
        remainder="passthrough",
        verbose_feature_names_out=False,
    )
    model = make_pipeline(encode, DANLClassifier(regions="prefix", policy="coverage:psi=1", workers=3))
    model.set_output(transform="pandas").fit(X, y)
    assert model[-1].summary().names == ("(intercept)", "ward_north", "ward_south", "ward_west", "age")
    assert model[-1].result_.settings["regions"] == [3, 2]  # the ward, and the age with the intercept


# Frames.


def test_a_pandas_frame_is_known_by_its_columns(frame):
    X, y = frame
    model = DANLClassifier().fit(X, pd.Series(np.array(["ill", "well"])[y]))
    assert list(model.feature_names_in_) == NAMES
    assert list(model.classes_) == ["ill", "well"]
    np.testing.assert_allclose(model.coef_, DANLClassifier().fit(X.to_numpy(), y).coef_, rtol=1e-12)
    with pytest.raises(ValueError, match="must be in the same order"):
        model.predict(X[NAMES[::-1]])
    with pytest.raises(ValueError, match="seen at fit time, yet now missing"):
        model.predict(X.drop(columns="age"))
    with pytest.warns(UserWarning, match="X does not have valid feature names"):
        model.predict(X.to_numpy())


def test_a_polars_frame_is_known_by_its_columns(frame):
    polars = pytest.importorskip("polars")
    X, y = frame
    rows = polars.DataFrame({name: X[name].to_numpy() for name in NAMES})
    model = DANLClassifier().fit(rows, polars.Series(y), groups=polars.Series(np.arange(len(y)) % 3))
    assert list(model.feature_names_in_) == NAMES
    assert model.result_.settings["workers"] == 3
    np.testing.assert_allclose(model.coef_, DANLClassifier().fit(X, y).coef_, rtol=1e-9)
    np.testing.assert_array_equal(model.predict(rows), model.predict(X))
    with pytest.raises(ValueError, match="must be in the same order"):
        model.predict(rows.select(NAMES[::-1]))
    assert list(model.summary().to_frame().index) == ["(intercept)", *NAMES]


def test_groups_of_a_frame(frame):
    X, y = frame
    groups = pd.Series(np.array(["north", "south"])[np.arange(len(y)) % 2], index=np.arange(len(y))[::-1])
    model = DANLClassifier().fit(X, y, groups=groups)
    assert model.result_.settings["rows"] == [100, 100]
    strings = DANLClassifier().fit(X, y, groups=list(groups))
    np.testing.assert_array_equal(strings.coef_, model.coef_)


# Starting from the model before.


@pytest.mark.parametrize(
    ("model", "kind"),
    [(DANLClassifier(), "binary"), (DANLClassifier(), "classes"), (DANLRegressor("poisson"), "count")],
    ids=["binary", "classes", "poisson"],
)
def test_a_warm_start_takes_fewer_exchanges(model, kind):
    X, y = linear(kind)
    model = clone(model).set_params(warm_start=True).fit(X, y)
    cold, coefficients = model.n_iter_, model.coef_.copy()
    assert model.fit(X, y).n_iter_ < cold / 2
    np.testing.assert_allclose(model.coef_, coefficients, atol=1e-9)
    assert model.set_params(warm_start=False).fit(X, y).n_iter_ == cold


def test_a_warm_start_goes_on_where_a_fit_was_stopped():
    X, y = linear("binary")
    whole = DANLClassifier(method="newton").fit(X, y)
    model = DANLClassifier(method="newton", warm_start=True, max_rounds=2)
    with pytest.warns(UserWarning, match="did not converge"):
        model.fit(X, y)
    model.set_params(max_rounds=200).fit(X, y)
    assert model.n_iter_ < whole.n_iter_
    np.testing.assert_allclose(model.coef_, whole.coef_, rtol=1e-9)


def test_a_warm_start_of_another_shape_is_a_cold_one():
    X, y = linear("binary")
    model = DANLClassifier(warm_start=True).fit(X, y)
    model.fit(X[:, :3], y)
    np.testing.assert_array_equal(model.coef_, DANLClassifier().fit(X[:, :3], y).coef_)
    model.fit(*linear("classes"))
    np.testing.assert_array_equal(model.coef_, DANLClassifier().fit(*linear("classes")).coef_)


@pytest.mark.parametrize("kind", [np.int64, np.int8, bool, np.float64, str])
def test_labels_of_every_kind_are_the_same_classes(kind):
    X, y = np.random.default_rng(0).standard_normal((40, 3)), np.arange(40) % 2
    plain, other = DANLClassifier(workers=3).fit(X, y), DANLClassifier(workers=3).fit(X, y.astype(kind))
    np.testing.assert_array_equal(plain.coef_, other.coef_)
    assert other.classes_.tolist() == [kind(0), kind(1)]


def test_plain_arrays_forget_the_names_of_a_fit_before():
    X, y = np.random.default_rng(0).standard_normal((40, 3)), np.arange(40) % 2
    model = DANLClassifier(workers=3).fit(pd.DataFrame(X, columns=["a", "b", "c"]), y)
    assert model.feature_names_in_.tolist() == ["a", "b", "c"]
    model.fit(X[:, :2], y)
    assert not hasattr(model, "feature_names_in_")
    assert model.n_features_in_ == 2


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_plain_arrays_that_are_not_finite_are_refused_in_scikit_learns_words(wrong):
    X, y = np.random.default_rng(0).standard_normal((40, 3)), np.arange(40.0)
    X[3, 1] = wrong
    with pytest.raises(ValueError, match="Input X contains"):
        DANLRegressor().fit(X, y)
    with pytest.raises(ValueError, match="Input y contains"):
        DANLRegressor().fit(np.ones((40, 3)), np.where(y == 3, wrong, y))


def test_plain_arrays_that_are_so_large_that_their_sum_overflows_are_fitted():
    X, y = np.full((40, 2), 1e307), np.arange(40) % 2
    X[::3, 0] = X[::7, 1] = 0
    assert DANLClassifier(workers=2, max_rounds=0)._checked_rows(X, y, None, None)[0] is X
