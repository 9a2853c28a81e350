"""The scripts in examples/: each runs by itself, without the network, and says what is true."""

import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.loopback import namespace, only_loopback, skip_unless_possible

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "examples"
SCRIPTS = sorted(FOLDER.glob("*.py"))
ON_RAY = {"ray_cluster.py"}
EACH = [pytest.param(path.name, marks=pytest.mark.engines if path.name in ON_RAY else ()) for path in SCRIPTS]


@cache
def output_of(name):
    """What a script prints, run as a reader would run it, but with warnings as errors; Ray's alone with loopback."""
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "MPLBACKEND": "Agg", "NO_COLOR": "1", "DANL_OFFLINE": "1"}
    command = [sys.executable, "-W", "error", str(FOLDER / name)]
    if name in ON_RAY:
        skip_unless_possible("ray")
        environment["RAY_USAGE_STATS_ENABLED"] = "0"
        command = [*([] if only_loopback() else namespace()), *command]
    done = subprocess.run(
        command,
        env=environment,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert name in ON_RAY or not done.stderr  # Ray has much to say
    return done.stdout


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_it_says_what_it_is_on_two_screens(script):
    assert len(script.read_text(encoding="utf-8").splitlines()) <= 120
    assert script.read_text(encoding="utf-8").startswith('"""')


@pytest.mark.parametrize("document", ["README.md", "docs/examples.md"])
def test_every_script_is_named_in_the_documents(document):
    text = (ROOT / document).read_text(encoding="utf-8")
    assert [script.name for script in SCRIPTS if f"examples/{script.name})" not in text] == []


@cache
def shown():
    """What docs/examples.md shows of every script's output."""
    text = (ROOT / "docs" / "examples.md").read_text(encoding="utf-8")
    return dict(re.findall(r"\(\.\./examples/(\w+\.py)\).*?^```text\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))


def test_the_documents_show_every_script():
    assert set(shown()) == {script.name for script in SCRIPTS}


@pytest.mark.parametrize("name", EACH)
def test_the_documents_show_what_a_script_prints(name):
    """Numbers differ between machines, words do not; that the numbers say what is claimed is tested below."""
    printed = [words(line) for line in output_of(name).splitlines()]
    assert printed
    assert [line for line in shown()[name].splitlines() if words(line) not in printed] == []


def words(text):
    return re.findall(r"(?<![\w.])[A-Za-z][\w-]+", text)


def test_paper_shows_that_the_printed_algorithm_fails_and_the_default_does_not():
    runs = re.findall(r"^(\S+) +(\w+) +gap +(\S+) after +(\d+) rounds", output_of("paper.py"), re.MULTILINE)
    gaps = {method: float(gap) for method, _, gap, _ in runs}
    assert list(gaps) == ["danl-paper", "danl-masked", "danl"]
    assert gaps["danl-paper"] > 1 > 1e-8 > gaps["danl-masked"] > 1e-12 > gaps["danl"]
    assert {method: status for method, status, *_ in runs}["danl"] == "converged"


def test_the_paper_is_ten_lines():
    lines = (FOLDER / "paper.py").read_text(encoding="utf-8").partition('"""\n\nimport danl\n')[2].splitlines()
    assert len([line for line in lines if line.strip()]) <= 10


def test_slow_devices_are_in_time_with_a_deadline_and_missed_when_left_out():
    line = r"^(leave out|wait|deadline) +([\d.]+) s: .* at most ([\d.]+) s, .*; (\S+) above the optimum of all rows$"
    runs = {name: tuple(map(float, rest)) for name, *rest in re.findall(line, output_of("slow_devices.py"), re.M)}
    assert runs["leave out"][2] > 1e-3 > 1e-8 > max(runs["wait"][2], runs["deadline"][2])
    assert runs["leave out"][0] < runs["wait"][0] < runs["deadline"][0]
    assert runs["deadline"][1] <= 0.15 < runs["wait"][1]


def test_custom_policies_converge_and_the_class_keeps_its_promise():
    function, planned = output_of("custom_policy.py").splitlines()
    assert "converged" in function
    assert "converged" in planned
    assert planned.endswith("coverage 8, 4 regions a round, staleness 1")


def test_the_custom_policy_refuses_what_it_cannot_promise(monkeypatch):
    import danl

    monkeypatch.syspath_prepend(str(FOLDER))
    import custom_policy

    problem = danl.Problem([danl.Shard.of([[1.0], [2.0]], [0, 1])] * 3, alpha=1.0)
    with pytest.raises(danl.InputError, match=r"resting=2: must be at most 1"):
        danl.solve(problem, policy=custom_policy.RestInTurn())


def test_the_custom_method_is_faster_than_gradient_descent_and_slower_than_the_default():
    runs = re.findall(
        r"^(\w+) +converged after +(\d+) exchanges and +\S+ MB, gap (\S+)$", output_of("custom_method.py"), re.M
    )
    exchanges = {method: int(count) for method, count, _ in runs}
    assert exchanges["gd"] > 5 * exchanges["nesterov"] > 25 * exchanges["danl"]
    assert all(float(gap) < 1e-11 for _, _, gap in runs)


@pytest.mark.engines
def test_ray_gives_what_one_process_gives():
    on_ray, here, apart = output_of("ray_cluster.py").splitlines()
    assert on_ray.partition(":")[2].strip() == here.partition(":")[2].strip()
    assert float(apart.rpartition(" ")[2]) < 1e-12


def fits():
    """The table of examples/hospitals.py: numbers of each fit, by its name."""
    lines = re.findall(r"^ *(pooled|federated|averaged) +(\S.*)$", output_of("hospitals.py"), re.MULTILINE)
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
    table, printed = fits(), output_of("hospitals.py")
    assert 1 < int(table["federated"][1]) < 100
    assert int(table["federated"][2].replace(",", "")) < int(table["pooled"][2].replace(",", ""))
    absent, coverage = re.search(r"(\d+) replies did not come.*as few as\s+(\d+) of 10", printed, re.DOTALL).groups()
    assert int(absent) > 10
    assert 1 <= int(coverage) < 10


def test_hospitals_ends_with_odds_ratios_without_a_penalty():
    printed = output_of("hospitals.py")
    assert "odds ratio" in printed
    assert "PENALISED" not in printed
    assert re.search(r"^glucose +0\.9", printed, re.MULTILINE)
    assert "nan" not in printed
