"""The digest of the code: every module that a run imports is in it, and a changed one changes it."""

import json
import subprocess
import sys

import pytest

from danl.reproduce import sources as module
from danl.reproduce.sources import EXECUTES, code_digest, sources

pytestmark = pytest.mark.slow

RUNS = """
import json, sys
from danl.reproduce.execute import execute
from danl.reproduce.runs import MILD, PAPER, RunSpec
execute(RunSpec("a1a", MILD, "danl", "coverage:psi=3", rounds=3, certified=True))
execute(RunSpec("a1a", PAPER, "danl-paper", "random:keep=0.5", rounds=3, start="near"))
execute(RunSpec("a1a", MILD, "gd:learning_rate=1.9/L", decades=2.0, partition="sorted:shuffle=0.5", rounds=3))
print(json.dumps([name for name in sys.modules if name.partition(".")[0] == "danl"]))
"""


def test_every_module_that_a_run_imports_is_in_the_digest():
    done = subprocess.run([sys.executable, "-c", RUNS], capture_output=True, text=True, timeout=300, check=True)
    loaded = set(json.loads(done.stdout))
    assert {
        "danl.objective.batched",
        "danl.objective.kernels",
        "danl.objective.local",
        "danl.objective.layout",
        "danl.run.loop",
    } <= loaded
    assert loaded <= sources(EXECUTES).keys()


def test_what_only_draws_or_reports_is_not():
    for name in (
        "cli",
        "report",
        "plots.figures",
        "plots.gallery",
        "federation",
        "reproduce.drawing",
        "reproduce.claims",
    ):
        assert sources(f"danl.{name}")  # there is such a module
        assert not [each for each in sources(EXECUTES) if f"{each}.".startswith(f"danl.{name}.")]


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package whose `doing` imports in every way there is."""
    files = {
        "__init__.py": "",
        "doing.py": "import p.plain\nfrom p import submodule\nfrom p.deep import name\nfrom .relative import a",
        "plain.py": "def late():\n    import p.late\n",
        "submodule.py": "if TYPE_CHECKING:\n    import p.types\nelse:\n    import p.other\n",
        "deep/__init__.py": "from . import inner\nname = 1\n",
        "deep/inner.py": "from ..up import b\ntry:\n    import numpy, p.tried\nexcept ImportError:\n    pass\n",
        **dict.fromkeys(["relative.py", "late.py", "types.py", "other.py", "up.py", "tried.py", "drawing.py"], ""),
    }
    root = tmp_path / "p"
    (root / "deep").mkdir(parents=True)
    for name, text in files.items():
        (root / name).write_text(text)
    monkeypatch.setattr(module, "sources", lambda _: sources("p.doing", root))
    yield root
    code_digest.cache_clear()


def digest_now():
    code_digest.cache_clear()
    return code_digest()


def test_imports_are_followed_wherever_they_stand(package):
    names = ["doing", "plain", "submodule", "deep", "deep.inner", "relative", "late", "other", "up", "tried"]
    assert set(sources("p.doing", package)) == {"p", *(f"p.{name}" for name in names)}


def test_the_digest_changes_with_what_is_imported_and_with_nothing_else(package):
    before = digest_now()
    for name in ("drawing.py", "types.py"):
        (package / name).write_text("changed = True")
        assert digest_now() == before
    seen = {before}
    for name in ("__init__.py", "late.py", "deep/inner.py", "up.py"):
        (package / name).write_text((package / name).read_text() + "\n# changed\n")
        seen.add(digest_now())
    assert len(seen) == 5
