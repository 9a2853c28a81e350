"""How little is imported for a quick answer. Times are for `python -m benchmarks`; what is imported can be tested."""

import re
import subprocess
import sys

import pytest

import danl

HEAVY = {"matplotlib", "numpy", "pandas", "requests", "rich", "scipy", "sklearn", "tabmat", "typer"}


NOT_FOR_A_FIT = {
    *("asyncio", "filelock", "flwr", "matplotlib", "mlflow", "multiprocessing", "pandas", "platformdirs", "plotly"),
    *("pyarrow", "ray", "requests", "sklearn", "tabmat", "tensorboardX", "threadpoolctl", "tomli_w", "trustme"),
}


FIT = """
import sys
from danl.__main__ import main
try:
    main(["fit", "a1a"])
except SystemExit as end:
    assert end.code == 0, end
print(*sys.modules)
"""


def imported(*words):
    """Top-level names of the modules that a Python process imports, as `-X importtime` tells, and what it prints."""
    command = [sys.executable, "-X", "importtime", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=True)
    names = re.findall(r"^import time:\s+\d+ \|\s+\d+ \|\s*(\S+)$", done.stderr, flags=re.MULTILINE)
    return {name.partition(".")[0] for name in names}, done.stdout


def present(code):
    """The modules that a process prints at its end: also those that `-X importtime` does not see."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=280, check=True)
    return set(done.stdout.split())


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


def test_import_danl_imports_no_third_party_package_but_numpy_at_most(without_danl):
    names, _ = imported("-c", "import danl; dir(danl)")
    assert names - without_danl - set(sys.stdlib_module_names) - {"numpy"} == {"danl"}
    assert not names & HEAVY  # and numpy waits until it is used


def test_import_danl_leaves_nothing_else_in_sys_modules():
    found = present("import sys; old = {*sys.modules}; import danl; print(*({*sys.modules} - old))")
    assert {name.partition(".")[0] for name in found} - sys.stdlib_module_names - {"numpy"} == {"danl"}


@pytest.mark.parametrize("words", [("--help",), ("fit", "--help"), ("datasets", "--help"), ("flower", "--help")])
def test_help_waits_for_no_arrays(words):
    names, printed = imported("-m", "danl", *words)
    assert "Usage: danl" in printed
    assert not names & (HEAVY - {"rich", "typer"} | NOT_FOR_A_FIT)


def test_a_fit_imports_what_it_needs():
    names = present(FIT)
    assert {"numpy", "scipy.sparse", "danl.methods.danl"} <= names
    assert not {name.partition(".")[0] for name in names} & NOT_FOR_A_FIT
    others = {"certify", "compare", "explain", "flower", "plan", "reproduce", "sites", "terminal_view"}
    assert not {f"danl.cli.{other}" for other in others} & names
    assert not {"numpy.f2py.crackfortran", "numpy.testing._private", "scipy.stats", "scipy.optimize"} & names


@pytest.mark.slow
def test_loading_and_solving_import_neither_scikit_learn_nor_matplotlib():
    code = "import danl; data = danl.load_dataset('a1a'); danl.partition(data.X, data.y, workers=10); danl.solve"
    names, _ = imported("-c", code)
    assert "numpy" in names
    assert not names & {"matplotlib", "rich", "sklearn", "typer"}
