"""Curvature of everyone from the Hessians of some: what stands in for the rest, and how far off it is."""

import numpy as np
import pytest

from danl.server.curvature import project
from danl.server.partial_curvature import Diagonal
from danl.server.quasi_newton import QuasiNewton
from danl.server.some_hessians import SomeHessians
from tests.server.test_partial_curvature import symmetric

D = 5


def hessians_of(count, rng, alike=False):
    one = symmetric(D, D, rng) + 0.1 * np.eye(D)
    return np.array([one if alike else symmetric(D, D, rng) + 0.1 * np.eye(D) for _ in range(count)])


def some(hessians, senders, weights, before=None):
    total = np.einsum("i,ijk->jk", np.where(senders, weights, 0.0), hessians)
    return SomeHessians.of(total, senders, weights, before)


def of_everyone(hessians, weights):
    return np.einsum("i,ijk->jk", weights, hessians)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_what_stands_in_is_exact_where_all_shards_are_alike(count):
    rng = np.random.default_rng(count)
    weights, hessians = rng.dirichlet(np.ones(6)), hessians_of(6, rng, alike=True)
    made = some(hessians, np.arange(6) < count, weights)
    assert made.share == pytest.approx(weights[:count].sum())
    np.testing.assert_allclose(made.matrix(), hessians[0], rtol=1e-12)


def test_with_everyone_nothing_stands_in():
    rng = np.random.default_rng(0)
    weights, hessians = rng.dirichlet(np.ones(4)), hessians_of(4, rng)
    made = some(hessians, np.ones(4, dtype=bool), weights)
    assert made.everyone
    np.testing.assert_allclose(made.matrix(), of_everyone(hessians, weights), rtol=1e-12)
    w = rng.normal(size=D)
    assert made.with_gradients(w, hessians @ w, weights, most=5) is made


def test_pairs_of_the_rest_make_the_rest_exact_along_the_steps():
    """After as many steps as there are coefficients, what is off is off along older steps alone."""
    rng = np.random.default_rng(3)
    weights, hessians, senders = rng.dirichlet(np.ones(4)), hessians_of(4, rng), np.arange(4) < 2
    exact, made, w = of_everyone(hessians, weights), some(hessians, senders, weights), rng.normal(size=D)
    wrong = [np.abs(made.matrix() - exact).max()]
    for _ in range(40):
        step = rng.normal(size=D)
        w = w + step
        made = made.with_gradients(w, hessians @ w, weights, most=50)
        if len(made.rest):
            np.testing.assert_allclose(made.matrix() @ step, exact @ step, rtol=1e-9, atol=1e-12)
        wrong.append(np.abs(made.matrix() - exact).max())
    assert wrong[0] > 0.1
    assert wrong[-1] < 1e-2 * wrong[0]


def test_pairs_go_on_where_the_rest_is_the_same_and_end_where_it_is_not():
    rng = np.random.default_rng(4)
    weights, hessians, senders = rng.dirichlet(np.ones(4)), hessians_of(4, rng), np.arange(4) < 2
    made = some(hessians, senders, weights)
    for _ in range(3):
        w = rng.normal(size=D)
        made = made.with_gradients(w, hessians @ w, weights, most=2)
    assert len(made.rest) == 2
    assert len(some(hessians, senders.copy(), weights, before=made).rest) == 2
    assert not len(some(hessians, ~senders, weights, before=made).rest)
    fewer = np.array([0.5, 0.3, 0.2, 0.0])  # the rest is another one: a worker has left
    assert not len(made.with_gradients(w, hessians @ w, fewer, most=2).rest)
    assert made.with_gradients(w, hessians @ w, weights, most=0) is made


def mismatch_of(hessians, senders, weights, rng, *, sent=None, steps=1):
    """After a step on quadratic functions with these Hessians; `sent` are those that the senders sent, if others."""
    made = some(hessians if sent is None else sent, senders, weights)
    curvature = QuasiNewton.start(project(made.matrix(), 1e-9), D)
    for _ in range(steps):
        w = rng.normal(size=D)
        gradients = hessians @ w
        made = made.with_gradients(w, gradients, weights, most=5)
        curvature = curvature.with_gradient(w, weights @ gradients, weights, most=5)
    w = rng.normal(size=D)
    return made.mismatch(curvature, w, hessians @ w, weights)


def test_shards_that_are_alike_and_quadratic_do_not_mismatch():
    rng = np.random.default_rng(5)
    weights, hessians = rng.dirichlet(np.ones(4)), hessians_of(4, rng, alike=True)
    seen = mismatch_of(hessians, np.arange(4) < 2, weights, rng)
    assert (seen.rest, seen.own) == pytest.approx((0.0, 0.0), abs=1e-7)


def test_the_rests_other_curvature_is_seen_as_the_rests():
    rng = np.random.default_rng(6)
    weights, hessians, senders = np.full(4, 0.25), hessians_of(4, rng, alike=True), np.arange(4) < 2
    hessians[~senders] *= 9.0
    seen = mismatch_of(hessians, senders, weights, rng)
    assert seen.own == pytest.approx(0.0, abs=1e-7)
    assert seen.rest == pytest.approx(4.0, rel=1e-6)  # 9 - 1 of half of the weight, beside the Hessian of one


def test_old_curvature_of_the_senders_is_seen_as_theirs():
    rng = np.random.default_rng(7)
    weights, hessians, senders = np.full(4, 0.25), hessians_of(4, rng, alike=True), np.arange(4) < 2
    sent = hessians.copy()
    hessians[senders] *= 3.0
    seen = mismatch_of(hessians, senders, weights, rng, sent=sent)
    assert seen.rest == pytest.approx(0.0, abs=1e-7)
    assert seen.own == pytest.approx(2.0, rel=1e-6)  # as if they were everyone


def test_a_mismatch_needs_a_step_from_whole_gradients_of_the_same_workers():
    rng = np.random.default_rng(8)
    weights, hessians, senders = np.full(4, 0.25), hessians_of(4, rng), np.arange(4) < 2
    assert mismatch_of(hessians, senders, weights, rng, steps=0) is None
    assert mismatch_of(hessians, np.ones(4, dtype=bool), weights, rng) is None
    made, w = some(hessians, senders, weights), rng.normal(size=D)
    gradients = hessians @ w
    whole = QuasiNewton.start(project(made.matrix(), 1e-9), D).with_gradient(w, weights @ gradients, weights, most=5)
    made = made.with_gradients(w, gradients, weights, most=5)
    other = rng.normal(size=D)
    assert made.mismatch(whole, other, hessians @ other, weights) is not None
    assert made.mismatch(whole, w, gradients, weights) is None  # no step
    assert made.mismatch(whole, other, hessians @ other, np.array([0.5, 0.3, 0.2, 0.0])) is None
    part = QuasiNewton.start(Diagonal(np.ones(D)), D).with_gradient(w, weights @ gradients, weights, most=5)
    assert made.mismatch(part, other, hessians @ other, weights) is None


def test_gradients_that_have_overflown_are_a_mismatch():
    rng = np.random.default_rng(9)
    weights, hessians, senders = np.full(4, 0.25), hessians_of(4, rng, alike=True), np.arange(4) < 2
    made, w, other = some(hessians, senders, weights), rng.normal(size=D), rng.normal(size=D)
    curvature = QuasiNewton.start(project(made.matrix(), 1e-9), D)
    curvature = curvature.with_gradient(w, weights @ (hessians @ w), weights, most=5)
    made = made.with_gradients(w, hessians @ w, weights, most=5)
    gradients = hessians @ other
    gradients[3] = np.inf
    with np.errstate(invalid="ignore"):
        assert made.mismatch(curvature, other, gradients, weights).rest == np.inf
