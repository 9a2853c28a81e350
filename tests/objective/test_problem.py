import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

import danl
from danl.data import Shard
from danl.objective.losses import LOSSES
from danl.objective.problem import Problem
from tests import oracle
from tests.problems import TARGETS, plain, random_problem, random_shards


@pytest.mark.parametrize("weighting", ["uniform", "samples"])
@pytest.mark.parametrize("as_sparse", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("loss", LOSSES)
def test_gradients_and_hessians_agree_with_finite_differences(loss, weighted, as_sparse, weighting):
    problem = random_problem(loss, weighted=weighted, as_sparse=as_sparse, weighting=weighting)
    w, h = np.random.default_rng(1).normal(size=problem.n_features) * 0.3, 1e-5
    _, gradient = problem.value_and_gradient(w)
    hessian = problem.hessian(w)
    for k, e in enumerate(np.eye(problem.n_features)):
        slope = (problem.objective(w + h * e) - problem.objective(w - h * e)) / (2 * h)
        bend = (problem.value_and_gradient(w + h * e)[1] - problem.value_and_gradient(w - h * e)[1]) / (2 * h)
        assert gradient[k] == pytest.approx(slope, rel=1e-6, abs=1e-8)
        np.testing.assert_allclose(hessian[k], bend, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(hessian, hessian.T, rtol=0, atol=1e-14)


@pytest.mark.parametrize("as_sparse", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_logistic_equals_the_oracle(weighted, as_sparse):
    problem = random_problem(weighted=weighted, as_sparse=as_sparse)
    shards, w = plain(problem.shards), np.random.default_rng(2).normal(size=7)
    assert problem.objective(w) == pytest.approx(oracle.objective(shards, 0.5, w), rel=1e-13)
    np.testing.assert_allclose(problem.value_and_gradient(w)[1], oracle.gradient(shards, 0.5, w), rtol=1e-12)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("penalty", [{"l2": 0.5}, {"l2": None, "alpha": 0.1}])
def test_a_duplicated_row_equals_weight_two(loss, penalty):
    shards = random_shards(targets=TARGETS[loss])
    first = shards[0]
    double = Shard.of(np.vstack([first.X, first.X[3:4]]), np.append(first.y, first.y[3]))
    weights = np.ones(first.n_rows)
    weights[3] = 2.0
    heavy = Shard.of(first.X, first.y, weights=weights)
    for weighting in ("uniform", "samples"):
        one = Problem([double, *shards[1:]], loss=loss, weighting=weighting, **penalty)
        other = Problem([heavy, *shards[1:]], loss=loss, weighting=weighting, **penalty)
        w = np.random.default_rng(3).normal(size=one.n_features) * 0.3
        assert one.objective(w) == pytest.approx(other.objective(w), rel=1e-13)
        gradients = one.value_and_gradient(w)[1], other.value_and_gradient(w)[1]
        np.testing.assert_allclose(*gradients, rtol=1e-11, atol=1e-14)
        np.testing.assert_allclose(one.hessian(w), other.hessian(w), rtol=1e-11, atol=1e-14)


def test_samples_weighting_with_alpha_is_the_pooled_problem():
    problem = random_problem(alpha=0.05, weighting="samples", weighted=True)
    X, y = np.vstack([s.X for s in problem.shards]), np.concatenate([s.y for s in problem.shards])
    weights = np.concatenate([s.weights for s in problem.shards])
    pooled = Problem([Shard.of(X, y, weights=weights)], alpha=0.05)
    w = np.random.default_rng(4).normal(size=7)
    assert problem.objective(w) == pytest.approx(pooled.objective(w), rel=1e-13)
    np.testing.assert_allclose(problem.hessian(w), pooled.hessian(w), rtol=1e-12, atol=1e-14)


def test_penalties_are_the_papers_lambda_over_m():
    problem = random_problem(l2=0.5)
    np.testing.assert_allclose(problem.penalties, 0.5 / np.array([9, 14, 5, 12]))
    assert problem.strong_convexity == pytest.approx(np.mean(0.5 / np.array([9, 14, 5, 12])))


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.sampled_from(["logistic", "squared", "squared_hinge"]), st.booleans())
def test_smoothness_bounds_every_hessian_and_is_reached_by_the_quadratic(seed, loss, as_sparse):
    problem = random_problem(loss, seed=seed, as_sparse=as_sparse, sizes=(8, 3))
    rng = np.random.default_rng(seed)
    for local in problem.local_objectives:
        top = max(np.linalg.eigvalsh(local.hessian(rng.normal(size=7)))[-1] for _ in range(3))
        assert top <= local.smoothness() * (1 + 1e-9)
        if loss == "squared":
            assert top == pytest.approx(local.smoothness(), rel=1e-9)


def test_smoothness_of_rows_of_zeros():
    """Nothing to iterate on: its gradient is that of the penalty."""
    shard = Shard.of(sparse.csr_matrix((2, 3)), np.array([0.0, 1.0]))
    assert Problem([shard], alpha=0.5).local_objectives[0].smoothness() == 0.5


@pytest.mark.slow
def test_a_sampled_gradient_is_unbiased():
    local = random_problem(weighted=True).local_objectives[1]
    w, rng = np.full(7, 0.2), np.random.default_rng(0)
    value, gradient = local.value_and_gradient(w)
    draws = [local.sample(rng.choice(14, size=4, replace=False)).value_and_gradient(w) for _ in range(20_000)]
    assert np.mean([draw[0] for draw in draws]) == pytest.approx(value, rel=0.02)
    np.testing.assert_allclose(np.mean([draw[1] for draw in draws], axis=0), gradient, atol=0.01)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"l2": -1.0}, "l2=-1.0: must be a finite number >= 0"),
        ({"alpha": float("nan")}, "alpha=nan: must be a finite number >= 0"),
        ({"l2": 1.0, "alpha": 1.0}, "l2=1.0 and alpha=1.0: give one of them; l2 is the paper's lambda, alpha absolute"),
        ({"weighting": "even"}, "weighting='even': must be 'uniform' (the paper) or 'samples' (the pooled fit)"),
    ],
)
def test_wrong_arguments(arguments, message):
    with pytest.raises(danl.InputError) as error:
        Problem(random_shards(), **arguments)
    assert str(error.value) == message


def test_one_class_only():
    shards = [Shard.of(np.eye(3), np.ones(3)), Shard.of(np.eye(3), np.ones(3))]
    with pytest.raises(danl.InputError) as error:
        Problem(shards)
    assert str(error.value) == (
        "y: all 6 targets are 1, and loss 'logistic' needs both classes, 0 and 1; check the labels or use "
        "loss='squared'"
    )


def test_shards_must_have_the_same_width():
    shards = [Shard.of(np.eye(3), np.array([0.0, 1.0, 1.0])), Shard.of(np.eye(2), np.array([0.0, 1.0]))]
    with pytest.raises(danl.InputError, match=r"found 3 at worker 0 .* and 2 at worker 1 .*; pass n_features"):
        Problem(shards)


def test_no_shard():
    with pytest.raises(danl.InputError, match="must hold at least one shard"):
        Problem([])
