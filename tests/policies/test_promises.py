"""Every policy keeps its promise over 1,000 rounds, in random settings; and every run can be replayed."""

import inspect
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as budget
from hypothesis import strategies as st
from simulation import ROUNDS, make_setting, measured, resource_aware, settings, simulate

import danl.policies
from danl.policies import (
    Coverage,
    Custom,
    Full,
    Magnitude,
    Promise,
    Random,
    Schedule,
    Subset,
)

SHARES = st.one_of(st.just(0.0), st.just(1.0), st.floats(0, 1))


def odd_workers(w, worker, round, rng):
    return rng.random(4) < (0.9 if worker % 2 else 0.1)


@st.composite
def coverage(draw, setting):
    gamma = draw(st.one_of(st.none(), st.integers(1, 12)))
    waits = draw(st.sampled_from(["spread", "longest"]))
    return Coverage(draw(st.integers(1, setting.n_workers)), gamma, draw(SHARES), waits)


@st.composite
def subset(draw, setting):
    order = draw(st.sampled_from(["cyclic", "random"]))
    return Subset(draw(st.integers(1, setting.n_regions)), order)


@st.composite
def schedule(draw, setting):
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    length = draw(st.sampled_from([1, 2, 7, 400, setting.max_rounds, setting.max_rounds + 5]))
    shape = (length, setting.n_workers, setting.n_regions)
    return Schedule(rng.random(shape) < draw(SHARES), cycle=length < setting.max_rounds)


POLICIES = {
    "Full": lambda setting: st.just(Full()),
    "Coverage": coverage,
    "Subset": subset,
    "Schedule": schedule,
    "ResourceAware": resource_aware,
    "Random": lambda setting: SHARES.map(Random),
    "Magnitude": lambda setting: st.floats(0.01, 1).map(Magnitude),
}


def assert_kept(promise, record):
    if promise.min_coverage is not None:
        assert record.min_coverage >= promise.min_coverage
    if promise.min_trained is not None:
        assert record.min_trained >= promise.min_trained
    if promise.max_staleness is not None:
        assert record.max_staleness <= promise.max_staleness


def test_every_policy_is_in_these_tests():
    exported = {
        name
        for name, thing in vars(danl.policies).items()
        if inspect.isclass(thing) and getattr(thing, "side", None) in ("server", "worker")
    }
    protocols = {"PlannedPolicy", "WorkerPolicy"}
    assert exported - protocols == {*POLICIES, "Custom"}  # Custom promises nothing


@pytest.mark.slow
@pytest.mark.parametrize("name", POLICIES)
@budget(max_examples=8, deadline=None)
@given(data=st.data())
def test_what_is_promised_is_measured(name, data):
    setting = data.draw(settings())
    policy = data.draw(POLICIES[name](setting))
    all_masks, _ = simulate(policy, setting, seed=data.draw(st.integers(0, 2**32)))
    assert len(all_masks) == ROUNDS
    assert_kept(policy.promise(setting), measured(all_masks))


@pytest.mark.slow
@pytest.mark.parametrize("name", POLICIES)
@budget(max_examples=30, deadline=None)
@given(data=st.data())
def test_promises_hold_in_many_short_runs(name, data):
    setting = data.draw(settings(max_rounds=40))
    policy = data.draw(POLICIES[name](setting))
    all_masks, _ = simulate(policy, setting, seed=data.draw(st.integers(0, 2**32)), rounds=40)
    assert_kept(policy.promise(setting), measured(all_masks))


@pytest.mark.parametrize("name", POLICIES)
@budget(max_examples=10, deadline=None)
@given(data=st.data())
def test_a_run_can_be_resumed_from_any_round(name, data):
    setting = data.draw(settings(max_rounds=30))
    policy = data.draw(POLICIES[name](setting))
    seed = data.draw(st.integers(0, 2**32))
    whole, staleness = simulate(policy, setting, seed, rounds=30)
    elsewhere = pickle.loads(pickle.dumps(policy))
    rest, _ = simulate(elsewhere, setting, seed, rounds=30, first=13, staleness=staleness[11])
    np.testing.assert_array_equal(rest, whole[12:])


@pytest.mark.parametrize("policy", [Coverage(2), Subset(2, "random"), Random(0.5), Custom(odd_workers)])
def test_the_seed_decides(policy):
    setting = make_setting(6, [3, 1, 4, 1], max_rounds=20)
    first, _ = simulate(policy, setting, seed=1, rounds=20)
    again, _ = simulate(policy, setting, seed=1, rounds=20)
    other, _ = simulate(policy, setting, seed=2, rounds=20)
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_the_promises_by_name():
    setting = make_setting(10, [2, 2, 2, 2, 2, 2, 2])
    assert Full().promise(setting) == Promise(10, 7, 0)
    assert Coverage(3).promise(setting) == Promise(3, 7, None)
    assert Coverage(3, gamma=2, keep=0.1).promise(setting) == Promise(3, 7, 2)
    assert Subset(3).promise(setting) == Promise(10, 3, 2)
    assert Subset(3, "random").promise(setting) == Promise(10, 3, None)
    assert Subset(7, "random").promise(setting) == Promise(10, 7, 0)
    assert Random(0.5).promise(setting) == Promise(None, None, None)
    assert Random(1).promise(setting) == Promise(10, 7, 0)
    assert Magnitude(0.5).promise(setting) == Promise(10, 4, None)
    assert Magnitude(1).promise(setting) == Promise(10, 7, 0)
    assert Custom(odd_workers).promise(setting) == Promise(None, None, None)
