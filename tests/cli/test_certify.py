"""`danl certify`: Theorem 1, or the default's theorem, on a run, in numbers and in words."""

import pytest

from danl.cli.display import ProgressLine
from tests.cli.shell import run

CONSTANTS = {"mu", "iota_g", "iota_h", "L", "Lambda", "kappa", "delta", "psi", "gamma", "a", "b", "c", "rho"}


def test_conditions_not_met_is_a_proper_answer(capsys):
    words = ("--policy", "coverage:psi=3,gamma=2", "--alpha", "1e-2", "--rounds", "8")
    ended = run(capsys, "certify", "a1a", *words, "--json")
    assert ended.status == 0
    report = ended.json
    assert report["constants"].keys() >= CONSTANTS
    assert report["constants"]["mu"] == pytest.approx(0.01)
    assert report["constants"]["psi"] == 3
    assert 1 <= report["constants"]["gamma"] <= 2
    assert [condition["name"] for condition in report["conditions"]] == ["(i)", "(ii)", "(iii)", "(iv)"]
    failing = [condition["name"] for condition in report["conditions"] if not condition["holds"]]
    assert "(ii)" in failing
    assert report["conditions_met"] is False
    assert f"conditions not met: {', '.join(failing)}" in " ".join(ended.err.split())
    assert len(report["squared_distances"]) == len(report["bound"]) == 10
    assert report["bound"][3] == pytest.approx(report["squared_distances"][0] / 8)
    assert [condition["name"] for condition in report["corrected"]["conditions"]] == ["(1)", "(2)", "(3)"]
    assert report["corrected"]["applies"] is report["descent"]["applies"] is report["violated"] is False


def test_conditions_met(capsys):
    words = ("--loss", "squared", "--alpha", "1", "--rounds", "3", "--json")
    ended = run(capsys, "certify", "a1a", *words)
    assert ended.status == 0
    assert ended.json["conditions_met"] is True
    assert ended.json["verdict"].startswith("The corrected Theorem 1 applies, and holds: ")
    assert ended.json["corrected"]["applies"] is True
    assert ended.json["corrected"]["squared_radius"] == 0
    assert ended.json["constants"]["iota_h"] == 0
    assert ended.json["constants"]["high"] is None  # infinite, which JSON does not know


def test_without_json_nothing_goes_to_standard_output(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    ended = run(capsys, "certify", "a1a", "--rounds", "2")
    assert (ended.status, ended.out) == (0, "")
    for name in (*CONSTANTS, "low", "high", "error", "squared_radius"):
        assert f"\n{name} " in ended.err
    assert max(len(line.rstrip()) for line in ended.err.splitlines()) <= 80
    assert "…" not in ended.err


@pytest.mark.parametrize("method", ["danl", "danl-secant"])
def test_the_default_has_a_theorem_of_its_own(capsys, monkeypatch, method):
    monkeypatch.setenv("COLUMNS", "80")
    words = ("--method", method, "--alpha", "1e-3", "--policy", "coverage:psi=3", "--json")
    ended = run(capsys, "certify", "a1a", *words)
    assert ended.status == 0
    report = ended.json["descent"]
    assert report["applies"] is True
    assert report["first_violation"] is None
    assert len(report["gaps"]) == len(report["bound"]) > len(report["exact_steps"]) > 0
    assert (
        0 < report["least_rate"] < report["rate"] == pytest.approx(2e-4 * 1e-3 * report["length"] / report["curvature"])
    )
    for name in ("mu", "smoothness", "curvature", "length", "rate", "longest_wait", "least_rate"):
        assert f"\n{name} " in ended.err
    assert "iota_h" not in ended.err
    assert max(len(line.rstrip()) for line in ended.err.splitlines()) <= 80
    assert ended.json["verdict"].startswith("The default's theorem holds: the objective never rose in ")
    assert " ".join(ended.err.split()).endswith(ended.json["verdict"])


def test_half_a_run_is_not_certified(capsys, monkeypatch):
    def interrupt(self, row):
        raise KeyboardInterrupt

    monkeypatch.setattr(ProgressLine, "__call__", interrupt)
    ended = run(capsys, "certify", "a1a", "--json")
    assert (ended.status, ended.out) == (130, "")
    assert ended.err == "interrupted before there was anything to keep\n"
