"""FedSN: its steps in closed form, where it comes to rest, stable rates, and absences and bad replies."""

import numpy as np
import pytest

import danl
from danl.data import Shard
from danl.engines import Local
from danl.frozen import replace
from danl.methods import make_method
from danl.methods.fedsn import FedSN
from danl.objective.problem import Problem
from danl.protocol import wire
from danl.protocol.own_tasks import Workplace
from danl.tasks.quadratic_steps import QuadraticStepsTask
from tests.problems import TARGETS, random_problem, random_shards
from tests.tools import iterates

W = np.linspace(-0.5, 0.5, 7)


def places(problem, seed=0):
    regions = problem.layout.regions(None)
    return [Workplace(i, local, regions, seed) for i, local in enumerate(problem.local_objectives)]


def identical(n=4, **options):
    """One shard, n times."""
    (shard,) = random_shards(sizes=(60,), **options)
    return [Shard.of(shard.X, shard.y, name=f"worker-{i}") for i in range(n)]


@pytest.mark.parametrize("loss", TARGETS)
@pytest.mark.parametrize("steps", [1, 7, 300])
def test_full_batches_have_a_closed_form(loss, steps):
    """u_K = -(I - (I - eta H)^K) H^-1 g."""
    problem = Problem(random_shards(sizes=(30,), targets=TARGETS[loss]), loss=loss, l2=0.5)
    (local,) = problem.local_objectives
    gradient, hessian, eta = local.value_and_gradient(W)[1], local.hessian(W), 0.05
    models = iterates(problem, FedSN(steps=steps, learning_rate=eta), w0=W, max_rounds=0)
    left = np.linalg.matrix_power(np.eye(7) - eta * hessian, steps)
    expected = -(np.eye(7) - left) @ np.linalg.solve(hessian, gradient)
    np.testing.assert_allclose(models[1] - W, expected, atol=1e-12)


@pytest.mark.parametrize("global_gradient", [False, True])
def test_on_identical_quadratics_it_is_newtons_method(global_gradient):
    problem = Problem(identical(targets="real"), loss="squared", l2=0.5)
    method = FedSN(steps=2000, global_gradient=global_gradient)
    result = danl.solve(problem, method=method, w0=W, max_rounds=int(global_gradient))
    assert result.history[-1].step_norm > 0.1
    assert np.linalg.norm(problem.value_and_gradient(result.w)[1]) < 1e-12


def test_one_step_is_a_gradient_step():
    problem = random_problem(weighting="samples", weighted=True)
    models = iterates(problem, "fedsn:steps=1,learning_rate=0.1,beta=0.5", w0=W, max_rounds=0)
    np.testing.assert_allclose(models[1], W - 0.05 * problem.value_and_gradient(W)[1], atol=1e-14)


def test_with_local_gradients_it_comes_to_rest_elsewhere():
    """Where sum_i weight_i H_i^-1 grad F_i = 0; with everyone's gradient, at the optimum."""
    problem = random_problem(sizes=(20, 20, 20, 20))
    optimum = danl.reference_optimum(problem).w
    local = danl.solve(problem, method=FedSN(steps=500), max_rounds=25).w
    one_sided = problem.weights @ [
        np.linalg.solve(each.hessian(local), each.value_and_gradient(local)[1]) for each in problem.local_objectives
    ]
    assert np.linalg.norm(one_sided) < 1e-9
    assert np.linalg.norm(problem.value_and_gradient(local)[1]) > 1e-3
    assert np.linalg.norm(local - optimum) > 1e-3
    everyones = danl.solve(problem, method=FedSN(steps=500, global_gradient=True), max_rounds=100)
    assert everyones.status == "converged"
    np.testing.assert_allclose(everyones.w, optimum, atol=1e-7)


def test_local_gradients_never_prove_an_end():
    problem = Problem(identical(), l2=0.5)
    result = danl.solve(problem, method=FedSN(steps=500), max_rounds=15)
    assert result.status == "max_rounds"
    assert result.history[-1].grad_norm < 1e-10
    assert set(result.history.column("kind")) == {"quadratic-steps"}


@pytest.mark.parametrize("batch_size", [None, 1, 5])
@pytest.mark.parametrize("loss", [*TARGETS, "multinomial:classes=3"])
def test_the_default_rate_is_below_two_over_the_curvature_of_every_batch(loss, batch_size):
    if loss.startswith("multinomial"):
        rng = np.random.default_rng(0)
        shards = [Shard.of(rng.normal(size=(20, 4)), np.arange(20.0) % 3)]
        problem = Problem(shards, loss=loss, alpha=0.1)
    else:
        problem = Problem(random_shards(sizes=(20,), targets=TARGETS[loss], weighted=True), loss=loss, l2=0.5)
    (place,) = places(problem)
    local, d = place.objective, problem.n_coefficients
    w = np.linspace(-0.3, 0.3, d)
    task = QuadraticStepsTask(0, w, 1, batch_size=batch_size)
    rows = place.rows(2, batch_size, 0)
    gradient = local.sample(rows).value_and_gradient(w)[1]
    rate = -float(task.work(place).step @ gradient) / float(gradient @ gradient)
    assert 0 < rate <= 1.0 / np.linalg.eigvalsh(local.sample(rows).hessian(w))[-1] * (1 + 1e-9)


@pytest.mark.parametrize("as_sparse", [False, True])
@pytest.mark.parametrize("given", [False, True])
def test_mini_batches_are_of_drawn_rows(as_sparse, given):
    problem = random_problem(as_sparse=as_sparse, weighted=True)
    gradient = np.ones(7) if given else None
    for place in places(problem):
        task = QuadraticStepsTask(3, W, 4, gradient, 0.1, 5)
        drawn, u = place.rows(2, 20, 3).reshape(4, 5), np.zeros(7)
        for rows in drawn:
            batch = place.objective.sample(rows)
            slope = gradient if given else batch.value_and_gradient(W)[1]
            u = u - 0.1 * (batch.hessian(W) @ u + slope)
        np.testing.assert_allclose(task.work(place).step, u, atol=1e-13)


def test_mini_batches_differ_between_rounds_and_workers_and_not_between_runs():
    problem = Problem(identical(), l2=0.5)
    one, other = (iterates(problem, "fedsn:batch_size=4,steps=10", max_rounds=3, seed=5) for _ in range(2))
    np.testing.assert_array_equal(one, other)
    steps = [QuadraticStepsTask(0, W, 5, batch_size=3).work(place).step for place in places(problem)]
    assert not np.allclose(steps[0], steps[1])


@pytest.mark.parametrize("method", ["fedsn", "fedsn:batch_size=8", "fedsn:global_gradient=true"])
def test_it_comes_near_the_optimum_of_shards_that_are_alike(method):
    problem = random_problem(sizes=(400, 400, 400), alpha=1e-2)
    reference = danl.reference_optimum(problem)
    result = danl.solve(problem, method=method, max_rounds=30, reference=reference)
    assert result.status != "diverged"
    assert 0 <= result.history[-1].gap + 1e-15 < 0.05 * (problem.objective(np.zeros(7)) - reference.objective)


@pytest.mark.parametrize("loss", ["multinomial:classes=3", "logistic"])
@pytest.mark.parametrize("batch_size", [None, 10])
def test_with_an_intercept_and_with_classes(loss, batch_size):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(300, 3)), rng.integers(0, 3 if loss != "logistic" else 2, size=300)
    shards = danl.partition(X, y.astype(float), workers=3, seed=0)
    problem = Problem(shards, loss=loss, alpha=1e-2, intercept=True)
    method = FedSN(steps=50, batch_size=batch_size, global_gradient=True)
    result = danl.solve(problem, method=method, max_rounds=60)
    assert np.linalg.norm(problem.value_and_gradient(result.w)[1]) < 1e-6


@pytest.mark.parametrize("method", ["fedsn:batch_size=4,steps=10", "fedsn:global_gradient=true,steps=10"])
def test_a_run_that_is_resumed_is_the_same(tmp_path, method):
    problem = random_problem()
    whole = danl.solve(problem, method=method, max_rounds=9, tol=0.0)
    for stop in (2, 3):
        folder = tmp_path / str(stop)
        danl.solve(problem, method=method, max_rounds=stop, tol=0.0, checkpoint=folder)
        resumed = danl.solve(problem, method=method, max_rounds=9, tol=0.0, resume=folder)
        np.testing.assert_array_equal(resumed.w, whole.w)


@pytest.mark.parametrize("method", ["fedsn", "fedsn:batch_size=4", "fedsn:global_gradient=true"])
def test_it_goes_on_with_those_who_answer(method):
    problem = random_problem(sizes=(30, 30, 30, 30, 30))
    result = danl.solve(problem, method=method, max_rounds=30, engine="local:dropout=0.2")
    assert result.status == "max_rounds"
    assert result.failures
    assert problem.objective(result.w) < problem.objective(np.zeros(7))


def test_nobody_is_an_end():
    away = dict.fromkeys(range(4), (4, None))
    result = danl.solve(random_problem(), method="fedsn", max_rounds=20, engine=Local(away=away))
    assert result.status == "quorum_lost"


def test_bytes_are_those_of_the_vectors():
    result = danl.solve(random_problem(), method="fedsn:global_gradient=true", max_rounds=1, tol=0.0)
    assert (result.history.column("bytes_up") / 4).tolist() == [8 * 8, 8 * 8]
    assert (result.history.column("bytes_down") / 4).tolist() == [8 * 7, 8 * 14]
    result = danl.solve(random_problem(), method="fedsn", max_rounds=0)
    assert (result.history[0].bytes_up, result.history[0].bytes_down) == (4 * 64, 4 * 56)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("steps=0", "steps=0: must be a whole number >= 1"),
        ("learning_rate=0", "learning_rate=0: must be a finite number > 0"),
        ("batch_size=0", "batch_size=0: must be a whole number >= 1; leave it out for the whole shard"),
        ("beta=0", "beta=0: must be a finite number > 0"),
        ("global_gradient=1", "global_gradient=1: must be true or false"),
    ],
)
def test_wrong_options(options, message):
    with pytest.raises(danl.InputError) as error:
        make_method(f"fedsn:{options}")
    assert str(error.value).startswith(message)


def tasks():
    return [QuadraticStepsTask(3, W, 5), QuadraticStepsTask(3, W, 5, np.ones(7), 0.1, 4)]


@pytest.mark.parametrize("task", tasks())
def test_tasks_and_replies_go_over_the_wire(task):
    reply = task.work(places(random_problem())[0])
    assert task.fault(reply, 7) is None
    for message in (task, reply):
        read = wire.decode(wire.encode(message), most_bytes=wire.most_bytes(7, 4))
        assert type(read) is type(message)
        assert wire.encode(read) == wire.encode(message)


@pytest.mark.parametrize("bad", [np.ones(6), np.ones((7, 1)), np.ones(7, dtype=np.float32), None, 1.0])
def test_malformed_replies_are_named(bad):
    task = tasks()[0]
    reply = replace(task.work(places(random_problem())[0]), step=bad)
    assert task.fault(reply, 7) == "its step is not an array of 7 numbers"


def test_work_is_counted_in_passes():
    whole, batches = (task.work_rows(100, 10.0) for task in tasks())
    assert (whole, batches) == (600.0, 30.0)
