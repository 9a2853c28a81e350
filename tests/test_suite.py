"""The tests themselves: each can fail, and what runs on Ray or Flower is not in `make test`."""

import ast
from functools import cache
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
FILES = sorted(path for path in FOLDER.rglob("*.py") if path.name != "__init__.py")
TESTS = [path for path in FILES if path.name.startswith("test_")]
ENGINES = {"run_inside", "in_a_network_of_its_own"}
SMOKE = "test_a_small_run"
"""The one test of Ray and the one of Flower that `make test` has."""


def name_of(path):
    return str(path.relative_to(FOLDER))


def functions(text):
    """Every function of a file, with the names of what it calls."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            called = (ast.unparse(call.func) for call in ast.walk(node) if isinstance(call, ast.Call))
            yield node, {name.rpartition(".")[2] for name in called}


def asserts(node, called):
    by_name = any(name.startswith("assert_") or name in ("raises", "warns", "fail", "check") for name in called)
    return by_name or any(isinstance(part, ast.Assert) for part in ast.walk(node))


@cache
def asserting():
    """The names of the functions of the tests that assert something, by themselves or by what they call."""
    every = [each for path in FILES for each in functions(path.read_text(encoding="utf-8"))]
    known, before = {node.name for node, called in every if asserts(node, called)}, set()
    while known != before:
        before = set(known)
        known |= {node.name for node, called in every if called & known}
    return known


def silent(text):
    return [
        node.name
        for node, called in functions(text)
        if node.name.startswith("test_") and not asserts(node, called) and not called & asserting()
    ]


def unmarked(text):
    whole = any(isinstance(node, ast.Assign) and "mark.engines" in ast.unparse(node) for node in ast.parse(text).body)
    return [
        node.name
        for node, called in functions(text)
        if node.name.startswith("test_") and called & ENGINES and node.name != SMOKE
        and not (whole or any("mark.engines" in ast.unparse(mark) for mark in node.decorator_list))
    ]  # fmt: skip


@pytest.mark.parametrize("path", TESTS, ids=name_of)
def test_every_test_can_fail(path):
    """It asserts, or calls what does."""
    assert silent(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("path", TESTS, ids=name_of)
def test_what_runs_on_an_engine_is_marked(path):
    """With @pytest.mark.engines, so that `make test` stays short."""
    assert unmarked(path.read_text(encoding="utf-8")) == []


def test_those_that_are_wrong_are_found():
    text = "def test_a():\n    run_inside('x')\n\n@pytest.mark.engines\ndef test_b():\n    run_inside('x')\n"
    assert unmarked(text) == ["test_a"]
    assert unmarked("pytestmark = [pytest.mark.engines]\n" + text) == []
    assert silent("def test_a():\n    danl.solve(problem)\n\ndef test_b():\n    assert_same(a, b)\n") == ["test_a"]
