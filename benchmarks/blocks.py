"""Tables of the documents that a command writes: where each of them stands, what makes it, and which columns it has.

A table stands between the lines `<!-- name:begin -->` and `<!-- name:end -->` of its page, and below it what it was
measured with. `tests/test_blocks.py` holds the pages against this list.
"""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path

import numpy as np
import scipy

import danl

ROOT = Path(__file__).resolve().parents[1]
CODE = ("src", "benchmarks", ":!benchmarks/rows.json")
"""What a measurement depends on, for git: not the pages it is written to."""


@dataclass(frozen=True)
class Block:
    """What stands between the markers `name` of a page: the command beside it, and the columns of its tables."""

    name: str
    page: str
    command: str
    module: str
    columns: str
    """Of the module: what gives a header for every table of the block."""

    @property
    def headers(self) -> list[list[str]]:
        found: Callable[[], list[list[str]]] = getattr(import_module(f"benchmarks.{self.module}"), self.columns)
        return found()

    @property
    def path(self) -> Path:
        return ROOT / self.page

    def write(self, report: str) -> None:
        put_between_markers(self.path, report, self.name)

    def read(self) -> str:
        """What stands there."""
        return between_markers(self.path, self.name)[1]


BLOCKS = {
    block.name: block
    for block in (
        Block("readme", "README.md", "python -m benchmarks readme --docs", "readme_table", "headers"),
        Block("speed", "README.md", "make bench", "document", "speed_headers"),
        Block("secant", "docs/method.md", "python -m benchmarks method --docs", "method_tables", "secant_headers"),
        Block("masking", "docs/method.md", "python -m benchmarks method --docs", "method_tables", "masking_headers"),
        Block(
            *("convergence", "docs/method.md", "python -m benchmarks convergence --docs"),
            *("convergence_report", "headers"),
        ),
        Block("structured", "docs/method.md", "python -m benchmarks structured --docs", "structured", "headers"),
        Block(
            *("structured-many", "docs/method.md", "python -m benchmarks structured --docs"),
            *("structured", "many_headers"),
        ),
        Block("compressed", "docs/method.md", "python -m benchmarks compressed --docs", "compressed", "headers"),
        Block(
            *("fleets", "docs/heterogeneous.md", "python -m benchmarks fleets --docs"),
            *("fleets", "headers"),
        ),
        Block("senders", "docs/method.md", "python -m benchmarks senders --docs", "senders", "headers"),
        Block(
            *("flower", "docs/federated.md", "python -m benchmarks flower --docs"),
            *("flower", "headers"),
        ),
        Block("certify", "docs/theory.md", "python -m benchmarks certify --docs", "certificates", "headers"),
    )
}
"""docs/benchmarks.md is written whole (`benchmarks.document`), docs/reproduction.md by `benchmarks.reproduction`."""


def made_with() -> str:
    """What a table was measured with: version and commit, and what it depends on."""
    return (
        f"Measured with danl {danl.__version__} ({commit()}), Python {platform.python_version()}, "
        f"NumPy {np.__version__}, SciPy {scipy.__version__} on {platform.system()} {platform.machine()}, "
        f"{os.cpu_count()} cores, one BLAS thread a process."
    )


@cache
def commit(root: Path = ROOT) -> str:
    """The commit of this checkout and its date, and whether the code is another one by now."""

    def git(*words: str) -> str:
        command = ["git", "-C", str(root), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        if Path(git("rev-parse", "--show-toplevel")).resolve() != root.resolve():
            return "not a git checkout"  # a folder of another repository
        newest = git("log", "-1", "--format=commit %h of %cs")
        changed = git("status", "--porcelain", "--", *CODE)
    except (OSError, subprocess.CalledProcessError):
        return "not a git checkout"
    return f"{newest} with changes" if changed else newest


def markdown_table(header: Sequence[str], lines: Sequence[Sequence[str]], left: int = 1) -> str:
    """A Markdown table; columns after the first `left` that hold numbers are set to the right."""
    rule = ["---" if i < left or name == "status" else "---:" for i, name in enumerate(header)]
    return "\n".join("| " + " | ".join(line) + " |" for line in [header, rule, *lines])


def between_markers(path: Path, name: str) -> tuple[str, str, str]:
    """A document cut in three: up to the first marker, what stands between them, and the rest from the second on."""
    text = path.read_text(encoding="utf-8")
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    if text.count(begin) != 1 or text.count(end) != 1:
        raise SystemExit(f"{path}: must have the lines {begin} and {end}, once each")
    before, rest = text.split(begin)
    inside, after = rest.split(end)
    return f"{before}{begin}", inside.strip(), f"{end}{after}"


def put_between_markers(path: Path, report: str, name: str) -> None:
    """Replace what stands between the markers of a document."""
    before, _, after = between_markers(path, name)
    path.write_text(f"{before}\n\n{report}\n\n{after}", encoding="utf-8")
