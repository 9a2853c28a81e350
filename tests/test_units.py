"""The same problem in other units is the same run; and a run that says "converged" is right, whatever the units are.

Solutions come from a whitened solve that shares no code with the package: columns are moved and scaled back to what
they were drawn as, and Newton's method is taken to rounding there.
"""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning

import danl
from danl.methods.stopping import FLAT, NO_OPTIMUM
from danl.objective.problem import Problem

METHODS = ("danl", "danl-secant", "newton", "danl:curvature=lowrank:2")
LOSSES = ("logistic", "squared", "poisson")
ROWS, FEATURES = 60, 3


def rows_of(seed, loss):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((ROWS, FEATURES))
    z = X @ rng.uniform(-0.7, 0.7, FEATURES) + 0.3
    if loss == "logistic":
        return X, (rng.random(ROWS) < 1 / (1 + np.exp(-z))).astype(float)
    if loss == "squared":
        return X, z + rng.standard_normal(ROWS)
    return X, rng.poisson(np.exp(z)).astype(float)


def whitened(X, y, loss, alpha, intercept):
    """Coefficients and intercept by Newton's method on well-scaled columns, to rounding."""
    A = np.column_stack([X, np.ones(len(X))]) if intercept else X
    penalty = np.full(A.shape[1], alpha)
    penalty[X.shape[1] :] = 0.0
    mean = {"logistic": lambda z: 1 / (1 + np.exp(-z)), "squared": lambda z: z, "poisson": np.exp}[loss]
    slope = {"logistic": lambda m: m * (1 - m), "squared": np.ones_like, "poisson": lambda m: m}[loss]
    w = np.zeros(A.shape[1])
    for _ in range(60):
        m = mean(A @ w)
        gradient = A.T @ (m - y) / len(y) + penalty * w
        hessian = (A.T * slope(m)) @ A / len(y) + np.diag(penalty)
        step = np.linalg.solve(hessian, gradient)
        w = w - min(1.0, 1.0 / np.abs(A @ step).max()) * step  # no margin moves by more than 1
    return (w[:-1], w[-1]) if intercept else (w, 0.0)


def solved(X, y, loss, alpha, intercept, method, **options):
    shards = danl.partition(X, y, workers=3, seed=0)
    problem = Problem(shards, loss=loss, alpha=alpha, intercept=intercept, weighting="samples")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = danl.solve(problem, method=method, max_rounds=300, **options)
    return result, [str(each.message) for each in caught]


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_scales_and_means_do_not_matter(data):
    loss, method = data.draw(st.sampled_from(LOSSES)), data.draw(st.sampled_from(METHODS))
    intercept, seed = data.draw(st.booleans()), data.draw(st.integers(0, 5))
    X, y = rows_of(seed, loss)
    alpha = data.draw(st.sampled_from([0.0, 1e-3]))
    exponents = st.floats(-12, 12)
    if alpha:  # a penalty makes columns comparable: one scale for all of them, and the penalty along with it
        scales = np.full(FEATURES, 10.0 ** data.draw(exponents))
    else:
        scales = 10.0 ** np.array(data.draw(st.lists(exponents, min_size=FEATURES, max_size=FEATURES)))
    means = np.zeros(FEATURES)
    if intercept:
        means = np.array(data.draw(st.lists(st.floats(-1e9, 1e9), min_size=FEATURES, max_size=FEATURES)))
    factor = 1.0
    if loss == "squared" or (loss == "poisson" and intercept and not alpha):
        factor = 10.0 ** data.draw(exponents)
    given_X, given_y = (X + means) * scales, y * factor
    result, said = solved(given_X, given_y, loss, alpha * scales[0] ** 2, intercept, method)
    assert result.status == "converged", said
    assert said == []
    coefficients, intercepts = result.layout.split(result.w)
    # What was drawn is no longer what is in the columns, once they are rounded to doubles beside a large mean.
    back = given_X / scales - means
    right, right_intercept = whitened(back, given_y / factor if loss == "squared" else y, loss, alpha, intercept)
    mine = coefficients[0] * scales / (factor if loss == "squared" else 1.0)
    assert mine == pytest.approx(right, rel=1e-6, abs=1e-6)
    if intercept and np.abs(means).max() < 1e6:  # beyond, an intercept for these columns has few digits itself
        at_mean = intercepts[0] + coefficients[0] @ (means * scales)
        expected = factor * right_intercept if loss == "squared" else right_intercept + np.log(factor)
        assert at_mean == pytest.approx(expected, rel=1e-6, abs=1e-6 * max(1.0, factor if loss == "squared" else 1.0))


@pytest.mark.parametrize("method", ["danl", "danl-secant", "newton", "danl:curvature=diag"])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("intercept", [False, True])
def test_powers_of_two_change_nothing(method, loss, intercept):
    """Scaling by these is exact, so that everything is, to the bit: exchanges, status, predictions."""
    X, y = rows_of(1, loss)
    before, _ = solved(X, y, loss, 1e-3, intercept, method)
    for exponent in (-40, 40):
        after, said = solved(X * 2.0**exponent, y, loss, 1e-3 * 4.0**exponent, intercept, method)
        assert (after.status, len(after.history), said) == (before.status, len(before.history), [])
        assert after.layout.split(after.w)[0] * 2.0**exponent == pytest.approx(before.layout.split(before.w)[0])
        if loss == "squared":
            after, _ = solved(X, y * 2.0**exponent, loss, 1e-3, intercept, method)
            assert (after.status, len(after.history)) == (before.status, len(before.history))
            assert after.w / 2.0**exponent == pytest.approx(before.w)


def test_row_weights_of_any_size():
    X, y = rows_of(2, "logistic")
    rng = np.random.default_rng(0)
    weights = rng.uniform(0.5, 2.0, ROWS)
    runs = []
    for factor in (2.0**-40, 1.0, 2.0**40):
        shards = danl.partition(X, y, workers=3, seed=0, weights=weights * factor)
        runs.append(danl.solve(danl.Problem(shards, alpha=1e-3, intercept=True, weighting="samples")))
    assert [run.status for run in runs] == ["converged"] * 3
    assert len({len(run.history) for run in runs}) == 1
    assert runs[0].w == pytest.approx(runs[1].w)
    assert runs[2].w == pytest.approx(runs[1].w)


@pytest.mark.parametrize("method", ["danl", "danl-secant", "newton"])
@pytest.mark.parametrize("mean", [1e7, 1e9])
def test_a_large_mean_costs_the_classifier_nothing(method, mean):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 6))
    y = rng.random(400) < 1 / (1 + np.exp(-X @ rng.standard_normal(6)))
    centred = danl.DANLClassifier(method=method).fit(X.copy(), y)
    X[:, 2] += mean
    moved = danl.DANLClassifier(method=method).fit(X, y)
    assert moved.result_.status == "converged"
    assert moved.n_iter_ == centred.n_iter_
    assert moved.score(X, y) == centred.score(X - np.eye(6)[2] * mean, y)
    assert moved.coef_ == pytest.approx(centred.coef_, rel=1e-6)
    before, after = centred.summary().to_frame(), moved.summary().to_frame()
    errors = before.columns[1]
    assert after[errors].iloc[1:].to_numpy() == pytest.approx(before[errors].iloc[1:].to_numpy(), rel=1e-5)


def test_sparse_columns_with_a_large_mean_are_moved():
    from scipy import sparse

    X, y = rows_of(3, "logistic")
    X[:, 1] += 1e7
    dense, _ = solved(X, y, "logistic", 1e-3, True, "danl")
    thin, said = solved(sparse.csr_array(X), y, "logistic", 1e-3, True, "danl")
    assert (thin.status, said) == ("converged", [])
    assert thin.centre is not None
    assert thin.w[:FEATURES] == pytest.approx(dense.w[:FEATURES], rel=1e-8)


@pytest.mark.parametrize("method", ["danl", "danl-secant", "newton", "newton-undamped"])
def test_gradient_where_the_curvature_is_rounding_is_no_convergence(method):
    """Without an intercept nothing can be moved: two columns of mean 1e9 are the same column to a double's digits."""
    X, y = rows_of(4, "logistic")
    result, said = solved(X + 1e9, y, "logistic", 0.0, False, method)
    assert result.status != "converged"
    assert FLAT in result.notes or result.status != "max_rounds" or method == "newton-undamped"
    assert (FLAT in result.notes) == (FLAT in said)


@pytest.mark.parametrize("method", ["danl", "danl-secant", "newton", "newton-undamped", "danl:curvature=diag"])
def test_coefficients_without_end_are_no_convergence(method):
    """A feature that only rows of one class have: its coefficient grows for ever, the others have an optimum."""
    X, y = rows_of(5, "logistic")
    X[:, 2] = np.arange(ROWS) < 8
    y[:8] = 1.0
    result, said = solved(X, y, "logistic", 0.0, True, method)
    assert result.status != "converged"
    assert any(note.startswith(f"{NO_OPTIMUM}: coefficient 2 would grow") for note in said)


def test_a_group_without_events_is_no_convergence():
    X, y = rows_of(5, "poisson")
    X[:, 2] = np.arange(ROWS) < 8
    y[:8] = 0.0
    with pytest.warns(ConvergenceWarning, match="no best model"), pytest.warns(danl.DanlWarning, match=NO_OPTIMUM):
        model = danl.DANLRegressor(loss="poisson", C=np.inf).fit(X, y)
    assert model.result_.status == "diverged"


def test_a_perfect_fit_converges():
    X, _ = rows_of(6, "squared")
    w = np.array([1.0, -2.0, 0.5])
    for method in METHODS:
        result, said = solved(X, X @ w, "squared", 0.0, False, method)
        assert (result.status, said) == ("converged", [])
        assert result.w == pytest.approx(w, rel=1e-7)


def test_collinear_columns_converge():
    """Directions the data says nothing about have no gradient: dummy columns and an intercept are no trouble."""
    X, y = rows_of(7, "logistic")
    groups = np.eye(3)[np.arange(ROWS) % 3]
    result, said = solved(np.column_stack([X, groups]), y, "logistic", 0.0, True, "danl")
    assert (result.status, said) == ("converged", [])
    dropped, _ = solved(np.column_stack([X, groups[:, 1:]]), y, "logistic", 0.0, True, "danl")
    assert result.w[:FEATURES] == pytest.approx(dropped.w[:FEATURES], rel=1e-6)


def test_a_policy_that_trains_nothing_is_not_passed_over_in_silence():
    X, y = rows_of(8, "logistic")
    shards = danl.partition(X, y, workers=3, seed=0)
    problem = danl.Problem(shards, alpha=1e-2)

    def nothing(w, worker, number, rng):
        return np.zeros(3, dtype=bool)

    with pytest.warns(danl.DanlWarning, match="nobody trained any region"):
        result = danl.solve(problem, method="danl:masks=always", policy=nothing, regions=3)
    assert result.status == "converged"
    assert any("nobody trained any region" in note for note in result.notes)


@pytest.mark.parametrize(
    "method", ["danl:mu=0.1", "newton:mu=0.1", "danl:curvature=block,mu=0.1", "danl:curvature=diag,mu=0.1", "gd"]
)
def test_a_floor_above_the_curvature_is_no_convergence(method):
    """A step divided by far too much curvature is tiny, and tells nothing of how far the optimum is."""
    X, y = rows_of(9, "logistic")
    result, _ = solved(X * np.array([1e-8, 1e-6, 1.0]), y, "logistic", 0.0, False, method)
    right, _ = whitened(X, y, "logistic", 0.0, False)
    mine = result.w * np.array([1e-8, 1e-6, 1.0])
    assert result.status != "converged" or mine == pytest.approx(right, rel=1e-6)


@pytest.mark.parametrize("method", ["danl", "danl-secant", "newton", "danl:curvature=diag"])
def test_an_intercept_without_end_beside_penalised_features(method):
    """No count anywhere: the logarithm of nothing, whatever the penalty on the features is."""
    X, _ = rows_of(10, "poisson")
    result, said = solved(X, np.zeros(ROWS), "poisson", 0.1, True, method)
    assert result.status == "diverged"
    assert any(note.startswith(f"{NO_OPTIMUM}: the intercept would grow") for note in said)


@pytest.mark.parametrize("method", ["danl", "newton", "newton-undamped", "danl-masked"])
@pytest.mark.parametrize("mean", [0.0, 1000.1234])
def test_a_perfect_fit_converges_from_anywhere(method, mean):
    X, _ = rows_of(11, "squared")
    w = np.array([1.0, -2.0, 0.5])
    cold, said = solved(X, X @ w + mean, "squared", 0.0, True, method)
    assert (cold.status, said) == ("converged", [])
    assert cold.w == pytest.approx([*w, mean], rel=1e-9)
    warm, said = solved(X, X @ w + mean, "squared", 0.0, True, method, w0=cold.w)
    assert (warm.status, said) == ("converged", [])


@pytest.mark.parametrize("method", ["danl", "danl-secant", "newton"])
@pytest.mark.parametrize("tol", [1e-4, 1e-6, 1e-12])
def test_a_very_strong_signal_has_an_optimum(method, tol):
    """Curvature fades on the way there, and the last steps are far from small: they shrink, so it is no run away."""
    rng = np.random.default_rng(5)
    X = rng.standard_normal((400, 4))
    y = (rng.random(400) < 1 / (1 + np.exp(-60 * (X @ np.array([1.0, -1.0, 0.5, 2.0]))))).astype(float)
    result, said = solved(X, y, "logistic", 0.0, False, method, tol=tol)
    assert result.status == "converged"
    assert not any(NO_OPTIMUM in note for note in said)


def test_going_on_from_a_model_without_an_optimum_is_not_silent():
    X, y = rows_of(5, "poisson")
    X[:, 2] = np.arange(ROWS) < 8
    y[:8] = 0.0
    first, _ = solved(X, y, "poisson", 0.0, True, "danl")
    assert first.status == "diverged"
    _, said = solved(X, y, "poisson", 0.0, True, "danl", w0=first.w)
    assert any("no event" in note for note in said)


def test_reference_and_history_of_moved_columns_are_of_one_problem():
    X, y = rows_of(12, "logistic")
    problem = Problem(danl.partition(X + 1e8, y, workers=3, seed=0), alpha=1e-3, intercept=True)
    reference = danl.reference_optimum(problem)
    result = danl.solve(problem, reference=reference, w0="fedavg:rounds=2")
    assert reference.grad_norm < 1e-9
    assert abs(result.history[-1].gap) < 1e-12
    assert result.history[-1].distance < 1e-6
    assert result.start.history[0].kind == "moments"
    assert "moments" not in [row.kind for row in result.history]  # the start has asked
