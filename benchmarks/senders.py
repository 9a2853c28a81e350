"""Who sends curvature where machines are alike: bytes to a gap of 1e-8, and many workers of whom some are missing.

Ten equal workers, full masks, from zero: the default, and `curvature_from=2`. Then 10,000 workers on the 32,561 rows of
a9a, each absent with chance 0.3 in any exchange, random masks, at most 100 rounds. Bars and what was before stand in
BARS and BEFORE.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from dataclasses import dataclass

import danl
from benchmarks.blocks import BLOCKS, made_with, markdown_table
from benchmarks.fleets import GAP, PENALTIES, SHARDS, problem_of

DATA = ("a1a", "phishing", "a9a", "w8a")
TWO = "danl:curvature_from=2"
MAX_ROUNDS = 500
BARS = {
    ("alpha 1e-3", TWO): {"a9a": 0.6, "phishing": 0.2, "w8a": 3.5, "a1a": 1.0},
    ("lambda 1e-4", "danl"): {"a1a": 3.53, "phishing": 1.22, "a9a": 3.54, "w8a": 30.8},
}
"""Megabytes; at lambda those of the default before it priced its questions."""
MANY, DROPOUT, KEEP, MANY_ROUNDS = 10_000, 0.3, 0.5, 100


@dataclass(frozen=True)
class Bytes:
    """What a run took until the gap was below GAP."""

    exchanges: int
    megabytes: float
    reached: bool

    @property
    def cell(self) -> str:
        return f"{self.megabytes:.2f} MB in {self.exchanges}" if self.reached else f"not in {MAX_ROUNDS}"


def bytes_of(problem: danl.Problem, method: str) -> Bytes:
    reference = danl.reference_optimum(problem)
    run = danl.solve(
        problem,
        method=method,
        reference=reference,
        max_rounds=MAX_ROUNDS,
        callback=lambda row: row.gap < GAP,
    )
    summary = run.summary()
    megabytes = (summary["bytes_up"] + summary["bytes_down"]) / 1e6
    return Bytes(len(run.history), megabytes, run.history[-1].gap < GAP)


def headers() -> list[list[str]]:
    return [
        ["penalty", "data", "`danl`", "two of ten send", "`danl`, sorted shards", "two of ten, sorted"],
        ["penalty", "seed", "status", "exchanges", "gradient norm", "Hessians sent"],
    ]


def equal_machines(data: Iterable[str]) -> tuple[list[list[str]], list[str]]:
    """The table of ten equal workers, and the bars that are missed."""
    lines, missed = [], []
    for penalty in PENALTIES:
        for name in data:
            cells = []
            for shards in SHARDS:
                problem = problem_of(name, penalty, shards)
                for method in ("danl", TWO):
                    took = bytes_of(problem, method)
                    cells.append(took.cell)
                    bar = BARS.get((penalty, method), {}).get(name, float("inf")) if shards == "even" else float("inf")
                    if took.megabytes > bar:
                        missed.append(f"{penalty}, {name}, {method}: {took.megabytes:.2f} MB, above {bar:g}")
            lines.append([penalty, name, *cells])
    return lines, missed


def many_workers() -> tuple[list[list[str]], list[str]]:
    """The table of 10,000 workers, and the runs that have not converged."""
    lines, missed, rows = [], [], danl.load_dataset("a9a")
    shards = danl.partition(rows.X, rows.y, workers=MANY, seed=0)
    for penalty, options in PENALTIES.items():
        problem = danl.Problem(shards, **options)
        for seed in range(3):
            run = danl.solve(
                problem,
                policy=f"random:keep={KEEP}",
                regions=8,
                engine=danl.engines.Local(dropout=DROPOUT, seed=seed),
                max_rounds=MANY_ROUNDS,
                seed=seed,
            )
            last, sent = run.history[-1], int(run.history.column("senders").sum())
            lines.append([penalty, str(seed), run.status, str(len(run.history)), f"{last.grad_norm:.1e}", f"{sent:,}"])
            if run.status != "converged":
                missed.append(f"{MANY:,} workers, {penalty}, seed {seed}: {run.status}")
    return lines, missed


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks senders", description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a1a alone, and not the many workers")
    parser.add_argument("--docs", action="store_true", help="put the tables into docs/method.md")
    options = parser.parse_args(words)
    lines, missed = equal_machines(DATA[:1] if options.quick else DATA)
    first, second = headers()
    report = markdown_table(first, lines, left=2)
    if not options.quick:
        many, more = many_workers()
        report, missed = f"{report}\n\n{markdown_table(second, many, left=3)}", missed + more
    report = f"{report}\n\n{made_with()}"
    print(report)
    if options.docs:
        BLOCKS["senders"].write(report)
    for line in missed:
        print(f"missed: {line}", file=sys.stderr)
    return 1 if missed else 0
