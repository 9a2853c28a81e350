"""Standard errors: statsmodels' on all rows at once, from what the workers tell of the fitted model."""

import numpy as np
import pytest
from scipy.stats import norm

import danl
from danl import DANLClassifier, DANLRegressor, InputError
from tests.estimators.data import POLICIES, linear, sites, weights

sm = pytest.importorskip("statsmodels.api")

KINDS = {"logit": "binary", "poisson": "count", "ols": "real"}


def design(X, intercept):
    """X as statsmodels takes it: the constant first, where the summary has it."""
    return sm.add_constant(X) if intercept else X


def theirs(model, y, A, *, freq_weights=None, **options):
    """statsmodels' fit, to the last digits."""
    match model:
        case "logit" if freq_weights is None:
            return sm.Logit(y, A).fit(disp=0, tol=1e-14, **options)
        case "logit":
            return sm.GLM(y, A, family=sm.families.Binomial(), freq_weights=freq_weights).fit(tol=1e-14, **options)
        case "poisson":
            return sm.GLM(y, A, family=sm.families.Poisson(), freq_weights=freq_weights).fit(tol=1e-14, **options)
    return sm.OLS(y, A).fit(use_t=False, **options)


def ours(model, **options):
    if model == "logit":
        return DANLClassifier(C=np.inf, **options)
    return DANLRegressor({"poisson": "poisson", "ols": "squared"}[model], C=np.inf, **options)


def same_table(summary, expected, rtol=1e-6):
    np.testing.assert_allclose(summary.coef, expected.params, rtol=rtol)
    np.testing.assert_allclose(summary.std_err, expected.bse, rtol=rtol)
    np.testing.assert_allclose(summary.z, expected.tvalues, rtol=rtol)
    np.testing.assert_allclose(summary.p_value, expected.pvalues, rtol=rtol, atol=1e-300)
    np.testing.assert_allclose(np.column_stack([summary.ci_low, summary.ci_high]), expected.conf_int(), rtol=rtol)
    np.testing.assert_allclose(summary.covariance, expected.cov_params(), rtol=rtol, atol=1e-10)


@pytest.mark.parametrize("covariance", ["observed", "sandwich"])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("model", KINDS)
def test_an_unpenalised_fit(model, intercept, covariance):
    X, y = linear(KINDS[model])
    options = {"cov_type": "HC0"} if covariance == "sandwich" else {}
    expected = theirs(model, y, design(X, intercept), **options)
    summary = ours(model, fit_intercept=intercept).fit(X, y).summary(covariance=covariance)
    same_table(summary, expected)
    ninety = ours(model, fit_intercept=intercept).fit(X, y).summary(level=0.9, covariance=covariance)
    np.testing.assert_allclose(np.column_stack([ninety.ci_low, ninety.ci_high]), expected.conf_int(0.1), rtol=1e-6)


@pytest.mark.parametrize("model", ["logit", "poisson"])
@pytest.mark.parametrize("intercept", [True, False])
def test_weights_are_repeated_rows(model, intercept):
    X, y = linear(KINDS[model])
    times = np.random.default_rng(3).integers(0, 4, size=len(y))
    expected = theirs(model, y, design(X, intercept), freq_weights=times)
    same_table(ours(model, fit_intercept=intercept).fit(X, y, sample_weight=times).summary(), expected)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("loss", ["gamma", "negative-binomial:alpha=0.5"])
def test_observed_information_of_amounts_and_of_counts_that_vary_more(loss, intercept):
    """Theirs with the observed information is of the Hessian that is found by differences of their score."""
    X, y = linear("amount" if loss == "gamma" else "count")
    A, log = design(X, intercept), sm.families.links.Log()
    family = sm.families.Gamma(link=log) if loss == "gamma" else sm.families.NegativeBinomial(alpha=0.5, link=log)
    model = sm.GLM(y, A, family=family)
    expected = model.fit(tol=1e-14)
    summary = DANLRegressor(loss, C=np.inf, tol=1e-14, fit_intercept=intercept).fit(X, y).summary()
    scale = expected.deviance / expected.df_resid if loss == "gamma" else 1.0
    covariance = np.linalg.inv(-model.hessian(expected.params, scale=scale, observed=True))
    np.testing.assert_allclose(summary.coef, expected.params, rtol=1e-6)
    np.testing.assert_allclose(summary.covariance, covariance, rtol=1e-6, atol=1e-12)
    assert (f"dispersion {scale:.6g}, the deviance" in str(summary)) == (loss == "gamma")


def test_weights_are_repeated_rows_of_a_linear_regression_too():
    X, y = linear("real")
    times = np.random.default_rng(3).integers(0, 4, size=len(y))
    rows = np.repeat(np.arange(len(y)), times)
    same_table(ours("ols").fit(X, y, sample_weight=times).summary(), theirs("ols", y[rows], design(X[rows], True)))


def test_a_sandwich_takes_weights_as_they_are():
    """Not as repetitions: a row of weight 2 has one residual, not two."""
    X, y = linear("real")
    chosen = weights(len(y))
    A = design(X, True)
    expected = sm.WLS(y, A, weights=chosen).fit(cov_type="HC0")
    summary = ours("ols").fit(X, y, sample_weight=chosen).summary(covariance="sandwich")
    np.testing.assert_allclose(summary.std_err, expected.bse, rtol=1e-6)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("sort", [False, True], ids=["iid", "sorted"])
def test_however_the_rows_are_divided(policy, sort):
    X, y = linear("binary")
    model = ours("logit", policy=policy, workers=7).fit(X, y, groups=sites(y, 7, sort))
    same_table(model.summary(), theirs("logit", y, design(X, True)))
    same_table(model.summary(covariance="sandwich"), theirs("logit", y, design(X, True), cov_type="HC0"))


def contrasts(classes, columns):
    """From coefficients of all classes to those against class 0."""
    return np.kron(np.column_stack([-np.ones(classes - 1), np.eye(classes - 1)]), np.eye(columns))


@pytest.mark.parametrize("intercept", [True, False])
def test_classes_against_the_first_are_those_of_mnlogit(intercept):
    X, y = linear("classes")
    A = design(X, intercept)
    expected = sm.MNLogit(y, A).fit(disp=0, method="newton", tol=1e-14)
    summary = DANLClassifier(C=np.inf, fit_intercept=intercept).fit(X, y).summary()
    against = contrasts(3, A.shape[1])
    covariance = against @ summary.covariance @ against.T
    np.testing.assert_allclose(against @ summary.coef, np.asarray(expected.params).T.ravel(), rtol=1e-6)
    np.testing.assert_allclose(np.sqrt(covariance.diagonal()), np.asarray(expected.bse).T.ravel(), rtol=1e-6)
    np.testing.assert_allclose(covariance, expected.cov_params(), rtol=1e-6, atol=1e-12)


def test_classes_sum_to_zero_and_the_sum_has_no_variance():
    X, y = linear("classes")
    summary = DANLClassifier().fit(X, y).summary()
    total = np.kron(np.ones(3), np.eye(6))
    np.testing.assert_allclose(total @ summary.coef, 0.0, atol=1e-12)
    np.testing.assert_allclose(total @ summary.covariance, 0.0, atol=1e-15)


def test_a_sandwich_of_classes():
    """Against the formula, written out row by row."""
    X, y = linear("classes")
    model = DANLClassifier(C=np.inf, fit_intercept=False).fit(X, y)
    p = model.predict_proba(X)
    scores = np.stack([np.kron(row - (np.arange(3) == own), x) for row, own, x in zip(p, y, X, strict=True)])
    bread = sum(np.kron(np.diag(row) - np.outer(row, row), np.outer(x, x)) for row, x in zip(p, X, strict=True))
    inverse = np.linalg.pinv(bread, rcond=1e-10, hermitian=True)
    expected = inverse @ scores.T @ scores @ inverse
    np.testing.assert_allclose(model.summary(covariance="sandwich").covariance, expected, rtol=1e-8, atol=1e-14)


@pytest.mark.parametrize("model", [DANLClassifier(C=0.3), DANLRegressor(C=0.3), DANLRegressor("poisson", C=0.3)])
def test_a_penalised_fit_has_the_penalty_in_its_hessian(model):
    kind = {"squared": "real", "poisson": "count"}.get(getattr(model, "loss", None), "binary")
    X, y = linear(kind)
    summary = model.fit(X, y).summary()
    A = design(X, True)
    margins = A @ summary.coef
    probability = 1 / (1 + np.exp(-margins))
    bend = {"binary": probability * (1 - probability), "count": np.exp(margins), "real": np.ones(len(y))}[kind]
    penalty = np.diag([0.0, *[1 / 0.3] * 5])
    inverse = np.linalg.inv(A.T @ (A * bend[:, None]) + penalty)
    phi = 1.0
    if kind == "real":  # residuals over what the fit left of the rows
        phi = np.sum((y - margins) ** 2) / (len(y) - np.trace(A @ inverse @ A.T))
    np.testing.assert_allclose(summary.covariance, phi * inverse, rtol=1e-8, atol=1e-14)


# What the data says nothing about.


SAYS_NOTHING = r"the data says nothing about 1 direction\(s\) of the coefficients .* 2 of them have no standard error"


@pytest.mark.parametrize("covariance", ["observed", "sandwich"])
@pytest.mark.parametrize("model", KINDS)
def test_a_feature_that_is_there_twice_has_no_standard_error_and_the_others_have_theirs(model, covariance):
    X, y = linear(KINDS[model])
    options = {"cov_type": "HC0"} if covariance == "sandwich" else {}
    expected = theirs(model, y, design(X, True), **options)
    fitted = ours(model).fit(np.column_stack([X, X[:, 0]]), y)
    with pytest.warns(danl.DanlWarning, match=SAYS_NOTHING) as warned:
        summary = fitted.summary(covariance=covariance)
    assert len(warned) == 1
    assert warned[0].filename == __file__
    assert np.isnan(summary.std_err[[1, 6]]).all()
    np.testing.assert_allclose(summary.std_err[[0, 2, 3, 4, 5]], expected.bse[[0, 2, 3, 4, 5]], rtol=1e-6)
    assert "nan" in str(summary)


@pytest.mark.parametrize("covariance", ["observed", "sandwich"])
def test_a_constant_beside_the_intercept_leaves_the_other_features_of_every_class_alone(covariance):
    X, y = linear("classes")
    alone = DANLClassifier(C=np.inf).fit(X, y).summary(covariance=covariance).std_err.reshape(3, 6)
    fitted = DANLClassifier(C=np.inf).fit(np.column_stack([X, np.ones(len(y))]), y)
    with pytest.warns(danl.DanlWarning, match="says nothing about 2 direction"):
        errors = fitted.summary(covariance=covariance).std_err.reshape(3, 7)
    assert np.isnan(errors[:, [0, 6]]).all()
    np.testing.assert_allclose(errors[:, 1:6], alone[:, 1:], rtol=1e-6)


@pytest.mark.parametrize("kind", ["binary", "classes"])
def test_features_of_other_units_have_standard_errors_of_other_units(kind):
    X, y = linear(kind)
    units = np.array([1e-2, 1.0, 300.0, 1e-1, 1e2])
    outputs = 1 if kind == "binary" else 3
    before = DANLClassifier(C=np.inf).fit(X, y).summary().std_err.reshape(outputs, 6)
    after = DANLClassifier(C=np.inf).fit(X * units, y).summary().std_err.reshape(outputs, 6)
    np.testing.assert_allclose(after * np.concatenate([[1.0], units]), before, rtol=1e-6)


def test_as_many_coefficients_as_rows_leave_no_residuals():
    X, y = linear("real", 5, 4, seed=3)
    summary = ours("ols").fit(X, y).summary()
    assert np.isnan(summary.std_err).all()
    assert "as many coefficients as rows: no residuals, and so no standard errors" in summary.notes


# What it costs.


def packed(d):
    return d * (d + 1) // 2


def test_a_summary_is_one_hessian_exchange_and_the_next_is_free():
    X, y = linear("binary")
    model = DANLClassifier(workers=4).fit(X, y)
    fit, w = model.n_iter_, model.result_.w.copy()
    up, down = model.bytes_up_, model.bytes_down_
    assert fit == len(model.history_) == len(model.result_.history)
    first = model.summary()
    assert model.n_iter_ == len(model.history_) == fit + 1
    assert model.history_[-1].kind == "hessian"
    assert [row.exchange for row in model.history_] == list(range(fit + 1))
    assert model.bytes_up_ - up == model.history_[-1].bytes_up == 4 * 8 * (packed(6) + 6 + 1)
    assert model.bytes_down_ - down == model.history_[-1].bytes_down == 4 * 8 * 6
    assert len(model.result_.history) == fit  # how the fit itself ended is still to be seen
    second, other = model.summary(), model.summary(level=0.5)
    assert model.n_iter_ == fit + 1
    np.testing.assert_array_equal(first.std_err, second.std_err)
    np.testing.assert_allclose(other.ci_high - other.coef, norm.ppf(0.75) * first.std_err, rtol=1e-12)
    np.testing.assert_array_equal(model.result_.w, w)


def test_a_sandwich_is_one_exchange_more():
    X, y = linear("binary")
    model = DANLClassifier(workers=4).fit(X, y)
    fit = model.n_iter_
    model.summary()
    after_observed = model.summary(covariance="sandwich")
    assert [row.kind for row in model.history_][fit:] == ["hessian", "scores"]
    assert model.history_[-1].bytes_up == 4 * 8 * packed(6)
    model.summary()
    model.summary(covariance="sandwich")
    assert model.n_iter_ == fit + 2
    at_once = DANLClassifier(workers=4).fit(X, y)
    np.testing.assert_array_equal(at_once.summary(covariance="sandwich").covariance, after_observed.covariance)
    assert [row.kind for row in at_once.history_][fit:] == ["hessian", "scores"]
    at_once.summary()
    assert at_once.n_iter_ == fit + 2


def test_a_fit_forgets_the_summary_of_the_fit_before():
    X, y = linear("binary")
    model = DANLClassifier().fit(X, y)
    before = model.summary()
    fit = model.fit(X[:100], y[:100]).n_iter_
    after = model.summary()
    assert model.n_iter_ == fit + 1
    assert (after.std_err > before.std_err).all()


# Workers that are not there.


@pytest.mark.parametrize("covariance", ["observed", "sandwich"])
def test_workers_that_miss_the_question_are_asked_again(covariance):
    X, y = linear("binary")
    expected = ours("logit", workers=5).fit(X, y).summary(covariance=covariance)
    model = ours("logit", workers=5, engine="local:dropout=0.6,seed=4").fit(X, y)
    fit = model.n_iter_
    summary = model.summary(covariance=covariance)
    asked = list(model.history_)[fit:]
    assert len(asked) > (2 if covariance == "sandwich" else 1)
    assert sum(row.active for row in asked) == (10 if covariance == "sandwich" else 5)  # each answers once
    np.testing.assert_allclose(summary.covariance, expected.covariance, rtol=1e-7)


def test_a_worker_that_is_gone_for_good_is_said_to_be_missing():
    X, y = linear("binary")
    model = DANLClassifier(workers=4).fit(X, y)
    model.engine = danl.engines.Local(away={2: (0, None)})
    before = model.n_iter_
    with pytest.raises(danl.InputError, match=r"summary: workers \[2\] did not answer \(quorum_lost\)"):
        model.summary()
    assert model.n_iter_ == before
    model.engine = "local"
    assert np.isfinite(model.summary().std_err).all()


def test_a_worker_that_refuses_is_not_asked_fifty_times():
    class Refusing(danl.engines.Local):
        asked = 0

        def exchange(self, exchange, *, deadline=None):
            from danl.protocol.messages import Failure

            Refusing.asked += 1
            replies = super().exchange(exchange, deadline=deadline)
            return replies.without({1: Failure(1, "refused", "not today")} if 1 in exchange.workers else {})

    X, y = linear("binary")
    model = DANLClassifier(workers=4).fit(X, y)
    model.engine = Refusing()
    with pytest.raises(danl.InputError, match=r"workers \[1\] did not answer"):
        model.summary()
    assert Refusing.asked == 1


def test_rows_that_were_changed_after_the_fit_are_not_taken_for_those_of_the_model():
    X, y = (np.array(part) for part in linear("binary"))
    model = DANLClassifier().fit(X, y)
    X[:, 2] += 1.0
    with pytest.raises(InputError, match="summary: the rows are not those the model was fitted to"):
        model.summary()
    X[:, 2] -= 1.0
    assert model.summary().to_frame().shape[0] == X.shape[1] + 1


@pytest.mark.parametrize("mean", [0.0, 1e4, 1e8])
def test_a_perfect_fit_is_rounding_and_not_other_rows(mean):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 5)) + mean
    y = (X - mean) @ rng.normal(size=5) + 1.0
    assert DANLRegressor(C=np.inf).fit(X, y).summary().to_frame().shape[0] == 6
