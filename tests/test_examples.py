"""The scripts in examples/: each runs by itself, without the network, and says what is true."""

import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[1] / "examples"
SCRIPTS = sorted(FOLDER.glob("*.py"))


@cache
def output_of(script):
    """What a script prints, run as a reader would run it, but with warnings as errors."""
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "MPLBACKEND": "Agg", "NO_COLOR": "1", "DANL_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, "-W", "error", str(script)],
        env=environment,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    return done.stdout


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_runs(script):
    assert output_of(script).strip()


def fits():
    """The table of examples/hospitals.py: numbers of each fit, by its name."""
    lines = re.findall(r"^ *(pooled|federated|averaged) +(\S.*)$", output_of(FOLDER / "hospitals.py"), re.MULTILINE)
    return {name: numbers.split() for name, numbers in lines}


def test_hospitals_gets_the_pooled_fit_and_averaging_does_not():
    table = fits()
    assert set(table) == {"pooled", "federated", "averaged"}
    assert float(table["pooled"][0]) == 0
    assert float(table["federated"][0]) < 1e-8
    assert float(table["averaged"][0]) > 0.1


def test_hospitals_scores_as_well_as_the_pooled_fit():
    table = fits()
    assert table["federated"][3:] == table["pooled"][3:]  # AUC and log loss, to the digits shown
    assert float(table["averaged"][4]) > float(table["pooled"][4]) + 0.01


def test_hospitals_counts_what_is_exchanged_and_who_was_absent():
    table, printed = fits(), output_of(FOLDER / "hospitals.py")
    assert 1 < int(table["federated"][1]) < 100
    assert int(table["federated"][2].replace(",", "")) < int(table["pooled"][2].replace(",", ""))
    absent, coverage = re.search(r"(\d+) replies did not come.*as few as\s+(\d+) of 10", printed, re.DOTALL).groups()
    assert int(absent) > 10
    assert 1 <= int(coverage) < 10


def test_hospitals_ends_with_odds_ratios_without_a_penalty():
    printed = output_of(FOLDER / "hospitals.py")
    assert "odds ratio" in printed
    assert "PENALISED" not in printed
    assert re.search(r"^glucose +0\.9", printed, re.MULTILINE)
    assert "nan" not in printed
