"""Modules whose public name is not their place in the tree: one module, however it is imported."""

import importlib
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

import danl

ALIASES = [
    ("danl.flower", "danl.engines.flower", "Site"),
    ("danl.flower.site", "danl.engines.flower.site", "Site"),
    ("danl.gallery", "danl.plots.gallery", "plot_gallery"),
    ("danl.layout", "danl.objective.layout", "Layout"),
    ("danl.objectives", "danl.objective.losses", "Logistic"),
    ("danl.solver", "danl.run.solver", "observed_information"),
]


def fresh(code):
    """Run code in a Python of its own, where nothing was imported before."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=280, check=True).stdout


@pytest.mark.parametrize(("alias", "place", "name"), ALIASES)
def test_both_forms_of_import_give_the_module_itself(alias, place, name):
    code = f"""
import {alias}
from {alias} import {name} as by_alias
import {place} as module, pickle
from {place} import {name} as by_place
assert {alias} is module and by_alias is by_place
assert module.__spec__.name == module.__name__ == {place!r}
assert pickle.loads(pickle.dumps(by_alias)) is by_place
"""
    fresh(code)
    assert importlib.import_module(alias) is importlib.import_module(place)


@pytest.mark.parametrize("alias", sorted(danl._ALIASES))
def test_a_type_checker_finds_it_as_an_attribute(alias):
    stub = Path(danl.__file__).with_suffix(".pyi").read_text()
    assert f"\n{alias} = {danl._ALIASES[alias]}\n" in stub


def test_what_was_pickled_by_the_public_name_can_be_read():
    assert pickle.loads(b"cdanl.objectives\nLogistic\n.") is danl.objectives.Logistic


def test_an_alias_is_not_imported_before_it_is_used():
    code = "import sys, danl; print([name for name in sys.modules if name.startswith('danl.')])"
    assert fresh(code).strip() == "['danl._lazy']"  # which waits for the rest


@pytest.mark.parametrize("name", ["danl.objectives.nothing", "danl.flower.nothing", "danl.nothing"])
def test_what_is_not_there_is_not_found(name):
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(name)
    if name == "danl.flower.nothing":
        assert importlib.util.find_spec(name) is None
