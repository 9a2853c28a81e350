"""The corrected estimate against its definition, from models that a naive server would have stored."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from danl.objective import batch, batch_parts
from danl.objective.regions import Regions
from danl.protocol.replies import Replies
from danl.server.curvature import ProjectedHessian
from danl.server.memory import COMMON, UPDATES, Memory, put_fragments
from tests.problems import random_problem


def replies_of(who, gradients, masks):
    return Replies(who, np.zeros(len(who)), gradients, masks=masks)


def plainly(memory, replies, w, t, regions):
    """The memory with these replies, array by array."""
    fragments, stamps = memory.fragments.copy(), memory.stamps.copy()
    for worker, gradient, mask in zip(replies.workers, replies.gradients, replies.masks, strict=True):
        fragments[worker, regions.coordinates(mask)] = gradient[regions.coordinates(mask)]
        stamps[worker, mask] = t
    models = {stamp: w if stamp == t else memory.models[stamp] for stamp in np.unique(stamps).tolist()}
    return Memory(fragments, stamps, models)


class NaiveServer:
    """Every model behind every fragment, kept in full."""

    def __init__(self, gradients, w, groups):
        self.groups = groups
        self.fragments = {(i, q): g[own] for i, g in enumerate(gradients) for q, own in enumerate(groups)}
        self.models = dict.fromkeys(self.fragments, w)

    def take(self, worker, q, gradient, w):
        self.fragments[worker, q], self.models[worker, q] = gradient[self.groups[q]], w

    def estimate(self, worker, hessian, w):
        """g_i^q(v_iq) + [Pi (w - v_iq)]^q, region by region."""
        out = np.zeros(len(w))
        for q, own in enumerate(self.groups):
            out[own] = self.fragments[worker, q] + (hessian @ (w - self.models[worker, q]))[own]
        return out


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(1, 9), st.floats(0, 1), st.data())
def test_corrected_equals_the_definition_over_random_schedules(seed, n_workers, d, keep, data):
    rng = np.random.default_rng(seed)
    n_regions = data.draw(st.integers(1, d))
    groups = [np.sort(group) for group in np.array_split(rng.permutation(d), n_regions)]
    regions = Regions.make(groups, d)
    A = rng.normal(size=(d, d))
    hessian, weights = A @ A.T, rng.dirichlet(np.ones(n_workers))
    w, gradients = rng.normal(size=d), rng.normal(size=(n_workers, d))
    memory, naive = Memory.fresh(gradients, w, n_regions), NaiveServer(gradients, w, groups)
    for t in range(1, 15):
        w = w + rng.normal(size=d) * 0.1
        masks = rng.random((n_workers, n_regions)) < keep
        gradients = rng.normal(size=(n_workers, d))
        who = np.flatnonzero(masks.any(axis=1))
        for i in who:
            for q in np.flatnonzero(masks[i]):
                naive.take(i, q, gradients[i], w)
        memory = memory.refreshed(replies_of(who, gradients[who], masks[who]), w, t, regions)
        expected = sum(weights[i] * naive.estimate(i, hessian, w) for i in range(n_workers))
        curvature = ProjectedHessian(hessian)
        np.testing.assert_allclose(memory.corrected(weights, curvature, w, regions), expected, rtol=1e-10, atol=1e-11)
        step = rng.normal(size=d)
        half = 0.5 * step @ hessian @ step
        changes = [naive.estimate(i, hessian, w) @ step + half for i in range(n_workers)]
        predicted = memory.predicted_changes(curvature, w, step, regions)
        np.testing.assert_allclose(predicted, changes, rtol=1e-9, atol=1e-9)
        assert len(memory.models) <= min(t + 1, n_workers * n_regions)  # nothing is kept that nobody refers to


@pytest.mark.parametrize("seed", range(5))
def test_on_a_quadratic_the_estimate_is_the_gradient_whatever_the_staleness(seed):
    """Every worker has the same curvature here, so Pi is the full information about each of them."""
    rng = np.random.default_rng(seed)
    d, n_workers, regions = 6, 4, Regions.make(3, 6)
    A = rng.normal(size=(d, d))
    hessian, offsets = A @ A.T + np.eye(d), rng.normal(size=(n_workers, d))

    def gradient(i, w):
        return hessian @ w + offsets[i]

    w = rng.normal(size=d)
    memory = Memory.fresh(np.stack([gradient(i, w) for i in range(n_workers)]), w, 3)
    weights = rng.dirichlet(np.ones(n_workers))
    for t in range(1, 40):
        w = w + rng.normal(size=d)
        worker, mask = int(rng.integers(n_workers)), np.arange(3) == rng.integers(3)  # one fragment a round
        replies = replies_of(np.array([worker]), gradient(worker, w)[None], mask[None])
        memory = memory.refreshed(replies, w, t, regions)
        exact = sum(weights[i] * gradient(i, w) for i in range(n_workers))
        estimate = memory.corrected(weights, ProjectedHessian(hessian), w, regions)
        np.testing.assert_allclose(estimate, exact, rtol=1e-10, atol=1e-10)


def test_where_everything_is_fresh_there_is_nothing_to_correct():
    problem = random_problem()
    w, regions = np.ones(7), Regions.make(2, 7)
    gradients = np.stack([local.value_and_gradient(w)[1] for local in problem.local_objectives])
    memory = Memory.fresh(gradients, w, 2)
    weights = np.full(4, 0.1 + 0.2) / 1.2000000000000002  # sums to 1 but for rounding
    huge = ProjectedHessian(1e12 * problem.hessian(w))
    for same in (w, w.copy()):  # another array with the same numbers is the same model
        np.testing.assert_array_equal(memory.corrected(weights, huge, same, regions), memory.mean_all(weights))


@pytest.fixture
def touching_few(monkeypatch):
    """Only the rows of those who come back are touched, however small the memory."""
    monkeypatch.setattr(batch, "MANY_NUMBERS", 0)
    monkeypatch.setattr(batch_parts, "FEW", 2)
    monkeypatch.setattr(batch_parts, "MANY_NUMBERS", 0)


def few_come_back(rng, t, n_workers, d, regions):
    """Replies of at most half of the workers."""
    who = np.sort(rng.choice(n_workers, size=rng.integers(1, n_workers // 2 + 1), replace=False))
    masks = rng.random((len(who), regions.n_regions)) < 0.6
    return replies_of(who, rng.normal(size=(len(who), d)), masks)


@pytest.mark.parametrize("seed", range(4))
def test_where_few_come_back_the_memory_is_what_it_would_be(seed, touching_few):
    rng = np.random.default_rng(seed)
    n_workers, d, regions = 8, 9, Regions.make(3, 9)
    weights, other_weights = rng.dirichlet(np.ones(n_workers)), rng.dirichlet(np.ones(n_workers))
    w, gradients = rng.normal(size=d), rng.normal(size=(n_workers, d))
    memory = plain = Memory.fresh(gradients, w, 3)
    updates = set()
    for t in range(1, 3 * UPDATES):
        w = rng.normal(size=d)
        replies = few_come_back(rng, t, n_workers, d, regions)
        before = memory.fragments.copy()
        newer = memory.refreshed(replies, w, t, regions, weights)
        np.testing.assert_array_equal(memory.fragments, before)  # what it was made of stays: a run may end here
        memory, plain = newer, plainly(plain, replies, w, t, regions)
        np.testing.assert_array_equal(memory.fragments, plain.fragments)
        np.testing.assert_array_equal(memory.stamps, plain.stamps)
        assert memory.models.keys() == plain.models.keys()
        for each in (weights, other_weights, weights.copy()):
            np.testing.assert_allclose(memory.mean_all(each), plain.mean_all(each), rtol=0, atol=1e-14)
        updates.add(memory.running.updates)
    assert updates == set(range(UPDATES))


def test_rounding_does_not_build_up(touching_few):
    """Large fragments come and go; the sum is added up anew and forgets them."""
    rng = np.random.default_rng(0)
    regions, weights = Regions.make(1, 3), np.full(8, 1 / 8)
    memory = Memory.fresh(np.zeros((8, 3)), np.zeros(3), 1)
    worst = 0.0
    for t in range(1, 5 * UPDATES):
        numbers = rng.normal(size=(1, 3)) * (1e12 if t < UPDATES // 2 else 1.0)
        replies = replies_of(np.array([t % 8]), numbers, np.ones((1, 1), bool))
        memory = memory.refreshed(replies, np.zeros(3), t, regions, weights)
        worst = max(worst, float(np.abs(memory.mean_all(weights) - weights @ memory.fragments).max()))
    assert worst > 1e-7  # while it ran on
    np.testing.assert_allclose(memory.mean_all(weights), weights @ memory.fragments, rtol=0, atol=1e-14)


def test_other_weights_begin_another_sum(touching_few):
    rng = np.random.default_rng(0)
    regions = Regions.make(2, 4)
    memory = Memory.fresh(rng.normal(size=(8, 4)), np.zeros(4), 2)
    for t in range(1, 12):
        weights = rng.dirichlet(np.ones(8)) if t % 3 == 0 else np.full(8, 1 / 8)
        memory = memory.refreshed(few_come_back(rng, t, 8, 4, regions), np.zeros(4), t, regions, weights)
        np.testing.assert_allclose(memory.mean_all(weights), weights @ memory.fragments, rtol=0, atol=1e-14)


def test_two_memories_made_of_one_do_not_share_rows(touching_few):
    rng = np.random.default_rng(0)
    regions, w = Regions.make(2, 4), np.zeros(4)

    def refreshed(memory, t):
        replies = few_come_back(rng, t, 8, 4, regions)
        plain = plainly(memory, replies, w, t, regions)
        made = memory.refreshed(replies, w, t, regions)
        np.testing.assert_array_equal(made.fragments, plain.fragments)
        return made

    memory = Memory.fresh(rng.normal(size=(8, 4)), w, 2)
    for t in (1, 2, 3):
        memory = refreshed(memory, t)
    kept = memory.fragments.copy()
    branches = [refreshed(memory, 4), refreshed(memory, 5), refreshed(memory, 6)]
    np.testing.assert_array_equal(memory.fragments, kept)
    for t in (7, 8, 9):
        copies = [branch.fragments.copy() for branch in branches]
        newer = [refreshed(branch, t) for branch in branches]
        for branch, before in zip(branches, copies, strict=True):
            np.testing.assert_array_equal(branch.fragments, before)
        branches = newer


def test_what_the_engine_told_is_not_written_to(touching_few):
    rng = np.random.default_rng(0)
    regions, w, everyone = Regions.make(2, 4), np.zeros(4), np.arange(8)
    first = rng.normal(size=(8, 4))
    kept, copies = [first], [first.copy()]
    memory = Memory.fresh(first, w, 2)
    for t in range(1, 12):
        replies = few_come_back(rng, t, 8, 4, regions)
        if t % 5 == 0:
            numbers = rng.normal(size=(8, 4))
            replies = replies_of(everyone, numbers, np.ones((8, 2), bool))
        kept.append(replies.gradients)
        copies.append(replies.gradients.copy())
        memory = memory.refreshed(replies, w, t, regions)
    for array, before in zip(kept, copies, strict=True):
        np.testing.assert_array_equal(array, before)


# Pairs of those who sent their whole gradient twice.


def quadratics(rng, n_workers, d):
    """Gradients of quadratic functions, (N, d) at a model, with their Hessians."""
    factors, offsets = rng.normal(size=(n_workers, d, d)), rng.normal(size=(n_workers, d))
    hessians = factors @ factors.transpose(0, 2, 1) + np.eye(d)
    return hessians, lambda w: hessians @ w + offsets


def whole(who, gradients, n_regions=3):
    return replies_of(who, gradients[who], np.ones((len(who), n_regions), bool))


@pytest.mark.parametrize("seed", range(8))
def test_the_common_change_is_the_hessian_of_those_who_sent_twice_times_the_step(seed):
    rng = np.random.default_rng(seed)
    n_workers, d, regions = 12, 6, Regions.make(3, 6)
    weights, (hessians, gradients_at) = rng.dirichlet(np.full(n_workers, 5.0)), quadratics(rng, n_workers, d)
    models = rng.normal(size=(3, d))
    memory = Memory.fresh(gradients_at(models[0]), models[0], 3)
    groups = [np.sort(rng.choice(n_workers, size=9, replace=False)) for _ in range(2)]
    before = memory.refreshed(whole(groups[0], gradients_at(models[1])), models[1], 1, regions, weights)
    after = before.refreshed(whole(groups[1], gradients_at(models[2])), models[2], 2, regions, weights)
    step, change = after.common_change(before, weights)
    np.testing.assert_allclose(step, models[2] - models[1], rtol=1e-12)
    both = np.intersect1d(*groups)
    mean = np.einsum("i,ijk->jk", weights[both] / weights[both].sum(), hessians[both])
    np.testing.assert_allclose(change, mean @ step, rtol=1e-9, atol=1e-9)


def test_the_common_change_is_the_same_where_few_rows_are_touched(touching_few):
    rng = np.random.default_rng(1)
    weights, regions = rng.dirichlet(np.full(12, 5.0)), Regions.make(3, 6)
    (hessians, gradients_at), models, who = quadratics(rng, 12, 6), rng.normal(size=(3, 6)), np.arange(6)
    memory = Memory.fresh(gradients_at(models[0]), models[0], 3)
    before = memory.refreshed(whole(who, gradients_at(models[1])), models[1], 1, regions, weights)
    after = before.refreshed(whole(who, gradients_at(models[2])), models[2], 2, regions, weights)
    assert after.newer
    step, change = after.common_change(before, weights)
    mean = np.einsum("i,ijk->jk", weights[who] / weights[who].sum(), hessians[who])
    np.testing.assert_allclose(change, mean @ step, rtol=1e-9, atol=1e-9)


def two_rounds(first, second, *, share_masks=None, n_workers=8, stamps=(1, 2)):
    """Memories after two groups of workers sent gradients at two models, on the masks `share_masks` the second time."""
    rng = np.random.default_rng(0)
    regions, (_, gradients_at), models = Regions.make(3, 6), quadratics(rng, n_workers, 6), rng.normal(size=(3, 6))
    memory = Memory.fresh(gradients_at(models[0]), models[0], 3)
    before = memory.refreshed(whole(np.array(first), gradients_at(models[1])), models[1], stamps[0], regions)
    replies = whole(np.array(second), gradients_at(models[2]))
    if share_masks is not None:
        replies = replies_of(replies.workers, replies.gradients, share_masks)
    return before, before.refreshed(replies, models[2], stamps[1], regions)


def test_too_few_in_common_stand_for_nobody():
    weights = np.full(8, 1 / 8)
    before, after = two_rounds([0, 1, 2, 3], [2, 3, 4, 5])
    assert COMMON == 0.25
    assert after.common_change(before, weights) is not None  # two of eight
    assert after.common_change(before, np.array([1, 1, 0.9, 0.9, 1.05, 1.05, 1.05, 1.05]) / 8) is None
    before, after = two_rounds([0, 1, 2, 3], [3, 4, 5, 6])
    assert after.common_change(before, weights) is None
    heavy = np.where(np.arange(8) == 3, 0.3, 0.1)  # one of eight that counts for enough
    assert after.common_change(before, heavy) is not None


def test_parts_of_gradients_are_not_in_common():
    everyone, weights = np.arange(8), np.full(8, 1 / 8)
    masks = np.ones((8, 3), dtype=bool)
    masks[:, 1] = False
    before, after = two_rounds(everyone, everyone, share_masks=masks)
    assert after.common_change(before, weights) is None
    masks[:2] = True  # two of them sent everything
    before, after = two_rounds(everyone, everyone, share_masks=masks)
    step, change = after.common_change(before, weights)
    expected = (after.fragments[:2] - before.fragments[:2]).mean(axis=0)
    np.testing.assert_allclose(change, expected, rtol=1e-12)
    np.testing.assert_allclose(step, after.models[2] - before.models[1], rtol=1e-12)


def test_there_is_no_common_change_without_a_step():
    everyone, weights = np.arange(8), np.full(8, 1 / 8)
    before, after = two_rounds(everyone, everyone)
    assert after.common_change(after, weights) is None
    before, again = two_rounds(everyone, [0, 1, 2, 3, 4], stamps=(1, 1))  # the same model was asked about again
    assert again.common_change(before, weights) is None


@pytest.mark.parametrize("everyone", [True, False])
@pytest.mark.parametrize("spec", [3, [5, 20, 15], [list(range(0, 40, 2)), list(range(1, 40, 2))], 40], ids=str)
def test_fragments_are_put_in_place_region_by_region_or_all_at_once(spec, everyone, monkeypatch):
    """Regions that are slices or not, long or short; of all workers or some."""
    monkeypatch.setattr("danl.server.memory.MANY_NUMBERS", 0)
    regions, rng = Regions.make(spec, 40), np.random.default_rng(0)
    rows, who = rng.normal(size=(9, 40)), np.arange(9) if everyone else np.array([0, 3, 4, 8])
    gradients, masks = rng.normal(size=(len(who), 40)), rng.random((len(who), regions.n_regions)) < 0.5
    expected = rows.copy()
    for worker, gradient, mask in zip(who, gradients, masks, strict=True):
        own = regions.coordinates(mask)
        expected[worker, own] = gradient[own]
    put_fragments(rows, who, gradients, masks, regions)
    np.testing.assert_array_equal(rows, expected)
