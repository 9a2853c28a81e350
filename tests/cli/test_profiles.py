"""`--profiles`: simulated seconds and the policy that needs them, from a file."""

import json

import numpy as np
import pytest

import danl
from danl.errors import InputError
from danl.policies.from_spec import BY_NAME
from tests.cli.shell import contents, run

FLEET = "workers,rows_per_second,uplink,downlink\n3,1000,2e4,1e5\n7,20000,1e6,1e6\n"
RUN = ("--alpha", "1e-3", "--regions", "8", "--quiet", "--json", "--profiles", "fleet.csv")


@pytest.fixture(autouse=True)
def fleet(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fleet.csv").write_text(FLEET)


def solved(**arguments):
    """The same in Python."""
    profiles = [danl.Profile(1000, 2e4, 1e5)] * 3 + [danl.Profile(20_000, 1e6, 1e6)] * 7
    data = danl.load_dataset("a1a")
    problem = danl.Problem(danl.partition(data.X, data.y, workers=10, seed=0), alpha=1e-3)
    return danl.solve(problem, regions=8, profiles=profiles, **arguments)


@pytest.mark.parametrize("policy", ["full", "resource-aware:deadline=0.14"])
def test_a_fit_is_that_of_python(capsys, policy):
    ended = run(capsys, "fit", "a1a", *RUN, "--policy", policy).json
    result = solved(policy=policy)
    assert ended["w_sha256"] == result.summary()["w_sha256"]
    assert ended["simulated_seconds"] == result.history.column("simulated_seconds").sum() > 1
    assert ended["profiles"] == "fleet.csv"


def test_the_policy_keeps_its_deadline():
    profiles = [danl.Profile(1000, 2e4, 1e5)] * 3 + [danl.Profile(20_000, 1e6, 1e6)] * 7
    result = solved(policy="resource-aware:deadline=0.14")
    same = solved(policy=danl.policies.ResourceAware(profiles, 0.14))
    assert result.w.tobytes() == same.w.tobytes()
    assert result.status == "converged"
    assert result.history.column("simulated_seconds").max() <= 0.14  # Hessians as well: they come in portions
    assert result.notes == ()  # and nobody has broken a promise
    enough = solved(policy=danl.policies.ResourceAware(profiles, 0.14, binding=False), method="danl:masks=always")
    masked = [row for row in enough.history if row.kind == "gradient" and min(row.coverage) < 10]
    assert masked
    assert all(row.simulated_seconds <= 0.14 for row in masked)
    assert enough.history[0].simulated_seconds > 0.14


def test_what_is_written_says_which_machines(capsys, tmp_path):
    run(capsys, "fit", "a1a", *RUN, "--policy", "resource-aware:deadline=0.14", "--rounds", "4", "--out", "run")
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert (config["options"]["profiles"], config["options"]["policy"]) == ("fleet.csv", "resource-aware:deadline=0.14")
    assert [(each["workers"], each["uplink"], each["memory"]) for each in config["profiles"]] == [
        (3, 2e4, None),
        (7, 1e6, None),
    ]
    assert config["promised"]["min_coverage"] == 7
    trace = danl.Trace.read(tmp_path / "run" / "workers.npz")
    assert np.nanmin(trace.simulated_seconds[:, :3]) > np.nanmax(trace.simulated_seconds[:, 3:]) / 50
    run(capsys, "fit", "a1a", "--rounds", "1", "--out", "plain", "--quiet")
    plain = json.loads((tmp_path / "plain" / "config.json").read_text())
    assert (plain["options"]["profiles"], plain["profiles"]) == (None, None)


def test_a_comparison_has_a_column_of_them(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    words = ("--methods", "danl,fedavg:steps=5,learning_rate=0.1", "--rounds", "4")
    ended = run(capsys, "compare", "a1a", *RUN, *words)
    assert all(each["simulated_seconds"] > 0 for each in ended.json["runs"])
    header = next(line for line in ended.err.splitlines() if line.startswith("method"))
    assert header.rstrip().endswith("sim. s")
    assert max(len(line.rstrip()) for line in ended.err.splitlines()) <= 80
    assert "…" not in ended.err
    assert "sim." not in run(capsys, "compare", "a1a", "--methods", "gd", "--rounds", "2").err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("--policy", "resource-aware:deadline=0.1"),
            "policy='resource-aware:deadline=0.1': must be given with a profile of every worker; add --profiles FILE",
        ),
        (("--profiles", "none.csv"), "profiles='none.csv': cannot be read (No such file or directory)"),
        (
            ("--profiles", "fleet.csv", "--workers", "9"),
            "profiles='fleet.csv': must have a profile for each of the 9 workers, and has 10",
        ),
        (
            ("--profiles", "fleet.csv", "--policy", "resource-aware:deadline=0.001"),
            "deadline=0.001: must be at least",
        ),
        (("--profiles", "fleet.csv", "--engine", "flower:sites=2"), "--profiles: is for workers that are here"),
    ],
)
def test_what_is_refused_writes_nothing(capsys, tmp_path, words, message):
    ended = run(capsys, "fit", "a1a", *words, "--out", "run")
    assert (ended.status, ended.out) == (2, "")
    assert message in ended.err
    assert sorted(contents(tmp_path)) == ["fleet.csv"]


class Counting:
    """A policy whose promise relies on what its check refuses."""

    side = "server"

    def __init__(self, profiles):
        self.profiles = profiles

    def check(self, setting):
        raise InputError("profiles: these machines are not for counting on")

    def promise(self, setting):
        raise AssertionError("promise without a check")

    def masks(self, round):
        raise NotImplementedError


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--profiles", "fleet.csv"), "profiles: these machines are not for counting on"),
        ((), "policy='counting': must be given with a profile of every worker; add --profiles FILE, or in Python"),
    ],
)
def test_a_policy_of_a_package_is_checked_before_it_promises(capsys, monkeypatch, words, message):
    monkeypatch.setitem(BY_NAME, "counting", Counting)
    ended = run(capsys, "fit", "a1a", "--policy", "counting", *words)
    assert (ended.status, ended.out, ended.err.count("\n")) == (2, "", 1)
    assert message in ended.err
