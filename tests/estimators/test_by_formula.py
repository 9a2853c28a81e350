"""Estimators by a formula: the coefficients of `danl.glm`, on frames with words and missing values."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import cross_val_score

pytest.importorskip("formulaic")
pytest.importorskip("pandas")

import pandas as pd

import danl
from danl import DANLClassifier, DANLRegressor

N = 240
RIGHT = "age + C(smoking, reference='never')"


def frame(n=N, seed=0):
    rng = np.random.default_rng(seed)
    age, smoking = rng.normal(60, 12, n).round(), rng.choice(["never", "former", "now"], n)
    made = pd.DataFrame({"age": age, "smoking": smoking, "ward": rng.choice(["a", "b", "c"], n)})
    margin = 0.03 * (age - 60) + 0.5 * (smoking == "now")
    made["ill"] = np.where(rng.random(n) < 1 / (1 + np.exp(-margin)), "Yes", "no")
    made["dead"] = (rng.random(n) < 0.4).astype(int)
    made["visits"] = rng.poisson(np.exp(1 + margin))
    made["cost"] = rng.gamma(2.0, np.exp(margin))
    made["pressure"] = 120 + 10 * margin + rng.normal(size=n)
    made.loc[[3, 8], "age"] = np.nan
    made.loc[5, "smoking"] = None
    return made


DATA = frame()
REGRESSIONS = {
    "squared": ("pressure", "gaussian"),
    "poisson": ("visits", "poisson"),
    "gamma": ("cost", "gamma"),
    "negative-binomial:alpha=0.5": ("visits", "negative-binomial:alpha=0.5"),
}


@pytest.mark.parametrize("outcome", ["ill", "dead"])
def test_a_classifier_is_the_pooled_model(outcome):
    formula = f"{outcome} ~ {RIGHT}"
    fitted = DANLClassifier(formula=formula, C=np.inf).fit(DATA, groups=DATA.ward)
    pooled = danl.glm(formula, DATA, family="binomial")
    np.testing.assert_allclose(fitted.coef_[0], pooled.coef[1:], rtol=1e-7)
    np.testing.assert_allclose(fitted.intercept_, pooled.coef[:1], rtol=1e-7)
    assert ("(intercept)", *fitted.feature_names_in_) == pooled.names
    assert fitted.left_out_ == 3
    assert fitted.result_.settings["rows"] == DATA.dropna().ward.value_counts().sort_index().tolist()
    whole = DATA.dropna()
    np.testing.assert_allclose(fitted.predict_proba(whole)[:, 1], pooled.predict(whole), rtol=1e-7)
    assert list(fitted.classes_) == (["no", "Yes"] if outcome == "ill" else [0, 1])
    assert fitted.score(DATA) == np.mean(fitted.predict(whole) == whole[outcome])


@pytest.mark.parametrize("loss", REGRESSIONS)
def test_a_regressor_is_the_pooled_model(loss):
    outcome, family = REGRESSIONS[loss]
    fitted = DANLRegressor(formula=f"{outcome} ~ {RIGHT}", loss=loss, alpha=0.0).fit(DATA)
    pooled = danl.glm(f"{outcome} ~ {RIGHT}", DATA, family=family)
    np.testing.assert_allclose(fitted.coef_, pooled.coef[1:], rtol=1e-6)
    whole = DATA.dropna()
    np.testing.assert_allclose(fitted.predict(whole), pooled.predict(whole), rtol=1e-6)
    plain = DANLRegressor(loss=loss, alpha=0.0).fit(pooled.design.shard(records(whole)).X, whole[outcome])
    assert fitted.score(DATA) == pytest.approx(plain.score(pooled.design.shard(records(whole)).X, whole[outcome]))


def records(whole):
    from danl.data.records import records_of_frame

    return records_of_frame(whole, list(whole.columns))


def test_the_event_is_the_second_class():
    plain, turned = (DANLClassifier(formula=f"{left} ~ age", C=np.inf).fit(DATA) for left in ("ill", "ill[no]"))
    assert list(turned.classes_) == ["Yes", "no"]
    np.testing.assert_allclose(turned.coef_, -plain.coef_, rtol=1e-7)
    assert list(turned.predict(DATA.dropna())) == list(plain.predict(DATA.dropna()))
    weighted = [
        DANLClassifier(formula=f"{left} ~ age", C=np.inf, class_weight={"Yes": 3.0, "no": 1.0}).fit(DATA)
        for left in ("ill", "ill[no]")
    ]
    np.testing.assert_allclose(weighted[1].coef_, -weighted[0].coef_, rtol=1e-7)
    assert abs(weighted[0].intercept_ - plain.intercept_) > 0.5


def test_weights_are_those_of_the_complete_records():
    weights = np.random.default_rng(1).integers(0, 4, N).astype(float)
    weighted = DANLClassifier(formula="ill ~ age", C=np.inf).fit(DATA, sample_weight=weights)
    twice = DATA.loc[np.repeat(np.arange(N), weights.astype(int))].reset_index(drop=True)
    np.testing.assert_allclose(
        weighted.coef_, DANLClassifier(formula="ill ~ age", C=np.inf).fit(twice).coef_, rtol=1e-7
    )
    assert weighted.score(DATA, sample_weight=weights) == pytest.approx(weighted.score(twice))


def test_without_an_intercept():
    fitted = DANLRegressor(formula="pressure ~ 0 + age", alpha=0.0).fit(DATA)
    assert fitted.intercept_ == 0.0
    whole = DATA.dropna(subset="age")
    assert fitted.coef_[0] == pytest.approx(whole.age @ whole.pressure / (whole.age @ whole.age))


def test_a_summary_says_what_is_left_out():
    text = str(DANLClassifier(formula=f"ill ~ {RIGHT}", C=np.inf).fit(DATA).summary())
    assert "smoking[now]" in text
    assert "3 records left out: a value is missing" in text
    assert "left out" not in str(DANLClassifier(formula=f"ill ~ {RIGHT}").fit(DATA.dropna()).summary())


def test_scikit_learn_needs_no_y():
    model = DANLClassifier(formula=f"ill ~ {RIGHT}", C=np.inf)
    assert clone(model).formula == model.formula
    scores = cross_val_score(model, DATA, cv=3)
    assert np.isfinite(scores).all()
    assert len(set(scores)) > 1


def test_a_saved_estimator_predicts_frames(tmp_path):
    fitted = DANLClassifier(formula=f"ill ~ {RIGHT}", C=np.inf).fit(DATA)
    fitted.save(tmp_path / "model.npz")
    loaded = DANLClassifier.load(tmp_path / "model.npz")
    whole = DATA.dropna()
    np.testing.assert_array_equal(loaded.predict_proba(whole), fitted.predict_proba(whole))
    assert (loaded.left_out_, list(loaded.classes_)) == (3, ["no", "Yes"])


@pytest.mark.parametrize(
    ("fit", "says"),
    [
        (lambda: DANLClassifier(formula="ill ~ age").fit(DATA, DATA.ill), "y='Series': must be None"),
        (lambda: DANLClassifier(formula="ill ~ height").fit(DATA), "no column 'height'"),
        (lambda: DANLClassifier(formula="ill ~ age").fit(DATA[["age"]]), "no column 'ill'"),
        (lambda: DANLClassifier(formula=3).fit(DATA), "formula=3: must be text"),
        (lambda: DANLClassifier(formula="smoking ~ age").fit(DATA), "binomial outcome has two levels"),
        (lambda: DANLClassifier(formula="ill ~ age", fit_intercept=False).fit(DATA), "write 0 [+] in it"),
        (lambda: DANLClassifier(formula="ill ~ age").fit(np.eye(3)), "X='ndarray': must be a data frame"),
        (lambda: DANLClassifier(formula="ill ~ age").fit(DATA, groups=["a"]), "groups: must have one for each of"),
        (lambda: DANLClassifier(formula="ill ~ age").fit(DATA).predict(DATA), "in record 3 .* a value is missing"),
        (
            lambda: DANLClassifier(formula="ill ~ smoking").fit(DATA).predict(pd.DataFrame({"smoking": ["pipe"]})),
            "does not know; it knows",
        ),
        (lambda: DANLRegressor(formula="ill ~ age").fit(DATA), "ill"),
    ],
)
def test_bad_input_is_said(fit, says):
    with pytest.raises(danl.InputError, match=says):
        fit()


def test_a_fit_that_fails_leaves_the_one_before():
    fitted = DANLClassifier(formula="ill ~ age").fit(DATA)
    before = fitted.predict_proba(DATA.dropna())
    fitted.formula = "ill ~ height"
    with pytest.raises(danl.InputError):
        fitted.fit(DATA)
    np.testing.assert_array_equal(fitted.predict_proba(DATA.dropna()), before)


def test_a_fit_without_a_formula_after_one_with():
    fitted = DANLRegressor(formula="pressure ~ age").fit(DATA)
    fitted.set_params(formula=None).fit(np.arange(20.0)[:, None], np.arange(20.0))
    assert fitted.n_features_in_ == 1
    assert not hasattr(fitted, "feature_names_in_")
    assert fitted.predict([[3.0]]) == pytest.approx(3.0, abs=0.2)
