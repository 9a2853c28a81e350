"""The table of README.md: exchanges and bytes to a gap, on the bundled a1a.

Runs `danl compare` from each start into a temporary folder, reads the history.csv files it wrote, and prints the table
as Markdown. A gap counts as reached from the exchange after which it is never above it again.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.blocks import BLOCKS, made_with, markdown_table
from danl import History

METHODS = ("danl", "danl-masked", "danl-paper", "newton-zero", "newton", "gd", "fedavg")
STARTS = {"zero": "zero", "FedAvg": "fedavg:rounds=10"}
GAPS = (1e-4, 1e-8)
ROUNDS = 2000


def compare(init: str, out: Path) -> None:
    command = [
        *(sys.executable, "-m", "danl", "compare", "a1a", "--methods", ",".join(METHODS)),
        *("--workers", "10", "--regions", "4", "--policy", "coverage:psi=3", "--alpha", "1e-3"),
        *("--init", init, "--rounds", str(ROUNDS), "--reference", "--out", str(out), "--quiet"),
    ]
    # The bundled a1a only: nothing of the reader's machine enters the table.
    environment = {name: value for name, value in os.environ.items() if name != "DANL_DATA_DIR"}
    subprocess.run(command, check=True, env=environment, stderr=subprocess.DEVNULL)


def cells(history: History, gap: float) -> list[str]:
    """Exchanges and bytes until the gap is below `gap` for good."""
    above = [row.exchange for row in history if not row.gap <= gap]
    reached = above[-1] + 1 if above else 0
    if reached == len(history):
        return [f"not in {len(history):,}", "-"]
    return [f"{reached + 1:,}", megabytes(float(history.total_bytes()[reached]))]


def megabytes(count: float) -> str:
    return f"{count / 1e6:.2f} MB"


def headers() -> list[list[str]]:
    return [["start", "method", *(f"{what} to {gap:.0e}" for gap in GAPS for what in ("exchanges", "bytes"))]]


def table(folder: Path) -> str:
    lines = []
    for start in STARTS:
        for method in METHODS:
            history = History.read_csv(folder / start / method / "history.csv")
            row = [start, f"`{method}`"]
            for gap in GAPS:
                row += cells(history, gap)
            lines.append(row)
    return markdown_table(headers()[0], lines, left=2)


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks readme", description=__doc__.split("\n")[0])
    parser.add_argument("--docs", action="store_true", help="put the table into README.md")
    options = parser.parse_args(words)
    with tempfile.TemporaryDirectory() as folder:
        for start, init in STARTS.items():
            compare(init, Path(folder) / start)
        report = f"{table(Path(folder))}\n\n{made_with()}"
    print(report)
    if options.docs:
        BLOCKS["readme"].write(report)
    return 0
