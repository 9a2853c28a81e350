"""Which files of the package decide the rows of a run: those that the module which does it imports, and theirs.

The imports are read off the sources, those inside of functions as well. So a module that a run comes to need is among
them by itself, and one that only draws or reports is not.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
"""The folder of the package danl."""
EXECUTES = "danl.reproduce.execute"
"""The module that does a run."""


@lru_cache
def code_digest() -> str:
    """A digest of the source that decides the rows: results of other code are not taken for results of this one."""
    digest = hashlib.sha256()
    for module, path in sorted(sources(EXECUTES).items()):
        digest.update(f"{module}\n".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def sources(start: str, root: Path = ROOT) -> dict[str, Path]:
    """The modules of the package in `root` that importing `start`, and calling what is in it, may run; their files."""
    found: dict[str, Path] = {}
    waiting = [start]
    while waiting:
        module = waiting.pop()
        path = _file(module, root)
        if path is None or module in found:  # a name in a module, not a module; or known
            continue
        found[module] = path
        if "." in module:
            waiting.append(module.rpartition(".")[0])  # a package's __init__ is run before what is in it
        package = module if path.name == "__init__.py" else module.rpartition(".")[0]
        waiting += _imported(ast.parse(path.read_bytes()), package)
    return found


def _file(module: str, root: Path) -> Path | None:
    """The file of a module, if there is such a one in the package."""
    package, *parts = module.split(".")
    if package != root.name:
        return None
    place = root.joinpath(*parts)
    candidates = (place / "__init__.py", place.with_suffix(".py")) if parts else (root / "__init__.py",)
    return next((path for path in candidates if path.is_file()), None)


def _imported(tree: ast.AST, package: str) -> Iterator[str]:
    """Names that a module imports, wherever it does; `from a import b` may mean the module a.b."""
    for node in _executed(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def _executed(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those under `if TYPE_CHECKING`, which are for type checkers alone."""
    waiting = [node]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            waiting += node.orelse
        elif not isinstance(node, ast.expr):  # nothing is imported inside of an expression
            yield node
            waiting += ast.iter_child_nodes(node)
