"""The digest of the code: every module that a run imports is in it, and a changed one changes it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from danl.reproduce import store
from danl.reproduce.store import ROOT, code_digest, code_files

RUNS = """
import json, sys
from danl.reproduce.execute import execute
from danl.reproduce.runs import MILD, PAPER, RunSpec
execute(RunSpec("a1a", MILD, "danl", "coverage:psi=3", rounds=3, certified=True))
execute(RunSpec("a1a", PAPER, "danl-paper", "random:keep=0.5", rounds=3, start="near"))
execute(RunSpec("a1a", MILD, "gd:learning_rate=1.9/L", decades=2.0, partition="sorted:shuffle=0.5", rounds=3))
print(json.dumps([module.__file__ for name, module in sys.modules.items() if name.partition(".")[0] == "danl"]))
"""


@pytest.mark.slow
def test_every_module_that_a_run_imports_is_in_the_digest():
    done = subprocess.run([sys.executable, "-c", RUNS], capture_output=True, text=True, timeout=300, check=True)
    loaded = {Path(file).relative_to(ROOT).as_posix() for file in json.loads(done.stdout)}
    decisive = [
        "objective/batch",
        "objective/kernels",
        "objective/local_objective",
        "objective/layout",
        "run/loop",
        "theory/theorem1",
    ]
    assert {f"{name}.py" for name in decisive} <= loaded
    assert loaded <= {path.relative_to(ROOT).as_posix() for path in code_files()}


def test_what_only_draws_or_reports_is_not():
    for name in ("cli", "report", "plots", "federation", "reproduce/drawing.py", "reproduce/claims"):
        assert (ROOT / name).exists()
        assert not [path for path in code_files() if path.is_relative_to(ROOT / name)]


@pytest.fixture
def package(tmp_path, monkeypatch):
    for name in ("__init__", "errors", "run/loop", "engines/ray/engine", "plots/figures", "cli/fit"):
        (tmp_path / f"{name}.py").parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / f"{name}.py").write_text("")
    (tmp_path / "reproduce").mkdir()
    for name in ("__init__", "execute", "runs", "drawing"):
        (tmp_path / "reproduce" / f"{name}.py").write_text("")
    monkeypatch.setattr(store, "ROOT", tmp_path)
    yield tmp_path
    code_digest.cache_clear()


def digest_now():
    code_digest.cache_clear()
    return code_digest()


def test_the_digest_changes_with_what_decides_rows_and_with_nothing_else(package):
    before = digest_now()
    for name in ("plots/figures.py", "cli/fit.py", "reproduce/drawing.py"):
        (package / name).write_text("changed = True")
        assert digest_now() == before
    seen = {before}
    for name in ("__init__.py", "errors.py", "run/loop.py", "engines/ray/engine.py", "reproduce/execute.py"):
        (package / name).write_text("# changed\n")
        seen.add(digest_now())
    (package / "run" / "loop.py").rename(package / "run" / "rounds.py")
    assert len({*seen, digest_now()}) == 7
