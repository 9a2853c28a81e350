"""The corrected estimate against its definition, from models that a naive server would have stored."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from danl.core.memory import Memory
from danl.core.messages import GradientReply
from danl.regions import Regions
from tests.problems import random_problem


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
        replies = {}
        for i in np.flatnonzero(masks.any(axis=1)):
            replies[int(i)] = GradientReply(int(i), t, masks[i], gradients[i][regions.coordinates(masks[i])], 0.0)
            for q in np.flatnonzero(masks[i]):
                naive.take(i, q, gradients[i], w)
        memory = memory.refreshed(replies, w, t, regions)
        expected = sum(weights[i] * naive.estimate(i, hessian, w) for i in range(n_workers))
        np.testing.assert_allclose(memory.corrected(weights, hessian, w, regions), expected, rtol=1e-10, atol=1e-11)
        step = rng.normal(size=d)
        slopes = [naive.estimate(i, hessian, w) @ step for i in range(n_workers)]
        np.testing.assert_allclose(memory.slopes(hessian, w, step, regions), slopes, rtol=1e-9, atol=1e-9)
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
        fragment = gradient(worker, w)[regions.coordinates(mask)]
        memory = memory.refreshed({worker: GradientReply(worker, t, mask, fragment, 0.0)}, w, t, regions)
        exact = sum(weights[i] * gradient(i, w) for i in range(n_workers))
        np.testing.assert_allclose(memory.corrected(weights, hessian, w, regions), exact, rtol=1e-10, atol=1e-10)


def test_where_everything_is_fresh_there_is_nothing_to_correct():
    problem = random_problem()
    w, regions = np.ones(7), Regions.make(2, 7)
    gradients = np.stack([local.value_and_gradient(w)[1] for local in problem.locals])
    memory = Memory.fresh(gradients, w, 2)
    weights = np.full(4, 0.1 + 0.2) / 1.2000000000000002  # sums to 1 but for rounding
    huge = 1e12 * problem.hessian(w)
    for same in (w, w.copy()):  # another array with the same numbers is the same model
        np.testing.assert_array_equal(memory.corrected(weights, huge, same, regions), memory.mean_all(weights))
