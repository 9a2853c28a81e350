"""The table of a fitted model, as a frame and as text."""

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import ConvergenceWarning

from danl import DANLClassifier, DANLRegressor
from tests.estimators.data import linear

X, Y = linear("binary")
COLUMNS = ["coef", "std_err", "z", "p_value", "ci_low", "ci_high"]


@pytest.mark.parametrize(
    ("model", "kind", "ratio"),
    [
        (DANLClassifier(), "binary", "odds_ratio"),
        (DANLRegressor("poisson"), "count", "rate_ratio"),
        (DANLRegressor("gamma"), "amount", "mean_ratio"),
        (DANLRegressor("negative-binomial:alpha=0.5"), "count", "rate_ratio"),
        (DANLRegressor(), "real", None),
    ],
    ids=["logistic", "poisson", "gamma", "negative binomial", "squared"],
)
def test_a_frame_has_a_line_a_coefficient(model, kind, ratio):
    X, y = linear(kind)
    frame = model.fit(X, y).summary().to_frame()
    extra = [] if ratio is None else [ratio, f"{ratio}_low", f"{ratio}_high"]
    assert list(frame.columns) == COLUMNS + extra
    assert list(frame.index) == ["(intercept)", "x0", "x1", "x2", "x3", "x4"]
    np.testing.assert_allclose(frame.coef, np.append(model.intercept_, np.ravel(model.coef_)), rtol=1e-15)
    np.testing.assert_allclose(frame.z, frame.coef / frame.std_err, rtol=1e-12)
    assert ((frame.ci_low < frame.coef) & (frame.coef < frame.ci_high)).all()
    assert (frame.p_value.between(0, 1)).all()
    if ratio is not None:
        np.testing.assert_allclose(frame[extra], np.exp(frame[["coef", "ci_low", "ci_high"]]), rtol=1e-14)


def test_without_an_intercept_there_is_no_line_for_one():
    frame = DANLClassifier(fit_intercept=False).fit(X, Y).summary().to_frame()
    assert list(frame.index) == ["x0", "x1", "x2", "x3", "x4"]


def test_a_frame_of_classes_has_class_and_feature():
    X, y = linear("classes")
    labels = np.array(["low", "mid", "top"])
    model = DANLClassifier().fit(pd.DataFrame(X, columns=list("abcde")), labels[y])
    frame = model.summary().to_frame()
    assert frame.index.names == ["class", "feature"]
    assert frame.shape == (18, 9)
    np.testing.assert_allclose(frame.loc["mid"].coef, [model.intercept_[1], *model.coef_[1]], rtol=1e-15)
    np.testing.assert_allclose(frame.odds_ratio, np.exp(frame.coef), rtol=1e-14)
    assert "mid: (intercept)" in str(model.summary())
    assert "class: feature" in str(model.summary())


def test_the_text_of_a_small_fit():
    """To the letter: what a person reads."""
    ages = pd.DataFrame({"age": [31.0, 45, 52, 38, 60, 27, 49, 55], "dose": [1.0, 0, 1, 1, 0, 1, 0, 1]})
    model = DANLClassifier(workers=2).fit(ages, ["ill", "ill", "well", "well", "ill", "well", "well", "well"])
    assert str(model.summary()) == TEXT


TEXT = """\
Logistic regression
--------------------------------------------------------------------------
                coef  std err      z      p       95% interval  odds ratio
--------------------------------------------------------------------------
(intercept)  -0.0342   3.4054  -0.01  0.992  -6.7087 to 6.6404      0.9664
age           0.0038   0.0702   0.05  0.957  -0.1338 to 0.1413      1.0038
dose          0.6187   0.8648   0.72  0.474  -1.0764 to 2.3137      1.8565
--------------------------------------------------------------------------
8 rows at 2 workers; mean loss 0.604296
coefficients are of the log-odds of class well, against class ill
standard errors: observed information, the Hessian at the fitted model
PENALISED (alpha 0.125 on the averaged loss): estimates are shrunk towards
  zero, and standard errors, p-values and intervals are conditional on the
  penalty, not those of an unpenalised fit; for those fit with C=numpy.inf"""


def test_a_penalised_fit_says_what_its_intervals_are():
    summary = DANLClassifier().fit(X, Y).summary()
    (note,) = [note for note in summary.notes if note.startswith("PENALISED")]
    assert note == (
        "PENALISED (alpha 0.005 on the averaged loss): estimates are shrunk towards zero, and standard errors, "
        "p-values and intervals are conditional on the penalty, not those of an unpenalised fit; for those fit with "
        "C=numpy.inf"
    )
    assert " ".join(str(summary).split()).endswith(note)
    assert "PENALISED" not in str(DANLClassifier(C=np.inf).fit(X, Y).summary())


def test_no_line_is_longer_than_the_table():
    summary = DANLClassifier().fit(X, Y).summary(covariance="sandwich")
    lines = str(summary).split("\n")
    assert max(len(line) for line in lines) == len(lines[1])
    assert set(lines[1]) == {"-"}
    narrow = str(DANLRegressor(fit_intercept=False).fit(X, Y).summary()).split("\n")
    assert max(len(line) for line in narrow) <= 72


def test_the_notes_tell_rows_classes_and_where_standard_errors_come_from():
    labels = np.array(["benign", "malign"])[Y]
    summary = DANLClassifier(workers=1).fit(X, labels).summary()
    assert summary.notes[0].startswith("200 rows at 1 worker; mean loss 0.")
    assert summary.notes[1] == "coefficients are of the log-odds of class malign, against class benign"
    assert summary.notes[2] == "standard errors: observed information, the Hessian at the fitted model"
    sandwich = DANLClassifier().fit(X, labels).summary(covariance="sandwich")
    assert "standard errors: sandwich (HC0), the rows' scores between two inverse Hessians" in sandwich.notes
    classes = DANLClassifier().fit(*linear("classes")).summary()
    assert "coefficients sum to zero over the classes: each is against the average class" in classes.notes
    many = DANLRegressor().fit(np.tile(X, (10, 1)), np.tile(linear("real")[1], 10)).summary()
    assert many.notes[0].startswith("2,000 rows at 10 workers; mean loss 0.")
    assert any(note.startswith("residual standard deviation 0.9") for note in many.notes)


def test_the_mean_loss_is_that_of_the_data_without_the_penalty():
    for model, kind in ((DANLClassifier(C=0.1), "binary"), (DANLClassifier(C=0.1), "classes")):
        X, y = linear(kind)
        log_p = model.fit(X, y).predict_log_proba(X)[np.arange(len(y)), y]
        assert f"mean loss {-log_p.mean():.6g}" in model.summary().notes[0]


def test_the_level_is_in_the_head():
    model = DANLClassifier().fit(X, Y)
    assert "90% interval" in str(model.summary(level=0.9))
    assert "99.9% interval" in str(model.summary(level=0.999))
    wide, narrow = model.summary(level=0.999), model.summary(level=0.5)
    assert (wide.ci_low < narrow.ci_low).all()


def test_a_fit_that_did_not_get_there_says_so_in_its_table():
    with pytest.warns(ConvergenceWarning):
        model = DANLRegressor("poisson", max_rounds=1).fit(*linear("count"))
    summary = model.summary()
    assert "NOT CONVERGED (max_rounds): these are not the numbers of the best model" in summary.notes
    assert "NOT CONVERGED" not in str(DANLRegressor("poisson").fit(*linear("count")).summary())


def test_a_summary_is_shown_where_it_is_asked_for():
    summary = DANLClassifier().fit(X, Y).summary()
    assert repr(summary) == str(summary)


def test_very_large_coefficients_have_ratios_of_infinity_and_no_warning():
    units = np.array([1e-5, 1.0, 1.0, 1.0, 1.0])
    frame = DANLRegressor("poisson", C=np.inf).fit(linear("count")[0] * units, linear("count")[1]).summary().to_frame()
    assert frame.rate_ratio["x0"] in (0.0, np.inf)
    assert np.isfinite(frame.std_err).all()
