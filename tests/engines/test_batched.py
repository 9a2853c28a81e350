"""Workers of one process evaluated together send what each would send by itself, to 1e-12."""

from itertools import pairwise, product

import numpy as np
import pytest
from scipy import sparse

import danl
from danl.checks import is_installed
from danl.engines import Local
from danl.objective import kernels
from danl.objective.batch_parts import part as part_of
from danl.objective.kernels import Sandwich, dense_sandwich, scipy_sandwich, tabmat_sandwich, within
from danl.objective.regions import Regions
from danl.objective.segments import Segments
from danl.protocol.messages import (
    CurvatureTask,
    Exchange,
    GradientTask,
    HessianTask,
    LocalStepsTask,
    LossTask,
    unpack,
)
from danl.protocol.own_tasks import array_fields
from danl.protocol.replies import ReplyRules
from danl.server.memory import Memory
from danl.tasks.batch_gradient import BatchGradientTask
from danl.tasks.gradient_differences import DifferenceTask
from danl.tasks.pruned_steps import PrunedStepsTask
from danl.tasks.quadratic_steps import QuadraticStepsTask
from danl.tasks.trial_losses import TrialLossesTask
from danl.worker.worker import Worker
from tests.engines.conformance import same_answers_to_mixed_exchanges

pytestmark = pytest.mark.slow

POLICIES = ["full", "coverage:psi=2,gamma=3", "subset:S=1", "random:keep=0.5", "magnitude:keep=0.5"]
METHODS = [
    "danl",
    "danl:masks=always",
    "danl:curvature_from=2",
    "danl-masked",
    "danl-paper",
    "newton",
    "newton-zero",
    "gd",
    "danl:batch_size=8",
]
SAME = ("kind", "coverage", "bytes_up", "bytes_down", "active", "min_coverage", "max_staleness", "min_trained")
COUNTS = "negative-binomial:alpha=0.5"
LOSSES = ["logistic", "squared", "poisson", "gamma", COUNTS, "squared_hinge", "multinomial:classes=3"]


def problem(
    loss,
    *,
    dense=False,
    intercept=False,
    weighted=False,
    offset=False,
    value=None,
    sizes=(30, 5, 12, 1, 22),
    seed=0,
    **terms,
):
    rng = np.random.default_rng(seed)
    rows, d = sum(sizes), 7
    X = sparse.random(rows, d, 0.4, format="csr", random_state=seed, data_rvs=rng.standard_normal)
    if value is not None:
        X.data[:] = value
    y = {
        "squared": rng.normal(size=rows),
        "poisson": rng.poisson(1.0, size=rows).astype(float),
        COUNTS: rng.poisson(1.0, size=rows).astype(float),
        "gamma": rng.gamma(2.0, size=rows),
        "multinomial:classes=3": rng.integers(0, 3, rows).astype(float),
    }.get(loss, rng.integers(0, 2, rows).astype(float))
    weights = rng.uniform(0.5, 2.0, rows) if weighted else None
    bounds = np.cumsum((0, *sizes))
    offsets = np.random.default_rng(9).normal(size=rows) if offset else None
    shards = [
        danl.Shard.of(
            (X.toarray() if dense else X)[first:last],
            y[first:last],
            weights=None if weights is None else weights[first:last],
            offset=None if offsets is None or first == 0 else offsets[first:last],  # not everyone has one
        )
        for first, last in pairwise(bounds)
    ]
    return danl.Problem(shards, loss=loss, intercept=intercept, **({"l2": 0.3} | terms))


def opened(made, *, batched, regions=3, policy=None):
    engine = Local(batched=batched)
    engine.open(made, regions=made.layout.regions(regions), policy=policy, seed=0)
    return engine


def close(a, b):
    np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize(("loss", "offset"), [*((loss, False) for loss in LOSSES), ("logistic", True), ("gamma", True)])
def test_every_reply_is_the_same(loss, dense, intercept, weighted, offset):
    made = problem(loss, dense=dense, intercept=intercept, weighted=weighted, offset=offset)
    rng = np.random.default_rng(1)
    w = 0.5 * rng.normal(size=made.n_coefficients)
    masks = rng.random((5, 3)) < 0.5
    masks[0], masks[1] = True, False
    everyone, some = np.arange(5), np.array([0, 2, 4])
    questions = [
        Exchange("x", LossTask(3, w), everyone),
        Exchange("x", HessianTask(3, w), everyone),
        Exchange("x", HessianTask(3, w, hessian_batch=10), everyone),
        Exchange("x", GradientTask(3, w), some),
        Exchange("x", GradientTask(3, w, round=2), everyone, masks, LossTask(3, w)),
        Exchange("x", GradientTask(3, w, round=2, submodel="pruned"), some, masks[some]),
    ]
    for exchange in questions:
        together = opened(made, batched=True).exchange(exchange)
        alone = opened(made, batched=False).exchange(exchange)
        same_replies(together, alone, made.layout.regions(3))
        if isinstance(exchange.task, HessianTask):
            assert together.curvatures == {}
            shares = {worker: 0.1 + worker for worker in exchange.workers.tolist()}
            expected = sum(share * alone.curvatures[worker] for worker, share in shares.items())
            d = made.n_coefficients
            close(unpack(together.add_up(shares).packed, d), unpack(expected, d))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize(("loss", "offset"), [*((loss, False) for loss in LOSSES), ("logistic", True), ("gamma", True)])
def test_mixed_exchanges_are_the_same(loss, dense, intercept, weighted, offset):
    made = problem(loss, dense=dense, intercept=intercept, weighted=weighted, offset=offset)
    w = 0.5 * np.random.default_rng(1).normal(size=made.n_coefficients)
    same_answers_to_mixed_exchanges(opened(made, batched=True), made, made.layout.regions(3), w)


@pytest.mark.parametrize("few", [False, True])
def test_mixed_exchanges_of_many_workers_are_the_same(few, monkeypatch):
    monkeypatch.setattr("danl.objective.batch_parts.MANY_NUMBERS", 0 if few else 10**9)
    made = problem("logistic", sizes=(2, 1, 9, 4) * 10)
    w = 0.5 * np.random.default_rng(1).normal(size=made.n_coefficients)
    same_answers_to_mixed_exchanges(opened(made, batched=True), made, made.layout.regions(3), w)


@pytest.mark.parametrize("piece", [None, (0, 28)])
def test_hessians_in_float32_are_rounded_as_each_worker_does(piece):
    made, task = problem("logistic"), CurvatureTask(3, np.linspace(-1, 1, 7), "full", dtype="float32")
    rules = ReplyRules.of(made, made.layout.regions(3))
    exchange = Exchange("x", task, np.arange(5), pieces=None if piece is None else np.array([piece] * 5))
    together, alone = (opened(made, batched=each).exchange(exchange) for each in (True, False))
    assert (together.curvatures, len(alone.curvatures)) == ({}, 5)
    sums = [rules.validate_replies(exchange, each, made.weights).curvature_sum for each in (together, alone)]
    assert sums[0].tobytes() == sums[1].tobytes()


def test_a_hessian_too_large_for_float32_is_named_as_it_is_one_by_one():
    shards = [danl.Shard.of(scale * np.eye(3), np.ones(3)) for scale in (1.0, 1e22, 2.0)]
    made = danl.Problem(shards, loss="squared", alpha=0.1)
    exchange = Exchange("x", CurvatureTask(0, np.zeros(3), "full", dtype="float32"), np.arange(3))
    rules = ReplyRules.of(made, made.layout.regions(1))
    found = [
        rules.validate_replies(exchange, opened(made, batched=each, regions=1).exchange(exchange), made.weights)
        for each in (True, False)
    ]
    assert found[0].failures == found[1].failures
    assert found[0].failures[1].detail == "its curvature is not finite"
    assert found[0].curvature_sum.tobytes() == found[1].curvature_sum.tobytes()


def same_replies(one, other, regions):
    """The same workers, losses and masks; the same gradients where they count."""
    np.testing.assert_array_equal(one.workers, other.workers)
    close(one.losses, other.losses)
    assert (one.masks is None) == (other.masks is None)
    if one.masks is not None:
        np.testing.assert_array_equal(one.masks, other.masks)
    assert (one.gradients is None) == (other.gradients is None)
    if one.gradients is not None:
        assert set(other.senders) <= set(one.senders)  # a row of a worker without a region does not count
        counted = regions.expand(one.trained(5, regions.n_regions))
        close(*(np.where(counted, by_worker(each), 0.0) for each in (one, other)))


def by_worker(replies):
    rows = np.zeros((5, replies.gradients.shape[1]))
    rows[replies.senders] = replies.gradients
    return rows


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("loss", ["logistic", "multinomial:classes=3"])
def test_every_run_is_the_same(loss, method, policy):
    made = problem(loss, alpha=0.05, l2=None, intercept=True)
    runs = [
        danl.solve(
            made, method=method, policy=policy, regions=3, max_rounds=15, tol=1e-9, engine=Local(batched=batched)
        )
        for batched in (True, False)
    ]
    assert runs[0].status == runs[1].status
    np.testing.assert_allclose(runs[0].w, runs[1].w, rtol=1e-9, atol=1e-10)
    for name in SAME:
        assert [getattr(row, name) for row in runs[0].history] == [getattr(row, name) for row in runs[1].history]
    np.testing.assert_allclose(
        runs[0].history.column("objective"), runs[1].history.column("objective"), rtol=1e-10, atol=1e-12
    )


def test_absences_are_the_same():
    made = problem("logistic", alpha=0.05, l2=None)
    runs = [
        danl.solve(made, policy="coverage:psi=2", max_rounds=40, engine=Local(dropout=0.3, seed=4, batched=batched))
        for batched in (True, False)
    ]
    np.testing.assert_allclose(runs[0].w, runs[1].w, rtol=1e-10)
    assert runs[0].failures == runs[1].failures


class Asked(Local):
    """The local engine, with what it was asked."""

    def open(self, *arguments, **options):
        super().open(*arguments, **options)
        self.asked = []

    def exchange(self, exchange, *, deadline=None):
        parts = (exchange.masks, exchange.pieces, exchange.kept)
        told = [None if part is None else part.tolist() for part in parts]
        self.asked.append((exchange.kind, exchange.workers.tolist(), *told))
        return super().exchange(exchange, deadline=deadline)


@pytest.mark.parametrize("binding", [False, True], ids=["free", "binding"])
@pytest.mark.parametrize("method", ["danl:curvature_from=2", "danl:curvature_from=2,hessian_dtype=float32"])
@pytest.mark.parametrize("loss", ["logistic", "squared"])
def test_absences_with_pieces_are_asked_about_alike(loss, method, binding):
    """Who has sent all of its numbers is asked for none of them again, whoever else was absent."""
    made = problem(loss, alpha=0.05, l2=None)
    # In a second all regions, and of a Hessian's 28 numbers all or, of every other worker, some.
    fleet = [danl.Profile(uplink=8 * 7 + 9 + (300, 50)[worker % 2]) for worker in range(5)]
    policy = danl.policies.ResourceAware(fleet, deadline=1.0) if binding else "full"
    pieces = 0
    for seed in range(20):
        engines = [Asked(dropout=0.3, seed=seed, batched=batched) for batched in (True, False)]
        runs = [
            danl.solve(made, method=method, policy=policy, regions=3, max_rounds=10, engine=engine, seed=seed)
            for engine in engines
        ]
        assert engines[0].asked == engines[1].asked
        assert runs[0].failures == runs[1].failures
        np.testing.assert_allclose(runs[0].w, runs[1].w, rtol=1e-9, atol=1e-10)
        pieces += sum(told[3] is not None for told in engines[0].asked)
    assert pieces


def test_many_workers_of_dense_and_of_sparse_rows():
    """More than are gone through one by one."""
    for dense in (False, True):
        made = problem("logistic", dense=dense, sizes=(2,) * 300)
        w = np.random.default_rng(2).normal(size=7)
        losses, gradients = made.batch.losses_and_gradients(w)
        for worker, local in enumerate(made.local_objectives):
            value, gradient = local.value_and_gradient(w)
            close(losses[worker], value)
            close(gradients[worker], gradient)


def test_sparse_and_dense_shards_are_one_batch():
    sparse_one, dense_one = problem("logistic").shards[0], problem("logistic", dense=True).shards[1]
    mixed = danl.Problem([sparse_one, dense_one], alpha=0.1)
    assert sparse.issparse(mixed.batch.X)
    w = np.random.default_rng(1).normal(size=7)
    losses, gradients = mixed.batch.losses_and_gradients(w)
    for own, loss, gradient in zip(mixed.local_objectives, losses, gradients, strict=True):
        expected = own.value_and_gradient(w)
        close(loss, expected[0])
        close(gradient, expected[1])
    close(mixed.hessian(w), 0.5 * sum(own.hessian(w) for own in mixed.local_objectives))
    one, other = (danl.solve(mixed, engine=Local(batched=each)) for each in (True, False))
    assert one.status == other.status == "converged"
    close(one.w, other.w)


def test_a_model_changed_in_place_has_new_margins():
    made = problem("logistic")
    w = np.zeros(7)
    first = made.objective(w)
    w += 1.0
    assert made.objective(w) != first


@pytest.mark.parametrize("rows", [0, 1, 40, 499, 500])
@pytest.mark.parametrize("density", [0.05, 0.3, 1.0])
def test_sandwich_kernels_leave_rows_out(density, rows, monkeypatch):
    monkeypatch.setattr(kernels, "BLOCK_BYTES", 1)  # blocks of 16 dense rows
    monkeypatch.setattr(kernels, "BLOCK_ENTRIES", 100)
    rng = np.random.default_rng(0)
    X = sparse.random(500, 9, density, format="csr", random_state=1, data_rvs=rng.standard_normal)
    counted = np.sort(rng.permutation(500)[:rows])
    for second in (rng.random(500), rng.normal(size=500)):
        own = X.toarray()[counted]
        expected = own.T @ (own * second[counted, None])
        without = np.full(500, np.nan)  # of rows that are left out nothing is read
        without[counted] = second[counted]
        close(scipy_sandwich(X, without, counted), expected)
        if is_installed("tabmat"):
            close(tabmat_sandwich(X)(without, counted), expected)
        if (second >= 0).all():
            without = np.nan_to_num(without)
        close(dense_sandwich(X.toarray(), without, counted), expected)


def test_rows_of_workers_without_weight_are_not_gone_through(monkeypatch):
    made, seen = problem("logistic", dense=True, sizes=(300, 200, 400)), []

    def counted(*arguments):
        seen.append(within(*arguments))
        return seen[-1]

    monkeypatch.setattr(kernels, "within", counted)
    w = np.random.default_rng(0).normal(size=7)
    total = made.batch.hessian_sum(w, np.array([0.0, 0.5, 0.0]))
    assert sum(map(len, seen)) == 200
    close(total, 0.5 * made.local_objectives[1].hessian(w))


@pytest.mark.parametrize("intercept", [False, True])
def test_an_infinite_worker_without_weight_does_not_spoil_the_sum(intercept):
    made = problem("poisson", intercept=intercept, sizes=(20, 20))
    made.shards[0].X.data[:] *= 1e4
    made = danl.Problem(made.shards, loss="poisson", intercept=intercept, l2=0.3)
    w = np.ones(made.n_coefficients)
    assert not np.isfinite(made.batch.hessian_sum(w, np.array([0.5, 0.5]))).all()
    close(made.batch.hessian_sum(w, np.array([0.0, 0.5])), 0.5 * made.local_objectives[1].hessian(w))


@pytest.mark.parametrize("density", [0.05, 0.3, 1.0])
def test_sandwich_kernels_agree(density):
    rng = np.random.default_rng(0)
    X = sparse.random(500, 9, density, format="csr", random_state=1, data_rvs=rng.standard_normal)
    for second in (rng.random(500), rng.normal(size=500)):
        expected = X.toarray().T @ (X.toarray() * second[:, None])
        for made in (
            Sandwich(X)(second),
            Sandwich(X.toarray())(second),
            dense_sandwich(X.toarray(), second),
            scipy_sandwich(X, second),
        ):
            close(made, expected)


def test_segment_sums_do_not_gather_rounding():
    rng = np.random.default_rng(0)
    values = rng.random(200_000)
    bounds = np.array([0, 3, 70_000, 200_000])
    exact = [np.sum(values[a:b].astype(np.longdouble)) for a, b in pairwise(bounds)]
    np.testing.assert_allclose(Segments(bounds).sums(values), np.array(exact, dtype=float), rtol=2e-15)


def test_regions_of_the_replies_are_those_of_the_engine():
    made = problem("logistic")
    masks = np.array([[True, False, True]] * 5)
    exchange = Exchange("gradient", GradientTask(0, np.ones(7)), np.arange(5), masks)
    gradients = opened(made, batched=True).exchange(exchange).gradients
    kept = Regions.make(3, 7).coordinates(masks[0])
    close(gradients[2, kept], made.local_objectives[2].value_and_gradient(np.ones(7))[1][kept])


@pytest.fixture(params=[None, 1.0, -0.5], ids=["values", "ones", "one value"])
def value(request):
    """The number that is stored everywhere; values that differ are None."""
    return request.param


@pytest.mark.parametrize("entries", [1 << 20, 40])
@pytest.mark.parametrize("small", [0, 10**6], ids=["large workers", "small workers"])
@pytest.mark.parametrize("terms", [{}, {"weighted": True}, {"intercept": True}, {"dense": True}], ids=str)
@pytest.mark.parametrize("loss", LOSSES)
def test_some_workers_are_told_what_all_would_be(loss, terms, small, entries, value, monkeypatch):
    monkeypatch.setattr("danl.objective.row_blocks.SMALL_WORKER", small)
    monkeypatch.setattr("danl.objective.row_blocks.BLOCK_ENTRIES", entries)  # with 40, large ones lie in several
    monkeypatch.setattr("danl.objective.kernels.CHUNK_ENTRIES", 9)
    made = problem(loss, value=value, **terms)
    batch = made.batch
    assert (len(batch.blocks) > 3) == (entries == 40)
    w = np.random.default_rng(1).standard_normal(batch.layout.n_coefficients)
    masks = np.random.default_rng(2).random((5, len(w))) < 0.6
    losses, gradients = batch.losses_and_gradients(w)
    pruned = batch.losses_and_gradients(w, masks)
    for own, loss_, gradient in zip(made.local_objectives, losses, gradients, strict=True):
        expected = own.value_and_gradient(w)
        np.testing.assert_allclose(loss_, expected[0], rtol=1e-12)
        np.testing.assert_allclose(gradient, expected[1], rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(batch.losses(w), losses, rtol=1e-12)
    for wanted in ([0], [4], [1, 2], [0, 2, 4], [0, 1, 2, 3], [1, 3]):
        workers = np.array(wanted)
        for all_of_them, own in (((losses, gradients), None), (pruned, masks)):
            some = batch.losses_and_gradients(w, own, workers)
            np.testing.assert_allclose(some[0][workers], all_of_them[0][workers], rtol=1e-12)
            np.testing.assert_allclose(some[1][workers], all_of_them[1][workers], rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("policy", POLICIES)
def test_runs_are_the_same_where_only_some_are_gone_through(policy, value, monkeypatch):
    monkeypatch.setattr("danl.objective.row_blocks.SMALL_WORKER", 0)
    monkeypatch.setattr("danl.objective.kernels.CHUNK_ENTRIES", 9)
    made = problem("logistic", value=value)
    arguments = {"method": "danl-masked", "policy": policy, "regions": 3, "max_rounds": 12}
    one, other = (danl.solve(made, engine=Local(batched=batched), **arguments) for batched in (True, False))
    np.testing.assert_allclose(one.w, other.w, rtol=1e-12, atol=1e-13)
    assert [[getattr(row, name) for name in SAME] for row in one.history] == [
        [getattr(row, name) for name in SAME] for row in other.history
    ]


def test_rows_of_workers_that_are_not_asked_are_not_gone_through(monkeypatch):
    monkeypatch.setattr("danl.objective.row_blocks.SMALL_WORKER", 0)
    made, seen = problem("logistic"), []
    inner = kernels.csr_matvec
    monkeypatch.setattr(kernels, "csr_matvec", lambda rows, *rest: seen.append(rows) or inner(rows, *rest))
    made.batch.losses_and_gradients(np.full(7, 0.1), workers=np.array([1, 2, 4]))
    assert seen == [5, 12, 22]


TERMS = [{}, {"weighted": True}, {"intercept": True}, {"dense": True}, {"offset": True}]
ONE_MARGIN = LOSSES[:-1]


@pytest.mark.parametrize(("loss", "terms"), [*product(ONE_MARGIN, TERMS), *product(LOSSES[-1:], TERMS[:-1])], ids=str)
def test_a_few_of_many_are_a_batch_of_their_own(loss, terms, value, monkeypatch):
    monkeypatch.setattr("danl.objective.batch_parts.MANY_NUMBERS", 0)
    made = problem(loss, sizes=(2, 1, 9, 4) * 10, value=value, **terms)
    w = np.random.default_rng(1).standard_normal(made.batch.layout.n_coefficients)
    workers = np.array([2, 3, 11, 39])
    masks = np.random.default_rng(2).random((4, len(w))) < 0.6
    part = part_of(made.batch, workers)
    losses, gradients = part.losses_and_gradients(w)
    pruned = part.losses_and_gradients(w, masks)
    for row, worker in enumerate(workers):
        expected = made.local_objectives[worker].value_and_gradient(w)
        close(losses[row], expected[0])
        close(gradients[row], expected[1])
        expected = made.local_objectives[worker].value_and_gradient(w * masks[row])
        close(pruned[0][row], expected[0])
        close(pruned[1][row], expected[1])
    assert part_of(made.batch, np.arange(11)) is None  # more than one in four
    monkeypatch.setattr("danl.objective.batch_parts.MANY_NUMBERS", 10**6)
    assert part_of(made.batch, workers) is None


@pytest.mark.slow
@pytest.mark.parametrize("many", [0, 300], ids=["a large memory", "a small one"])
@pytest.mark.parametrize(
    "method",
    ["danl-masked", "danl-paper", "danl:masks=always", "danl:memory=raw,masks=always", "danl-masked:memory=corrected"],
)
@pytest.mark.parametrize("policy", ["coverage:psi=2", "coverage:psi=1,gamma=30", "random:keep=0.04"])
def test_runs_where_a_few_of_many_come_back(method, policy, many, monkeypatch):
    """One by one, as a batch, and as a batch that touches only the rows of those who come back."""
    method = {"danl-masked:memory=corrected": danl.methods.DANL(memory="corrected", curvature="once")}.get(
        method, method
    )
    made = problem("logistic", sizes=(2, 1, 9, 4) * 10, l2=0.4)
    arguments = {"method": method, "policy": policy, "regions": 3, "max_rounds": 90, "tol": 0.0}
    one_by_one, batched = (danl.solve(made, engine=Local(batched=each), **arguments) for each in (False, True))
    assert made.batch.X.nnz > 300 > made.n_workers * 7
    touched = []
    inner = Memory._with_rows
    monkeypatch.setattr(
        Memory, "_with_rows", lambda self, who, *rest: touched.append(len(who)) or inner(self, who, *rest)
    )
    monkeypatch.setattr("danl.objective.batch_parts.MANY_NUMBERS", many)
    few = danl.solve(made, engine=Local(), **arguments)
    if many:  # a memory as small as this is written anew
        assert touched == []
    else:
        assert len(touched) > (20 if few.status == "max_rounds" else 1)
        assert max(touched) <= 10
    for other in (one_by_one, batched):
        np.testing.assert_allclose(few.w, other.w, rtol=1e-11, atol=1e-12)
        assert few.status == other.status
        if other.status == "max_rounds":
            assert [[getattr(row, name) for name in SAME] for row in few.history] == [
                [getattr(row, name) for name in SAME] for row in other.history
            ]


def test_pruned_models_beside_whole_ones_are_left_to_the_workers():
    """The losses of idle workers are of the whole model, not of what their masks leave of it."""
    made, w = problem("logistic"), np.random.default_rng(1).standard_normal(7)
    masks = np.array([[True, False, True]] * 4 + [[False] * 3])
    task = GradientTask(3, w, round=2, submodel="pruned")
    exchange = Exchange("x", task, np.arange(5), masks, LossTask(3, w))
    together, alone = (opened(made, batched=batched).exchange(exchange) for batched in (True, False))
    same_replies(together, alone, made.layout.regions(3))
    close(together.losses[4], made.local_objectives[4].value_and_gradient(w)[0])


def own_exchanges(regions):
    """Questions that bring their own work, to some workers, at models of their own and at one for all."""
    rng, d = np.random.default_rng(3), regions.n_coefficients
    w, other, workers = 0.3 * rng.normal(size=d), 0.3 * rng.normal(size=d), np.array([0, 2, 4])
    models, masks = 0.3 * rng.normal(size=(3, d)), np.array([[1, 0, 1], [0, 1, 1], [0, 0, 0]], dtype=bool)
    tasks = [BatchGradientTask(5, w, size) for size in (None, 4)]
    tasks += [DifferenceTask(5, w, other, size) for size in (None, 4)]
    tasks += [PrunedStepsTask(5, w, steps=3, learning_rate=0.1, batch_size=size) for size in (None, 4)]
    tasks += [QuadraticStepsTask(5, w, steps=4, learning_rate=0.05, gradient=given) for given in (None, other)]
    tasks += [TrialLossesTask(5, w, other, 2.0, 4), LocalStepsTask(5, w, 3, 0.1), LocalStepsTask(5, w, 3, 0.1, 15)]
    tasks += [GradientTask(5, w, batch_size=15)]
    for task in tasks:
        yield Exchange(task.name, task, workers)
        if isinstance(task, BatchGradientTask | DifferenceTask | PrunedStepsTask):
            yield Exchange(task.name, task, workers, own={"w": models})
        if isinstance(task, PrunedStepsTask):
            yield Exchange(task.name, task, workers, own={"mask": masks, "kept": masks @ regions.sizes})


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize(
    ("loss", "offset"), [("logistic", False), ("poisson", False), ("multinomial:classes=3", False), ("gamma", True)]
)
def test_tasks_of_the_field_are_the_same(loss, offset, intercept, weighted):
    made = problem(loss, intercept=intercept, weighted=weighted, offset=offset)
    together, alone = (opened(made, batched=each) for each in (True, False))
    for exchange in own_exchanges(made.layout.regions(3)):
        ours, theirs = together.exchange(exchange), alone.exchange(exchange)
        assert ours.workers.tolist() == theirs.workers.tolist() == [0, 2, 4]
        close(ours.losses, theirs.losses)
        if theirs.gradients is not None:
            close(ours.gradients, theirs.gradients)
        for name in theirs.values:
            close(ours.values[name], theirs.values[name])
        for worker, message in theirs.messages.items():
            fields = array_fields(message)
            assert fields.keys() == array_fields(ours.messages[worker]).keys()
            for name, value in fields.items():
                close(array_fields(ours.messages[worker])[name], value)


def test_tasks_of_the_field_are_done_together(monkeypatch):
    """And not one by one, where they can be: else the test above compares the same thing."""
    made = problem("logistic")
    engine = opened(made, batched=True)
    monkeypatch.setattr(Worker, "answer", lambda self, task: pytest.fail(f"{task.name} was done by one worker"))
    for exchange in own_exchanges(made.layout.regions(3)):
        engine.exchange(exchange)
