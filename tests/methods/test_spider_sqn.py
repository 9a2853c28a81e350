"""SPIDER-SQN: limited-memory BFGS on whole shards, its damping, an independent loop beside it."""

import numpy as np
import pytest

import danl
from danl.methods.spider_sqn import SpiderSQN, damped
from danl.protocol.streams import GRADIENT_BATCH, stream
from danl.server.partial_curvature import Diagonal
from danl.server.quasi_newton import Pairs, QuasiNewton
from tests.problems import random_problem
from tests.tools import iterates

W0 = np.full(7, 0.3)


def two_loops(gradient, pairs, gamma):
    """H times a gradient (Nocedal & Wright, algorithm 7.4)."""
    left, shares = gradient, []
    for s, y in reversed(pairs):
        shares.append((s @ left) / (s @ y))
        left = left - shares[-1] * y
    direction = left / gamma
    for (s, y), share in zip(pairs, reversed(shares), strict=True):
        direction = direction + (share - (y @ direction) / (s @ y)) * s
    return direction


def plain_lbfgs(problem, w0, steps, *, memory, rate, delta):
    """Limited-memory BFGS with a fixed step, from the scaled identity; nothing is damped."""
    models, pairs, w, gamma = [w0], [], w0, max(1.0, delta)
    gradient = problem.value_and_gradient(w)[1]
    for _ in range(steps):
        before, old, w = w, gradient, w - rate * two_loops(gradient, pairs, gamma)
        gradient = problem.value_and_gradient(w)[1]
        s, y = w - before, gradient - old
        pairs, gamma = [*pairs, (s, y)][-memory:], max((y @ y) / (s @ y), delta)
        assert s @ y > 0.25 * gamma * (s @ s)  # there is nothing to damp
        models.append(w)
    return models


@pytest.mark.parametrize("q", [None, 1, 4])
def test_on_whole_shards_it_is_limited_memory_bfgs(q):
    problem = random_problem(l2=1.0)
    method = SpiderSQN(q=q, batch_size=None, memory=3, delta=1e-3, learning_rate=0.8)
    expected = plain_lbfgs(problem, W0, 12, memory=3, rate=0.8, delta=1e-3)
    np.testing.assert_allclose(iterates(problem, method, w0=W0, max_rounds=11), expected, rtol=1e-9, atol=1e-11)


def plain_spider(problem, w0, exchanges, *, q, batch, memory, rate, delta, seed=0):
    """The box, written out."""
    models, pairs, w, before, v, gamma = [w0], [], w0, w0, None, max(1.0, delta)
    for k in range(exchanges):
        if k % q == 0:
            v = problem.value_and_gradient(w)[1]
        else:
            y = np.zeros_like(w)
            for i, (weight, local) in enumerate(zip(problem.weights, problem.local_objectives, strict=True)):
                draws = stream(seed, GRADIENT_BATCH, k).random((i + 1, batch))[i]
                sample = local.sample((draws * local.n_rows).astype(np.int64))
                y = y + weight * (sample.value_and_gradient(w)[1] - sample.value_and_gradient(before)[1])
            s, v = w - before, v + y
            gamma = max((y @ y) / (s @ y), delta) if s @ y > 0 else delta
            if s @ y < 0.25 * gamma * (s @ s):
                theta = 0.75 * gamma * (s @ s) / (gamma * (s @ s) - s @ y)
                y = theta * y + (1 - theta) * gamma * s
            pairs = [*pairs, (s, y)][-memory:]
        before, w = w, w - rate * two_loops(v, pairs, gamma)
        models.append(w)
    return models


@pytest.mark.parametrize("delta", [1e-2, 5.0])
def test_it_is_the_algorithm_of_its_box(delta):
    problem = random_problem(weighted=True, weighting="samples")
    method = SpiderSQN(q=6, batch_size=2, memory=4, delta=delta, learning_rate=0.1)
    expected = plain_spider(problem, W0, 20, q=6, batch=2, memory=4, rate=0.1, delta=delta)
    np.testing.assert_allclose(iterates(problem, method, w0=W0, max_rounds=19), expected, rtol=1e-7, atol=1e-9)


def test_without_pairs_and_with_a_refresh_at_every_step_it_is_gradient_descent():
    problem = random_problem()
    ours = iterates(problem, SpiderSQN(q=1, memory=0, delta=1.0, learning_rate=0.3), w0=W0, max_rounds=10)
    gd = iterates(problem, "gd:learning_rate=0.3", w0=W0, max_rounds=10)
    np.testing.assert_allclose(ours, gd, rtol=0, atol=1e-12)
    unit = iterates(problem, SpiderSQN(q=1, memory=0, learning_rate=1.0), w0=W0, max_rounds=9)
    np.testing.assert_allclose(unit[1:], iterates(problem, "gd", w0=W0, max_rounds=10)[2:], rtol=0, atol=1e-12)


def test_damping_keeps_curvature_along_the_step_and_leaves_good_pairs_alone():
    rng, seen = np.random.default_rng(0), set()
    for _ in range(200):
        s, y, delta = rng.normal(size=5), rng.normal(size=5), float(rng.uniform(0.01, 3))
        y = y + float(rng.uniform(0, 3)) * s
        ybar, gamma = damped(s, y, delta)
        assert gamma >= delta
        if s @ y < 0.25 * gamma * (s @ s):
            assert s @ ybar == pytest.approx(0.25 * gamma * (s @ s), rel=1e-10)
        else:
            np.testing.assert_array_equal(ybar, y)
        seen.add(bool(ybar is y))
    assert seen == {True, False}
    assert damped(s, -s, 0.5)[1] == 0.5


def test_the_two_loops_are_bfgs_and_fit_the_newest_pair():
    rng, gamma, kept = np.random.default_rng(1), 2.0, Pairs.none(5)
    H = np.eye(5) / gamma
    for _ in range(3):
        s, y = rng.normal(size=5), rng.normal(size=5)
        ybar, _ = damped(s, y, gamma)
        rho = 1 / (s @ ybar)
        left = np.eye(5) - rho * np.outer(s, ybar)
        H = left @ H @ left.T + rho * np.outer(s, s)
        kept = kept.with_pair(s, ybar, 3)
    made = QuasiNewton(Diagonal(np.full(5, gamma)), kept)
    np.testing.assert_allclose(np.array([made.solve(each) for each in np.eye(5)]), H, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(made.solve(ybar), s, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("options", ["", "batch_size=1", "batch_size=4,q=10,learning_rate=0.1", "batch_size=all"])
def test_it_reaches_the_optimum_and_proves_it(options):
    problem = random_problem()
    result = danl.solve(problem, method=f"spider-sqn:{options}" if options else "spider-sqn", max_rounds=2000)
    assert result.status == "converged"
    assert result.history[-1].kind == "gradient"
    assert np.linalg.norm(problem.value_and_gradient(result.w)[1]) < 1e-7


def test_pairs_make_it_faster_than_gradient_steps():
    problem = random_problem(l2=0.02)
    far = danl.solve(problem, method="spider-sqn:batch_size=all,memory=0,learning_rate=1", max_rounds=40)
    near = danl.solve(problem, method="spider-sqn:batch_size=all,learning_rate=1", max_rounds=40)
    assert near.history[-1].grad_norm < 1e-3 * far.history[-1].grad_norm


def test_with_an_intercept():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 3)) + 2.0
    shards = danl.partition(X, (X[:, 0] > 2.5) * 1.0, workers=3, seed=0)
    problem = danl.Problem(shards, alpha=1e-2, intercept=True)
    assert danl.solve(problem, method="spider-sqn:batch_size=8", max_rounds=400).history[-1].grad_norm < 1e-4


def test_a_loss_without_a_bound_needs_delta():
    with pytest.raises(danl.InputError, match=r"delta=None.*spider-sqn:delta=1"):
        danl.solve(random_problem("poisson"), method="spider-sqn")
    result = danl.solve(random_problem("poisson"), method="spider-sqn:delta=1,batch_size=all", max_rounds=200)
    assert result.status == "converged"


def test_a_run_that_is_resumed_takes_the_same_steps(tmp_path):
    problem, method = random_problem(), "spider-sqn:q=7,batch_size=2,learning_rate=0.1"
    whole = danl.solve(problem, method=method, max_rounds=30, tol=0.0)
    danl.solve(problem, method=method, max_rounds=10, tol=0.0, checkpoint=tmp_path / "kept")
    resumed = danl.solve(problem, method=method, max_rounds=30, tol=0.0, resume=tmp_path / "kept")
    np.testing.assert_array_equal(resumed.w, whole.w)


@pytest.mark.parametrize("method", ["spider-sqn:batch_size=4,q=4", "spider-sqn:batch_size=all,q=3"])
def test_absences_do_not_stop_it(method):
    result = danl.solve(random_problem(), method=method, engine="local:dropout=0.2", max_rounds=200)
    assert result.status in ("max_rounds", "converged")
    assert result.history[-1].grad_norm < 0.5
    assert result.failures


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("q=0", "q=0"),
        ("batch_size=none", "batch_size='none'"),
        ("memory=-1", "memory=-1"),
        ("delta=0", "delta=0"),
        ("learning_rate=0", "learning_rate=0: must be a finite number > 0; try learning_rate=0.25"),
    ],
)
def test_wrong_options_are_named(options, said):
    with pytest.raises(danl.InputError, match=said):
        danl.solve(random_problem(), method=f"spider-sqn:{options}")
    with pytest.raises(danl.InputError, match="learning_rate=None"):
        SpiderSQN(learning_rate=None)
