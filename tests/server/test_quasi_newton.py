"""Limited-memory BFGS on any curvature against the dense update, and what the memory makes of any curvature."""

import numpy as np
import pytest

from danl.objective.regions import Regions
from danl.protocol.replies import Replies
from danl.server.curvature import project
from danl.server.memory import Memory
from danl.server.partial_curvature import BlockDiagonal, Diagonal, LowRank
from danl.server.quasi_newton import NUMBERS, ON_A_PART, Pairs, QuasiNewton
from tests.server.test_partial_curvature import assert_is, shuffled, symmetric


def bfgs(B, pairs):
    """The dense update, pair by pair (Nocedal & Wright, 6.19)."""
    for s, y in pairs:
        B = B - np.outer(B @ s, B @ s) / (s @ B @ s) + np.outer(y, y) / (y @ s)
    return B


def with_pair(curvature, s, y, most):
    return curvature.with_pair(s, y, most)


def initial_matrices(d, rng, regions):
    whole, own = symmetric(d, d, rng) + 0.1 * np.eye(d), regions.groups
    yield Diagonal(whole.diagonal())
    yield BlockDiagonal(tuple(project(whole[np.ix_(each, each)], 0.1) for each in own), own)
    yield LowRank.of(np.full(d, 0.3), rng.normal(size=(d, 2)))


@pytest.mark.parametrize("count", [0, 1, 5])
def test_quasi_newton_is_the_bfgs_matrix(count):
    rng = np.random.default_rng(count)
    true = symmetric(8, 8, rng) + 0.1 * np.eye(8)
    for initial in initial_matrices(8, rng, Regions.make(2, 8)):
        curvature, pairs = QuasiNewton.start(initial, 8), []
        for _ in range(count):
            s = rng.normal(size=8) * 10.0 ** rng.integers(-6, 3)
            pairs.append((s, true @ s))
            curvature = with_pair(curvature, *pairs[-1], most=5)
        assert_is(curvature, bfgs(initial.times(np.eye(8)), pairs), rtol=1e-7)
        if pairs:
            s, y = pairs[-1]
            np.testing.assert_allclose(curvature.times(s), y, rtol=1e-7, atol=1e-9 * np.abs(y).max())


def test_only_the_newest_pairs_are_kept_and_none_that_rounding_made():
    rng, start = np.random.default_rng(0), Pairs.none(4)
    made = start
    for k in range(6):
        s = rng.normal(size=4)
        made = made.with_pair(s, (k + 1) * s, most=3)
    assert len(made) == 3
    np.testing.assert_allclose(np.sum(made.steps * made.changes, axis=1), 1.0)
    np.testing.assert_allclose(np.linalg.norm(made.changes, axis=1) / np.linalg.norm(made.steps, axis=1), [4, 5, 6])
    s = np.array([1.0, 0, 0, 0])
    for y in (-s, np.array([0, 1.0, 0, 0]), np.zeros(4), np.full(4, np.nan)):
        assert not len(start.with_pair(s, y, most=3))
    assert not len(start.with_pair(s, s, most=0))


def test_the_memory_takes_any_curvature_as_it_takes_a_matrix():
    rng, d, n = np.random.default_rng(4), 8, 5
    regions, weights = shuffled(d, 3, rng), rng.dirichlet(np.ones(n))
    w = rng.normal(size=d)
    memory = Memory.fresh(rng.normal(size=(n, d)), w, 3, stamp=0)
    for t in range(1, 6):
        w = w + rng.normal(size=d)
        masks = rng.random((n, 3)) < 0.4
        replies = Replies(np.arange(n), np.zeros(n), rng.normal(size=(n, d)), masks=masks)
        memory = memory.refreshed(replies, w, t, regions)
    step = rng.normal(size=d)
    for initial in initial_matrices(d, rng, regions):
        s = rng.normal(size=d)
        for curvature in (initial, with_pair(QuasiNewton.start(initial, d), s, 2 * s, 3)):
            matrix = project(curvature.times(np.eye(d)), 1e-9)
            np.testing.assert_allclose(
                memory.corrected(weights, curvature, w, regions),
                memory.corrected(weights, matrix, w, regions),
                rtol=1e-9,
            )
            np.testing.assert_allclose(
                memory.predicted_changes(curvature, w, step, regions),
                memory.predicted_changes(matrix, w, step, regions),
                rtol=1e-9,
            )


def test_pairs_on_a_whole_hessian_correct_its_steps_and_not_its_products():
    rng, d = np.random.default_rng(0), 6
    whole, regions = project(symmetric(d, d, rng) + 0.1 * np.eye(d), 0.1), Regions.make(3, d)
    s, y, offsets, shares = rng.normal(size=d), rng.normal(size=d), rng.normal(size=(2, d)), rng.random((3, 2))
    y *= np.sign(s @ y)
    made = with_pair(QuasiNewton.start(whole, d), s, y, 3)
    np.testing.assert_allclose(made.solve(y), s, rtol=1e-9)
    assert made.times(s).tobytes() == whole.times(s).tobytes()
    corrections = [each.memory_correction(offsets, shares, regions).tobytes() for each in (made, whole)]
    assert corrections[0] == corrections[1]


def test_pairs_are_of_whole_gradients_of_the_same_workers():
    rng, d = np.random.default_rng(1), 4
    true, start = symmetric(d, d, rng) + np.eye(d), QuasiNewton.start(Diagonal(np.ones(4)), 4)
    everyone, fewer = np.full(3, 1 / 3), np.array([0.5, 0.5, 0.0])
    models = rng.normal(size=(4, d))
    first = start.with_gradient(models[0], true @ models[0], everyone, most=5)
    assert not len(first.pairs)
    second = first.with_gradient(models[1], true @ models[1], everyone.copy(), most=5)
    np.testing.assert_allclose(second.times(models[1] - models[0]), true @ (models[1] - models[0]), rtol=1e-9)
    third = second.with_gradient(models[2], true @ models[2], fewer, most=5)  # of another objective
    assert not len(third.pairs)
    assert len(third.with_gradient(models[3], true @ models[3], fewer, most=5).pairs) == 1


@pytest.mark.parametrize("count", [0, 1, 4])
def test_pairs_on_a_matrix_make_the_bfgs_matrix(count):
    rng = np.random.default_rng(count)
    true, matrix, pairs = symmetric(6, 6, rng) + 0.1 * np.eye(6), np.diag(rng.uniform(0.5, 2.0, size=6)), Pairs.none(6)
    steps = rng.normal(size=(count, 6))
    for s in steps:
        pairs = pairs.with_pair(s, true @ s, most=5)
    made = pairs.on(matrix)
    np.testing.assert_allclose(made, bfgs(matrix, [(s, true @ s) for s in steps]), rtol=1e-9, atol=1e-12)
    if count:
        np.testing.assert_allclose(made @ steps[-1], true @ steps[-1], rtol=1e-9, atol=1e-12)


def test_steps_on_a_part_have_the_size_of_the_newest_pair():
    """Nocedal & Wright, 7.20: along the newest pair a step from the scaled diagonal alone would be right."""
    rng = np.random.default_rng(0)
    true = 9.0 * symmetric(8, 8, rng) + np.eye(8)
    step = rng.normal(size=8)
    change = true @ step
    part = with_pair(QuasiNewton.start(Diagonal(np.ones(8)), 8), step, change, 5)
    assert part.scales == pytest.approx((float(step @ change / (change @ change)), 0.0))
    np.testing.assert_allclose(part.downhill(change), step)
    np.testing.assert_allclose(part.times(part.solve(change)), change)
    whole = with_pair(QuasiNewton.start(project(true, 0.1), 8), step, change, 5)
    assert whole.scales == (1.0, 0.0)
    gradient = rng.normal(size=8)
    np.testing.assert_array_equal(whole.downhill(gradient), whole.solve(gradient))


def test_steps_on_a_part_begin_with_an_average_of_it_and_an_even_curvature():
    """Each of the size of the newest pair, and weighed by the cosine between C s and y, squared."""
    d, rng = 4, np.random.default_rng(0)
    part, even = Diagonal(np.array([1.0, 2.0, 4.0, 8.0])), Diagonal(np.full(d, 3.0))
    made = QuasiNewton.start(part, d, even)
    assert made.scales == (1.0, 0.0)
    s = rng.normal(size=d)
    right = with_pair(made, s, 5.0 * part.times(s), 5)  # the part is right, but for its size
    own, beside = right.scales
    cosine = (s @ part.times(s)) ** 2 / (np.sum(np.square(part.times(s))) * (s @ s))
    assert own == pytest.approx(1 / 5 / (1 + cosine))
    y = right.pairs.changes[-1]
    assert own * (y @ part.solve(y)) + beside * (y @ even.solve(y)) == pytest.approx(1.0)
    flat = with_pair(made, s, 5.0 * s, 5)  # the even one is, and scaling it changes nothing
    other = with_pair(QuasiNewton.start(part, d, Diagonal(np.full(d, 7.0))), s, 5.0 * s, 5)
    assert flat.scales[1] * 7 == pytest.approx(other.scales[1] * 3)
    gradient = rng.normal(size=d)
    np.testing.assert_allclose(flat.downhill(gradient), other.downhill(gradient))
    for each in (right, flat):
        np.testing.assert_allclose(each.downhill(each.pairs.changes[-1]), each.pairs.steps[-1])


def test_more_pairs_are_kept_on_a_part_while_they_are_few_numbers():
    assert QuasiNewton.start(Diagonal(np.ones(3)), 3).kept(20) == ON_A_PART * 20
    assert QuasiNewton.start(Diagonal(np.ones(3)), 3).kept(0) == 0
    assert QuasiNewton.start(project(np.eye(3), 0.1), 3).kept(20) == 20
    for d, most in ((NUMBERS // 50, 50), (NUMBERS, 20)):
        assert QuasiNewton.start(Diagonal(np.ones(d)), d).kept(20) == most
