"""Slow and fast machines: simulated seconds to gap 1e-8 with and without a deadline (docs/heterogeneous.md).

Ten workers on a1a, three of them with processors 20 times and uplinks 50 times slower; 8 regions; the start is made by
10 rounds of FedAvg.
"""

from __future__ import annotations

import argparse

import numpy as np

import danl
from benchmarks.blocks import BLOCKS, made_with, markdown_table

SLOW = danl.Profile(rows_per_second=1_000, uplink=2e4, downlink=1e5)
FAST = danl.Profile(rows_per_second=20_000, uplink=1e6, downlink=1e6)
FLEET = [SLOW] * 3 + [FAST] * 7
SHARDS = {"even": "iid", "skewed": "sorted:shuffle=0.5"}
METHODS = ("danl", "danl-secant", "danl:hessian_dtype=float32", "danl:curvature=once")
DEADLINES = (None, 0.18, 0.15, 0.12)
GAP = 1e-8


def headers() -> list[list[str]]:
    reported = ("everyone waits" if deadline is None else f"deadline {deadline:g} s" for deadline in DEADLINES)
    return [["shards", "method", *reported]]


def cell(problem: danl.Problem, reference: danl.Reference, method: str, deadline: float | None) -> str:
    """Seconds until the gap is below GAP, and in brackets the rounds and how many of the exchanges had Hessians."""
    run = danl.solve(
        problem,
        method=method,
        policy="full" if deadline is None else danl.policies.ResourceAware(FLEET, deadline=deadline),
        regions=8,
        profiles=FLEET,
        w0="fedavg:rounds=10",
        reference=reference,
    )
    below = np.flatnonzero(run.history.column("gap") < GAP)
    if not below.size:
        return f"{run.status}, gap {run.history[-1].gap:.0e}"
    until = int(below[0]) + 1
    seconds = run.history.column("simulated_seconds")[:until].sum()
    hessians = (run.history.column("kind")[:until] == "hessian").sum()
    return f"{seconds:.1f} ({until - 1}, {hessians})"


def table() -> str:
    data = danl.load_dataset("a1a")
    lines = []
    for name, scheme in SHARDS.items():
        problem = danl.Problem(danl.partition(data.X, data.y, workers=10, scheme=scheme, seed=0), alpha=1e-3)
        reference = danl.reference_optimum(problem)
        for method in METHODS:
            cells = [cell(problem, reference, method, deadline) for deadline in DEADLINES]
            lines.append([name, f"`{method}`", *cells])
    return markdown_table(headers()[0], lines, left=2)


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks heterogeneous", description=__doc__.split("\n")[0])
    parser.add_argument("--docs", action="store_true", help="put the table into docs/heterogeneous.md")
    options = parser.parse_args(words)
    report = f"{table()}\n\n{made_with()}"
    print(report)
    if options.docs:
        BLOCKS["heterogeneous"].write(report)
    return 0
