"""DSGD: its known cases, what goes along the edges, and nodes that are absent."""

import numpy as np
import pytest
from benchmarks.watched_states import Watched

import danl
from danl.frozen import replace
from danl.protocol.graph import make_graph
from danl.protocol.own_tasks import Workplace
from danl.protocol.streams import GRADIENT_BATCH, stream
from danl.protocol.wire import decode, encode, most_bytes
from danl.tasks.batch_gradient import BatchGradientReply, BatchGradientTask
from tests.problems import random_problem, random_shards
from tests.tools import Absent, iterates

W0 = np.full(7, 0.3)
GRAPHS = ["ring", "grid", "complete", "erdos"]


def batch(local, worker, exchange, size, seed=0):
    """The mini-batch of a worker in an exchange."""
    draws = stream(seed, GRADIENT_BATCH, exchange).random((worker + 1, size))[worker]
    return local.sample((draws * local.n_rows).astype(np.int64))


def plain_dsgd(problem, mixing, rate, rounds, size=None, w0=W0):
    """The nodes' models after every iteration, written out."""
    models, seen = np.tile(w0, (problem.n_workers, 1)), []
    scales = problem.n_workers * problem.weights
    for exchange in range(rounds + 1):
        adapted = []
        for worker, local in enumerate(problem.local_objectives):
            sample = local if size is None else batch(local, worker, exchange, size)
            adapted.append(models[worker] - rate * scales[worker] * sample.value_and_gradient(models[worker])[1])
        models = np.array([sum(m * a for m, a in zip(row, adapted, strict=True)) for row in mixing])
        seen.append(models)
    return seen


@pytest.mark.parametrize("weighting", ["uniform", "samples"])
def test_on_a_complete_graph_it_is_mini_batch_sgd_of_the_mean(weighting):
    problem, w, expected = random_problem(weighted=True, weighting=weighting), W0, [W0]
    for exchange in range(13):
        gradients = [
            batch(local, worker, exchange, 3).value_and_gradient(w)[1]
            for worker, local in enumerate(problem.local_objectives)
        ]
        w = w - 0.2 * sum(weight * each for weight, each in zip(problem.weights, gradients, strict=True))
        expected.append(w)
    method = "dsgd:learning_rate=0.2,batch_size=3"
    models = iterates(problem, method, w0=W0, graph="complete", max_rounds=12)
    np.testing.assert_allclose(models, expected, rtol=1e-11)


@pytest.mark.parametrize("weighting", ["uniform", "samples"])
def test_on_a_complete_graph_with_whole_shards_it_is_gradient_descent(weighting):
    problem = random_problem(weighting=weighting)
    ours = iterates(problem, "dsgd:learning_rate=0.3,batch_size=all", w0=W0, graph="complete", max_rounds=15)
    gd = iterates(problem, "gd:learning_rate=0.3", w0=W0, max_rounds=15)
    np.testing.assert_allclose(ours, gd, rtol=1e-11)


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("size", [None, 2])
def test_every_node_mixes_with_its_neighbours_alone(graph, size):
    problem = random_problem(sizes=(9, 14, 5, 12, 8, 11), weighting="samples")
    run = Watched(f"dsgd:learning_rate=0.2,batch_size={size or 'all'}")
    result = danl.solve(problem, method=run, graph=graph, w0=W0, max_rounds=9)
    expected = plain_dsgd(problem, make_graph(graph, 6).mixing, 0.2, 9, size)
    np.testing.assert_allclose([state.models for state in run.states], expected, rtol=1e-11)
    np.testing.assert_allclose(result.w, expected[-1].mean(axis=0), rtol=1e-11)
    assert result.status == "max_rounds"


def test_an_iteration_on_a_ring_sends_a_vector_to_two_neighbours():
    problem = random_problem()
    for spec in ("dsgd", "dsgd:learning_rate=0.1,batch_size=2"):
        rows = danl.solve(problem, method=spec, max_rounds=5).history
        assert [row.bytes_up for row in rows] == [row.bytes_down for row in rows] == [4 * 2 * 7 * 8] * 6
    rows = danl.solve(problem, method="dsgd:learning_rate=0.1", graph="complete", max_rounds=1).history
    assert rows[0].bytes_up == 4 * 3 * 7 * 8
    assert rows[0].kind == "batch-gradient"


def test_the_default_step_begins_at_one_over_the_largest_smoothness_and_falls():
    problem = random_problem(weighting="samples")
    smoothness = max(
        4 * weight * local.smoothness() for weight, local in zip(problem.weights, problem.local_objectives, strict=True)
    )
    mu, w, expected = float(problem.weights @ problem.penalties), W0, [W0]
    for k in range(9):
        w = w - problem.value_and_gradient(w)[1] / (smoothness + mu * k / 3)
        expected.append(w)
    ours = iterates(problem, "dsgd:theta=3", w0=W0, graph="complete", max_rounds=8)
    np.testing.assert_allclose(ours, expected, rtol=1e-10)


def test_with_shorter_steps_nodes_stay_nearer_to_the_optimum():
    problem = random_problem()
    optimum = danl.reference_optimum(problem).w
    for graph in GRAPHS:
        errors = []
        for rate in (0.2, 0.04):
            run = Watched(f"dsgd:learning_rate={rate}")
            danl.solve(problem, method=run, graph=graph, w0=optimum, max_rounds=700, monitor=False)
            errors.append(np.linalg.norm(run.states[-1].models - optimum, axis=1).max())
        assert errors[1] < 0.02
        assert errors[1] < errors[0] / 2 or errors[0] < 1e-9  # a complete graph has no bias
    default = danl.solve(problem, method="dsgd", max_rounds=500)
    assert default.history[-1].grad_norm < default.history[0].grad_norm / 20


def test_who_is_absent_keeps_its_model_and_the_others_mix_as_usual():
    problem, run = random_problem(), Watched("dsgd:learning_rate=0.2")
    result = danl.solve(problem, method=run, w0=W0, engine=Absent([2], since=1), max_rounds=2)
    models, expected = run.states[0].models, plain_dsgd(problem, make_graph("ring", 4).mixing, 0.2, 1)[0]
    np.testing.assert_allclose(models, expected, rtol=1e-11)
    adapted = models - 0.2 * np.array(
        [local.value_and_gradient(x)[1] for local, x in zip(problem.local_objectives, models, strict=True)]
    )
    adapted[2] = models[2]
    mixed = make_graph("ring", 4).mixing @ adapted
    np.testing.assert_array_equal(run.states[1].models[2], models[2])
    np.testing.assert_allclose(run.states[1].models[[0, 1, 3]], mixed[[0, 1, 3]], rtol=1e-11)
    assert result.status == "max_rounds"


@pytest.mark.parametrize("method", ["dsgd", "dsgd:batch_size=4,learning_rate=0.1"])
def test_absences_do_not_stop_it(method):
    result = danl.solve(random_problem(), method=method, engine="local:dropout=0.2", max_rounds=200)
    assert result.status == "max_rounds"
    assert result.failures
    assert result.history[-1].objective < result.history[0].objective
    nobody = danl.solve(random_problem(), method=method, engine=Absent(range(4)), max_rounds=5)
    assert nobody.status == "quorum_lost"


def test_a_run_that_is_resumed_takes_the_same_steps(tmp_path):
    problem, method = random_problem(), "dsgd:batch_size=2"
    whole = danl.solve(problem, method=method, graph="grid", max_rounds=30)
    danl.solve(problem, method=method, graph="grid", max_rounds=10, checkpoint=tmp_path / "kept")
    with pytest.raises(danl.InputError, match="holds no checkpoint of this run"):
        danl.solve(problem, method=method, graph="complete", max_rounds=30, resume=tmp_path / "kept")
    resumed = danl.solve(problem, method=method, graph="grid", max_rounds=30, resume=tmp_path / "kept")
    np.testing.assert_array_equal(resumed.w, whole.w)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("learning_rate=0", "learning_rate=0"),
        ("batch_size=0", "batch_size=0"),
        ("theta=1", "theta=1.*> 1"),
        ("mu=-1", "mu=-1"),
    ],
)
def test_wrong_options_are_named(options, said):
    with pytest.raises(danl.InputError, match=said):
        danl.solve(random_problem(), method=f"dsgd:{options}")


def test_a_loss_without_a_bound_needs_a_learning_rate():
    with pytest.raises(danl.InputError, match=r"learning_rate=None.*dsgd:learning_rate=0.01"):
        danl.solve(random_problem("poisson"), method="dsgd")
    result = danl.solve(random_problem("poisson"), method="dsgd:learning_rate=0.01", max_rounds=300)
    assert result.history[-1].objective < result.history[0].objective


def test_steps_that_are_too_long_end_as_diverged_and_nobody_is_blamed():
    result = danl.solve(random_problem("squared"), method="dsgd:learning_rate=100", max_rounds=400)
    assert result.status == "diverged"
    assert not result.failures


@pytest.mark.parametrize("loss", ["logistic", "multinomial:classes=3"])
def test_with_an_intercept_and_with_several_classes(loss):
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(80, 3)), rng.integers(2 if loss == "logistic" else 3, size=80)
    problem = danl.Problem(danl.partition(X, y, workers=4, seed=0), loss=loss, alpha=1e-1, intercept=True)
    result = danl.solve(problem, method="dsgd:learning_rate=0.1", max_rounds=300)
    assert result.history[-1].grad_norm < 0.01


def test_one_worker_alone_takes_gradient_steps():
    problem = danl.Problem(random_shards(sizes=(30,)), l2=0.5)
    ours = iterates(problem, "dsgd:learning_rate=0.3", w0=W0, max_rounds=5)
    np.testing.assert_allclose(ours, iterates(problem, "gd:learning_rate=0.3", w0=W0, max_rounds=5), rtol=1e-12)


# The task.


def test_a_batch_gradient_is_on_average_the_gradient():
    problem = random_problem(weighted=True)
    local = problem.local_objectives[1]
    place = Workplace(1, local, danl.Regions.make(1, 7), 0)
    loss, gradient = local.value_and_gradient(W0)
    whole = BatchGradientTask(0, W0).work(place)
    assert whole.loss == loss
    np.testing.assert_array_equal(whole.gradient, gradient)
    draws = np.array([BatchGradientTask(number, W0, 2).work(place).gradient for number in range(4000)])
    error = draws.std(axis=0) / np.sqrt(len(draws))
    assert (np.abs(draws.mean(axis=0) - gradient) < 4.5 * error).all()


def test_task_and_reply_travel_and_malformed_ones_are_found():
    place = Workplace(2, random_problem().local_objectives[2], danl.Regions.make(1, 7), 0)
    most = most_bytes(7, 1)
    for task in (BatchGradientTask(3, W0, 5), BatchGradientTask(3, W0)):
        assert encode(decode(encode(task), most_bytes=most)) == encode(task)
        reply = task.work(place)
        again = decode(encode(reply), most_bytes=most)
        assert isinstance(again, BatchGradientReply)
        assert encode(again) == encode(reply)
        assert task.fault(again, 7) is None
        assert task.fault(replace(reply, gradient=np.zeros(6)), 7) == "its gradient is not an array of 7 numbers"
        assert task.fault(replace(reply, gradient=np.zeros(7, dtype=np.float32)), 7) is not None
        assert task.fault(replace(reply, gradient=None), 7) is not None
    assert BatchGradientTask(0, W0, 5).work_rows(100, 7.0) == 5
    assert BatchGradientTask(0, W0).work_rows(100, 7.0) == 100
