"""Hessians of the default method compressed on their way: fewer bytes, the same optimum."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import danl
from danl.engines import Local
from danl.methods import DANL, make_method
from danl.methods.prices import Prices
from danl.objective.losses import LOSSES
from danl.objective.problem import Problem
from danl.objective.regions import Regions
from danl.policies import ResourceAware
from danl.protocol.hessian_form import fitting_pieces
from danl.protocol.message_bytes import bytes_up
from danl.protocol.messages import CurvatureReply, CurvatureTask, Exchange, packed_size
from danl.protocol.replies import ReplyRules
from danl.protocol.reply_form import ReplyForm
from danl.protocol.wire import FRAME, decode, encode
from danl.worker.worker import Worker
from tests.methods.test_safeguarded import hard_problem
from tests.methods.test_senders import setup_of
from tests.problems import EXPONENTIAL, random_problem, random_shards
from tests.run.test_checkpoint import goes_on_to_the_bit
from tests.server.test_partial_curvature import multinomial

D = 7
LOSSY = ("rankr:1", "rankr:3", "topk", "topk:20", "randk:9", "natural")
LOSSLESS = (f"rankr:{D}", "topk:28", "randk:999", "identity")
W = np.linspace(-1, 1, D)


@pytest.fixture(scope="module")
def a1a():
    data = danl.load_dataset("a1a")
    problem = Problem(danl.partition(data.X, data.y, workers=10, seed=0), alpha=1e-3)
    return problem, danl.reference_optimum(problem)


def compressed(compressor, **options):
    return DANL(hessian_compressor=compressor, **options)


# Known answers.


@pytest.mark.parametrize("options", [{}, {"hessian_dtype": "float32"}, {"curvature_from": 2}, {"hessian_batch": 50}])
def test_identity_is_the_run_without_a_compressor(a1a, options):
    """The same exchanges and bytes; models differ by rounding, as the penalty is added at the server."""
    problem, _ = a1a
    runs = [
        danl.solve(problem, method=method, policy="coverage:psi=3", seed=1)
        for method in (DANL(**options), compressed("identity", **options))
    ]
    for name in ("kind", "bytes_up", "bytes_down", "senders", "why"):
        assert [getattr(row, name) for row in runs[0].history] == [getattr(row, name) for row in runs[1].history]
    np.testing.assert_allclose(runs[1].w, runs[0].w, atol=1e-6 if "hessian_dtype" in options else 1e-9)


@pytest.mark.parametrize("compressor", LOSSLESS)
def test_what_keeps_everything_is_identity(compressor):
    problem = random_problem(alpha=1e-3)
    result, plain = danl.solve(problem, method=compressed(compressor)), danl.solve(problem)
    assert result.settings["method_options"]["hessian_compressor"] == "identity"
    assert result.w.tobytes() == danl.solve(problem, method=compressed("identity")).w.tobytes()
    assert len(result.history) == len(plain.history)
    np.testing.assert_allclose(result.w, plain.w, atol=1e-8)


@pytest.mark.parametrize("compressor", LOSSLESS)
@pytest.mark.parametrize("intercept", [False, True])
def test_messages_that_keep_everything_add_up_to_the_hessian(compressor, intercept):
    """Whatever the penalty: it does not travel."""
    problem = Problem(random_shards(d=D - intercept), l2=3.0, intercept=intercept)
    replies, workers = asked(problem, compressor)
    expected = sum(
        weight * worker.objective.hessian(W) for weight, worker in zip(problem.weights, workers, strict=True)
    )
    np.testing.assert_allclose(replies.curvature_sum, expected, atol=1e-12)


def test_of_a_leading_direction_the_penalty_is_left_whole():
    """Rows along one direction: one eigenpair is the whole data's part, however large the penalty."""
    rng = np.random.default_rng(0)
    direction = rng.normal(size=D)
    X = np.outer(rng.normal(size=60), direction)
    problem = Problem(danl.partition(X, (rng.random(60) < 0.5).astype(float), workers=3), l2=100.0)
    replies, workers = asked(problem, "rankr:1")
    expected = sum(
        weight * worker.objective.hessian(W) for weight, worker in zip(problem.weights, workers, strict=True)
    )
    np.testing.assert_allclose(replies.curvature_sum, expected, atol=1e-11)


def asked(problem, compressor, dtype="float64", change=lambda worker, reply: reply):
    """Everyone's compressed Hessian at W, as the server takes them; and the workers."""
    regions = Regions.make(3, D)
    workers = [Worker(i, objective, regions, None, 0) for i, objective in enumerate(problem.local_objectives)]
    exchange = exchange_of(compressor, len(workers), dtype=dtype)
    given = {worker.index: change(worker.index, worker.answer(exchange.task)) for worker in workers}
    stacked = ReplyForm(regions, problem.layout).stack(exchange, given)
    return ReplyRules.of(problem, regions).validate_replies(exchange, stacked, problem.weights), workers


def exchange_of(compressor, n_workers, kind="full", **options):
    return Exchange("hessian", CurvatureTask(4, W, kind, compressor=compressor, **options), np.arange(n_workers))


# Bytes.


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("compressor", [*LOSSY, "identity"])
def test_bytes_are_those_that_travel_and_those_that_were_expected(compressor, dtype):
    problem, regions = random_problem(), Regions.make(3, D)
    task = exchange_of(compressor, 4, dtype=dtype).task
    replies, workers = asked(problem, compressor, dtype)
    counted = bytes_up(exchange_of(compressor, 4, dtype=dtype), replies, regions)
    for worker, count in zip(workers, counted, strict=True):
        reply = worker.answer(task)
        framed = encode(reply)
        empty = CurvatureReply(worker.index, 4, W[:0], W[:0], reply.loss, None, reply.places[:0], reply.codes[:0])
        assert 0 <= len(framed) - count - len(encode(empty)) + 8 <= FRAME // 8  # alignment and lengths of the header
        arrived = decode(framed, most_bytes=10_000)
        assert arrived.numbers.dtype == np.dtype(dtype)
        assert arrived.codes.tobytes() == reply.codes.tobytes()
    setup = setup_of(problem, compressed(compressor))
    more = Prices.of(compressed(compressor), setup).hessian[dtype] - Prices.of(DANL(), setup).whole
    assert (more + 8 * (D + 1) == counted).all()


@pytest.mark.parametrize("compressor", ["rankr:1", "rankr:5", "topk:615", "natural"])
def test_a_run_counts_them_and_takes_fewer(a1a, compressor):
    problem, reference = a1a
    plain, small = (danl.solve(problem, method=each, reference=reference) for each in (DANL(), compressed(compressor)))
    d, (numbers, places, codes) = (
        123,
        {
            "rankr:1": (123, 0, 1),
            "rankr:5": (615, 0, 5),
            "topk:615": (615, 615, 0),
            "natural": (0, 0, packed_size(123)),
        }[compressor],
    )
    assert small.history[0].bytes_up == 10 * (8 * (d + 1) + 8 * numbers + 4 * places + 2 * codes)
    assert small.history[0].bytes_up < plain.history[0].bytes_up
    to_8 = [next(i for i, row in enumerate(run.history) if row.gap < 1e-8) for run in (plain, small)]
    up = [run.history.column("bytes_up")[: i + 1].sum() for run, i in zip((plain, small), to_8, strict=True)]
    assert up[1] < up[0]


# Convergence.


@pytest.mark.parametrize("alpha", [1e-3, 1e-4])
@pytest.mark.parametrize("compressor", ["rankr:1", "rankr:5", "topk:123", "randk:615", "natural", "identity"])
def test_from_zero_on_a1a(compressor, alpha):
    data = danl.load_dataset("a1a")
    problem = Problem(danl.partition(data.X, data.y, workers=10, seed=0), alpha=alpha)
    result = danl.solve(problem, method=compressed(compressor), max_rounds=500, tol=1e-10)
    assert result.status == "converged"
    assert np.linalg.norm(problem.value_and_gradient(result.w)[1]) <= 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("compressor", LOSSY)
@pytest.mark.parametrize("loss", LOSSES)
def test_every_loss_under_masks(loss, compressor):
    for alpha, masks in zip((1e-1, 1e-3, 1e-5), ("full", "coverage:psi=1", "random:keep=0.3"), strict=True):
        problem = random_problem(loss, alpha=alpha, weighted=True, as_sparse=masks == "full")
        reference = danl.reference_optimum(problem)
        method = compressed(compressor, masks="always")
        result = danl.solve(
            problem, method=method, regions=4, policy=masks, reference=reference, max_rounds=400, tol=1e-10
        )
        assert result.status == "converged"
        assert abs(result.history[-1].gap) < 1e-12


@pytest.mark.parametrize("compressor", ["rankr:2", "natural"])
def test_intercepts_several_classes_and_no_penalty(compressor):
    one = Problem(random_shards(), alpha=1e-3, intercept=True)
    for problem in (one, multinomial(intercept=True, as_sparse=True), random_problem("squared", alpha=0.0)):
        reference = danl.reference_optimum(problem)
        result = danl.solve(problem, method=compressed(compressor), reference=reference, max_rounds=400)
        assert result.status == "converged"
        assert abs(result.history[-1].gap) < 1e-12


@pytest.mark.parametrize("compressor", ["rankr:2", "topk:9", "identity"])
def test_who_is_absent_and_who_sends(compressor):
    problem = random_problem(alpha=1e-3)
    reference = danl.reference_optimum(problem)
    fleet = [danl.Profile(rows_per_second=1e4, uplink=1e4), danl.Profile(rows_per_second=1e5, uplink=1e6)] * 2
    for options, arguments in (
        ({}, {"engine": Local(dropout=0.3, seed=2)}),
        ({"curvature_from": 2}, {}),
        ({"hessian_batch": 5}, {}),
        ({"curvature": 3}, {}),
        ({"batch_size": 5, "finish": True}, {}),
        ({}, {"profiles": fleet}),
        ({"pairs": 0, "curvature": "full"}, {}),
    ):
        method = compressed(compressor, **options)
        result = danl.solve(problem, method=method, reference=reference, max_rounds=600, tol=1e-9, **arguments)
        assert result.status == "converged", options
        assert abs(result.history[-1].gap) < 1e-12


def test_whole_hessians_take_over_where_that_was_asked_for(a1a):
    problem, reference = a1a
    result = danl.solve(problem, method=compressed("topk:20", whole_after=4), reference=reference, tol=1e-10)
    assert result.status == "converged"
    whole = 10 * 8 * (packed_size(123) + 124)
    assert result.history[0].bytes_up == 10 * (8 * 124 + 12 * 20)
    assert result.history.column("bytes_up").max() == whole


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:nobody trained any region")
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    seed=st.integers(0, 10**6),
    n_workers=st.integers(1, 20),
    d=st.integers(2, 12),
    condition=st.floats(1, 1e12),
    loss=st.sampled_from(sorted(LOSSES)),
    compressor=st.sampled_from(["rankr:1", "rankr:3", "topk", "randk:3", "natural", "identity"]),
    pairs=st.sampled_from([0, 3, 20]),
    dtype=st.sampled_from(["float64", "float32"]),
    alpha=st.sampled_from([1e-12, 1e-8, 1e-4, 1e-1]),
    masks=st.sampled_from(["random:keep=0.3", "full"]),
    start=st.sampled_from([0.0, 1.0, 30.0]),
)
def test_hard_problems(seed, n_workers, d, condition, loss, compressor, pairs, dtype, alpha, masks, start):
    """Nothing rises, nothing diverges, nobody honest is shut out, converged means converged."""
    problem = hard_problem(seed, n_workers, d, condition, loss, False, "uniform", alpha)
    w0 = (start / 30 if loss in EXPONENTIAL else start) * np.random.default_rng(seed).normal(size=d)
    method = compressed(compressor, pairs=pairs, hessian_dtype=dtype)
    result = danl.solve(problem, method=method, regions=2, policy=masks, w0=w0, max_rounds=200, seed=seed)
    assert result.status in ("converged", "max_rounds")
    assert not result.failures
    f = np.array([problem.objective(w0), *result.history.column("objective")])
    terms = np.concatenate([np.abs(shard.X) @ np.abs(result.w) for shard in problem.shards])
    size = 256 * np.abs(f[:-1]) + 4 * np.sqrt(np.abs(f[:-1]) * np.mean(np.square(terms)))
    assert (np.diff(f) <= np.finfo(float).eps * np.maximum(size, 1e-300)).all()
    if result.status == "converged":
        best = danl.solve(problem, method="newton", w0=result.w, regions=1, max_rounds=30, tol=0.0)
        drop = result.history[-1].objective - best.history[-1].objective
        assert drop <= 1e-9 * max(1.0, abs(result.history[-1].objective)) + 1e-10**2 / (2 * alpha)


# Draws, checkpoints, deadlines.


@pytest.mark.parametrize("compressor", ["natural", "randk:9"])
def test_draws_are_by_seed_worker_and_exchange(compressor):
    problem = random_problem(sizes=(9, 9, 9))
    worker = Worker(0, problem.local_objectives[0], Regions.make(1, D), None, 0)

    def drawn(index=0, exchange=4, seed=0):
        other = Worker(index, worker.objective, worker.regions, None, seed)
        reply = other.answer(CurvatureTask(exchange, W, "full", compressor=compressor))
        return reply.places.tobytes() + reply.codes.tobytes()

    assert drawn() == drawn()
    assert len({drawn(), drawn(index=1), drawn(exchange=5), drawn(seed=1)}) == 4


@pytest.mark.slow
@pytest.mark.parametrize("compressor", ["rankr:2", "natural", "randk:9,masks=always", "identity,hessian_dtype=float32"])
@pytest.mark.parametrize("engine", ["local", "local:dropout=0.4,seed=5"])
def test_a_run_taken_up_at_any_exchange_ends_the_same_to_the_bit(compressor, engine, tmp_path):
    problem, method = random_problem(), f"danl:hessian_compressor={compressor}"
    arguments = {"method": method, "engine": engine, "regions": 3, "policy": "coverage:psi=2", "max_rounds": 25}
    whole = danl.solve(problem, **arguments)
    goes_on_to_the_bit(problem, arguments, whole, range(0, len(whole.history) - 1, 4), tmp_path)


def test_a_deadline_that_binds_refuses_it():
    fleet = [danl.Profile(rows_per_second=1e3, uplink=1e3)] * 4
    with pytest.raises(danl.InputError) as error:
        danl.solve(random_problem(), method=compressed("rankr:2"), policy=ResourceAware(fleet, deadline=0.2))
    assert str(error.value) == (
        "hessian_compressor='rankr:2': must be left out where a deadline binds: Hessians then go in pieces, and a "
        "compressed one cannot; or use binding=False"
    )
    free = ResourceAware(fleet, deadline=0.2, binding=False)
    assert danl.solve(random_problem(), method=compressed("rankr:2"), policy=free).status == "converged"


def test_a_piece_of_a_compressed_hessian_is_none():
    exchange = exchange_of("rankr:2", 2)
    pieces = [np.array([[0, 28], [0, 0]]), np.array([[0, 28], [0, 14]])]
    regions = Regions.make(3, D)
    fits = [fitting_pieces(Exchange("x", exchange.task, exchange.workers, pieces=each), regions) for each in pieces]
    assert fits == [True, False]
    worker = Worker(0, random_problem().local_objectives[0], regions, None, 0)
    for task in (exchange_of("rankr:2", 2, last=14).task, exchange_of("rankr:2", 2, kind="diag").task):
        with pytest.raises(ValueError, match="rankr:2: a compressor is of whole Hessians, at once"):
            worker.answer(task)


# Workers that are broken or hostile.


def changed(reply, **changes):
    return CurvatureReply(**{**vars(reply), **changes})


@pytest.mark.parametrize(
    ("compressor", "changes", "fault"),
    [
        ("identity", lambda r: {"numbers": -r.numbers}, "its Hessian is indefinite: entry 0 of the diagonal is below"),
        ("rankr:2", lambda r: {"codes": -r.codes}, "its Hessian is indefinite"),
        ("rankr:2", lambda r: {"numbers": r.numbers[:-1]}, "its numbers is not an array of 14 numbers"),
        ("rankr:2", lambda r: {"numbers": np.full(14, np.inf)}, "its numbers are not finite"),
        ("rankr:2", lambda r: {"numbers": r.numbers.astype("f4")}, "its curvature is not an array of float64"),
        ("topk:28", lambda r: {"numbers": -r.numbers}, "its Hessian is indefinite: entry 0 of the diagonal is below"),
        (
            "topk:5",
            lambda r: {"places": r.places[::-1].copy()},
            "its places are not increasing, or not in the triangle",
        ),
        ("natural", lambda r: {"codes": np.full(28, 9999, "i2")}, "its codes are not those of finite numbers"),
        ("natural", lambda r: {"codes": r.codes[:0]}, "its curvature is not finite"),
        ("topk:5", lambda r: {"places": "all"}, "its places is not an array of 5 numbers"),
        (None, lambda r: {"places": np.zeros(1, "i4")}, "its curvature is compressed, and was not to be"),
    ],
)
def test_what_cannot_be_is_shut_out(compressor, changes, fault):
    problem = random_problem(l2=0.01)

    def change(worker, reply):
        return changed(reply, **changes(reply)) if worker == 2 else reply

    replies, workers = asked(problem, compressor, change=change)
    assert replies.failures[2].kind == "invalid"
    assert replies.failures[2].detail.startswith(fault)
    assert replies.workers.tolist() == [0, 1, 3]
    assert replies.curvature_sum is not None
    assert len(workers) == 4


@pytest.mark.parametrize("compressor", ["rankr:2", "topk:5", "natural", "identity"])
def test_a_model_at_which_the_loss_overflows_is_no_fault(compressor):
    problem = random_problem("poisson", alpha=1e-3)
    worker = Worker(0, problem.local_objectives[0], Regions.make(3, D), None, 0)
    for w in (np.full(D, 1e4), np.full(D, np.nan)):
        reply = worker.answer(CurvatureTask(0, w, "full", compressor=compressor))
        assert [each.size for each in (reply.numbers, reply.places, reply.codes)] == [0, 0, 0]
    result = danl.solve(problem, method=compressed(compressor), w0=np.full(D, 10.0), max_rounds=300)
    assert result.status == "converged"
    assert not result.failures


def test_names_and_options():
    assert make_method("danl:hessian_compressor=rankr:5").hessian_form.compressor == "rankr:5"
    assert make_method("danl:hessian-compressor=natural").name == "danl"
    assert DANL().hessian_form.compressor is None
