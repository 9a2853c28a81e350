"""GIANT: its direction, its search, what it is on identical shards, and what it does with absences and bad replies."""

import numpy as np
import pytest

import danl
from danl.data import Shard
from danl.engines import Local
from danl.frozen import replace
from danl.methods import make_method
from danl.methods.giant import Giant
from danl.objective.problem import Problem
from danl.protocol import wire
from danl.protocol.own_tasks import Workplace
from danl.tasks.newton_directions import EXACT, Factored, Iterated, NewtonDirectionTask, conjugate_gradients
from danl.tasks.trial_losses import TrialLossesTask
from tests.problems import random_problem, random_shards
from tests.tools import iterates


def identical(n=4, **options):
    """One shard, n times."""
    (shard,) = random_shards(sizes=(60,), **options)
    return [Shard.of(shard.X, shard.y, name=f"worker-{i}") for i in range(n)]


def places(problem, seed=0):
    regions = problem.layout.regions(None)
    return [Workplace(i, local, regions, seed) for i, local in enumerate(problem.local_objectives)]


def test_on_identical_shards_it_is_newtons_method():
    problem = Problem(identical(), l2=0.1)
    models = iterates(problem, "giant", max_rounds=17)
    newton = iterates(problem, "newton-undamped", max_rounds=5)
    for number, w in enumerate(newton):
        np.testing.assert_allclose(models[3 * number], w, atol=1e-8)
    assert np.linalg.norm(problem.value_and_gradient(models[-1])[1]) < 1e-9


@pytest.mark.parametrize("as_sparse", [False, True])
def test_the_full_step_is_the_weighted_mean_of_local_newton_steps(as_sparse):
    problem = random_problem(as_sparse=as_sparse, weighting="samples", weighted=True)
    w0 = np.full(7, 0.3)
    g = problem.value_and_gradient(w0)[1]
    locals_ = problem.local_objectives
    steps = [np.linalg.solve(local.hessian(w0), g) for local in locals_]
    for method in ("giant:line_search=false", "giant:cg=7,line_search=false"):
        models = iterates(problem, method, w0=w0, max_rounds=1)
        np.testing.assert_allclose(models[2], w0 - problem.weights @ steps, atol=1e-10)


def test_a_quadratic_with_identical_shards_is_solved_in_one_round():
    problem = Problem(identical(targets="real"), loss="squared", l2=0.1)
    result = danl.solve(problem, method="giant", max_rounds=10)
    assert result.status == "converged"
    assert len(result.history) == 4
    assert list(result.history.column("kind")) == ["gradient", "newton-direction", "losses", "gradient"]


def test_it_converges_and_says_so_by_everyones_gradient():
    problem = random_problem(alpha=1e-2)
    result = danl.solve(problem, method="giant", max_rounds=300)
    assert result.status == "converged"
    assert np.linalg.norm(problem.value_and_gradient(result.w)[1]) < 1e-8
    assert result.history[-1].kind == "gradient"


def test_the_search_takes_the_longest_step_that_is_low_enough():
    problem, w0 = random_problem("poisson", alpha=1e-3), np.full(7, -2.0)
    g = problem.value_and_gradient(w0)[1]
    p = problem.weights @ [np.linalg.solve(local.hessian(w0), g) for local in problem.local_objectives]
    f, lengths = problem.objective(w0), 4.0 ** -np.arange(10)
    with np.errstate(over="ignore"):
        low = [problem.objective(w0 - length * p) <= f - 0.1 * length * (p @ g) for length in lengths]
    assert not low[0]  # else the case is none
    models = iterates(problem, "giant", w0=w0, max_rounds=2)
    np.testing.assert_allclose(models[3], w0 - lengths[np.argmax(low)] * p, rtol=1e-9)


def test_rounds_are_three_exchanges_of_known_bytes():
    result = danl.solve(random_problem(), method="giant", max_rounds=2, tol=0.0)
    up, down = result.history.column("bytes_up") / 4, result.history.column("bytes_down") / 4
    assert up.tolist() == [8 * 8, 8 * 8, 8 * 11]
    assert down.tolist() == [8 * 7, 8 * 14, 8 * 14]


def test_without_a_search_a_round_is_two_exchanges():
    result = danl.solve(random_problem(), method="giant:line_search=false", max_rounds=3, tol=0.0)
    assert list(result.history.column("kind")) == ["gradient", "newton-direction"] * 2


@pytest.mark.parametrize("loss", ["multinomial:classes=3", "logistic"])
def test_with_an_intercept_and_with_classes(loss):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(300, 3)), rng.integers(0, 3 if loss != "logistic" else 2, size=300)
    shards = danl.partition(X, y.astype(float), workers=3, seed=0)
    problem = Problem(shards, loss=loss, alpha=1e-2, intercept=True)
    result = danl.solve(problem, method="giant", max_rounds=60)
    assert result.status == "max_rounds"  # without a penalty on the intercept nothing is proven
    assert np.linalg.norm(problem.value_and_gradient(result.w)[1]) < 1e-9


def test_a_run_that_is_resumed_is_the_same(tmp_path):
    problem = random_problem()
    whole = danl.solve(problem, method="giant", max_rounds=13, tol=0.0)
    for stop in (3, 4, 5):
        folder = tmp_path / str(stop)
        danl.solve(problem, method="giant", max_rounds=stop, tol=0.0, checkpoint=folder)
        resumed = danl.solve(problem, method="giant", max_rounds=13, tol=0.0, resume=folder)
        np.testing.assert_array_equal(resumed.w, whole.w)


@pytest.mark.parametrize("method", ["giant", "giant:line_search=false"])
def test_it_goes_on_with_those_who_answer(method):
    problem = random_problem(sizes=(30, 30, 30, 30, 30))
    result = danl.solve(problem, method=method, max_rounds=60, engine="local:dropout=0.2")
    assert result.status == "max_rounds"
    assert result.failures
    assert problem.objective(result.w) < problem.objective(np.zeros(7))


def test_nobody_is_an_end():
    away = dict.fromkeys(range(4), (4, None))
    result = danl.solve(random_problem(), method="giant", max_rounds=20, engine=Local(away=away))
    assert result.status == "quorum_lost"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("cg=0", "cg=0: must be a whole number >= 1; leave it out for the exact direction"),
        ("line_search=often", "line_search='often': must be true or false"),
    ],
)
def test_wrong_options(options, message):
    with pytest.raises(danl.InputError) as error:
        danl.solve(random_problem(), method=f"giant:{options}")
    assert str(error.value) == message


def test_a_hessian_without_inverse_counts_with_its_pseudo_inverse():
    rng = np.random.default_rng(0)
    half = rng.normal(size=(6, 3))
    hessian, v = half @ half.T, rng.normal(size=6)
    np.testing.assert_allclose(Factored(0.0, hessian).solve(v), np.linalg.pinv(hessian, rcond=1e-12) @ v, rtol=1e-8)


def test_a_hessian_that_is_not_finite_raises_nothing():
    with np.errstate(invalid="ignore"):
        assert np.isnan(Factored(0.0, np.full((3, 3), np.nan)).solve(np.ones(3))).all()


def test_conjugate_gradients_end_after_as_many_steps_as_there_are_eigenvalues():
    hessian, b = np.diag([1.0, 1.0, 3.0, 3.0]), np.array([1.0, 2.0, 3.0, 4.0])
    calls = []
    found = conjugate_gradients(lambda v: calls.append(1) or hessian @ v, b, 50)
    np.testing.assert_allclose(found, b / hessian.diagonal(), rtol=1e-14)
    assert len(calls) <= 4
    one = conjugate_gradients(hessian.__matmul__, b, 1)
    np.testing.assert_allclose(one, (b @ b) / (b @ hessian @ b) * b)


def test_large_models_are_iterated():
    from danl.tasks.newton_directions import local_hessian

    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(20, EXACT + 1)), np.tile([0.0, 1.0], 10)
    (local,) = Problem([Shard.of(X, y)], alpha=0.1).local_objectives
    hessian = local_hessian(local, np.zeros(EXACT + 1), None)
    assert isinstance(hessian, Iterated)
    b = rng.normal(size=EXACT + 1)
    np.testing.assert_allclose(hessian.times(hessian.solve(b)), b, atol=1e-8)


def tasks():
    w, v = np.arange(7.0), np.ones(7)
    return [NewtonDirectionTask(3, w, v), NewtonDirectionTask(3, w, v, 5), TrialLossesTask(3, w, v, 4.0, 10)]


@pytest.mark.parametrize("task", tasks(), ids=lambda task: task.name)
def test_tasks_and_replies_go_over_the_wire(task):
    (place, *_) = places(random_problem())
    reply = task.work(place)
    assert task.fault(reply, 7) is None
    for message in (task, reply):
        read = wire.decode(wire.encode(message), most_bytes=wire.most_bytes(7, 4))
        assert type(read) is type(message)
        assert wire.encode(read) == wire.encode(message)


@pytest.mark.parametrize("task", tasks(), ids=lambda task: task.name)
@pytest.mark.parametrize("bad", [np.ones(6), np.ones((7, 1)), np.ones(7, dtype=np.float32), None, 1.0])
def test_malformed_replies_are_named(task, bad):
    name = "losses" if task.name == "losses" else "direction"
    reply = replace(task.work(places(random_problem())[0]), **{name: bad})
    assert task.fault(reply, 7) == f"its {name} is not an array of {10 if name == 'losses' else 7} numbers"


def test_trial_losses_are_those_of_the_models():
    problem = random_problem(weighted=True)
    w, direction = np.random.default_rng(0).normal(size=(2, 7))
    task = TrialLossesTask(0, w, direction, 4.0, 10)
    for place in places(problem):
        local = place.objective
        expected = [local.value(w + 4.0**-k * direction) for k in range(10)]
        reply = task.work(place)
        np.testing.assert_allclose(reply.losses, expected, rtol=1e-13)
        assert reply.loss == local.value(w)


def test_a_trial_that_overflows_is_sent_as_a_number():
    place = places(random_problem("poisson"))[0]
    reply = TrialLossesTask(0, np.zeros(7), np.full(7, 1e6), 4.0, 10).work(place)
    assert np.isfinite(reply.losses).all()
    assert reply.losses[0] == np.finfo(float).max


def test_work_is_counted_in_passes():
    exact, steps, losses = (task.work_rows(100, 10.0) for task in tasks())
    assert (exact, steps, losses) == (550.0, 550.0, 100.0)


def test_what_it_is_by_name():
    assert make_method("giant:cg=30,line_search=false") == Giant(cg=30, line_search=False)
