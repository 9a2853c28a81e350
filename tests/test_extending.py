"""docs/extending.md as a newcomer would follow it: the file of the page, installed as a package, by name."""

import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.plugins import install
from tests.test_docs import blocks_of

PAGE = Path(__file__).parents[1] / "docs" / "extending.md"
BLOCKS = blocks_of(PAGE)
SOURCE = "\n\n".join(block.body for block in BLOCKS if block.body.startswith("# danl_mine.py\n"))
PYPROJECT = tomllib.loads(next(block.body for block in BLOCKS if block.kind == "toml"))
COMMANDS = [
    shlex.split(line)[1:]
    for block in BLOCKS
    if block.kind == "bash"
    for line in block.body.splitlines()
    if line.startswith("danl ")
]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A folder as pip leaves it: the module, and its entry points."""
    folder = tmp_path_factory.mktemp("site")
    return install(folder, PYPROJECT["project"]["name"], PYPROJECT["project"]["entry-points"], danl_mine=SOURCE)


def run(site, *words, python=("-m", "danl")):
    paths = [str(site), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "OPENBLAS_NUM_THREADS": "1", "COLUMNS": "100"}
    return subprocess.run(
        [sys.executable, *python, *words], env=environment, capture_output=True, text=True, timeout=280, check=False
    )


def test_the_page_has_one_of_each():
    groups = PYPROJECT["project"]["entry-points"]
    assert set(groups) == {"danl.losses", "danl.policies", "danl.methods", "danl.engines"}
    for names in groups.values():
        for target in names.values():
            module, _, attribute = target.partition(":")
            assert module == "danl_mine"
            assert re.search(rf"^class {attribute}\b", SOURCE, re.MULTILINE)
    assert len(COMMANDS) == 5


@pytest.mark.slow
@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_the_commands_of_the_page(site, words):
    done = run(site, *words)
    assert (done.returncode, "converged" in done.stderr) == (0, True), done.stderr


def test_it_needs_nothing_private():
    assert not re.findall(r"danl\.\w+\.\w+ import|import danl\.\w+\.\w+", SOURCE)


@pytest.mark.slow
def test_what_is_said_of_a_slip(site):
    said = {
        ("--method", "momentm"): "method='momentm': must be one of momentum, danl, ",
        (
            "--method",
            "momentum",
        ): "method='momentum': must be momentum with learning_rate; try 'momentum:learning_rate=",
        ("--policy", "rest:workers=3"): "policy='rest:workers=3': rest has no option 'workers'; it has resting",
        ("--policy", "rest:resting=6"): "resting=6: must be a whole number from 0 to 5, half of the workers",
        ("--policy", "rest:resting=1.5"): "resting=1.5: must be a whole number from 0 to 5, half of the workers",
        ("--loss", "pseudo-huber:delta=0"): "delta=0: must be a number > 0; try delta=1",
        ("--loss", "pseudo-huber:delta=wide"): "danl_mine:PseudoHuber of the package danl-mine fails (TypeError: ",
        ("--engine", "threads:threads=0"): "threads=0: must be a whole number of at least 1",
    }
    for words, message in said.items():
        done = run(site, "fit", "a1a", *words)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith("error: ")
        assert done.stderr.count("\n") == 1
        assert message in done.stderr


@pytest.mark.slow
def test_a_run_of_it_is_resumed(site, tmp_path):
    words = ["fit", "a1a", "--method", "momentum:learning_rate=1", "--alpha", "1e-2", "--tol", "1e-6", "--json"]
    whole = run(site, *words, "--rounds", "30")
    first = run(site, *words, "--rounds", "12", "--checkpoint", str(tmp_path / "kept"))
    second = run(site, *words, "--rounds", "30", "--resume", str(tmp_path / "kept"))
    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    digest = re.compile(r'"w_sha256": "(\w+)"')
    assert digest.search(second.stdout)[1] == digest.search(whole.stdout)[1] != digest.search(first.stdout)[1]


@pytest.mark.slow
def test_its_task_goes_through_bytes_and_begins_anew_where_it_was_forgotten(site):
    code = """
import danl, danl_mine
import numpy as np
data = danl.load_dataset("a1a")
problem = danl.Problem(danl.partition(data.X, data.y, workers=4, seed=0), alpha=1e-1)
engine = danl.engines.Local()
run = {"method": danl_mine.ErrorFeedback(learning_rate=0.5), "max_rounds": 300}
def lose(row):
    if row.exchange == 20:
        engine._workers[3].slots.clear()
here = danl.solve(problem, **run)
there = danl.solve(problem, engine=danl_mine.Bytes(threads=2), **run)
again = danl.solve(problem, engine=engine, callback=lose, **run)
print((here.w == there.w).all(), len(there.failures), [(each.worker, each.kind) for each in again.failures])
best = danl.reference_optimum(problem)
print(all(problem.objective(each.w) - best.objective < 1e-9 for each in (here, again)))
"""
    done = run(site, code, python=("-c",))
    assert done.stdout == "True 0 [(3, 'forgot')]\nTrue\n", done.stderr


@pytest.mark.slow
def test_an_estimator_takes_the_names(site):
    code = """
import danl
data = danl.load_dataset("a1a")
model = danl.DANLClassifier(policy="rest:resting=2", engine="threads", fit_intercept=False).fit(data.X, data.y)
print(model.result_.status, model.result_.settings["policy"], type(danl.engines.make_engine("threads")).__module__)
"""
    done = run(site, code, python=("-c",))
    assert done.stdout == "converged RestInTurn(resting=2) danl_mine\n", done.stderr
