"""Imports of the command line: what waits is there when it is used, and everything is as before afterwards."""

import gc
import importlib
import subprocess
import sys

import pytest

from danl.cli.app import COMMANDS, application
from danl.cli.imports import quick_imports

USED = """
import sys
from danl.cli.imports import quick_imports
with quick_imports():
    import scipy.sparse
assert not any(name.startswith(("numpy.f2py.", "numpy.testing.")) for name in sys.modules)
import numpy
numpy.testing.assert_equal(1, 1)
from numpy.f2py import crackfortran
from numpy.testing import assert_allclose
print(numpy.f2py.crackfortran is crackfortran, numpy.testing.assert_allclose is assert_allclose)
"""


WAITED = """
import os, sys
{first}
from danl.cli.imports import quick_imports
with quick_imports():
    import numpy
print(os.environ.get("OPENBLAS_THREAD_TIMEOUT"))
"""


@pytest.mark.parametrize(
    ("first", "waited"),
    [
        ("os.environ.pop('OPENBLAS_THREAD_TIMEOUT', None)", "20"),
        ("os.environ['OPENBLAS_THREAD_TIMEOUT'] = '24'", "24"),
        ("os.environ.pop('OPENBLAS_THREAD_TIMEOUT', None); import numpy", "None"),
    ],
    ids=["not set", "set by the user", "too late"],
)
def test_idle_threads_sleep_soon_unless_the_user_says_otherwise(first, waited):
    command = [sys.executable, "-c", WAITED.format(first=first)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert (done.stdout, done.stderr) == (f"{waited}\n", "")


def test_what_waits_is_there_when_it_is_used():
    done = subprocess.run([sys.executable, "-c", USED], capture_output=True, text=True, timeout=280, check=False)
    assert (done.stdout, done.stderr) == ("True True\n", "")


def test_an_import_that_fails_leaves_everything_as_it_was():
    before = list(sys.meta_path)
    with pytest.raises(ModuleNotFoundError), quick_imports():
        importlib.import_module("nonsense_that_is_not_there")
    assert gc.isenabled()
    assert sys.meta_path == before


def test_nothing_is_collected_meanwhile():
    with quick_imports():
        collecting = gc.isenabled()
    assert not collecting
    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off():
    gc.disable()
    try:
        with quick_imports():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


@pytest.mark.parametrize("command", ["", "nonsense", "--help"])
def test_all_commands_are_made_where_none_is_named(command):
    app = application(command)
    names = [each.callback.__name__ for each in app.registered_commands]
    assert (*names, *(each.name for each in app.registered_groups)) == COMMANDS


@pytest.mark.parametrize("command", COMMANDS)
def test_else_only_the_one_that_is_named(command):
    app = application(command)
    names = [each.callback.__name__ for each in app.registered_commands]
    assert [*names, *(each.name for each in app.registered_groups)] == [command]
