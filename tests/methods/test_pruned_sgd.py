"""SGD on pruned models: what it is with full masks, region by region with partial ones, and where it stalls."""

import numpy as np
import pytest

import danl
from danl.engines import Local
from danl.frozen import replace
from danl.methods.pruned_sgd import PrunedSGD
from danl.policies import Coverage, Custom, Random
from danl.protocol.messages import GradientTask
from danl.protocol.own_tasks import Workplace
from danl.protocol.streams import LOCAL_STEPS, stream
from danl.protocol.wire import decode, encode, most_bytes
from danl.tasks import PrunedStepsReply, PrunedStepsTask
from tests.problems import random_problem
from tests.tools import iterates

W0 = np.full(7, 0.3)


class Watched(Local):
    """The local engine; the masks of every exchange are kept, (N, Q)."""

    def __init__(self, n_workers=4, n_regions=4, **options):
        super().__init__(**options)
        self.shape, self.masks = (n_workers, n_regions), []

    def exchange(self, exchange, *, deadline=None):
        if exchange.own is not None:
            masks = np.zeros(self.shape, dtype=bool)
            masks[exchange.workers] = exchange.own["mask"]
            self.masks.append(masks)
        return super().exchange(exchange, deadline=deadline)


# With full masks.


def test_with_full_masks_one_step_and_whole_shards_it_is_gradient_descent():
    problem = random_problem(weighted=True, weighting="samples")
    ours = iterates(problem, "pruned-sgd:steps=1,batch_size=all,learning_rate=0.3", w0=W0, max_rounds=15)
    gd = iterates(problem, "gd:learning_rate=0.3", w0=W0, max_rounds=15)
    np.testing.assert_allclose(ours, gd, rtol=0, atol=1e-12)


def test_with_more_steps_it_is_fedavg():
    problem = random_problem(weighted=True, weighting="samples")
    ours = iterates(problem, "pruned-sgd:steps=4,batch_size=all,learning_rate=0.3", w0=W0, max_rounds=10)
    fedavg = iterates(problem, "fedavg:steps=4,learning_rate=0.3", w0=W0, max_rounds=10)
    np.testing.assert_allclose(ours, fedavg, rtol=0, atol=1e-12)


@pytest.mark.parametrize("as_sparse", [False, True])
def test_with_full_masks_and_one_step_it_is_mini_batch_sgd(as_sparse):
    problem, w, expected = random_problem(as_sparse=as_sparse), W0, [W0]
    for exchange in range(8):
        mean = np.zeros(7)
        for i, (weight, local) in enumerate(zip(problem.weights, problem.local_objectives, strict=True)):
            draws = stream(0, LOCAL_STEPS, exchange).random((i + 1, 3))[i]
            mean += weight * local.sample((draws * local.n_rows).astype(np.int64)).value_and_gradient(w)[1]
        w = w - 0.2 * mean
        expected.append(w)
    ours = iterates(problem, "pruned-sgd:steps=1,batch_size=3,learning_rate=0.2", w0=W0, max_rounds=7)
    np.testing.assert_allclose(ours, expected, rtol=0, atol=1e-12)


# With partial masks.


def test_a_region_moves_by_the_mean_of_those_that_trained_it():
    problem, engine = random_problem(weighted=True, weighting="samples"), Watched()
    method = PrunedSGD(steps=1, batch_size=None, learning_rate=0.2)
    models = iterates(problem, method, w0=W0, max_rounds=9, policy="coverage:psi=2", engine=engine)
    regions = problem.layout.regions(4)
    for masks, w, after in zip(engine.masks, models[:-1], models[1:], strict=True):
        kept = regions.expand(masks)
        pruned = [
            local.value_and_gradient(w * mask)[1] for local, mask in zip(problem.local_objectives, kept, strict=True)
        ]
        mass = problem.weights @ kept
        expected = w - 0.2 * (problem.weights @ (pruned * kept)) / mass
        np.testing.assert_allclose(after, expected, rtol=0, atol=1e-13)


def test_an_untrained_region_is_unchanged_bit_for_bit():
    problem, engine = random_problem(), Watched()
    models = iterates(problem, "pruned-sgd:steps=3", w0=W0, max_rounds=12, policy="subset:S=1", engine=engine)
    of_coefficient = problem.layout.regions(4).of_coefficient
    assert len(models) == 14
    np.testing.assert_array_equal(models[1], W0)  # the constants
    for masks, w, after in zip(engine.masks, models[1:-1], models[2:], strict=True):
        trained = masks.any(axis=0)[of_coefficient]
        assert 0 < trained.sum() < 7
        np.testing.assert_array_equal(after[~trained], w[~trained])
        assert (after[trained] != w[trained]).all()


def identical_shards(X, y, workers=4):
    return danl.Problem([danl.Shard.of(X, y) for _ in range(workers)], loss="squared", alpha=1e-2)


@pytest.mark.parametrize("policy", ["coverage:psi=1", "subset:S=1", "random:keep=0.5"])
@pytest.mark.parametrize("steps", [1, 5])
def test_it_stalls_on_a_coupled_quadratic_and_converges_on_a_decoupled_one(policy, steps):
    rng = np.random.default_rng(0)
    coupled = rng.normal(size=(40, 8)) + rng.normal(size=(40, 1))
    decoupled = np.linalg.qr(coupled)[0] * np.sqrt(40) * np.linspace(0.5, 1.5, 8)
    w_true, noise = rng.normal(size=8), 0.1 * rng.normal(size=40)
    gaps = {}
    for name, X in (("coupled", coupled), ("decoupled", decoupled)):
        problem = identical_shards(X, X @ w_true + noise)
        reference = danl.reference_optimum(problem)
        method = PrunedSGD(steps=steps, batch_size=None)
        result = danl.solve(problem, method=method, policy=policy, max_rounds=400, reference=reference, seed=1)
        gaps[name] = result.history.column("gap")
    assert gaps["decoupled"][-1] < 1e-10
    assert gaps["coupled"][-50:].min() > 1e-3
    full = danl.solve(identical_shards(coupled, coupled @ w_true + noise), method=method, max_rounds=1000)
    assert full.history[-1].grad_norm < 1e-3


def test_masks_of_workers_are_those_they_would_choose():
    problem, policy = random_problem(), Random(keep=0.5)
    watched, asked = Watched(), Local(batched=False)
    iterates(problem, "pruned-sgd:learning_rate=0.1", w0=W0, max_rounds=6, policy=policy, engine=watched, seed=3)
    asked.open(problem, regions=problem.layout.regions(4), policy=policy, seed=3)
    for number, masks in enumerate(watched.masks, start=1):
        chosen = [each.chosen_mask(GradientTask(0, W0, choose=True, round=number)) for each in asked._workers]
        np.testing.assert_array_equal(masks, chosen)


def test_a_round_in_which_nobody_has_a_region_changes_nothing():
    def odd_rounds(w, worker, number, rng):
        return np.full(4, number % 2 == 1)

    models = iterates(
        random_problem(), "pruned-sgd:learning_rate=0.1,steps=2", w0=W0, max_rounds=5, policy=Custom(odd_rounds)
    )
    assert len(models) == 7
    for number in range(1, 7):
        assert np.array_equal(models[number], models[number - 1]) == (number % 2 == 0)


def test_a_policy_keeps_its_bound_on_staleness():
    problem, engine = random_problem(), Watched()
    policy = Coverage(psi=1, gamma=2, waits="longest")
    iterates(problem, "pruned-sgd:steps=1", w0=W0, max_rounds=40, policy=policy, engine=engine)
    masks, untrained, longest = np.array(engine.masks), np.zeros((4, 4), dtype=int), 0
    for each in masks:
        untrained = np.where(each, 0, untrained + 1)
        longest = max(longest, untrained.max())
    assert longest == 2


# As every method.


def test_it_comes_near_the_optimum_with_full_masks():
    problem = random_problem(l2=2.0)
    start = np.linalg.norm(problem.value_and_gradient(np.zeros(7))[1])
    result = danl.solve(problem, method="pruned-sgd:steps=2", max_rounds=200)
    assert result.status == "max_rounds"
    assert result.history[-1].grad_norm < 0.3 * start
    one = danl.solve(problem, method="pruned-sgd:steps=1,batch_size=all", max_rounds=500)
    assert one.history[-1].grad_norm < 1e-8


@pytest.mark.parametrize("batch", [None, 5])
def test_the_default_step_follows_from_the_constants(batch):
    problem, regions = random_problem(weighted=True), random_problem().layout.regions(4)
    rows = [[local.sample(np.array([j])) for j in range(local.n_rows)] for local in problem.local_objectives]
    largest = max(
        local.smoothness() + (0.0 if batch is None else max(row.smoothness() for row in own) / batch)
        for local, own in zip(problem.local_objectives, rows, strict=True)
    )
    models = iterates(problem, PrunedSGD(batch_size=batch), w0=W0, max_rounds=1)
    np.testing.assert_array_equal(models[1], W0)
    task = PrunedStepsTask(1, W0, 10, 1 / largest, batch)
    places = [Workplace(i, local, regions, 0) for i, local in enumerate(problem.local_objectives)]
    expected = problem.weights @ [task.work(place).fragment for place in places]
    np.testing.assert_allclose(models[2], expected, rtol=0, atol=1e-12)


def test_a_loss_without_a_bound_needs_a_learning_rate():
    with pytest.raises(danl.InputError, match=r"learning_rate=None.*pruned-sgd:learning_rate=0.01"):
        danl.solve(random_problem("poisson"), method="pruned-sgd")


def test_with_an_intercept():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 3))
    shards = danl.partition(X, (X[:, 0] > 0.5) * 1.0, workers=3, seed=0)
    problem = danl.Problem(shards, alpha=1e-1, intercept=True)
    result = danl.solve(problem, method="pruned-sgd:steps=1,batch_size=all", max_rounds=300)
    assert result.history[-1].grad_norm < 1e-8


def test_a_run_that_is_resumed_takes_the_same_steps(tmp_path):
    problem, method, policy = random_problem(), "pruned-sgd:batch_size=3,steps=2", "coverage:psi=1,gamma=3"
    options = {"method": method, "policy": policy, "tol": 0.0}
    whole = danl.solve(problem, max_rounds=30, **options)
    danl.solve(problem, max_rounds=10, checkpoint=tmp_path / "kept", **options)
    resumed = danl.solve(problem, max_rounds=30, resume=tmp_path / "kept", **options)
    np.testing.assert_array_equal(resumed.w, whole.w)


@pytest.mark.parametrize("policy", ["full", "coverage:psi=1", "random:keep=0.3"])
def test_absences_do_not_stop_it(policy):
    problem = random_problem()
    runs = [
        danl.solve(problem, method="pruned-sgd", policy=policy, engine=engine, max_rounds=200)
        for engine in ("local", "local:dropout=0.2")
    ]
    assert runs[1].status == "max_rounds"
    assert runs[1].failures
    without, with_them = (run.history.column("objective") for run in runs)  # noisy: one worker a region at times
    assert with_them.min() < 0.95 * problem.objective(np.zeros(7))
    assert with_them[-150:].mean() < 1.1 * without[-150:].mean()


def test_where_everyone_is_gone_the_run_ends():
    away = dict.fromkeys(range(4), (3, None))
    result = danl.solve(random_problem(), method="pruned-sgd", engine=Local(away=away), max_rounds=100)
    assert result.status == "quorum_lost"


@pytest.mark.parametrize(
    ("options", "said"),
    [("steps=0", "steps=0"), ("batch_size=-3", "batch_size=-3"), ("learning_rate=0", "learning_rate=0")],
)
def test_wrong_options_are_named(options, said):
    with pytest.raises(danl.InputError, match=said):
        danl.solve(random_problem(), method=f"pruned-sgd:{options}")


def test_bytes_are_those_of_what_travels():
    problem = random_problem()
    history = danl.solve(problem, method="pruned-sgd:learning_rate=0.1", policy="subset:S=1", max_rounds=3).history
    sizes = problem.layout.regions(4).sizes
    assert [row.kind for row in history] == ["pruned-steps"] * 4
    for row, size in zip(history, sizes, strict=True):
        assert row.bytes_down == 4 * (8 * 7 + 1)  # the model, and a mask of four bits
        assert row.bytes_up == 4 * (8 * size + 8 + 1)  # the coordinates, the loss and the mask


def test_task_and_reply_travel_and_malformed_ones_are_found():
    problem = random_problem()
    regions = problem.layout.regions(4)
    place, most = Workplace(2, problem.local_objectives[2], regions, 0), most_bytes(7, 4)
    mask = np.array([True, False, True, False])
    partly = PrunedStepsTask(3, W0, 2, 0.1, 5, mask, np.int64(regions.sizes[mask].sum()))
    for task in (partly, PrunedStepsTask(3, W0, 2, 0.1)):
        assert encode(decode(encode(task), most_bytes=most)) == encode(task)
        reply = task.work(place)
        assert isinstance(reply, PrunedStepsReply)
        again = decode(encode(reply), most_bytes=most)
        assert encode(again) == encode(reply)
        assert task.fault(again, 7) is None
        assert task.fault(replace(reply, fragment=reply.fragment[1:]), 7) is not None
        assert task.fault(replace(reply, fragment=reply.fragment.astype(np.float32)), 7) is not None
    assert partly.fault(replace(partly.work(place), mask=~mask), 7) is not None
    assert partly.fault(replace(partly.work(place), mask=None), 7) is not None
    assert task.fault(replace(reply, mask=mask), 7) is not None
    assert partly.work_rows(100, 7.0) == 5.0
    assert task.work_rows(100, 7.0) == 200.0
