"""Random, Magnitude and Custom: masks that each worker makes for itself."""

from fractions import Fraction
from itertools import combinations
from math import ceil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as budget
from hypothesis import strategies as st
from simulation import make_setting, measured, regions_of, settings, simulate

from danl.errors import InputError
from danl.objective.regions import Regions
from danl.policies import Custom, Magnitude, Random


def first_region(w, worker, round, rng):
    return [True, False, False]


@pytest.mark.parametrize("keep", [0, 0.3, 1])
def test_random_keeps_with_its_chance(keep):
    all_masks, _ = simulate(Random(keep), make_setting(4, [1, 2, 1]), seed=0)
    np.testing.assert_allclose(all_masks.mean(axis=0), keep, atol=0.075 * (0 < keep < 1))


@budget(deadline=None)
@given(setting=settings(), percent=st.integers(1, 100), seed=st.integers(0, 2**32))
def test_magnitude_has_the_smallest_pruning_error(setting, percent, seed):
    rng = np.random.default_rng(seed)
    w = rng.normal(size=setting.n_coefficients)
    regions = regions_of(setting)
    mask = Magnitude(percent / 100).mask(w, 0, 1, rng, regions)
    count = ceil(Fraction(percent, 100) * setting.n_regions)
    assert mask.sum() == count

    def error(kept):
        return sum(w[j] ** 2 for q in set(range(setting.n_regions)) - set(kept) for j in regions.indices(q))

    best = min(combinations(range(setting.n_regions), count), key=error)
    assert tuple(np.flatnonzero(mask)) == best


@pytest.mark.parametrize(("n_regions", "keep"), [(5, 0.4), (7, 0.4), (9, 0.1), (4, 0.5), (6, 1)])
def test_at_zero_no_region_starves(n_regions, keep):
    setting = make_setting(3, [2] * n_regions)
    all_masks, _ = simulate(Magnitude(keep), setting, seed=0, rounds=60, model=lambda _: np.zeros(2 * n_regions))
    assert measured(all_masks).max_staleness == ceil(n_regions / ceil(keep * n_regions)) - 1


def test_ties_go_in_turn_only_among_themselves():
    setting = make_setting(1, [1] * 4)
    w = np.array([0.0, 5.0, 0.0, 0.0])
    all_masks, _ = simulate(Magnitude(0.5), setting, seed=0, rounds=12, model=lambda _: w)
    assert all_masks[:, 0, 1].all()
    assert (all_masks.sum(axis=2) == 2).all()
    assert (all_masks[:, 0].sum(axis=0) == [4, 12, 4, 4]).all()


@pytest.mark.parametrize(("keep", "n_regions", "count"), [(0.07, 100, 7), (0.071, 100, 8), (1e-12, 9, 1)])
def test_the_share_is_rounded_up_but_not_by_rounding_errors(keep, n_regions, count):
    regions = Regions.make(n_regions, n_regions)
    mask = Magnitude(keep).mask(np.arange(float(n_regions)), 0, 1, np.random.default_rng(0), regions)
    assert mask.sum() == count


def test_magnitude_of_regions_that_are_not_contiguous():
    regions = Regions.make([[0, 3], [1, 2]], 4)
    mask = Magnitude(0.5).mask(np.array([1.0, 2.0, 2.0, 1.0]), 0, 1, np.random.default_rng(0), regions)
    np.testing.assert_array_equal(mask, [False, True])


def test_magnitude_of_a_model_that_diverged():
    regions = Regions.make(2, 2)
    mask = Magnitude(0.5).mask(np.array([1.0, 1e300]), 0, 1, np.random.default_rng(0), regions)
    np.testing.assert_array_equal(mask, [False, True])
    for number in (1, 2):
        mask = Magnitude(0.5).mask(np.array([np.nan, 1.0]), 0, number, np.random.default_rng(0), regions)
        np.testing.assert_array_equal(mask, [True, False])


def test_custom_hands_over_what_it_has_and_returns_the_mask():
    seen = []

    def function(w, worker, round, rng):
        seen.append((w.tolist(), worker, round, rng))
        return [worker == 3, round == 2]

    rng = np.random.default_rng(0)
    mask = Custom(function).mask(np.array([1.0, 2.0]), 3, 9, rng, Regions.make(2, 2))
    np.testing.assert_array_equal(mask, [True, False])
    assert mask.dtype == np.bool_
    assert seen == [([1.0, 2.0], 3, 9, rng)]


def test_custom_cannot_change_the_model():
    def function(w, worker, round, rng):
        w[0] = 7.0

    w = np.zeros(2)
    with pytest.raises(ValueError, match="read-only"):
        Custom(function).mask(w, 0, 1, np.random.default_rng(0), Regions.make(2, 2))
    w[0] = 1.0  # the caller still can


@pytest.mark.parametrize(
    ("answer", "received"),
    [
        ([0, 2], "int64 of shape (2,)"),
        ([0, 1, 1], "int64 of shape (3,)"),
        ([True, False], "bool of shape (2,)"),
        (None, "object of shape ()"),
        ([[True], [True, False]], "rows of unequal length"),
    ],
)
def test_custom_refuses_what_is_no_mask(answer, received):
    policy = Custom(lambda w, worker, round, rng: answer)
    with pytest.raises(InputError) as caught:
        policy.mask(np.zeros(3), 4, 6, np.random.default_rng(0), Regions.make(3, 3))
    assert str(caught.value) == (
        f"Custom.mask for worker 4 in round 6 returned {received}: must be booleans of shape (3,); "
        "return one boolean per region"
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Random(1.5), "keep=1.5: must be a number between 0 and 1; try keep=0.5"),
        (lambda: Random(None), "keep=None: must be a number between 0 and 1; try keep=0.5"),
        (lambda: Magnitude(0), "keep=0: must be a number above 0 and at most 1; try keep=0.5"),
        (lambda: Magnitude(1.01), "keep=1.01: must be a number above 0 and at most 1; try keep=0.5"),
        (lambda: Custom(3), "function=3: must be callable as function(w, worker, round, rng)"),
    ],
)
def test_construction_errors(make, message):
    with pytest.raises(InputError) as caught:
        make()
    assert str(caught.value) == message
