"""Parts of Hessians against dense references: what a worker sends, and what the server makes of it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

import danl
from danl.objective.hessian_parts import blocks, diagonal, times
from danl.objective.losses import LOSSES
from danl.objective.problem import Problem
from danl.objective.regions import Regions
from danl.protocol.hessian_form import HessianForm, sketch_matrix
from danl.protocol.message_bytes import bytes_up, task_bytes
from danl.protocol.messages import CurvatureTask, Exchange, HessianTask, pack, packed_size, unpack
from danl.protocol.reply_form import ReplyForm
from danl.server.partial_curvature import build, even, low_rank, nystrom
from danl.worker.worker import Worker
from tests.problems import TARGETS, random_shards

KINDS = ("full", "block", "lowrank:2", "diag")


def multinomial(*, intercept, as_sparse, seed=0, d=5, classes=3, workers=3, alpha=0.05):
    rng = np.random.default_rng(seed)
    w, shards = rng.normal(size=(classes, d)), []
    for _ in range(workers):
        X = rng.normal(size=(30, d)) * (rng.random((30, d)) < 0.6)
        y = np.argmax(X @ w.T + rng.gumbel(size=(30, classes)), axis=1).astype(float)
        shards.append(danl.Shard.of(sparse.csr_matrix(X) if as_sparse else X, y))
    return Problem(shards, loss=f"multinomial:classes={classes}", alpha=alpha, intercept=intercept)


def problems():
    for as_sparse in (False, True):
        for intercept in (False, True):
            case = f"{'sparse' if as_sparse else 'dense'}{', intercept' if intercept else ''}"
            for loss in LOSSES:
                shards = random_shards(targets=TARGETS[loss], as_sparse=as_sparse, weighted=True)
                yield f"{loss}, {case}", Problem(shards, loss=loss, alpha=0.1, intercept=intercept)
            yield f"multinomial, {case}", multinomial(intercept=intercept, as_sparse=as_sparse)


def shuffled(d, count, rng):
    return Regions.make([[int(i) for i in group] for group in np.array_split(rng.permutation(d), count)], d)


@pytest.mark.parametrize(
    ("name", "problem"), list(problems()), ids=lambda value: value if isinstance(value, str) else ""
)
def test_parts_are_those_of_the_whole_hessian(name, problem):
    rng = np.random.default_rng(1)
    for objective in problem.local_objectives[:2]:
        d = objective.layout.n_coefficients
        w, V, regions = 0.3 * rng.normal(size=d), rng.normal(size=(d, 4)), shuffled(d, 3, rng)
        for rows in (None, np.array([0, 2, 3])):
            sample = objective.sample(rows)
            whole = sample.hessian(w)
            penalty = np.diag(np.broadcast_to(objective.penalties, d))
            np.testing.assert_allclose(diagonal(sample, w), whole.diagonal(), rtol=1e-12, atol=1e-14)
            np.testing.assert_allclose(times(sample, w, V), (whole - penalty) @ V, rtol=1e-10, atol=1e-13)
            own = [regions.indices(q) for q in range(3)]
            expected = np.concatenate([pack(whole[np.ix_(each, each)]) for each in own])
            np.testing.assert_allclose(blocks(sample, w, regions), expected, rtol=1e-10, atol=1e-14)


def test_a_product_is_the_same_in_pieces(monkeypatch):
    objective, rng = multinomial(intercept=True, as_sparse=True).local_objectives[0], np.random.default_rng(0)
    w, V = rng.normal(size=18), rng.normal(size=(18, 7))
    at_once = times(objective, w, V)
    monkeypatch.setattr("danl.objective.hessian_parts.CHUNK", 200)  # two columns at a time
    np.testing.assert_allclose(times(objective, w, V), at_once, rtol=1e-13, atol=1e-15)


def test_what_a_structure_is_called_and_how_many_numbers_it_has():
    regions = Regions.make([3, 2, 2], 7)
    sizes = {"full": 28, "block": 6 + 3 + 3, "lowrank:2": 7 + 14, "diag": 7}
    for text, numbers in sizes.items():
        form = HessianForm.parse(text)
        assert (form.kind, form.rank) == (text.partition(":")[0], 2 if text == "lowrank:2" else 0)
        assert form.numbers(regions) == numbers
    assert [HessianForm.parse(text).held(regions) for text in sizes] == [49, 9 + 4 + 4, 21, 7]
    for text in ("lowrank", "lowrank:", "lowrank:0", "lowrank:-1", "lowrank:1.5", "lowrank:5 ", "blocks", "", "Diag"):
        assert HessianForm.parse(text) is None


@pytest.mark.parametrize("d", [1, 2, 3, 7, 50])
def test_no_part_is_more_numbers_than_the_whole(d):
    regions = Regions.make(min(3, d), d)
    for text in ("block", "lowrank:1", "lowrank:20", "lowrank:999999", "diag"):
        assert HessianForm.parse(text).numbers(regions) <= packed_size(d)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_worker_sends_what_was_asked_for_and_it_is_counted(kind, dtype):
    problem = Problem(random_shards(), alpha=0.1)
    regions, w, form = Regions.make(3, 7), np.linspace(-1, 1, 7), HessianForm.parse(kind)
    worker = Worker(1, problem.local_objectives[1], regions, None, 0)
    task = CurvatureTask(4, w, form.kind, form.rank, sketch=11, dtype=dtype)
    reply, whole = worker.answer(task), worker.answer(HessianTask(4, w))
    assert (reply.worker, reply.exchange, reply.loss) == (1, 4, whole.loss)
    np.testing.assert_array_equal(reply.gradient, whole.gradient)
    assert reply.numbers.dtype == np.dtype(dtype)
    assert reply.numbers.size == form.numbers(regions)
    size = 8 if dtype == "float64" else 4
    exchange = Exchange("hessian", task, np.array([1]))
    replies = ReplyForm(regions, problem.layout).stack(exchange, {1: reply})
    assert bytes_up(exchange, replies, regions).tolist() == [8 * 7 + size * form.numbers(regions) + 8]
    assert task_bytes(task) == 8 * 7
    if kind == "full":
        np.testing.assert_array_equal(reply.numbers, whole.packed_hessian.astype(dtype))


def test_everyone_draws_the_same_sketch_and_sketches_add_up():
    problem = Problem(random_shards(as_sparse=True), alpha=0.1)
    w, regions = np.linspace(-1, 1, 7), Regions.make(3, 7)
    task = CurvatureTask(0, w, "lowrank", 3, sketch=5)
    total = sum(
        weight * Worker(i, local, regions, None, seed=i).answer(task).numbers  # whatever the worker's own seed is
        for i, (weight, local) in enumerate(zip(problem.weights, problem.local_objectives, strict=True))
    )
    omega, whole = sketch_matrix(5, 7, 3), problem.hessian(w)
    np.testing.assert_allclose(total[:7], whole.diagonal(), rtol=1e-12)
    np.testing.assert_allclose(total[7:].reshape(7, 3), (whole - 0.1 * np.eye(7)) @ omega, rtol=1e-10, atol=1e-13)
    assert np.abs(sketch_matrix(5, 7, 3) - sketch_matrix(6, 7, 3)).max() > 0.1


def symmetric(d, rank, rng, decay=0.5):
    vectors = np.linalg.qr(rng.normal(size=(d, d)))[0][:, :rank]
    return (vectors * decay ** np.arange(rank)) @ vectors.T


@pytest.mark.parametrize("rounding", [1e-14, 1e-6])
def test_nystrom_finds_a_matrix_of_low_rank_and_is_never_above_any(rounding):
    rng = np.random.default_rng(0)
    omega = rng.normal(size=(30, 8))
    exact = symmetric(30, 6, rng)
    values, vectors = nystrom(exact @ omega, omega, rounding)
    np.testing.assert_allclose((vectors * values) @ vectors.T, exact, atol=100 * rounding)
    above = symmetric(30, 30, rng, decay=0.8)
    values, vectors = nystrom(above @ omega, omega, rounding)
    left = np.linalg.eigvalsh(above - (vectors * values) @ vectors.T)
    assert left[0] > -100 * rounding  # nothing of it is above the matrix
    assert values[0] == pytest.approx(1.0, rel=0.2)


def test_a_sketch_of_nothing_is_nothing():
    omega = np.random.default_rng(0).normal(size=(9, 3))
    made = low_rank(np.full(9, 0.5), np.zeros((9, 3)), omega, 0.1, 1e-14)
    np.testing.assert_allclose(made.solve(np.ones(9)), 2.0, rtol=1e-12)
    none = low_rank(np.full(2, 0.5), np.zeros((2, 0)), np.zeros((2, 0)), 0.1, 1e-14)  # no column fits
    np.testing.assert_allclose(none.solve(np.ones(2)), 2.0, rtol=1e-12)


def assert_is(curvature, matrix, rtol=1e-8):
    """`times` is the matrix and `solve` its inverse."""
    d = len(matrix)
    scale = np.abs(matrix).max()
    np.testing.assert_allclose(curvature.times(np.eye(d)), matrix, rtol=rtol, atol=rtol * scale)
    np.testing.assert_allclose(curvature.times(np.ones(d)), matrix @ np.ones(d), rtol=rtol, atol=rtol * scale)
    inverse = np.column_stack([curvature.solve(column) for column in np.eye(d)])
    np.testing.assert_allclose(inverse @ matrix, np.eye(d), rtol=rtol, atol=rtol * np.linalg.cond(matrix))


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6), d=st.integers(3, 12), rank=st.integers(1, 12), alpha=st.sampled_from([1e-6, 1e-2, 1.0])
)
def test_what_the_server_makes_of_the_sums(seed, d, rank, alpha):
    rng = np.random.default_rng(seed)
    data = symmetric(d, d, rng)
    whole, regions = data + alpha * np.eye(d), shuffled(d, 3, rng)
    assert_is(build(HessianForm("diag"), whole.diagonal(), regions, alpha, 0), np.diag(whole.diagonal()))

    own = [regions.indices(q) for q in range(3)]
    numbers = np.concatenate([pack(whole[np.ix_(each, each)]) for each in own])
    same = regions.of_coefficient[:, None] == regions.of_coefficient
    assert_is(build(HessianForm("block"), numbers, regions, alpha, 0), np.where(same, whole, 0.0), rtol=1e-7)

    form = HessianForm("lowrank", rank)
    omega = sketch_matrix(3, d, form.columns(d))
    made = build(form, np.concatenate([whole.diagonal(), (data @ omega).ravel()]), regions, alpha, 3)
    dense = made.times(np.eye(d))
    np.testing.assert_allclose(dense.diagonal(), whole.diagonal(), rtol=1e-8)  # the rest has what the pairs have not
    assert made.diagonal.min() >= alpha * (1 - 1e-12)
    assert_is(made, dense, rtol=1e-6)


def test_no_direction_is_flatter_than_mu():
    regions = Regions.make(2, 4)
    flat = np.array([0.0, 1.0, 2.0, -1e-9])
    np.testing.assert_array_equal(build(HessianForm("diag"), flat, regions, 0.5, 0).diagonal, [0.5, 1.0, 2.0, 0.5])
    made = build(HessianForm("diag"), flat, regions, 0.0, 0)  # no penalty: a column without entries is as the steepest
    np.testing.assert_array_equal(made.diagonal, [2.0, 1.0, 2.0, 2.0])
    thin = build(HessianForm("diag"), np.array([1e-20, 1.0, 2.0, 1e20]), regions, 0.0, 0)  # and a small one is itself
    np.testing.assert_array_equal(thin.diagonal, [1e-20, 1.0, 2.0, 1e20])
    block = build(HessianForm("block"), np.zeros(6), regions, 0.5, 0)
    np.testing.assert_allclose(block.solve(np.ones(4)), 2.0)
    sketch = np.concatenate([flat, np.zeros(4)])
    assert build(HessianForm("lowrank", 1), sketch, regions, 0.5, 0).diagonal.min() == 0.5
    whole = build(HessianForm("full"), np.zeros(10), regions, 0.5, 0)
    np.testing.assert_allclose(whole.solve(np.ones(4)), 2.0)


def test_packed_blocks_are_where_they_are_looked_for():
    problem = Problem(random_shards(as_sparse=True), alpha=0.1)
    regions = Regions.make([[6, 0, 3], [1, 5], [2, 4]], 7)
    w = np.linspace(-1, 1, 7)
    flat, whole = blocks(problem.local_objectives[0], w, regions), problem.local_objectives[0].hessian(w)
    np.testing.assert_allclose(unpack(flat[:6], 3), whole[np.ix_([0, 3, 6], [0, 3, 6])], rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(unpack(flat[6:9], 2), whole[np.ix_([1, 5], [1, 5])], rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("kind", ["block", "lowrank:2", "diag"])
def test_the_even_curvature_is_one_number_but_for_coefficients_without_a_penalty(kind):
    rng, d, form = np.random.default_rng(0), 6, HessianForm.parse(kind)
    whole, regions, free = symmetric(d, d, rng) + np.eye(d), shuffled(6, 2, rng), np.arange(d) == 5
    if kind == "block":
        numbers = np.concatenate([pack(whole[np.ix_(own, own)]) for own in regions.groups])
    else:
        numbers = np.concatenate([whole.diagonal(), np.zeros(form.numbers(regions) - d)])
    mean = whole.diagonal()[:5].mean()
    made = even(form, numbers, regions, free)
    np.testing.assert_allclose(made.diagonal, [mean] * 5 + [whole[5, 5]])
    np.testing.assert_allclose(even(form, 0 * numbers, regions, free).solve(np.zeros(d)), 0)
