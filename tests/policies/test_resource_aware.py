"""Masks that fit the machines: never late, never too large, never leaving room for a region unused."""

from dataclasses import astuple
from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as budget
from hypothesis import strategies as st
from simulation import (
    make_setting,
    measured,
    naive_memory,
    naive_seconds,
    resource_aware,
    settings,
    simulate,
)

from danl.errors import InputError
from danl.policies import Fleet, Profile, Promise, ResourceAware, load_of, seconds


@budget(max_examples=40, deadline=None)
@given(data=st.data())
def test_masks_fit_and_leave_no_room(data):
    setting = data.draw(settings(max_rounds=20))
    policy = data.draw(resource_aware(setting))
    all_masks, _ = simulate(policy, setting, seed=0, rounds=20)

    def excess(worker, kept):
        profile = policy.profiles[worker]
        return max(
            naive_seconds(setting, profile, worker, kept) / policy.deadline,
            naive_memory(setting, worker, kept) / profile.memory,
        )

    for masks in all_masks:
        for worker, mask in enumerate(masks):
            kept = int(setting.region_sizes[mask].sum())
            assert excess(worker, kept) <= 1 + 1e-9
            for left_out in setting.region_sizes[~mask]:
                assert excess(worker, kept + int(left_out)) > 1 - 1e-9


def test_the_stalest_come_first_and_what_does_not_fit_is_skipped():
    # Room for 5 coordinates; regions of 4, 2, 3 and 1. After some rounds, with this staleness:
    setting = make_setting(1, [4, 2, 3, 1], rows=10, shard_bytes=0, pruned=True)
    policy = ResourceAware([Profile(memory=5 * 16)], deadline=1)
    stale = np.array([[0, 5, 1, 7]])
    all_masks, _ = simulate(policy, setting, seed=0, rounds=1, staleness=stale)
    np.testing.assert_array_equal(all_masks[0, 0], [False, True, False, True])  # 1 + 2, then 3 and 4 not
    stale = np.array([[9, 5, 1, 0]])
    all_masks, _ = simulate(policy, setting, seed=0, rounds=1, staleness=stale)
    np.testing.assert_array_equal(all_masks[0, 0], [True, False, False, True])  # 4, 2 and 3 not, 1


def test_one_region_at_a_time_attains_the_bound():
    for sizes in ([3, 3, 3, 3, 3], [3, 2, 3, 2, 3], [7, 4, 4, 4]):
        setting = make_setting(3, sizes, shard_bytes=0, pruned=True)
        policy = ResourceAware([Profile(memory=16 * max(sizes))] * 3, deadline=1)
        all_masks, _ = simulate(policy, setting, seed=0)
        assert (all_masks.sum(axis=2) == 1).all()
        assert measured(all_masks).max_staleness == len(sizes) - 1
        assert policy.promise(setting).max_staleness == len(sizes) - 1


def test_workers_spread_over_the_regions():
    setting = make_setting(8, [2] * 4, shard_bytes=0, pruned=True)
    all_masks, _ = simulate(ResourceAware([Profile(memory=32)] * 8, 1), setting, seed=0, rounds=50)
    assert (all_masks.sum(axis=1) == 2).all()


def test_promises_by_hand():
    setting = make_setting(3, [4, 3, 2, 1], shard_bytes=0, pruned=True)

    def promise(*coordinates):
        policy = ResourceAware([Profile(memory=16 * room) for room in coordinates], deadline=1)
        policy.check(setting)
        return policy.promise(setting)

    assert promise(4, 4, 4) == Promise(1, 1, 3)
    assert promise(7, 7, 7) == Promise(1, 2, 1)
    assert promise(4, 7, 9) == Promise(1, 3, 3)
    assert promise(10, 9, 10) == Promise(2, 4, 1)
    assert promise(inf, inf, inf) == Promise(3, 4, 0)


def test_the_cost_model():
    # 100 rows, 6 of 24 coordinates, 9 regions: two bytes of mask.
    shard = {"rows": 100, "shard_bytes": 4800, "n_coefficients": 24, "n_regions": 9}
    at_w = load_of(6, **shard)  # half a pass for the margins, an eighth for the transpose product
    assert (at_w.work_rows, at_w.bytes_down, at_w.bytes_up, at_w.memory) == (62.5, 194, 58, 5040)
    assert astuple(load_of(24, **shard)) == astuple(load_of(24, **shard, pruned=True)) == (100, 194, 202, 5184)
    load = load_of(6, **shard, pruned=True)
    assert (load.work_rows, load.bytes_down, load.bytes_up, load.memory) == (25, 194, 58, 1296)
    profile = Profile(rows_per_second=50, uplink=29, downlink=97)
    costs = {"work_rows": load.work_rows, "bytes_down": load.bytes_down, "bytes_up": load.bytes_up}
    assert seconds(profile, **costs) == 2 + 0.5 + 2
    assert seconds(Profile(), **costs) == 0
    np.testing.assert_array_equal(seconds(Fleet.of([profile, Profile()]), **costs), [4.5, 0])


@pytest.mark.parametrize("name", ["rows_per_second", "uplink", "downlink", "memory"])
@pytest.mark.parametrize("value", [0, -1.0, float("nan"), "fast"])
def test_profiles_are_above_zero(name, value):
    with pytest.raises(InputError) as caught:
        Profile(**{name: value})
    assert str(caught.value) == (f"{name}={value!r}: must be a number > 0, or infinity; leave it out for no limit")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: ResourceAware([Profile()], 0),
            "deadline=0: must be a number > 0, or infinity; give the seconds a round may take",
        ),
        (
            lambda: ResourceAware([Profile(), 7], 1),
            "profiles[1]=7: must be a danl.policies.Profile",
        ),
    ],
)
def test_construction_errors(make, message):
    with pytest.raises(InputError) as caught:
        make()
    assert str(caught.value) == message


def with_speed(rows_per_second, deadline):
    return ResourceAware([Profile(), Profile(rows_per_second=rows_per_second), Profile(rows_per_second=30)], deadline)


@pytest.mark.parametrize(
    ("policy", "pruned", "message"),
    [
        (
            ResourceAware([Profile()], 1),
            False,
            "len(profiles)=1: must be 3, the number of workers; pass one profile per worker",
        ),
        (  # 100 rows * 5 / 10 coordinates at 20 a second
            with_speed(20, 2),
            True,
            "deadline=2.0: must be at least 2.501 seconds, which worker 1 needs for region 2 alone; "
            "raise the deadline or cut the model into more regions",
        ),
        (  # half a pass for the margins, half a pass times 5 / 10 for the way back
            with_speed(20, 3),
            False,
            "deadline=3.0: must be at least 3.752 seconds, which worker 1 needs for region 2 alone; "
            "raise the deadline or cut the model into more regions",
        ),
        (  # the margins alone take 2.5 seconds: no region is small enough
            with_speed(20, 2),
            False,
            "deadline=2.0: must be at least 3.752 seconds, which worker 1 needs for region 2 alone; "
            "raise the deadline or give it fewer rows",
        ),
        (  # 8000 * 5 / 10 + 16 * 5
            ResourceAware([Profile(), Profile(), Profile(memory=4079)], 2),
            True,
            "profiles[2].memory=4079.0: must be at least 4080 bytes, "
            "which worker 2 needs for region 2 alone; "
            "give it more memory or cut the model into more regions",
        ),
        (  # 8000 + 8 * 10 + 8 * 5
            ResourceAware([Profile(), Profile(), Profile(memory=4079)], 2),
            False,
            "profiles[2].memory=4079.0: must be at least 8120 bytes, "
            "which worker 2 needs for region 2 alone; give it more memory or give it fewer rows",
        ),
    ],
)
def test_check_errors(policy, pruned, message):
    with pytest.raises(InputError) as caught:
        policy.check(make_setting(3, [3, 2, 5], pruned=pruned))
    assert str(caught.value) == message


@budget(deadline=None)
@given(rate=st.floats(0.01, 1e4), pruned=st.booleans())
def test_the_deadline_an_error_asks_for_is_enough(rate, pruned):
    setting = make_setting(1, [3, 2, 5], pruned=pruned)
    profiles = [Profile(rows_per_second=rate)]
    with pytest.raises(InputError) as caught:
        ResourceAware(profiles, 1e-9).check(setting)
    asked = float(str(caught.value).split("at least ")[1].split(" seconds")[0])
    ResourceAware(profiles, asked).check(setting)
    assert asked <= 1.002 * (50 if pruned else 75) / rate


def test_just_enough_passes():
    ResourceAware([Profile(rows_per_second=20, memory=4080)], 2.5).check(make_setting(1, [3, 2, 5], pruned=True))
    ResourceAware([Profile(rows_per_second=20, memory=8120)], 3.75).check(make_setting(1, [3, 2, 5]))
