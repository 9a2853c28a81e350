"""Policies from objects, functions and text, and what is said when that fails."""

import numpy as np
import pytest

from danl.errors import InputError
from danl.policies import Coverage, Custom, Full, Magnitude, Random, Schedule, Subset, make_policy


@pytest.mark.parametrize(
    ("spec", "policy"),
    [
        (None, Full()),
        ("full", Full()),
        ("coverage:psi=3", Coverage(3)),
        ("coverage:psi=3,gamma=2,keep=0.1", Coverage(3, 2, 0.1)),
        ("coverage:psi=3,gamma=2,waits=longest", Coverage(3, 2, waits="longest")),
        ("subset:regions_per_round=1", Subset(1)),
        ("subset:S=2,order=random", Subset(2, "random")),
        ("random:keep=0.5", Random(0.5)),
        ("magnitude:keep=1", Magnitude(1.0)),
    ],
)
def test_from_text(spec, policy):
    assert make_policy(spec) == policy


def test_objects_and_functions():
    policy = Coverage(2)
    assert make_policy(policy) is policy

    def function(w, worker, round, rng):
        return [True]

    assert make_policy(function) == Custom(function)


def test_a_policy_of_ones_own():
    class Mine:
        side = "server"

        def check(self, setting): ...
        def promise(self, setting): ...
        def masks(self, round): ...
        def __call__(self): ...

    mine = Mine()
    assert make_policy(mine) is mine


@pytest.mark.parametrize("cycle", [False, True])
def test_a_schedule_from_a_file(tmp_path, monkeypatch, cycle):
    masks = np.random.default_rng(0).random((3, 2, 2)) < 0.5
    np.save(tmp_path / "masks.npy", masks)
    monkeypatch.chdir(tmp_path)
    policy = make_policy("schedule:file=masks.npy" + (",cycle=true" if cycle else ""))
    assert isinstance(policy, Schedule)
    assert policy.cycle is cycle
    np.testing.assert_array_equal(policy.planned, masks)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            "coverge:psi=3",
            "policy='coverge': must be one of coverage, full, subset, random, magnitude, schedule, resource-aware",
        ),
        (
            "coverage:phi=3",
            "policy='coverage:phi=3': coverage has no option 'phi'; it has psi, gamma, keep, waits",
        ),
        (
            "coverage:psi=1,S=3",
            "policy='coverage:psi=1,S=3': coverage has no option 'S'; it has psi, gamma, keep, waits",
        ),
        ("full:keep=1", "policy='full:keep=1': full has no option 'keep'; it has none"),
        ("coverage", "policy='coverage': must be coverage with psi; try 'coverage:psi=3,gamma=2'"),
        (
            "subset:order=random",
            "policy='subset': must be subset with regions_per_round, or S, which is short for it, given once; "
            "try 'subset:S=1'",
        ),
        ("random", "policy='random': must be random with keep; try 'random:keep=0.5'"),
        ("coverage:psi=0", "psi=0: must be a whole number >= 1; try psi=1"),
        ("coverage:psi=three", "psi='three': must be a whole number >= 1; try psi=1"),
        (
            "subset:S=1,regions_per_round=2",
            "policy='subset': must be subset with regions_per_round, or S, which is short for it, given once; "
            "try 'subset:S=1'",
        ),
        ("schedule", "policy='schedule': must be schedule with file; try 'schedule:file=masks.npy'"),
        (
            "schedule:masks=1",
            "policy='schedule:masks=1': schedule has no option 'masks'; it has file, cycle",
        ),
        (
            "resource-aware:deadline=1",
            "policy='resource-aware:deadline=1': must be given with a profile of every worker; "
            "add --profiles FILE, or in Python danl.solve(..., profiles=profiles)",
        ),
        (
            "resource-aware",
            "policy='resource-aware': must be resource-aware with deadline; try 'resource-aware:deadline=0.1'",
        ),
        (
            "resource-aware:speed=1",
            "policy='resource-aware:speed=1': resource-aware has no option 'speed'; it has deadline, binding",
        ),
        (
            3,
            "policy=3: must be a policy, a function (w, worker, round, rng) -> mask, or text such as 'coverage:psi=3'",
        ),
        (
            Coverage,
            "policy=<class 'danl.policies.planned.Coverage'>: must be a policy, "
            "not a class of policies; write Coverage(...)",
        ),
    ],
)
def test_errors(spec, message):
    with pytest.raises(InputError) as caught:
        make_policy(spec)
    assert str(caught.value) == message


class Half:
    """What somebody wrote who left something out."""

    def __init__(self, **parts):
        vars(self).update(parts)

    def __repr__(self):
        return "Half()"

    def mask(self, w, worker, number, rng, regions):
        raise NotImplementedError


@pytest.mark.parametrize(
    ("parts", "lacks"),
    [
        ({}, "side, 'server' or 'worker'"),
        ({"side": "sever", "check": print, "promise": print}, "side, 'server' or 'worker' (it is 'sever')"),
        ({"side": "worker"}, "check, promise"),
        ({"side": "server", "check": print, "promise": 3}, "promise, masks"),
    ],
)
def test_a_policy_that_lacks_something_is_told_what(parts, lacks):
    with pytest.raises(InputError) as caught:
        make_policy(Half(**parts))
    has = "a policy has side, check, promise and masks or mask (docs/extending.md)"
    assert str(caught.value) == f"policy=Half(): lacks {lacks}; {has}"
    assert make_policy(Half(side="worker", check=print, promise=print)).side == "worker"


def test_errors_of_schedule_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.npy").write_text("no masks here")
    (tmp_path / "empty.npy").write_text("")
    np.save("objects.npy", np.array([{}], dtype=object))
    np.save("numbers.npy", np.ones((2, 2, 2)))
    np.savez("several.npz", masks=np.ones((2, 2, 2), dtype=bool))

    def message(name):
        with pytest.raises(InputError) as caught:
            make_policy(f"schedule:file={name}")
        return str(caught.value)

    for name in ("missing.npy", "text.npy", "empty.npy", "objects.npy"):
        start = f"policy option file='{name}': must be a .npy file of T x N x Q booleans; it cannot be read ("
        assert message(name).startswith(start)
    assert "No such file" in message("missing.npy")
    assert message("several.npz") == (
        "policy option file='several.npz': must be a .npy file of T x N x Q booleans; "
        "save the masks alone, with numpy.save"
    )
    assert message("numbers.npy") == "masks.dtype='float64': must be bool; convert with masks.astype(bool)"
