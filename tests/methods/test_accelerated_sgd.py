"""Accelerated mini-batch SGD: its deterministic bound, its first step, an independent loop beside it, restarts."""

import numpy as np
import pytest

import danl
from danl.engines import Local
from danl.methods.accelerated_sgd import AcceleratedSGD, stage_length
from danl.protocol.messages import GradientTask
from tests.problems import random_problem, random_shards
from tests.tools import iterates

W0 = np.full(7, 0.3)


def flat_problem(loss="squared", l2=1e-6):
    """Columns of very different sizes: a condition number that gradient descent cannot do much about."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 7)) * np.logspace(0, -3, 7)
    y = X @ rng.normal(size=7) * 30 + rng.normal(size=60)
    shards = danl.partition(X, y if loss == "squared" else (y > 0) * 1.0, workers=4, seed=0)
    return danl.Problem(shards, loss=loss, l2=l2)


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_without_noise_it_keeps_its_bound(loss):
    problem = flat_problem(loss)
    smoothness = problem.weights @ [local.smoothness() for local in problem.local_objectives]
    reference = danl.reference_optimum(problem)
    models = iterates(problem, "accelerated-sgd:batch_size=all", max_rounds=400)
    gaps = np.array([problem.objective(w) - reference.objective for w in models[1:]])
    t = np.arange(1, len(gaps) + 1)
    bound = 4 * smoothness * np.square(reference.w).sum() / (t * (t + 2))
    assert (gaps <= bound).all()
    assert gaps[399] < 0.1 * gaps[39]
    gd = danl.solve(problem, method="gd", max_rounds=400, tol=0.0)
    assert gaps[-1] < 0.5 * (gd.history[-1].objective - reference.objective)


def test_the_first_step_is_a_gradient_step():
    problem = random_problem()
    gradient = problem.value_and_gradient(W0)[1]
    smoothness = problem.weights @ [local.smoothness() for local in problem.local_objectives]
    given = iterates(problem, "accelerated-sgd:learning_rate=0.2,batch_size=all", w0=W0, max_rounds=0)
    np.testing.assert_allclose(given[1], W0 - 0.2 * gradient, rtol=0, atol=1e-14)
    told = iterates(problem, "accelerated-sgd:batch_size=all", w0=W0, max_rounds=0)
    np.testing.assert_allclose(told[1], W0 - gradient / (2 * smoothness), rtol=0, atol=1e-14)


def plain_acsa(problem, w0, steps, rate, gradient_at):
    """AC-SA, written out as Lan has it."""
    models, x, ag = [w0], w0, w0
    for t in range(1, steps + 1):
        beta = (t + 1) / 2
        md = x / beta + (1 - 1 / beta) * ag
        x = x - rate * beta * gradient_at(t - 1, md)
        ag = x / beta + (1 - 1 / beta) * ag
        models.append(ag)
    return models


@pytest.mark.parametrize("batch", [None, 3])
def test_n_workers_with_b_rows_are_the_mean_of_their_batches(batch):
    problem = random_problem(weighted=True, weighting="samples")
    engine = Local(batched=False)
    engine.open(problem, regions=problem.layout.regions(2), policy=None, seed=0)

    def mean(exchange, w):
        task = GradientTask(exchange, w, batch_size=batch)
        replies = [worker.answer(task).fragment for worker in engine._workers]
        return problem.weights @ np.array(replies)

    ours = iterates(problem, AcceleratedSGD(batch_size=batch, learning_rate=0.1), w0=W0, max_rounds=14)
    np.testing.assert_allclose(ours, plain_acsa(problem, W0, 15, 0.1, mean), rtol=0, atol=1e-12)


def test_n_workers_are_one_worker_with_the_rows_of_all():
    shards = random_shards(sizes=(8, 8, 8))
    X, y = np.vstack([each.X for each in shards]), np.concatenate([each.y for each in shards])
    many, one = danl.Problem(shards, alpha=0.1), danl.Problem([danl.Shard.of(X, y)], alpha=0.1)
    method = "accelerated-sgd:batch_size=all,learning_rate=0.2"
    pooled = iterates(one, method, w0=W0, max_rounds=20)
    np.testing.assert_allclose(iterates(many, method, w0=W0, max_rounds=20), pooled, rtol=0, atol=1e-12)


def test_the_default_step_is_shorter_the_more_noise_and_steps_there_are():
    problem, w = random_problem(l2=0.01), W0
    noise, loss, mu = 0.0, problem.objective(w), problem.penalties @ problem.weights
    for weight, local in zip(problem.weights, problem.local_objectives, strict=True):
        rows = np.array([local.sample(np.array([j])).value_and_gradient(w)[1] for j in range(local.n_rows)])
        noise += weight**2 * np.square(rows - rows.mean(axis=0)).sum(axis=1).mean() / 2
    for options, rounds, distance in (("", 100, np.sqrt(2 * loss / mu)), (",distance=3", 400, 3.0)):
        rate = np.sqrt(3 / noise) * distance / (rounds + 3) ** 1.5
        models = iterates(problem, f"accelerated-sgd:batch_size=2{options}", w0=w, max_rounds=rounds)
        np.testing.assert_allclose(models[1], w - rate * problem.value_and_gradient(w)[1], rtol=1e-10)


def test_mini_batches_come_near_the_optimum():
    problem = random_problem()
    start = np.linalg.norm(problem.value_and_gradient(np.zeros(7))[1])
    result = danl.solve(problem, method="accelerated-sgd:batch_size=4", max_rounds=400)
    assert result.status == "max_rounds"
    assert result.history[-1].grad_norm < 0.15 * start


def test_restarts_make_it_linear():
    problem = flat_problem("logistic", l2=1e-2)
    smoothness = problem.weights @ [local.smoothness() for local in problem.local_objectives]
    stage = stage_length(0.5 / smoothness, problem.weights @ problem.penalties)
    reference = danl.reference_optimum(problem)
    models = iterates(problem, "accelerated-sgd:batch_size=all,restart=true", max_rounds=6 * stage)
    gaps = np.array([problem.objective(w) - reference.objective for w in models])
    assert stage > 20
    for k in range(6):  # to the end of every stage at most half is left
        assert gaps[(k + 1) * stage] <= 0.5 * gaps[k * stage] + 1e-15


def test_the_end_on_whole_shards_is_proven_at_the_model_that_is_returned():
    problem = random_problem()
    result = danl.solve(problem, method="accelerated-sgd:batch_size=all", max_rounds=3000, tol=1e-7)
    assert result.status == "converged"
    assert np.linalg.norm(problem.value_and_gradient(result.w)[1]) == pytest.approx(result.history[-1].grad_norm)
    assert result.history[-1].grad_norm < 1e-6
    assert result.history[-1].objective == pytest.approx(problem.objective(result.w), rel=1e-14)


def test_a_start_at_the_optimum_is_seen_in_the_first_exchange():
    problem = random_problem()
    optimum = danl.reference_optimum(problem).w
    result = danl.solve(problem, method="accelerated-sgd", w0=optimum, tol=1e-6)
    assert (result.status, len(result.history)) == ("converged", 1)


def test_with_an_intercept():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 3))
    shards = danl.partition(X, (X[:, 0] > 0.5) * 1.0, workers=3, seed=0)
    problem = danl.Problem(shards, alpha=1e-2, intercept=True)
    result = danl.solve(problem, method="accelerated-sgd:batch_size=all", max_rounds=300)
    assert result.history[-1].grad_norm < 1e-3


def test_a_run_that_is_resumed_takes_the_same_steps(tmp_path):
    problem, method = random_problem(), "accelerated-sgd:batch_size=3,restart=true"
    whole = danl.solve(problem, method=method, max_rounds=30, tol=0.0)
    folder = tmp_path / "kept"
    danl.solve(
        problem, method=method, max_rounds=30, tol=0.0, checkpoint=folder, callback=lambda row: row.exchange == 9
    )
    resumed = danl.solve(problem, method=method, max_rounds=30, tol=0.0, resume=folder)
    assert len(resumed.history) == 31
    np.testing.assert_array_equal(resumed.w, whole.w)


def test_absences_do_not_stop_it():
    problem = random_problem()
    result = danl.solve(problem, method="accelerated-sgd:batch_size=4", engine="local:dropout=0.2", max_rounds=200)
    assert result.status == "max_rounds"
    assert result.history[-1].objective < problem.objective(np.zeros(7))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("batch_size=0", "batch_size=0"),
        ("learning_rate=0", "learning_rate=0"),
        ("distance=-2", "distance=-2"),
        ("restart=3", "restart=3"),
    ],
)
def test_wrong_options_are_named(options, said):
    with pytest.raises(danl.InputError, match=said):
        danl.solve(random_problem(), method=f"accelerated-sgd:{options}")


def test_restarts_need_a_penalty_and_the_default_step_a_bound_on_the_curvature():
    with pytest.raises(danl.InputError, match="restart=True"):
        danl.solve(random_problem(l2=0.0), method="accelerated-sgd:restart=true")
    result = danl.solve(random_problem(l2=0.0, loss="squared"), method="accelerated-sgd:batch_size=4", max_rounds=50)
    assert result.history[-1].objective < result.history[0].objective
    with pytest.raises(danl.InputError, match=r"learning_rate=None.*accelerated-sgd:learning_rate=0.01"):
        danl.solve(random_problem("poisson"), method="accelerated-sgd")
