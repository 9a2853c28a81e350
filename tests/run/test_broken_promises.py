"""A policy that promises more than its masks keep is told of: never danl's own, nor where workers were away."""

import warnings
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import danl
from danl.engines import Local
from danl.policies import Coverage, Full, Magnitude, Promise, Random, ResourceAware, Schedule, Subset
from tests.problems import random_problem

PROBLEM = random_problem()
METHODS = ["danl", "danl-secant", "danl-masked", "danl-paper", "danl:curvature=diag", "danl:batch_size=4", "gd"]


@dataclass(frozen=True)
class OneEach:
    """Every worker the same region, in turn."""

    promised: Promise
    side: ClassVar[str] = "server"

    def check(self, setting):
        pass

    def promise(self, setting):
        return self.promised

    def masks(self, round):
        masks = np.zeros((4, 3), dtype=bool)
        masks[:, round.number % 3] = True
        return masks


TRUE = Promise(min_coverage=4, min_trained=1, max_staleness=2)


@pytest.mark.parametrize(
    ("promised", "told"),
    [
        ({"min_coverage": 5}, "min_coverage of 5, and it was 4"),
        ({"min_trained": 2}, "min_trained of 2, and it was 1"),
        ({"max_staleness": 0}, "max_staleness of 0, and it was 2"),
        (
            {"min_trained": 3, "max_staleness": 1},
            "min_trained of 3, and it was 1 and max_staleness of 1, and it was 2",
        ),
    ],
)
def test_a_false_promise_is_noted_and_warned_of(promised, told):
    policy = OneEach(replace(TRUE, **promised))
    note = f"policy OneEach did not keep its promise: {told}; mend promise or masks"
    with pytest.warns(danl.DanlWarning, match="did not keep its promise") as warned:
        result = danl.solve(PROBLEM, method="danl-masked", policy=policy, regions=3, max_rounds=8)
    assert [str(each.message) for each in warned] == [note]
    assert note in result.notes
    # Not where workers were away, nor of a method that does not ask the policy.
    for arguments in ({"engine": Local(away={1: (3, 4)})}, {"method": "newton"}):
        quiet = danl.solve(PROBLEM, policy=policy, regions=3, max_rounds=8, **arguments)
        assert not any("promise" in each for each in quiet.notes)


def test_a_true_promise_is_not():
    for promise in (TRUE, Promise()):
        result = danl.solve(PROBLEM, method="danl-masked", policy=OneEach(promise), regions=3, max_rounds=8)
        assert result.notes == ()


@pytest.mark.parametrize("promise", [None, Promise(min_coverage="3"), Promise(max_staleness=1.5)])
def test_what_is_no_promise_is_refused_before_the_run(promise):
    with pytest.raises(danl.InputError, match="promise must return a Promise of whole numbers; "):
        danl.solve(PROBLEM, policy=OneEach(promise), regions=3)


def policies(draw, rounds):
    """Any policy of danl for 4 workers and 4 regions."""
    keep = draw(st.floats(0.1, 1))
    names = ["full", "coverage", "subset", "schedule", "cycle", "resources", "random", "magnitude"]
    name = draw(st.sampled_from(names))
    masks = np.random.default_rng(draw(st.integers(0, 99))).random((rounds, 4, 4)) < keep
    profiles = [danl.Profile(rows_per_second=draw(st.sampled_from([200, 400, 1000]))) for _ in range(4)]
    gamma = draw(st.one_of(st.none(), st.integers(1, 3)))
    waits = draw(st.sampled_from(["spread", "longest"]))
    return {
        "full": Full(),
        "coverage": Coverage(psi=draw(st.integers(1, 3)), gamma=gamma, keep=keep / 2, waits=waits),
        "subset": Subset(draw(st.integers(1, 4)), draw(st.sampled_from(["cyclic", "random"]))),
        "schedule": Schedule(masks),
        "cycle": Schedule(masks[:3], cycle=True),
        "resources": ResourceAware(profiles, deadline=0.2),
        "random": Random(keep),
        "magnitude": Magnitude(keep),
    }[name]


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(data=st.data(), method=st.sampled_from(METHODS), rounds=st.integers(3, 25), seed=st.integers(0, 99))
def test_danls_own_policies_keep_what_they_promise(data, method, rounds, seed):
    policy = policies(data.draw, rounds)
    engine = data.draw(st.sampled_from([Local(), Local(), Local(dropout=0.3, seed=seed), Local(away={2: (1, 4)})]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", danl.DanlWarning)
        result = danl.solve(
            PROBLEM, method=method, policy=policy, regions=4, max_rounds=rounds, seed=seed, engine=engine, tol=0.0
        )
    assert not any("did not keep its promise" in note for note in result.notes)
