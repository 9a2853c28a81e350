"""DINGO: its three cases, its search down the norm of the gradient, and what it does with absences and bad replies."""

import numpy as np
import pytest

import danl
from danl.data import Shard
from danl.engines import Local
from danl.frozen import replace
from danl.methods import make_method
from danl.methods.dingo import Dingo
from danl.objective.problem import Problem
from danl.protocol import wire
from danl.protocol.own_tasks import Workplace
from danl.tasks.newton_directions import CorrectedDirectionTask, Factored, HessianProductsTask, Iterated
from tests.problems import random_problem, random_shards
from tests.tools import iterates

W = np.linspace(-0.5, 0.5, 7)


def places(problem, seed=0):
    regions = problem.layout.regions(None)
    return [Workplace(i, local, regions, seed) for i, local in enumerate(problem.local_objectives)]


def unlike(loss="logistic", alpha=1e-2):
    """Shards that have little in common: each its own columns in large, and its own model."""
    rng, shards = np.random.default_rng(0), []
    for number in range(4):
        X = rng.normal(size=(15, 7)) * np.where(np.arange(7) % 4 == number, 5.0, 0.2)
        y = (X @ rng.normal(size=7) > 0).astype(float)
        y[:2] = 0.0, 1.0
        shards.append(Shard.of(X, y, name=f"worker-{number}"))
    return Problem(shards, loss=loss, alpha=alpha)


def test_one_worker_with_full_steps_is_newtons_method():
    problem = Problem(random_shards(sizes=(80,)), l2=0.1)
    models = iterates(problem, "dingo", max_rounds=12)
    newton = iterates(problem, "newton-undamped", max_rounds=5)
    assert len(models) == 14
    for number, w in enumerate(newton):  # a gradient, then products and a trial each
        np.testing.assert_allclose(models[1 + 2 * number], w, atol=1e-10)


def test_one_step_to_the_optimum_of_a_quadratic():
    problem = Problem(random_shards(sizes=(40,), targets="real"), loss="squared", l2=0.1)
    result = danl.solve(problem, method="dingo", max_rounds=10)
    assert result.status == "converged"
    assert list(result.history.column("kind")) == ["gradient", "hessian-products", "gradient"]
    assert result.history[-1].grad_norm < 1e-12


def products(problem, w, phi=1e-6, steps=None):
    """G, h, and the replies of the workers."""
    g = problem.value_and_gradient(w)[1]
    replies = [HessianProductsTask(0, w, g, phi, steps).work(place) for place in places(problem)]
    return g, problem.weights @ [reply.product for reply in replies], replies


@pytest.mark.parametrize("share", [0.5, 1.0])
def test_corrected_directions_have_the_slope_that_is_asked_for(share):
    """With a theta that is above what so many of the workers have."""
    problem = unlike()
    g, h, replies = products(problem, W)
    slopes = np.array([reply.damped @ h for reply in replies])
    least, corrected = -1.01 * np.quantile(slopes, share), 0
    theta = -least / (g @ g)
    for place, reply in zip(places(problem), replies, strict=True):
        p = CorrectedDirectionTask(0, W, g, h, theta, 1e-6).work(place).direction
        if reply.damped @ h >= -least:
            np.testing.assert_allclose(p, -reply.damped, rtol=1e-10)
        else:
            corrected += 1
            assert p @ h == pytest.approx(least, rel=1e-9)
    assert corrected == (slopes < -least).sum() > 0


def test_case_3_is_asked_for_where_the_others_are_not_steep_enough():
    problem = unlike()
    result = danl.solve(problem, method="dingo:theta=1e4", max_rounds=120, tol=0.0)
    assert "corrected-direction" in result.history.column("kind")
    norms = [row.grad_norm for row in result.history if row.step_norm > 0]
    assert len(norms) > 3
    assert (np.diff(norms) < 0).all()


def test_products_are_those_of_the_local_hessians():
    problem = random_problem(weighted=True)
    g, h, replies = products(problem, W, phi=0.1)
    for local, reply in zip(problem.local_objectives, replies, strict=True):
        hessian = local.hessian(W)
        np.testing.assert_allclose(reply.product, hessian @ g, atol=1e-13)
        np.testing.assert_allclose(reply.inverse, np.linalg.solve(hessian, g), atol=1e-12)
        stacked = np.vstack([hessian, 0.1 * np.eye(7)])
        least_squares = np.linalg.lstsq(stacked, np.append(g, np.zeros(7)), rcond=None)[0]
        np.testing.assert_allclose(reply.damped, least_squares, atol=1e-12)
        assert reply.loss == pytest.approx(local.value(W), rel=1e-13)
    whole = problem.weights @ [local.hessian(W) @ g for local in problem.local_objectives]
    np.testing.assert_allclose(h, whole, atol=1e-13)


def test_iterations_come_to_the_same_vectors():
    problem = random_problem()
    g, h, exact = products(problem, W, phi=0.1)
    _, _, iterated = products(problem, W, phi=0.1, steps=100)
    for one, other in zip(exact, iterated, strict=True):
        for name in ("product", "inverse", "damped"):
            np.testing.assert_allclose(getattr(other, name), getattr(one, name), atol=1e-8)
    task = CorrectedDirectionTask(0, W, g, h, 10.0, 0.1)
    for place in places(problem):
        directions = [replace(task, steps=steps).work(place).direction for steps in (None, 100)]
        np.testing.assert_allclose(directions[1], directions[0], atol=1e-7)


def test_without_damping_the_second_case_is_the_first():
    _, _, replies = products(random_problem(), W, phi=1e-9)
    for reply in replies:
        np.testing.assert_allclose(reply.damped, reply.inverse, rtol=1e-8)


def test_a_singular_hessian_has_a_pseudo_inverse():
    rng = np.random.default_rng(0)
    half = rng.normal(size=(6, 3))
    hessian, v = half @ half.T, rng.normal(size=6)
    expected = np.linalg.pinv(hessian, rcond=1e-12) @ v
    np.testing.assert_allclose(Factored(0.0, hessian).pseudo_inverse(v), expected, rtol=1e-8)
    iterated = Iterated(0.0, hessian.__matmul__, 200)
    np.testing.assert_allclose(iterated.least_squares(v, 0.0), expected, rtol=1e-6)


@pytest.mark.parametrize(("theta", "phi"), [(1e-4, 1e-6), (1.0, 1e-3), (1e4, 1.0)])
def test_the_norm_of_the_gradient_falls_in_every_step(theta, phi):
    result = danl.solve(unlike(), method=Dingo(theta=theta, phi=phi), max_rounds=80)
    norms = [result.history[0].grad_norm] + [row.grad_norm for row in result.history if row.step_norm > 0]
    assert (np.diff(norms) < 0).all()


@pytest.mark.parametrize("loss", ["logistic", "squared"])
def test_it_converges_and_says_so_by_everyones_gradient(loss):
    problem = random_problem(loss, alpha=0.1)
    result = danl.solve(problem, method="dingo", max_rounds=300)
    assert result.status == "converged"
    assert np.linalg.norm(problem.value_and_gradient(result.w)[1]) < 1e-8


def test_trials_are_halved_until_one_is_low_enough():
    problem, w0, rho = unlike(alpha=1e-3), np.full(7, -1.0), 1e-4
    g, h, replies = products(problem, w0)
    p = -problem.weights @ [reply.inverse for reply in replies]
    assert p @ h <= -1e-4 * g @ g  # case 1
    lengths = 0.5 ** np.arange(50)
    gradients = [problem.value_and_gradient(w0 + length * p)[1] for length in lengths[:20]]
    low = [each @ each <= g @ g + 2 * a * rho * (p @ h) for a, each in zip(lengths, gradients, strict=False)]
    first = int(np.argmax(low))
    assert first > 0
    models = iterates(problem, "dingo", w0=w0, max_rounds=2 + first)
    np.testing.assert_array_equal(models[2 + first], w0)
    np.testing.assert_allclose(models[3 + first], w0 + lengths[first] * p, rtol=1e-9)


def test_bytes_are_those_of_the_vectors():
    result = danl.solve(random_problem(), method="dingo:theta=10", max_rounds=3, tol=0.0)
    up, down = result.history.column("bytes_up") / 4, result.history.column("bytes_down") / 4
    kinds = ["gradient", "hessian-products", "corrected-direction", "gradient"]
    assert list(result.history.column("kind")) == kinds
    assert up.tolist() == [8 * 8, 8 * 22, 8 * 8, 8 * 8]
    assert down.tolist() == [8 * 7, 8 * 14, 8 * 21, 8 * 7]


@pytest.mark.parametrize("loss", ["multinomial:classes=3", "logistic"])
def test_with_an_intercept_and_with_classes(loss):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(300, 3)), rng.integers(0, 3 if loss != "logistic" else 2, size=300)
    shards = danl.partition(X, y.astype(float), workers=3, seed=0)
    problem = Problem(shards, loss=loss, alpha=1e-2, intercept=True)
    result = danl.solve(problem, method="dingo", max_rounds=40)
    assert np.linalg.norm(problem.value_and_gradient(result.w)[1]) < 1e-9


def test_a_run_that_is_resumed_is_the_same(tmp_path):
    problem = unlike()
    whole = danl.solve(problem, method="dingo:theta=1e4", max_rounds=25, tol=0.0)
    for stop in (1, 2, 3, 9):
        folder = tmp_path / str(stop)
        danl.solve(problem, method="dingo:theta=1e4", max_rounds=stop, tol=0.0, checkpoint=folder)
        resumed = danl.solve(problem, method="dingo:theta=1e4", max_rounds=25, tol=0.0, resume=folder)
        np.testing.assert_array_equal(resumed.w, whole.w)


@pytest.mark.parametrize("theta", [1e-4, 100.0])
def test_it_goes_on_with_those_who_answer(theta):
    problem = random_problem(sizes=(30, 30, 30, 30, 30))
    result = danl.solve(problem, method=Dingo(theta=theta), max_rounds=60, engine="local:dropout=0.2")
    assert result.status == "max_rounds"
    assert result.failures
    assert problem.objective(result.w) < problem.objective(np.zeros(7))


def test_where_nobody_is_known_at_both_models_gradients_are_asked_anew():
    problem = random_problem(sizes=(30, 30))
    engine = Local(away={0: (0, 0), 1: (2, 2)})  # the gradient is of one worker, the trial of the other
    result = danl.solve(problem, method="dingo", max_rounds=40, engine=engine)
    assert list(result.history.column("kind")[:5]) == ["gradient", "hessian-products"] + ["gradient"] * 2 + [
        "hessian-products"
    ]
    assert result.status == "converged"


def test_nobody_is_an_end():
    away = dict.fromkeys(range(4), (4, None))
    result = danl.solve(random_problem(), method="dingo", max_rounds=20, tol=0.0, engine=Local(away=away))
    assert result.status == "quorum_lost"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("theta=0", "theta=0: must be a finite number > 0"),
        ("phi=-1", "phi=-1: must be a finite number > 0"),
        ("rho=1", "rho=1: must be a number"),
        ("steps=0", "steps=0: must be a whole number >= 1; leave it out for exact solutions"),
    ],
)
def test_wrong_options(options, message):
    with pytest.raises(danl.InputError) as error:
        make_method(f"dingo:{options}")
    assert str(error.value).startswith(message)


def tasks():
    v = np.ones(7)
    return [HessianProductsTask(3, W, v, 1e-3), CorrectedDirectionTask(3, W, v, 2 * v, 10.0, 1e-3, 5)]


@pytest.mark.parametrize("task", tasks(), ids=lambda task: task.name)
def test_tasks_and_replies_go_over_the_wire(task):
    reply = task.work(places(random_problem())[0])
    assert task.fault(reply, 7) is None
    for message in (task, reply):
        read = wire.decode(wire.encode(message), most_bytes=wire.most_bytes(7, 4))
        assert type(read) is type(message)
        assert wire.encode(read) == wire.encode(message)


@pytest.mark.parametrize("bad", [np.ones(6), np.ones((7, 1)), np.ones(7, dtype=np.float32), None, 1.0])
@pytest.mark.parametrize(("which", "name"), [(0, "product"), (0, "inverse"), (0, "damped"), (1, "direction")])
def test_malformed_replies_are_named(which, name, bad):
    task = tasks()[which]
    reply = replace(task.work(places(random_problem())[0]), **{name: bad})
    assert task.fault(reply, 7) == f"its {name} is not an array of 7 numbers"


def test_nothing_is_corrected_along_a_vector_of_zeros():
    task = CorrectedDirectionTask(0, W, np.ones(7), np.zeros(7), 1.0, 1e-3)
    assert np.isfinite(task.work(places(random_problem())[0]).direction).all()


def test_work_is_counted_in_passes():
    exact, steps = (task.work_rows(100, 10.0) for task in tasks())
    assert (exact, steps) == (550.0, 2050.0)
