"""SVRG: gradient descent at one inner step, an independent loop beside it, delays, and the constants it steps by."""

import numpy as np
import pytest

import danl
import danl.methods.svrg as module
from danl.engines import Local
from danl.frozen import replace
from danl.methods.svrg import SVRG
from danl.protocol.own_tasks import Workplace
from danl.protocol.streams import DELAYS, GRADIENT_BATCH, stream
from danl.protocol.wire import decode, encode, most_bytes
from danl.tasks import DifferenceReply, DifferenceTask, StepConstantsReply, StepConstantsTask
from tests.problems import random_problem
from tests.tools import iterates

W0 = np.full(7, 0.3)


def places(problem, seed=0):
    regions = problem.layout.regions(None)
    return [Workplace(i, local, regions, seed) for i, local in enumerate(problem.local_objectives)]


def plain_svrg(problem, w0, exchanges, *, inner, batch, rate, delay=0, seed=0):
    """The box, written out: one model after every exchange."""
    locals_, weights, models, x = problem.local_objectives, problem.weights, [w0], w0
    snapshot, mean, epoch = x, None, []
    for exchange in range(exchanges):
        if exchange % inner == 0:
            snapshot, mean, epoch = x, problem.value_and_gradient(x)[1], [x]
            direction = mean
        else:
            old = np.zeros(len(locals_), dtype=int)
            if delay:
                reach = min(delay + 1, len(epoch))
                old = (stream(seed, DELAYS, exchange).random(len(locals_)) * reach).astype(int)
            direction = mean
            for i, (weight, local) in enumerate(zip(weights, locals_, strict=True)):
                draws = stream(seed, GRADIENT_BATCH, exchange).random((i + 1, batch))[i]
                sample = local.sample((draws * local.n_rows).astype(np.int64))
                read = epoch[-1 - old[i]]
                change = sample.value_and_gradient(read)[1] - sample.value_and_gradient(snapshot)[1]
                direction = direction + weight * change
        x = x - rate * direction
        epoch.append(x)
        models.append(x)
    return models


def test_with_one_inner_step_it_is_gradient_descent():
    problem = random_problem()
    ours = iterates(problem, "svrg:inner=1,learning_rate=0.3", w0=W0, max_rounds=15)
    gd = iterates(problem, "gd:learning_rate=0.3", w0=W0, max_rounds=15)
    np.testing.assert_allclose(ours, gd, rtol=0, atol=1e-12)


@pytest.mark.parametrize("delay", [0, 3])
@pytest.mark.parametrize("as_sparse", [False, True])
def test_it_is_the_algorithm_of_its_box(as_sparse, delay):
    problem = random_problem(as_sparse=as_sparse, weighted=True, weighting="samples")
    method = SVRG(inner=6, batch_size=3, learning_rate=0.2, delay=delay)
    expected = plain_svrg(problem, W0, 16, inner=6, batch=3, rate=0.2, delay=delay)
    np.testing.assert_allclose(iterates(problem, method, w0=W0, max_rounds=15), expected, rtol=0, atol=1e-12)


def test_the_first_step_of_an_epoch_is_a_full_gradient_step_whatever_is_drawn():
    problem = random_problem()
    for seed in (0, 1):
        models = iterates(problem, "svrg:inner=4,batch_size=1,learning_rate=0.3", w0=W0, max_rounds=4, seed=seed)
        np.testing.assert_allclose(models[1], W0 - 0.3 * problem.value_and_gradient(W0)[1], rtol=0, atol=1e-14)
        np.testing.assert_allclose(models[5], models[4] - 0.3 * problem.value_and_gradient(models[4])[1], atol=1e-14)


class NoDelay:
    """A generator that draws the least delay."""

    def random(self, size):
        return np.zeros(size)


def test_where_nobody_is_late_it_is_the_synchronous_method_bit_for_bit(monkeypatch):
    problem = random_problem()
    options = {"w0": W0, "max_rounds": 20}
    synchronous = iterates(problem, "svrg:inner=5,batch_size=2,learning_rate=0.1", **options)
    tau_0 = iterates(problem, "svrg:inner=5,batch_size=2,learning_rate=0.1,delay=0", **options)
    np.testing.assert_array_equal(tau_0, synchronous)
    late = iterates(problem, "svrg:inner=5,batch_size=2,learning_rate=0.1,delay=4", **options)
    assert not np.array_equal(late, synchronous)
    monkeypatch.setattr(module, "stream", lambda *key: NoDelay())
    never_late = iterates(problem, "svrg:inner=5,batch_size=2,learning_rate=0.1,delay=4", **options)
    np.testing.assert_array_equal(never_late, synchronous)


class Watched(Local):
    """The local engine; the exchanges are kept."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def exchange(self, exchange, *, deadline=None):
        self.seen.append(exchange)
        return super().exchange(exchange, deadline=deadline)


def test_no_worker_reads_a_model_from_before_the_snapshot_or_older_than_the_delay():
    engine, ages = Watched(), set()
    models = iterates(random_problem(), "svrg:inner=6,batch_size=2,delay=2", w0=W0, max_rounds=25, engine=engine)
    for number, exchange in enumerate(engine.seen):
        step = number % 6
        if step == 0:
            assert exchange.own is None
            continue
        for read in exchange.own["w"]:
            age = [np.array_equal(read, models[number - age]) for age in range(min(step, 2) + 1)].index(True)
            ages.add(age)
    assert ages == {0, 1, 2}


@pytest.mark.parametrize("options", ["", "batch_size=1,inner=20", "delay=3", "batch_size=all", "batch_size=4,delay=2"])
def test_it_reaches_the_optimum_and_proves_it(options):
    problem = random_problem()
    result = danl.solve(problem, method=f"svrg:{options}" if options else "svrg", max_rounds=3000, tol=1e-7)
    assert result.status == "converged"
    assert result.history[-1].kind == "gradient"
    assert np.linalg.norm(problem.value_and_gradient(result.w)[1]) < 1e-6
    assert result.history[-1].objective == pytest.approx(problem.objective(result.w), rel=1e-14)


def test_with_an_intercept_and_with_several_classes():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 3))
    for loss, y in (("logistic", (X[:, 0] > 0.5) * 1.0), ("multinomial:classes=3", rng.integers(3, size=120))):
        shards = danl.partition(X, y, workers=3, seed=0)
        problem = danl.Problem(shards, loss=loss, alpha=1e-1, intercept=True)
        result = danl.solve(problem, method="svrg:batch_size=8", max_rounds=500)
        assert result.history[-1].grad_norm < 1e-6


def test_the_default_step_follows_from_the_constants():
    problem = random_problem(weighted=True, weighting="samples")
    smoothness = problem.weights @ [local.smoothness() for local in problem.local_objectives]
    rows = max(
        weight * max(local.sample(np.array([j])).smoothness() for j in range(local.n_rows))
        for weight, local in zip(problem.weights, problem.local_objectives, strict=True)
    )
    for options, rate in (
        ("batch_size=1", 0.1 / rows),
        ("batch_size=1,delay=4", 0.02 / rows),
        ("batch_size=1000", 1 / smoothness),
    ):
        models = iterates(problem, f"svrg:{options}", w0=W0, max_rounds=0)
        np.testing.assert_allclose(models[1], W0 - rate * problem.value_and_gradient(W0)[1], rtol=1e-12)


def test_a_loss_without_a_bound_needs_a_learning_rate():
    with pytest.raises(danl.InputError, match=r"learning_rate=None.*svrg:learning_rate=0.01"):
        danl.solve(random_problem("poisson"), method="svrg")
    result = danl.solve(random_problem("poisson"), method="svrg:learning_rate=0.05,batch_size=4", max_rounds=600)
    assert result.history[-1].grad_norm < 1e-3


def test_a_run_that_is_resumed_takes_the_same_steps(tmp_path):
    problem, method = random_problem(), "svrg:inner=7,batch_size=2,delay=3"
    whole = danl.solve(problem, method=method, max_rounds=30, tol=0.0)
    danl.solve(problem, method=method, max_rounds=10, tol=0.0, checkpoint=tmp_path / "kept")
    resumed = danl.solve(problem, method=method, max_rounds=30, tol=0.0, resume=tmp_path / "kept")
    np.testing.assert_array_equal(resumed.w, whole.w)


@pytest.mark.parametrize("method", ["svrg:batch_size=4", "svrg:batch_size=4,delay=2"])
def test_absences_do_not_stop_it(method):
    result = danl.solve(random_problem(), method=method, engine="local:dropout=0.2", max_rounds=200)
    assert result.status == "max_rounds"
    assert result.history[-1].grad_norm < 0.2
    assert result.failures


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("inner=0", "inner=0"),
        ("batch_size=0", "batch_size=0.*'all' is the whole shard"),
        ("batch_size=some", "batch_size='some'"),
        ("learning_rate=-1", "learning_rate=-1"),
        ("delay=-1", "delay=-1"),
        ("delay=0.5", "delay=0.5"),
    ],
)
def test_wrong_options_are_named(options, said):
    with pytest.raises(danl.InputError, match=said):
        danl.solve(random_problem(), method=f"svrg:{options}")


# The tasks.


def test_a_difference_is_of_the_same_rows_and_on_average_that_of_the_gradients():
    problem = random_problem(weighted=True)
    place, before = places(problem)[1], np.zeros(7)
    whole = place.objective.value_and_gradient(W0)[1] - place.objective.value_and_gradient(before)[1]
    reply = DifferenceTask(0, W0, before).work(place)
    np.testing.assert_allclose(reply.difference, whole, rtol=1e-14)
    assert reply.loss == place.objective.value(W0)
    np.testing.assert_array_equal(DifferenceTask(4, W0, W0, 3).work(place).difference, np.zeros(7))
    draws = np.array([DifferenceTask(number, W0, before, 2).work(place).difference for number in range(4000)])
    error = draws.std(axis=0) / np.sqrt(len(draws))
    assert (np.abs(draws.mean(axis=0) - whole) < 4.5 * error).all()


@pytest.mark.parametrize("loss", ["logistic", "squared"])
def test_the_constants_are_those_of_the_rows(loss):
    problem = random_problem(loss, weighted=True)
    for place in places(problem):
        local, reply = place.objective, StepConstantsTask(0, W0).work(place)
        rows = [local.sample(np.array([j])) for j in range(local.n_rows)]
        gradients = np.array([row.value_and_gradient(W0)[1] for row in rows])
        np.testing.assert_allclose(gradients.mean(axis=0), reply.gradient, rtol=1e-12)
        assert reply.noise == pytest.approx(np.square(gradients - reply.gradient).sum(axis=1).mean(), rel=1e-10)
        assert reply.row_smoothness == pytest.approx(max(row.smoothness() for row in rows), rel=1e-10)
        assert reply.smoothness == local.smoothness()


def test_the_noise_of_several_classes_with_intercepts():
    rng = np.random.default_rng(1)
    shards = danl.partition(rng.normal(size=(40, 3)), rng.integers(3, size=40), workers=2, seed=0)
    problem = danl.Problem(shards, loss="multinomial:classes=3", alpha=1e-2, intercept=True)
    w = rng.normal(size=12)
    for place in places(problem):
        reply = StepConstantsTask(0, w).work(place)
        rows = [place.objective.sample(np.array([j])) for j in range(place.objective.n_rows)]
        gradients = np.array([row.value_and_gradient(w)[1] for row in rows])
        assert reply.noise == pytest.approx(np.square(gradients - reply.gradient).sum(axis=1).mean(), rel=1e-10)


def test_tasks_and_replies_travel_and_malformed_ones_are_found():
    place = places(random_problem())[2]
    for task, reply_class, vector in (
        (DifferenceTask(3, W0, 2 * W0, 5), DifferenceReply, "difference"),
        (DifferenceTask(3, W0, 2 * W0), DifferenceReply, "difference"),
        (StepConstantsTask(3, W0), StepConstantsReply, "gradient"),
    ):
        most = most_bytes(7, 4)
        assert encode(decode(encode(task), most_bytes=most)) == encode(task)
        reply = task.work(place)
        assert isinstance(reply, reply_class)
        again = decode(encode(reply), most_bytes=most)
        assert encode(again) == encode(reply)
        assert task.fault(again, 7) is None
        assert task.fault(replace(reply, **{vector: np.zeros(6)}), 7) is not None
        assert task.fault(replace(reply, **{vector: np.zeros(7, dtype=np.float32)}), 7) is not None
    assert task.fault(replace(reply, noise=-1.0), 7) is not None
    assert task.fault(replace(reply, row_smoothness=np.nan), 7) is not None
    assert DifferenceTask(0, W0, W0, 5).work_rows(100, 7.0) == 10
    assert DifferenceTask(0, W0, W0).work_rows(100, 7.0) == 200
