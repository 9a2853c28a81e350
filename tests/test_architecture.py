"""The import arrow of the design, kept by a test: nothing imports upward, methods and engines not each other."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.tree import layers

import danl

SOURCE = Path(danl.__file__).parent
LAYERS = [layer.names for layer in layers()]
"""The list of docs/architecture.md; a package may import itself and what stands before it."""
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}


def modules():
    return [path for path in SOURCE.rglob("*.py") if path != SOURCE / "__init__.py"]


def part_of(path):
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def test_the_list_names_every_part_once_and_few_are_loose():
    parts = {part_of(path) for path in modules()}
    assert sorted(LEVEL) == sorted(parts)
    assert sum(map(len, LAYERS)) == len(LEVEL)
    assert len([path for path in SOURCE.glob("*.py") if not path.name.startswith("_")]) <= 6


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_nothing_imports_upward(path):
    own = part_of(path)
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("danl."):
            other = node.module.split(".")[1]
            assert other == own or LEVEL[other] < LEVEL[own], f"{own} imports {other}"


@pytest.mark.parametrize("path", [SOURCE / "__init__.py", *modules()], ids=lambda path: str(path.relative_to(SOURCE)))
def test_every_file_opens_with_a_docstring_and_stays_readable(path):
    text = path.read_text()
    assert ast.get_docstring(ast.parse(text)), "no docstring"
    assert len(text.splitlines()) <= 400


@pytest.mark.parametrize("path", sorted((SOURCE / "report" / "parts").iterdir()), ids=lambda path: path.name)
def test_the_parts_of_the_page_stay_readable_too(path):
    assert len(path.read_text().splitlines()) <= 400


def test_import_danl_is_light():
    heavy = ("numpy", "scipy", "sklearn", "matplotlib", "pandas")
    code = f"import sys, danl; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=280, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.slow
def test_solving_needs_no_heavy_import():
    code = """
import sys, numpy as np, danl
X = np.random.default_rng(0).normal(size=(40, 3))
problem = danl.Problem(danl.partition(X, (X[:, 0] > 0).astype(float), workers=4), alpha=0.1)
print(danl.solve(problem, method="newton").status)
print([m for m in ("sklearn", "matplotlib", "pandas", "requests", "rich") if m in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=280, check=True)
    assert done.stdout.split("\n")[:2] == ["converged", "[]"]


def test_every_public_name_is_there():
    for name in danl.__all__:
        assert getattr(danl, name) is not None
    assert set(danl.__all__) <= set(dir(danl))
    with pytest.raises(AttributeError, match="attribute nonsense"):
        danl.nonsense  # noqa: B018
