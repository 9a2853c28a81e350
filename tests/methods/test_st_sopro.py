"""St-SoPro: it ends at the optimum on every graph, its multipliers sum to 0, and its special cases."""

import numpy as np
import pytest
from benchmarks.watched_states import Watched

import danl
from danl.data import Shard
from danl.frozen import replace
from danl.protocol.graph import make_graph
from danl.protocol.own_tasks import Workplace
from danl.protocol.streams import GRADIENT_BATCH, HESSIAN_BATCH
from danl.protocol.wire import decode, encode, most_bytes
from danl.tasks.proximal_step import ProximalStepReply, ProximalStepTask
from tests.problems import random_problem, random_shards
from tests.tools import Absent

W0 = np.full(7, 0.3)
GRAPHS = ["ring", "grid", "complete", "erdos"]
SIZES = (9, 14, 5, 12, 8, 11)


def watched(problem, method="st-sopro", **options):
    run = Watched(method)
    result = danl.solve(problem, method=run, monitor=False, **options)
    return run.states, result


def plain_sopro(problem, mixing, rho, damping, rounds):
    """Models and multipliers of the nodes after every iteration, written out."""
    n, d = problem.n_workers, problem.n_coefficients
    x, q, seen = np.zeros((n, d)), np.zeros((n, d)), []
    for _ in range(rounds + 1):
        after = x.copy()
        for i, local in enumerate(problem.local_objectives):
            scale = n * problem.weights[i]
            pull = q[i] + rho * sum((float(i == j) - mixing[i, j]) * x[j] for j in range(n))
            metric = scale * local.hessian(x[i]) + damping * np.eye(d)
            after[i] = x[i] - np.linalg.solve(metric, scale * local.value_and_gradient(x[i])[1] + pull)
        x = after
        q = q + rho * (x - mixing @ x)
        seen.append((x, q))
    return seen


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("weighting", ["uniform", "samples"])
def test_all_nodes_end_at_the_optimum_and_multipliers_at_their_gradients(graph, weighting):
    problem = random_problem(sizes=SIZES, weighting=weighting)
    optimum = danl.reference_optimum(problem).w
    states, result = watched(problem, "st-sopro:rho=0.3", graph=graph, max_rounds=500)
    models, multipliers = states[-1].models, states[-1].multipliers
    assert np.abs(models - models[0]).max() < 1e-8
    assert np.abs(models - optimum).max() < 1e-8
    np.testing.assert_allclose(result.w, optimum, atol=1e-8)
    own = zip(problem.weights, problem.local_objectives, strict=True)
    gradients = np.array([6 * weight * local.value_and_gradient(optimum)[1] for weight, local in own])
    assert np.abs(gradients).max() > 0.1
    np.testing.assert_allclose(multipliers, -gradients, atol=1e-7)


def test_it_is_the_algorithm_of_its_box():
    problem = random_problem(sizes=SIZES, weighting="samples")
    states, _ = watched(problem, "st-sopro:rho=0.2,damping=0.4", graph="grid", max_rounds=12)
    expected = plain_sopro(problem, make_graph("grid", 6).mixing, 0.2, 0.4, 12)
    for state, (models, multipliers) in zip(states, expected, strict=True):
        np.testing.assert_allclose(state.models, models, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(state.multipliers, multipliers, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("options", ["", ":batch_size=3,hessian_batch=2", ":batch_size=4,damping=3"])
@pytest.mark.parametrize("engine", ["local", "local:dropout=0.3"])
def test_multipliers_sum_to_zero_at_all_times(options, engine):
    states, result = watched(random_problem(sizes=SIZES), f"st-sopro{options}", engine=engine, max_rounds=60)
    assert result.status == "max_rounds"
    sums = np.array([np.abs(state.multipliers.sum(axis=0)).max() for state in states])
    sizes = np.array([np.abs(state.multipliers).max() for state in states])
    assert sizes[-1] > 1e-3
    assert (sums <= 1e-12 * (1 + sizes)).all()


def test_on_a_complete_graph_of_the_same_data_it_is_newton_with_a_damping():
    shard = random_shards(sizes=(40,))[0]
    problem = danl.Problem([Shard.of(shard.X, shard.y) for _ in range(4)], alpha=1e-2)
    states, _ = watched(problem, "st-sopro:rho=0.5,damping=0.2", graph="complete", max_rounds=10)
    w = np.zeros(7)
    for state in states:
        w = w - np.linalg.solve(problem.hessian(w) + 0.2 * np.eye(7), problem.value_and_gradient(w)[1])
        np.testing.assert_allclose(state.models, np.tile(w, (4, 1)), rtol=1e-9)
        np.testing.assert_allclose(state.multipliers, 0.0, atol=1e-12)


def test_rows_of_less_noise_end_nearer():
    problem = random_problem(sizes=(40,) * 4)
    optimum = danl.reference_optimum(problem).w
    errors = []
    for size in (2, 32):
        method = f"st-sopro:rho=0.5,damping=2,batch_size={size},hessian_batch={size}"
        states, _ = watched(problem, method, w0=optimum, max_rounds=300)
        errors.append(np.mean([np.square(state.models - optimum).sum() for state in states[100:]]))
    assert errors[1] < errors[0] / 8  # 16 by the variance


def test_the_defaults_follow_from_smoothness_penalty_and_graph():
    problem = random_problem(weighting="samples")
    largest = max(
        4 * weight * local.smoothness() for weight, local in zip(problem.weights, problem.local_objectives, strict=True)
    )
    mu = float(problem.weights @ problem.penalties)
    states, result = watched(problem, max_rounds=1)
    assert states[0].rho == pytest.approx(np.sqrt(mu * largest), rel=1e-12)
    assert states[0].damping == pytest.approx(4 / 3 * states[0].rho, rel=1e-9)  # ring of 4: eigenvalues 1, 1/3, -1/3
    assert result.history.column("kind").tolist() == ["step-constants", "proximal-step"]
    states, _ = watched(problem, "st-sopro:batch_size=8,hessian_batch=4", max_rounds=0)
    rows = [
        4
        * weight
        * (local.smoothness() + max(local.sample(np.array([j])).smoothness() for j in range(local.n_rows)) / 4)
        for weight, local in zip(problem.weights, problem.local_objectives, strict=True)
    ]
    assert states[0].damping == pytest.approx(4 / 3 * states[0].rho + max(rows), rel=1e-9)
    states, result = watched(problem, "st-sopro:rho=0.2", max_rounds=0)
    assert states[0].damping == pytest.approx(0.8 / 3, rel=1e-12)
    assert result.history[0].kind == "proximal-step"


def test_an_iteration_sends_a_vector_to_every_neighbour():
    rows = danl.solve(random_problem(), method="st-sopro:rho=0.2", max_rounds=3).history
    assert [row.bytes_up for row in rows] == [row.bytes_down for row in rows] == [4 * 2 * 7 * 8] * 4


def test_who_is_absent_keeps_its_model():
    problem, run = random_problem(), Watched("st-sopro:rho=0.2,damping=0.4")
    result = danl.solve(problem, method=run, engine=Absent([1], since=1), max_rounds=6)
    assert result.status == "max_rounds"
    for state in run.states:
        np.testing.assert_array_equal(state.models[1], run.states[0].models[1])
        assert np.abs(state.multipliers.sum(axis=0)).max() < 1e-12
    assert danl.solve(problem, method="st-sopro", engine=Absent(range(4)), max_rounds=3).status == "quorum_lost"


def test_a_run_that_is_resumed_takes_the_same_steps(tmp_path):
    problem, method = random_problem(), "st-sopro:batch_size=3"
    whole = danl.solve(problem, method=method, max_rounds=30)
    danl.solve(problem, method=method, max_rounds=10, checkpoint=tmp_path / "kept")
    resumed = danl.solve(problem, method=method, max_rounds=30, resume=tmp_path / "kept")
    np.testing.assert_array_equal(resumed.w, whole.w)


@pytest.mark.parametrize(
    ("options", "said"),
    [("rho=0", "rho=0"), ("damping=-1", "damping=-1"), ("batch_size=0", "batch_size=0"), ("hessian_batch=x", "x")],
)
def test_wrong_options_are_named(options, said):
    with pytest.raises(danl.InputError, match=said):
        danl.solve(random_problem(), method=f"st-sopro:{options}")


def test_a_loss_without_a_bound_needs_rho():
    problem = random_problem("poisson")
    with pytest.raises(danl.InputError, match=r"rho=None.*st-sopro:rho=0.01"):
        danl.solve(problem, method="st-sopro")
    with pytest.raises(danl.InputError, match=r"damping=None.*st-sopro:damping=1"):
        danl.solve(problem, method="st-sopro:rho=0.3,batch_size=3")
    result = danl.solve(problem, method="st-sopro:rho=0.3,damping=2", max_rounds=300)
    assert result.history[-1].grad_norm < 1e-3


@pytest.mark.parametrize("loss", ["logistic", "multinomial:classes=3"])
def test_with_an_intercept_and_with_several_classes(loss):
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(80, 3)), rng.integers(2 if loss == "logistic" else 3, size=80)
    problem = danl.Problem(danl.partition(X, y, workers=4, seed=0), loss=loss, alpha=1e-1, intercept=True)
    result = danl.solve(problem, method="st-sopro:rho=0.1", max_rounds=300)
    assert result.history[-1].grad_norm < 1e-7
    assert danl.solve(problem, method="st-sopro", max_rounds=100).history[-1].grad_norm < 0.05


# The task.


def test_a_step_is_that_of_its_two_batches():
    local, pull = random_problem(weighted=True).local_objectives[1], np.arange(7.0)
    place = Workplace(1, local, danl.Regions.make(1, 7), 5)
    reply = ProximalStepTask(3, W0, pull, 0.7, 1.3, 4, 6).work(place)
    loss, gradient = local.sample(place.rows(GRADIENT_BATCH, 4, 3)).value_and_gradient(W0)
    hessian = local.sample(place.rows(HESSIAN_BATCH, 6, 3)).hessian(W0)
    np.testing.assert_allclose((1.3 * hessian + 0.7 * np.eye(7)) @ reply.step, 1.3 * gradient + pull, rtol=1e-9)
    assert reply.loss == loss
    whole = ProximalStepTask(3, W0, pull, 0.0).work(place)
    np.testing.assert_allclose(local.hessian(W0) @ whole.step, local.value_and_gradient(W0)[1] + pull, rtol=1e-8)


def test_task_and_reply_travel_and_malformed_ones_are_found():
    place = Workplace(2, random_problem().local_objectives[2], danl.Regions.make(1, 7), 0)
    most = most_bytes(7, 1)
    for task in (ProximalStepTask(3, W0, 2 * W0, 0.5, 1.5, 5, 6), ProximalStepTask(3, W0, 2 * W0, 0.5)):
        assert encode(decode(encode(task), most_bytes=most)) == encode(task)
        reply = task.work(place)
        again = decode(encode(reply), most_bytes=most)
        assert isinstance(again, ProximalStepReply)
        assert encode(again) == encode(reply)
        assert task.fault(again, 7) is None
        assert task.fault(replace(reply, step=np.zeros(6)), 7) == "its step is not an array of 7 numbers"
        assert task.fault(replace(reply, step=np.zeros(7, dtype=np.float32)), 7) is not None
    assert ProximalStepTask(0, W0, W0, 1.0, 1.0, 5, 6).work_rows(100, 7.0) == 5 + 21
    assert ProximalStepTask(0, W0, W0, 1.0).work_rows(100, 7.0) == 450


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("rows", [3, 40], ids=["fewer rows than coefficients", "more rows"])
def test_a_step_by_the_rows_is_that_of_the_hessian(rows, intercept):
    rng = np.random.default_rng(4)
    shard = danl.Shard.of(rng.standard_normal((rows, 8)), rng.integers(0, 2, rows))
    made = danl.Problem([shard], l2=0.3, intercept=intercept)
    objective, d = made.local_objectives[0], made.n_coefficients
    w, pull = rng.standard_normal((2, d))
    task = ProximalStepTask(0, w, pull, damping=0.2, scale=0.7)
    reply = task.work(Workplace(0, objective, made.layout.regions(1), 0))
    right = 0.7 * objective.value_and_gradient(w)[1] + pull
    expected = np.linalg.solve(0.7 * objective.hessian(w) + 0.2 * np.eye(d), right)
    np.testing.assert_allclose(reply.step, expected, rtol=1e-10)
