"""Gaussian, binomial, Poisson, gamma and negative binomial models: the optimum is reached, and is the field's.

Offsets and weights included, whoever is asked for whatever; statsmodels' GLM on all rows at once has the numbers.
"""

from itertools import product

import numpy as np
import pytest

import danl
from danl.objective.losses import make_loss

COUNTS = "negative-binomial:alpha=0.7"
LOSSES = ["squared", "logistic", "poisson", "gamma", COUNTS]
ROWS, D = 300, 5


def rows(loss, *, offset=False, weighted=False, scale=1.0):
    """X, targets, offset and whole weights of a model that has this loss, with an intercept; amounts times `scale`."""
    rng = np.random.default_rng(7)
    X = rng.normal(size=(ROWS, D)) * [1.0, 1.0, 3.0, 0.1, 1.0]
    X[:, -1] = rng.random(ROWS) < 0.3
    exposure = rng.normal(1.0, 0.7, ROWS) if offset else None
    z = 0.4 + X @ [0.5, -0.3, 0.1, 1.0, 0.6] + np.log(scale) + (0.0 if exposure is None else exposure)
    y = {
        "squared": lambda: z + rng.normal(size=ROWS),
        "logistic": lambda: (rng.random(ROWS) < 1 / (1 + np.exp(-z))).astype(float),
        "poisson": lambda: rng.poisson(np.exp(z)).astype(float),
        "gamma": lambda: np.exp(z) * rng.gamma(2.0, 0.5, ROWS),
        COUNTS: lambda: rng.poisson(np.exp(z) * rng.gamma(1 / 0.7, 0.7, ROWS)).astype(float),
    }[loss]()
    return X, y, exposure, rng.integers(1, 4, ROWS).astype(float) if weighted else None


def problem(loss, *, intercept=True, offset=False, weighted=False, scale=1.0, scheme="iid"):
    X, y, exposure, weights = rows(loss, offset=offset, weighted=weighted, scale=scale)
    shards = danl.partition(X, y, workers=5, scheme=scheme, weights=weights, offset=exposure)
    return danl.Problem(shards, loss=loss, alpha=0.0, weighting="samples", intercept=intercept)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("offset", [False, True])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("loss", LOSSES)
def test_coefficients_are_those_of_statsmodels(loss, intercept, offset, weighted):
    sm = pytest.importorskip("statsmodels.api")
    X, y, exposure, weights = rows(loss, offset=offset, weighted=weighted)
    families, log = sm.families, sm.families.links.Log()
    family = {
        "squared": families.Gaussian(),
        "logistic": families.Binomial(),
        "poisson": families.Poisson(),
        "gamma": families.Gamma(link=log),
        COUNTS: families.NegativeBinomial(alpha=0.7, link=log),
    }[loss]
    design = np.column_stack([X, np.ones(ROWS)]) if intercept else X
    model = sm.GLM(y, design, family=family, offset=exposure, freq_weights=weights)
    fit = model.fit(tol=1e-12, tol_criterion="params", maxiter=200)
    made = problem(loss, intercept=intercept, offset=offset, weighted=weighted)
    result = danl.solve(made, tol=1e-14)
    assert result.status == "converged"
    np.testing.assert_allclose(result.w, fit.params, rtol=0, atol=1e-8)
    if loss != "squared":  # half the deviance of all rows; statsmodels' for a binomial target of 0 and 1, too
        total = ROWS if weights is None else weights.sum()
        assert 2 * total * made.objective(result.w) == pytest.approx(fit.deviance, rel=1e-10)


RUNS = [
    ("danl", "full", "local"),
    ("danl:masks=always", "coverage:psi=2", "local"),
    ("danl:masks=always", "subset:S=1", "local:dropout=0.2"),
    ("danl:curvature_from=2", "coverage:psi=2", "local:dropout=0.2"),
    ("danl:curvature=diag", "full", "local:dropout=0.2"),
    ("danl:curvature=lowrank:3", "coverage:psi=2", "local"),
    ("danl:hessian_batch=40", "full", "local"),
    ("danl:hessian_dtype=float32", "full", "local:batched=false"),
    ("newton", "full", "local"),
]


@pytest.mark.parametrize(("method", "policy", "engine"), RUNS, ids=lambda spec: spec)
@pytest.mark.parametrize("loss", ["gamma", COUNTS, "poisson", "logistic"])
def test_every_way_of_asking_goes_to_the_same_optimum(loss, method, policy, engine):
    for intercept, (offset, weighted), scheme in product(
        (False, True), ((False, True), (True, False)), ("iid", "sorted")
    ):
        made = problem(loss, intercept=intercept, offset=offset, weighted=weighted, scheme=scheme)
        best = danl.solve(made, tol=1e-14)
        run = danl.solve(made, method=method, policy=policy, engine=engine, max_rounds=100, tol=1e-12)
        assert run.status == "converged", (intercept, offset, weighted, scheme)
        np.testing.assert_allclose(run.w, best.w, rtol=0, atol=1e-5)
        assert made.objective(run.w) - made.objective(best.w) < 1e-11


@pytest.mark.parametrize("scale", [1e-6, 1e6])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("loss", ["poisson", "gamma", COUNTS])
def test_means_far_from_one_are_found_from_zero(loss, intercept, scale):
    """exp(0) is 1: an amount of a million or a millionth is 14 away in the margin."""
    if scale < 1 and loss != "gamma":
        scale = 1e3  # counts have no millionths
    made = problem(loss, intercept=intercept, scale=scale)
    best = danl.solve(made, method="newton", tol=1e-14)
    run = danl.solve(made)
    assert (best.status, run.status) == ("converged", "converged")
    assert len(run.history) <= (12 if intercept else 40)
    np.testing.assert_allclose(run.w, best.w, rtol=0, atol=1e-6)
    assert danl.solve(made, method="danl:curvature=diag", max_rounds=200).status == "converged"


@pytest.mark.parametrize("loss", LOSSES)
def test_a_constant_offset_is_a_shift_of_the_intercept(loss):
    X, y, _, _ = rows(loss)
    plain, moved = (
        danl.solve(
            danl.Problem(
                danl.partition(X, y, workers=4, offset=offset),
                loss=loss,
                alpha=0.01,
                weighting="samples",
                intercept=True,
            ),
            tol=1e-13,
        )
        for offset in (None, np.full(ROWS, 6.0))
    )
    np.testing.assert_allclose(moved.w, plain.w - 6.0 * (np.arange(D + 1) == D), atol=1e-9)
    assert abs(len(moved.history) - len(plain.history)) <= 2  # the start takes the offset into account


@pytest.mark.parametrize("loss", ["logistic", "poisson", "gamma", COUNTS])
def test_the_run_starts_at_the_model_without_features(loss):
    """Of one worker exactly: rows have no mean residual there, offsets or not."""
    X, y, exposure, _ = rows(loss, offset=True)
    made = danl.Problem(danl.partition(X, y, workers=1, offset=exposure), loss=loss, alpha=0.0, intercept=True)
    start = danl.solve(made, max_rounds=1).w0
    assert not start[:-1].any()
    assert abs(made.value_and_gradient(start)[1][-1]) < 1e-5


@pytest.mark.parametrize("loss", LOSSES)
def test_moved_columns_keep_their_offsets(loss):
    """Columns of large mean are centred inside; the offset is no column."""
    X, y, exposure, weights = rows(loss, offset=True, weighted=True)
    near, far = (
        danl.solve(
            danl.Problem(
                danl.partition(X + shift, y, workers=4, offset=exposure, weights=weights),
                loss=loss,
                alpha=1e-3,
                weighting="samples",
                intercept=True,
            )
        )
        for shift in (0.0, 1e6)
    )
    assert far.status == "converged"
    assert far.centre is not None
    np.testing.assert_allclose(far.w[:-1], near.w[:-1], atol=1e-6)


def test_the_loss_by_its_name_is_the_loss():
    for loss in LOSSES:
        assert make_loss(loss).name == loss
