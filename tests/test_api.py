"""docs/api.md against the package, both ways: every name of the page is there after a bare `import danl`, with the
arguments the page gives it, and every public name is on the page."""

import functools
import inspect
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import danl

PAGE = Path(__file__).parents[1] / "docs" / "api.md"
SPAN = re.compile(r"`([^`]+)`")
NAME = re.compile(r"([A-Za-z_][\w.]*)(?:\((.*)\))?")
OF_BOTH = ("danl.DANLClassifier", "danl.DANLRegressor")
"""What "of both" means in the table of estimators."""


def named():
    """Every name in the first column of the page's tables, and in the second of a module's row: (name, arguments)."""
    found, home = [], "danl"
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            home = line[3:] if line.startswith("## danl.") else "danl"
        if not line.startswith("| `"):
            continue
        first, second = line.strip("| ").split(" | ", 1)
        spans = [NAME.fullmatch(span) for span in SPAN.findall(first)]
        assert all(spans), line
        homes = OF_BOTH if first.endswith("of both") else (home,)
        for match in spans:
            name, arguments = match.groups()
            absolute = name.startswith("danl.")
            found += [(name if absolute else f"{each}.{name}", arguments) for each in homes[: 1 if absolute else None]]
        if len(spans) == 1 and inspect.ismodule(resolved(found[-1][0])):
            parts = (NAME.fullmatch(span) for span in SPAN.findall(second))
            found += [
                (part[1] if part[1].startswith("danl.") else f"{spans[0][1]}.{part[1]}", part[2])
                for part in parts
                if part
            ]
    return found


def resolved(name):
    return functools.reduce(getattr, name.split(".")[1:], danl)


NAMED = named()


def test_the_page_was_read():
    assert len(NAMED) >= 90
    for name in ("danl.solve", "danl.methods.FedAvg", "danl.DANLRegressor.save", "danl.report.findings"):
        assert name in dict(NAMED)


def test_every_name_of_the_page_is_there_after_a_bare_import():
    names = sorted({name for name, _ in NAMED})
    code = """
import functools, json, sys
import danl
names, missing = json.load(sys.stdin), []
for name in names:
    own = [module for module in sys.modules if module.startswith("danl.")]
    for module in own:  # as if nothing had been used before
        vars(danl).pop(module.split(".")[1], None)
    try:
        functools.reduce(getattr, name.split(".")[1:], danl)
    except AttributeError as error:
        missing.append(f"{name}: {error}")
print(json.dumps(missing))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], input=json.dumps(names), capture_output=True, text=True, timeout=120, check=True
    )
    assert json.loads(done.stdout) == []


@pytest.mark.parametrize(
    ("name", "arguments"), [(name, reported) for name, reported in NAMED if reported], ids=lambda part: part
)
def test_arguments_are_those_of_the_page(name, arguments):
    reported = [part.split("=")[0].strip() for part in arguments.split(",")]
    there = list(inspect.signature(resolved(name)).parameters)
    there = [each for each in there if each not in ("self", "cls")]
    if "..." in reported:
        reported = reported[: reported.index("...")]
        there = there[: len([each for each in reported if each != "*"])]
    assert [each for each in reported if each != "*"] == there


def test_every_public_name_is_on_the_page():
    on_page = {name for name, _ in NAMED}
    on_page |= {
        f"danl.{span.split('(')[0][5:]}" for span in SPAN.findall(PAGE.read_text("utf-8")) if span[:5] == "danl."
    }
    missing = []
    for name in danl.__all__:
        part = getattr(danl, name)
        if not inspect.ismodule(part):
            missing += [f"danl.{name}"] * (f"danl.{name}" not in on_page)
            continue
        assert f"danl.{name}" in on_page or any(each.startswith(f"danl.{name}.") for each in on_page), name
        missing += [
            f"danl.{name}.{each}"
            for each in getattr(part, "__all__", ())
            if f"danl.{name}.{each}" not in on_page and not (name == "policies" and each == "Profile")
        ]
    assert missing == []
