"""Basis Learn: FedNL in another basis, an independent loop beside it, what is sent, and who is absent or forgets."""

import numpy as np
import pytest

import danl
from danl.engines.local import Local
from danl.frozen import replace
from danl.protocol.compressors import make_compressor
from danl.protocol.messages import Failure, unpack
from danl.protocol.streams import COINS, stream
from danl.protocol.wire import decode, encode, most_bytes
from danl.tasks.learned_hessian import LearnTask, basis_of_rows, for_outputs, hessian_in_basis
from danl.worker.worker import Worker
from tests.tools import Absent, iterates

D, RANKS, N = 8, (3, 4, 2, 5), 4


def problem(d=D, ranks=RANKS, alpha=1e-2, seed=0, loss="logistic", **options):
    """Shards whose rows span as many dimensions as `ranks` says, of 15 rows and more."""
    rng, shards = np.random.default_rng(seed), []
    truth = rng.normal(size=d)
    for number, rank in enumerate(ranks):
        rows = 15 + 5 * number
        X = rng.normal(size=(rows, rank)) @ rng.normal(size=(rank, d)) / np.sqrt(rank)
        y = (rng.random(rows) < 1 / (1 + np.exp(-X @ truth))).astype(float)
        if loss.startswith("multinomial"):
            y = rng.integers(3, size=rows).astype(float)
        shards.append(danl.Shard.of(X, y, name=f"worker-{number}"))
    return danl.Problem(shards, alpha=alpha, loss=loss, **options)


def gradient_norm(made, w):
    return float(np.linalg.norm(made.value_and_gradient(w)[1]))


def answered(made, index=0, w=None, **options):
    """A worker's answer in the basis of its rows, and the task."""
    w = np.linspace(-1, 1, made.n_coefficients) if w is None else w
    task = LearnTask(0, w, "kept", 0, "topk", 1.0, basis="data", outputs=made.layout.n_outputs, **options)
    regions = made.layout.regions(2)
    worker = Worker(index, made.local_objectives[index], regions, None, 0)
    return task, worker.answer(task), worker


# --- known cases ---


@pytest.mark.parametrize("compressor", ["topk", "topk:3", "identity", "rankr:1", "natural", "randk:30"])
def test_in_the_standard_basis_it_is_fednl(compressor):
    made = problem()
    ours = iterates(made, f"bl:basis=standard,compressor={compressor}", max_rounds=10)
    theirs = iterates(made, f"fednl:compressor={compressor}", max_rounds=10)
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-10 * max(1.0, np.abs(theirs).max()))


def test_in_the_standard_basis_bl2_is_the_second_algorithm_of_fednl():
    made = problem()
    ours = iterates(made, "bl:basis=standard,pp=2", max_rounds=10)
    theirs = iterates(made, "fednl:compressor=topk,pp=2", max_rounds=10)
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-8)


@pytest.mark.parametrize("compressor", ["identity", "rankr:1", "rankr:2"])
def test_compressors_that_know_no_basis_give_the_iterates_of_fednl(compressor):
    made = problem()
    ours = iterates(made, f"bl:compressor={compressor}", max_rounds=10)
    theirs = iterates(made, f"fednl:compressor={compressor}", max_rounds=10)
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-8)


def test_with_alpha_0_it_is_newton_zero():
    made = problem()
    ours, theirs = iterates(made, "bl:alpha=0", max_rounds=10), iterates(made, "newton-zero", max_rounds=10)
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    "options", [{}, {"intercept": True}, {"loss": "multinomial:classes=3"}], ids=["plain", "intercept", "classes"]
)
def test_nothing_is_lost_in_the_basis_of_the_rows(options):
    made = problem(**options)
    layout = made.layout
    for index, objective in enumerate(made.local_objectives):
        task, reply, _ = answered(made, index)
        vectors = reply.basis.reshape(-1, layout.columns)
        assert len(vectors) == RANKS[index] + layout.intercept
        V = for_outputs(vectors, layout.n_outputs)
        np.testing.assert_allclose(V.T @ V, np.eye(V.shape[1]), atol=1e-14)
        penalties = np.where(layout.penalised, objective.penalty, 0.0)
        hessian = V @ unpack(reply.numbers, V.shape[1]) @ V.T + np.diag(penalties)
        np.testing.assert_allclose(hessian, objective.hessian(task.w), rtol=0, atol=1e-12)
        expected = objective.value_and_gradient(task.w)[1]
        np.testing.assert_allclose(V @ reply.gradient + penalties * task.w, expected, rtol=0, atol=1e-12)


def plain_bl1(made, compressor, rounds, p, seed):
    """BL1 in the bases of the shards' rows, written out, with g as the paper has it; without an intercept."""
    chosen, weights, mu, d = make_compressor(compressor), made.weights, made.alpha, made.n_coefficients
    bases, z, seen = [], np.zeros(d), []
    for shard in made.shards:
        _, values, vectors = np.linalg.svd(shard.X, full_matrices=False)
        bases.append(vectors[values > 1e-10 * values[0]].T)

    def coefficients(V, objective, w):
        return V.T @ (objective.hessian(w) - objective.penalty * np.eye(d)) @ V

    L = [coefficients(V, objective, z) for V, objective in zip(bases, made.local_objectives, strict=True)]
    for k in range(rounds + 1):
        H = sum(w * V @ own @ V.T for w, V, own in zip(weights, bases, L, strict=True)) + made.alpha * np.eye(d)
        values, vectors = np.linalg.eigh(H)
        projected = (vectors * np.maximum(values, mu)) @ vectors.T
        if k == 0 or stream(seed, COINS, k).random() < p:
            anchor, slope = z, made.value_and_gradient(z)[1]
        g = projected @ (z - anchor) + slope
        if k > 0:
            for i, (V, objective) in enumerate(zip(bases, made.local_objectives, strict=True)):
                new = coefficients(V, objective, z) - L[i]
                L[i] = L[i] + chosen.restore(chosen.compress(new, None), len(new))
        z = z - np.linalg.solve(projected, g)
        seen.append(z)
    return np.array([np.zeros(d), *seen])


@pytest.mark.parametrize("p", [1.0, 0.5])
@pytest.mark.parametrize("compressor", ["topk:4", "rankr:1", "identity"])
def test_it_is_the_algorithm_of_its_box(compressor, p):
    made = problem()
    ours = iterates(made, f"bl:compressor={compressor},p={p}", max_rounds=9, seed=3)
    np.testing.assert_allclose(ours, plain_bl1(made, compressor, 9, p, 3), rtol=1e-7, atol=1e-9)


def test_bl2_with_everyone_and_identity_is_newton():
    made = problem()
    ours = iterates(made, f"bl:pp={N},compressor=identity", max_rounds=7)
    np.testing.assert_allclose(ours, iterates(made, "newton-undamped", max_rounds=7), rtol=0, atol=1e-9)
    assert danl.solve(made, method=f"bl:pp={N},compressor=identity", max_rounds=15).status == "converged"


# --- what travels ---


@pytest.mark.parametrize("entries", [None, 4])
def test_bytes_are_those_of_the_basis_the_coefficients_and_the_gradients_in_it(entries):
    method = "bl" if entries is None else f"bl:compressor=topk:{entries}"
    history = danl.solve(problem(), method=method, max_rounds=2, tol=0.0).history
    ranks, numbers = np.array(RANKS), 3  # error, bound and loss
    first = 8 * (ranks * D + ranks * (ranks + 1) // 2 + ranks + numbers)
    kept = np.minimum(ranks if entries is None else entries, ranks * (ranks + 1) // 2)
    later = 12 * kept + 8 * (ranks + numbers)
    assert history.column("bytes_up").tolist() == [first.sum(), later.sum(), later.sum()]
    assert history.column("bytes_down").tolist() == 3 * [N * 8 * D]
    assert history.column("kind").tolist() == 3 * ["learn"]


def test_gradients_are_sent_where_the_coin_falls():
    up = danl.solve(problem(), method="bl:p=0.4", max_rounds=20, tol=0.0, seed=5).history.column("bytes_up")[1:]
    fell = np.array([stream(5, COINS, k).random() < 0.4 for k in range(1, 21)])
    assert fell.any()
    assert not fell.all()
    without = 12 * sum(RANKS) + 8 * 3 * N
    np.testing.assert_array_equal(up, np.where(fell, without + 8 * sum(RANKS), without))


@pytest.mark.parametrize("options", [{}, {"with_gradient": False}, {"begin": "zero"}])
def test_task_and_reply_travel_and_what_is_malformed_is_found(options):
    made = problem()
    first, begun, worker = answered(made, **options)
    later = replace(first, exchange=1, version=1, rank=RANKS[0], w=0.5 * first.w)
    for task, reply in ((first, begun), (later, worker.answer(later))):
        for message in (task, reply):
            assert encode(decode(encode(message), most_bytes=most_bytes(D, 2))) == encode(message)
        assert task.fault(reply, D) is None
        wrong = [
            {"gradient": np.zeros(D)},
            {"numbers": np.append(reply.numbers, 0.0)},
            {"basis": np.append(reply.basis, 0.0)},
            {"basis": np.zeros(D * (D + 1))},
            {"version": 7},
            {"error": np.nan},
        ]
        for change in wrong:
            assert task.fault(replace(reply, **change), D) is not None
    assert later.fault(replace(worker.answer(replace(later, version=2)), places=np.zeros(3, np.int32)), D) is not None


def test_the_longest_message_is_short_enough_where_every_rank_is_full():
    made = problem(d=3, ranks=(3, 3))
    _, reply, _ = answered(made)
    assert len(encode(reply)) <= most_bytes(3, 2)
    assert danl.solve(made, method="bl", guards=danl.Guards(clip=2.0), max_rounds=50).status == "converged"


# --- runs ---


@pytest.mark.parametrize(
    "options",
    ["", "p=0.5", "pp=2", "pp=3,p=0.5", "compressor=natural", "compressor=randk:4", "compressor=topk:2", "mu=0.05"],
)
def test_it_reaches_the_optimum(options):
    made = problem()
    result = danl.solve(made, method=f"bl:{options}" if options else "bl", max_rounds=300, tol=1e-10)
    assert result.status == ("max_rounds" if "pp" in options else "converged")
    assert gradient_norm(made, result.w) < 1e-9


def test_with_an_intercept_and_with_several_classes():
    with_intercept = problem(intercept=True)
    result = danl.solve(with_intercept, method="bl", max_rounds=100)
    assert gradient_norm(with_intercept, result.w) < 1e-9
    several = problem(loss="multinomial:classes=3")
    assert danl.solve(several, method="bl", max_rounds=200).status == "converged"
    ours = iterates(several, "bl:compressor=identity", max_rounds=6)
    np.testing.assert_allclose(ours, iterates(several, "fednl:compressor=identity", max_rounds=6), atol=1e-8)


def test_weights_and_sparse_rows_count():
    from tests.problems import random_problem

    made = random_problem(as_sparse=True, weighted=True, weighting="samples", sizes=(4, 6, 3, 5))
    ours = iterates(made, "bl:compressor=identity", max_rounds=6)
    np.testing.assert_allclose(ours, iterates(made, "fednl:compressor=identity", max_rounds=6), atol=1e-8)


def test_rows_of_zeros_have_a_basis_too():
    zeros, units = danl.Shard.of(np.zeros((3, 2)), np.ones(3)), danl.Shard.of(np.eye(2), np.array([0.0, 1.0]))
    assert danl.solve(danl.Problem([zeros, units], alpha=0.1), method="bl", max_rounds=50).status == "converged"


# --- who is not there ---


class Forgetful(Local):
    """Workers that lose what they keep before some exchanges."""

    def __init__(self, when):
        super().__init__()
        self.when = when

    def exchange(self, exchange, **options):
        for worker in self.when.get(exchange.task.exchange, ()):
            self._workers[worker].slots.clear()
        return super().exchange(exchange, **options)


@pytest.mark.parametrize("method", ["bl:compressor=topk:1", "bl:p=0.3", "bl:pp=2", "bl:pp=2,p=0.5"])
def test_a_worker_that_forgets_begins_anew_and_the_run_goes_on(method):
    made = problem()
    result = danl.solve(made, method=method, engine=Forgetful({2: [1], 4: range(N)}), max_rounds=300, tol=1e-11)
    assert {failure.kind for failure in result.failures} == {"forgot"}
    assert gradient_norm(made, result.w) < 1e-9


@pytest.mark.parametrize("method", ["bl", "bl:p=0.5", "bl:pp=2"])
def test_a_run_that_is_resumed_ends_where_one_in_one_go_does(method, tmp_path):
    made, settings = problem(), {"method": method, "tol": 1e-11}
    danl.solve(made, max_rounds=3, checkpoint=tmp_path / "kept", **settings)
    resumed = danl.solve(made, max_rounds=120, resume=tmp_path / "kept", **settings)
    whole = danl.solve(made, max_rounds=120, **settings)
    assert {failure.kind for failure in resumed.failures} == {"forgot"}
    np.testing.assert_allclose(resumed.w, whole.w, rtol=0, atol=1e-7)


@pytest.mark.parametrize("method", ["bl", "bl:p=0.5", "bl:pp=2", "bl:basis=standard"])
def test_absences_do_not_stop_it(method):
    made = problem(alpha=0.1)
    result = danl.solve(made, method=method, engine="local:dropout=0.2", max_rounds=60)
    assert result.status in ("converged", "max_rounds")
    assert result.history[-1].objective < made.objective(np.zeros(D))


def test_if_none_of_those_drawn_answers_others_are_drawn():
    made = problem()
    result = danl.solve(made, method="bl:pp=1", engine=Absent([0, 1], since=1), max_rounds=60)
    assert result.status == "max_rounds"
    drawn = {failure.worker for failure in result.failures}
    assert drawn == {0, 1}


@pytest.mark.parametrize("method", ["bl", "bl:pp=2"])
def test_who_never_comes_is_left_out_of_the_averages(method):
    made = problem()
    result = danl.solve(made, method=method, engine=Absent([1]), max_rounds=120)
    rest = danl.Problem([each for i, each in enumerate(made.shards) if i != 1], alpha=1e-2)
    assert result.status == "max_rounds"
    assert gradient_norm(rest, result.w) < 1e-8
    assert danl.solve(made, method=method, engine=Absent(range(N)), max_rounds=5).status == "quorum_lost"


def test_an_answer_from_another_version_is_a_failure():
    made = problem()
    first, _, worker = answered(made)
    failure = worker.answer(replace(first, exchange=1, version=2, rank=RANKS[0]))
    assert isinstance(failure, Failure)
    assert failure.kind == "forgot"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("basis=rows", "basis='rows'"),
        ("compressor=topq", "compressor='topq'"),
        ("alpha=2", "alpha=2"),
        ("p=0", "p=0"),
        ("p=1.5", r"p=1\.5"),
        ("pp=0", "pp=0"),
        ("pp=9", "at most 4"),
        ("mu=-1", "mu=-1"),
        ("eta=1", "eta"),
    ],
)
def test_wrong_options_are_named(options, said):
    with pytest.raises(danl.InputError, match=said):
        danl.solve(problem(), method=f"bl:{options}")


@pytest.mark.parametrize("loss", ["logistic", "multinomial:classes=3"])
@pytest.mark.parametrize("rows", [4, 60], ids=["few rows", "many rows"])
def test_the_hessian_in_the_basis_is_that_of_the_rows(rows, loss):
    rng = np.random.default_rng(1)
    shard = danl.Shard.of(rng.standard_normal((rows, 6)), rng.integers(0, 2, rows))
    objective = danl.Problem([shard], loss=loss, l2=0.3, intercept=True).local_objectives[0]
    w, vectors = 0.3 * rng.standard_normal(objective.layout.n_coefficients), basis_of_rows(objective)
    columns = for_outputs(vectors, objective.layout.n_outputs)
    penalty = np.diag(np.broadcast_to(objective.penalties, w.shape))
    expected = columns.T @ (objective.hessian(w) - penalty) @ columns
    np.testing.assert_allclose(hessian_in_basis(objective, w, vectors), expected, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(columns @ expected @ columns.T, objective.hessian(w) - penalty, rtol=1e-10, atol=1e-12)
