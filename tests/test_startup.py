"""How little is imported for a quick answer. Times are for `python -m benchmarks`; what is imported can be tested."""

import re
import subprocess
import sys

import pytest

import danl

HEAVY = {"matplotlib", "numpy", "pandas", "requests", "rich", "scipy", "sklearn", "tabmat", "typer"}


def imported(*words):
    """Top-level names of the modules that a Python process imports, as `-X importtime` tells, and what it prints."""
    command = [sys.executable, "-X", "importtime", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=True)
    names = re.findall(r"^import time:\s+\d+ \|\s+\d+ \|\s*(\S+)$", done.stderr, flags=re.MULTILINE)
    return {name.partition(".")[0] for name in names}, done.stdout


@pytest.fixture(scope="module")
def without_danl():
    """What a bare Python imports here: the standard library, and what the environment hooks into every process."""
    names, _ = imported("-c", "pass")
    return names


@pytest.mark.parametrize("option", ["--version", "-V"])
def test_the_version_imports_the_standard_library_and_little_else(option, without_danl):
    names, printed = imported("-m", "danl", option)
    assert printed == f"danl {danl.__version__}\n"
    assert "danl" in names
    assert names - without_danl - set(sys.stdlib_module_names) == {"danl"}
    assert not names & HEAVY
    # Nothing costly of the standard library either.
    assert not names & {"argparse", "asyncio", "dataclasses", "email", "inspect", "json", "logging", "multiprocessing"}


def test_import_danl_imports_the_standard_library_and_little_else(without_danl):
    names, _ = imported("-c", "import danl")
    assert names - without_danl - set(sys.stdlib_module_names) == {"danl"}
    assert not names & HEAVY


@pytest.mark.slow
def test_loading_and_solving_import_neither_scikit_learn_nor_matplotlib():
    code = "import danl; data = danl.load_dataset('a1a'); danl.partition(data.X, data.y, workers=10); danl.solve"
    names, _ = imported("-c", code)
    assert "numpy" in names
    assert not names & {"matplotlib", "rich", "sklearn", "typer"}
