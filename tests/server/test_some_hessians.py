"""Curvature of everyone from the Hessians of some: what stands in for the rest, and how far off it is."""

import numpy as np
import pytest

from danl.server.curvature import project
from danl.server.partial_curvature import Diagonal
from danl.server.quasi_newton import QuasiNewton
from danl.server.some_hessians import AGE, Mismatch, SomeHessians
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


# The same from the losses alone.


def seen_both_ways(hessians, senders, weights, *, sent=None, w=None, to=None, seed=0):
    """`mismatch` and `mismatch_of_losses` of one step between two models, on quadratic functions."""
    rng, d = np.random.default_rng(seed), hessians.shape[1]
    w = rng.normal(size=d) if w is None else w
    to = rng.normal(size=d) if to is None else to
    made, curvature = at(hessians, senders, weights, w, sent=sent)
    changes = losses_of(hessians, to) - losses_of(hessians, w)
    return (
        made.mismatch(curvature, to, hessians @ to, weights),
        made.mismatch_of_losses(curvature, to, changes, weights),
    )


def losses_of(hessians, w):
    return 0.5 * np.einsum("j,ijk,k->i", w, hessians, w)


def at(hessians, senders, weights, w, *, sent=None):
    """The Hessians of some, and the curvature they make, with everyone's gradients at w."""
    made = some(hessians if sent is None else sent, senders, weights)
    curvature = QuasiNewton.start(project(made.matrix(), 1e-9), len(w))
    gradients = hessians @ w
    made = made.with_gradients(w, gradients, weights, most=5)
    return made, curvature.with_gradient(w, weights @ gradients, weights, most=5)


@pytest.mark.parametrize("seed", range(20))
def test_losses_say_at_least_so_much_on_quadratics(seed):
    rng = np.random.default_rng(seed)
    weights, hessians, senders = rng.dirichlet(np.ones(5)), hessians_of(5, rng), np.arange(5) < 2
    whole, part = seen_both_ways(hessians, senders, weights, sent=hessians_of(5, rng), seed=seed)
    assert 0 < part.rest <= whole.rest * (1 + 1e-9)
    assert 0 < part.own <= whole.own * (1 + 1e-9)


@pytest.mark.parametrize("factor", [0.25, 3.0, 9.0])
def test_losses_say_all_of_it_where_the_change_is_along_the_step(factor):
    """Where the rest curves a multiple of what stands in for it, and the senders a multiple of what they sent."""
    rng = np.random.default_rng(11)
    weights, hessians, senders = rng.dirichlet(np.ones(4)), hessians_of(4, rng, alike=True), np.arange(4) < 2
    sent, hessians[senders], hessians[~senders] = hessians.copy(), factor * hessians[0], (factor + 2) * hessians[3]
    whole, part = seen_both_ways(hessians, senders, weights, sent=sent)
    assert part.rest == pytest.approx(whole.rest, rel=1e-7)
    assert part.own == pytest.approx(whole.own, rel=1e-7)
    assert part.own == pytest.approx(abs(factor - 1), rel=1e-7)


@pytest.mark.parametrize("seed", range(5))
def test_losses_say_all_of_it_of_one_coefficient(seed):
    rng = np.random.default_rng(seed)
    weights, hessians, senders = rng.dirichlet(np.ones(4)), rng.uniform(0.5, 5.0, size=(4, 1, 1)), np.arange(4) < 2
    whole, part = seen_both_ways(hessians, senders, weights, sent=2 * hessians, seed=seed)
    assert (part.rest, part.own) == pytest.approx((whole.rest, whole.own), rel=1e-7)


def test_losses_of_shards_that_are_alike_and_quadratic_say_nothing():
    rng = np.random.default_rng(12)
    weights, hessians = rng.dirichlet(np.ones(4)), hessians_of(4, rng, alike=True)
    _, part = seen_both_ways(hessians, np.arange(4) < 2, weights)
    assert (part.rest, part.own) == pytest.approx((0.0, 0.0), abs=1e-9)


@pytest.mark.parametrize("loss", [np.inf, np.nan])
@pytest.mark.parametrize(("worker", "own"), [(0, True), (3, False)])
def test_losses_that_have_overflown_are_a_mismatch_of_those_they_are_of(worker, own, loss):
    rng = np.random.default_rng(13)
    weights, hessians, senders = np.full(4, 0.25), hessians_of(4, rng, alike=True), np.arange(4) < 2
    made, curvature = at(hessians, senders, weights, rng.normal(size=D))
    changes = np.zeros(4)
    changes[worker] = loss
    with np.errstate(invalid="ignore"):
        seen = made.mismatch_of_losses(curvature, rng.normal(size=D), changes, weights)
    assert (seen.own if own else seen.rest) == np.inf
    assert not np.isnan([seen.own, seen.rest]).any()


def test_losses_say_nothing_without_a_step_from_whole_gradients_of_the_same_workers():
    rng = np.random.default_rng(14)
    weights, hessians, senders = np.full(4, 0.25), hessians_of(4, rng), np.arange(4) < 2
    w, to, changes = rng.normal(size=D), rng.normal(size=D), rng.normal(size=4)
    made, curvature = at(hessians, senders, weights, w)
    assert made.mismatch_of_losses(curvature, to, changes, weights) is not None
    assert made.mismatch_of_losses(curvature, w, changes, weights) is None  # no step
    assert made.mismatch_of_losses(curvature, to, changes, np.array([0.5, 0.3, 0.2, 0.0])) is None
    nothing_yet = QuasiNewton.start(project(made.matrix(), 1e-9), D)
    assert made.mismatch_of_losses(nothing_yet, to, changes, weights) is None
    everyone, theirs = at(hessians, np.ones(4, dtype=bool), weights, w)
    assert everyone.mismatch_of_losses(theirs, to, changes, weights) is None


@pytest.mark.parametrize(("own", "rest", "of_age"), [(0.0, 0.0, False), (1.0, 2.0, False), (2.0, 2.0, True)])
def test_curvature_is_of_age_where_the_senders_own_is_off_nearly_as_much_as_the_rests(own, rest, of_age):
    assert Mismatch(rest=rest, own=own).of_age is of_age
    assert Mismatch(rest=rest, own=AGE * rest).of_age is False
    assert Mismatch(rest=rest, own=AGE * rest + 1e-6).of_age is True


# Hessians of others from a model nearby.


def test_hessians_of_two_groups_are_their_mean_by_their_weights():
    rng = np.random.default_rng(15)
    weights, hessians = rng.dirichlet(np.ones(6)), hessians_of(6, rng)
    first, second = np.arange(6) < 2, (np.arange(6) >= 2) & (np.arange(6) < 5)
    made = some(hessians, second, weights).together_with(some(hessians, first, weights), weights)
    both = some(hessians, first | second, weights)
    assert made.senders.tolist() == (first | second).tolist()
    assert made.share == pytest.approx(both.share)
    np.testing.assert_allclose(made.total, both.total, rtol=1e-12)
    np.testing.assert_allclose(made.matrix(), both.matrix(), rtol=1e-12)


def test_groups_that_make_everyone_leave_no_rest():
    rng = np.random.default_rng(16)
    weights, hessians, first = rng.dirichlet(np.ones(6)), hessians_of(6, rng), np.arange(6) < 2
    made = some(hessians, ~first, weights).together_with(some(hessians, first, weights), weights)
    assert made.everyone
    np.testing.assert_allclose(made.matrix(), of_everyone(hessians, weights), rtol=1e-12)


def test_alike_hessians_stay_exact_together_whoever_sent_twice():
    rng = np.random.default_rng(17)
    weights, hessians = rng.dirichlet(np.ones(6)), hessians_of(6, rng, alike=True)
    for first, second in [((0, 1), (2, 3)), ((0, 1, 2), (2, 3)), ((0, 1), (0, 1)), ((0, 1, 2, 3), (2, 3, 4, 5))]:
        groups = [np.isin(np.arange(6), list(group)) for group in (first, second)]
        one, other = (some(hessians, group, weights) for group in groups)
        made = other.together_with(one, weights)
        assert made.share == pytest.approx(weights[groups[0] | groups[1]].sum())
        np.testing.assert_allclose(made.matrix(), hessians[0], rtol=1e-12)


def test_one_that_sent_twice_counts_with_both_of_its_hessians():
    weights, senders = np.full(4, 0.25), np.arange(4) < 2
    older, newer = np.array([np.eye(D)] * 4), np.array([3 * np.eye(D)] * 4)
    made = some(newer, senders, weights).together_with(some(older, senders, weights), weights)
    assert made.share == 0.5
    np.testing.assert_allclose(made.matrix(), 2 * np.eye(D), rtol=1e-12)


def test_the_rest_of_two_groups_is_another_rest_without_pairs():
    rng = np.random.default_rng(18)
    weights, hessians, first = rng.dirichlet(np.ones(6)), hessians_of(6, rng), np.arange(6) < 2
    before = some(hessians, first, weights)
    for _ in range(3):
        w = rng.normal(size=D)
        before = before.with_gradients(w, hessians @ w, weights, most=5)
    assert len(before.rest) == 2
    second = np.isin(np.arange(6), [3])
    assert not len(some(hessians, second, weights).together_with(before, weights).rest)
    repeated = some(hessians, first, weights, before=before)
    assert len(repeated.rest) == 2
    assert not len(repeated.together_with(before, weights).rest)
