"""`python -m benchmarks tree --docs`: the tree of the package as a figure, with the files that one round goes through.

The tree is the one list of folders in docs/architecture.md, which the test of imports reads as well: a row imports only
rows above it. Files and lines are counted; the round is that of `python -m benchmarks walk`.
"""

from __future__ import annotations

import argparse
import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from benchmarks import THREADS

ROOT = Path(__file__).parents[1]
PAGE, FIGURE, SOURCE = ROOT / "docs" / "architecture.md", ROOT / "docs" / "images" / "tree.png", ROOT / "src" / "danl"
QUIET, ROUND, INK = "#eef1f4", "#cfe3f5", "#22303c"


@dataclass(frozen=True)
class Layer:
    """A row of the tree: modules and folders that may not import each other, and what they are."""

    names: tuple[str, ...]
    about: str


def layers() -> list[Layer]:
    """The rows of the tree, what imports nothing first."""
    block = PAGE.read_text(encoding="utf-8").split("## The tree")[1].split("```text\n")[1].split("```")[0]
    rows = [line.partition("   ") for line in block.splitlines() if line]
    return [Layer(tuple(name.rstrip("/") for name in names.split()), about.strip()) for names, _, about in rows]


def size(name: str) -> tuple[int, int]:
    """Files and lines of a folder, or of a module."""
    folder = SOURCE / name
    files = sorted(folder.rglob("*.py")) if folder.is_dir() else [SOURCE / f"{name}.py"]
    return len(files), sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files)


def walked() -> Counter[str]:
    """Files of the walk of one accepted masked round, by folder."""
    from benchmarks.walk import walks, watched

    return Counter(file.split("/")[0].removesuffix(".py") for file in walks(watched())[0].files)


def draw(path: Path) -> None:
    os.environ.update(THREADS)  # before numpy is imported
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    rows, visited = layers(), walked()
    figure, axes = plt.subplots(figsize=(11, 0.56 * len(rows) + 0.9))
    for level, row in enumerate(rows):
        y, width = -level, 6.6 / len(row.names)
        for place, name in enumerate(row.names):
            files, lines = size(name)
            left, on_round = place * width, visited.get(name, 0)
            colour = ROUND if on_round else QUIET
            axes.add_patch(plt.Rectangle((left, y), width - 0.06, 0.82, facecolor=colour, edgecolor="white"))
            folder = (SOURCE / name).is_dir()
            count = f"{files} files, {lines:,} lines" if folder else f"{lines:,} lines"
            label = f"{name}/" if folder else name
            middle = left + width / 2 - 0.03
            axes.text(middle, y + 0.55, label, ha="center", va="center", fontsize=10, color=INK, weight="bold")
            small = f"{count}; {on_round} on a round" if on_round else count
            axes.text(middle, y + 0.24, small, ha="center", va="center", fontsize=7.5 if width > 1.5 else 6.5)
        axes.text(6.75, y + 0.41, row.about, va="center", fontsize=8.5, color=INK)
    axes.set(xlim=(0, 11.4), ylim=(1 - len(rows) - 0.35, 1.15))
    note = f"a row imports only rows above it; blue: on the way of one masked round, {sum(visited.values())} files"
    axes.text(0, 1.0, note, fontsize=9, color=INK)
    axes.axis("off")
    figure.savefig(path, dpi=110, bbox_inches="tight", metadata={"Software": None})
    plt.close(figure)


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks tree", description=__doc__.splitlines()[0])
    parser.add_argument("--docs", action="store_true", help=f"write {FIGURE.relative_to(ROOT)}")
    parser.add_argument("--out", type=Path, default=Path("tree.png"), help="the figure (default: tree.png)")
    options = parser.parse_args(words)
    path = FIGURE if options.docs else options.out
    draw(path)
    for row in layers():
        print(f"{'  '.join(row.names):45s}{sum(size(name)[1] for name in row.names):6d} lines   {row.about}")
    print(f"written: {path}")
    return 0


if __name__ == "__main__":
    import sys

    raise SystemExit(main(sys.argv[1:]))
