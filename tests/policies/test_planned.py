"""Coverage, Subset and Schedule: exactly what each of them says, and what it refuses."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as budget
from hypothesis import strategies as st
from simulation import make_setting, measured, naive_measures, regions_of, settings, simulate

from danl.errors import InputError
from danl.policies import Coverage, Full, Round, Schedule, Subset, validated_masks


@budget(max_examples=15, deadline=None)
@given(setting=settings(), data=st.data())
def test_coverage_alone_is_exact(setting, data):
    psi = data.draw(st.integers(1, setting.n_workers))
    all_masks, _ = simulate(Coverage(psi), setting, seed=data.draw(st.integers(0, 2**32)))
    assert (all_masks.sum(axis=1) == psi).all()


@budget(max_examples=15, deadline=None)
@given(setting=settings(max_rounds=200), gamma=st.integers(1, 12), data=st.data())
def test_gamma_forces_just_what_is_due(setting, gamma, data):
    psi = data.draw(st.integers(1, setting.n_workers))
    all_masks, staleness = simulate(Coverage(psi, gamma, waits="longest"), setting, seed=0, rounds=200)
    due = staleness[:-1] == gamma
    assert all_masks[1:][due].all()
    np.testing.assert_array_equal(all_masks[1:].sum(axis=1), np.maximum(psi, due.sum(axis=1)))


@pytest.mark.parametrize("waits", ["spread", "longest"])
def test_gamma_is_attained(waits):
    all_masks, _ = simulate(Coverage(1, gamma=3, waits=waits), make_setting(12, [1, 1, 1]), seed=0)
    assert measured(all_masks).max_staleness == 3


def test_spread_waits_are_uniform():
    all_masks, staleness = simulate(Coverage(1, gamma=4), make_setting(30, [1], 4000), seed=0, rounds=4000)
    waits = staleness[:-1][all_masks[1:]]  # 30 workers: psi=1 adds someone with chance (2/3)^30, never
    np.testing.assert_allclose(np.bincount(waits) / len(waits), 0.2, atol=0.01)


def test_spread_waits_come_in_no_bursts():
    loads = {}
    for waits in ("spread", "longest"):
        all_masks, _ = simulate(Coverage(1, gamma=4, waits=waits), make_setting(30, [1]), seed=0, rounds=5)
        loads[waits] = all_masks.sum(axis=1).max()
    assert loads["spread"] < 20 < 25 < loads["longest"]


def test_coverage_chooses_workers_evenly():
    all_masks, _ = simulate(Coverage(1), make_setting(4, [2, 2, 2], 4000), seed=0, rounds=4000)
    # 4,000 draws of chance 1/4: standard deviation 0.007, so this is five of them.
    np.testing.assert_allclose(all_masks.mean(axis=0), 0.25, atol=0.035)


@pytest.mark.parametrize("keep", [0.2, 0.7])
def test_keep_is_the_chance(keep):
    all_masks, _ = simulate(Coverage(1, keep=keep), make_setting(12, [2, 2]), seed=0)
    none = (1 - keep) ** 12  # only then is one worker added
    assert all_masks.mean() == pytest.approx(keep + none / 12, abs=0.02)


@pytest.mark.parametrize("n_regions", range(1, 10))
def test_the_cyclic_promise_is_attained_even_with_a_remainder(n_regions):
    setting = make_setting(2, [1] * n_regions)
    for count in range(1, n_regions + 1):
        policy = Subset(count)
        all_masks, _ = simulate(policy, setting, seed=0, rounds=100)
        promise = policy.promise(setting)
        assert naive_measures(all_masks) == (2, promise.max_staleness, promise.min_trained)


def test_the_cyclic_window():
    all_masks, _ = simulate(Subset(2), make_setting(3, [1] * 5), seed=0, rounds=4)
    taken = [sorted(np.flatnonzero(masks[0])) for masks in all_masks]
    assert taken == [[0, 1], [2, 3], [0, 4], [1, 2]]
    assert (all_masks == all_masks[:, :1]).all()


def test_random_order_takes_regions_evenly():
    all_masks, _ = simulate(Subset(2, "random"), make_setting(3, [1] * 5, 4000), seed=0, rounds=4000)
    assert (all_masks[:, 0].sum(axis=1) == 2).all()
    assert (all_masks == all_masks[:, :1]).all()
    np.testing.assert_allclose(all_masks.mean(axis=0), 0.4, atol=0.04)


def test_full_is_all():
    all_masks, _ = simulate(Full(), make_setting(3, [1, 2]), seed=0, rounds=2)
    assert all_masks.shape == (2, 3, 2)
    assert all_masks.all()


@pytest.mark.parametrize("max_rounds", [5, 6, 11, 23])
def test_a_schedule_is_replayed_and_promises_what_it_is(max_rounds):
    rng = np.random.default_rng(max_rounds)
    planned = rng.random((6, 4, 3)) < 0.6
    planned[:, 2, 1] = [True, False, False, True, False, False]  # the longest run spans the seam
    policy = Schedule(planned, cycle=True)
    setting = make_setting(4, [1, 1, 1], max_rounds)
    all_masks, _ = simulate(policy, setting, seed=0, rounds=max_rounds)
    expected = np.concatenate([planned] * 4)[:max_rounds]
    np.testing.assert_array_equal(all_masks, expected)
    promise = policy.promise(setting)
    assert (promise.min_coverage, promise.max_staleness, promise.min_trained) == naive_measures(expected)


def test_a_region_no_schedule_trains_stays_stale_for_the_whole_run():
    planned = np.ones((3, 2, 2), dtype=bool)
    planned[:, 1, 0] = False
    promise = Schedule(planned, cycle=True).promise(make_setting(2, [1, 1], max_rounds=50))
    assert (promise.min_coverage, promise.max_staleness, promise.min_trained) == (1, 50, 2)


def test_a_schedule_keeps_its_own_copy():
    planned = np.ones((3, 2, 2), dtype=bool)
    policy = Schedule(planned)
    planned[:] = False
    assert policy.planned.all()
    with pytest.raises(ValueError, match="read-only"):
        policy.planned[0] = False


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Coverage(0), "psi=0: must be a whole number >= 1; try psi=1"),
        (lambda: Coverage(1.5), "psi=1.5: must be a whole number >= 1; try psi=1"),
        (lambda: Coverage(True), "psi=True: must be a whole number >= 1; try psi=1"),
        (
            lambda: Coverage(1, gamma=2, waits="short"),
            "waits='short': must be 'spread' or 'longest'; leave it out for 'spread'",
        ),
        (
            lambda: Coverage(1, gamma=0),
            "gamma=0: must be a whole number >= 1; leave it out for no bound, or use Full for no staleness",
        ),
        (lambda: Coverage(1, keep=1.1), "keep=1.1: must be a number between 0 and 1; try keep=0"),
        (lambda: Coverage(1, keep=-0.1), "keep=-0.1: must be a number between 0 and 1; try keep=0"),
        (lambda: Coverage(1, keep=float("nan")), "keep=nan: must be a number between 0 and 1; try keep=0"),
        (lambda: Coverage(1, keep="half"), "keep='half': must be a number between 0 and 1; try keep=0"),
        (
            lambda: Subset(0),
            "regions_per_round=0: must be a whole number >= 1; try regions_per_round=1",
        ),
        (lambda: Subset(1, "sorted"), "order='sorted': must be 'cyclic' or 'random'"),
        (
            lambda: Schedule([[[0, 1]]]),
            "masks.dtype='int64': must be bool; convert with masks.astype(bool)",
        ),
        (
            lambda: Schedule([[True, False]]),
            "masks.shape=(1, 2): must be (T, N, Q), rounds by workers by regions, none of 0",
        ),
        (
            lambda: Schedule(np.ones((0, 2, 2), dtype=bool)),
            "masks.shape=(0, 2, 2): must be (T, N, Q), rounds by workers by regions, none of 0",
        ),
        (lambda: Schedule([[[True]]], cycle="yes"), "cycle='yes': must be True or False"),
    ],
)
def test_construction_errors(make, message):
    with pytest.raises(InputError) as caught:
        make()
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (
            Coverage(12),
            "psi=12: must be between 1 and 10, the number of workers; lower psi or use more workers",
        ),
        (
            Subset(5),
            "regions_per_round=5: must be between 1 and 4, the number of regions; "
            "lower regions_per_round or cut the model into more regions",
        ),
        (
            Schedule(np.ones((100, 10, 3), dtype=bool)),
            "masks.shape=(100, 10, 3): must be (T, 10, 4), as there are 10 workers and 4 regions; "
            "make the schedule for this problem",
        ),
        (
            Schedule(np.ones((99, 10, 4), dtype=bool)),
            "len(masks)=99: must be at least 100, the rounds of this run; pass cycle=True or max_rounds=99",
        ),
    ],
)
def test_check_errors(policy, message):
    with pytest.raises(InputError) as caught:
        policy.check(make_setting(10, [3, 3, 2, 2], max_rounds=100))
    assert str(caught.value) == message


def test_the_largest_that_is_allowed_passes():
    setting = make_setting(10, [3, 3, 2, 2], max_rounds=100)
    for policy in (
        Coverage(10),
        Subset(4),
        Schedule(np.ones((100, 10, 4), dtype=bool)),
        Schedule(np.ones((1, 10, 4), dtype=bool), cycle=True),
    ):
        policy.check(setting)


@pytest.mark.parametrize(
    ("masks", "received"),
    [
        (np.ones((2, 2), dtype=bool), "bool of shape (2, 2)"),
        (np.ones((3, 2)), "float64 of shape (3, 2)"),
        ([[True], [True, False], [True]], "rows of unequal length"),
    ],
)
def test_masks_of_the_wrong_kind_are_refused(masks, received):
    setting = make_setting(3, [1, 1])
    rng = np.random.default_rng(0)
    round = Round(setting, 7, np.zeros(2), np.zeros((3, 2), dtype=int), rng, regions_of(setting))
    with pytest.raises(InputError) as caught:
        validated_masks(masks, policy=Full(), round=round)
    assert str(caught.value) == (
        f"Full.masks in round 7 returned {received}: must be booleans of shape (3, 2); return one boolean per region"
    )


@pytest.mark.parametrize("bits", [np.random.PCG64, np.random.Philox])
def test_without_coins_the_workers_are_those_of_the_second_draw(bits):
    """Coins that cannot fall are not flipped, only counted: runs of former versions have the same masks."""
    setting, rng = make_setting(20, [2, 2, 1]), np.random.Generator(bits(5))
    view = Round(setting, 1, np.zeros(5), np.zeros((20, 3), dtype=int), rng, regions_of(setting))
    masks = Coverage(4).masks(view)
    again = np.random.Generator(bits(5))
    again.random((20, 3))
    first = again.random((20, 3)).argsort(axis=0)[:4]
    assert all(sorted(np.flatnonzero(masks[:, q])) == sorted(first[:, q]) for q in range(3))
