"""The default method in every setting it has to hold in: exchanges, Hessian exchanges and bytes to gap 1e-10.

Every exchange is counted: Hessians, masked gradients, losses, and asking again those who did not answer. The blocks:

    1   the paper's setting: lambda 1e-4, 10 workers, 4 regions; 9 mask policies, 2 starts, 4 data sets, 3 seeds
    2   the same with skewed shards, 50 workers, 16 regions, and all of these together
    3   block 1 with workers that are absent: each with chance 0.3 in every exchange; two of ten gone for good
    n   safeguarded Newton in block 1's setting, to compare with

Runs go to two processes, a process taking all runs on the same shards, so that optimum and start are computed once. It
measures first and prints afterwards: `benchmarks.convergence_report` makes the tables from the rows alone.
"""

from __future__ import annotations

import argparse
import csv
import math
import multiprocessing
import os
import sys
import time
from dataclasses import asdict, astuple, dataclass, fields
from functools import lru_cache
from itertools import product
from pathlib import Path

import numpy as np

import danl
from benchmarks import convergence_report
from benchmarks.blocks import BLOCKS as BLOCKS_OF_PAGES
from danl.data.fetch import status as where_is
from danl.data.registry import lookup

GAP = 1e-10
L2 = 1e-4
SEEDS = (0, 1, 2)
DATA = ("a1a", "a2a", "a3a", "phishing")
STARTS = {"FedAvg": "fedavg:rounds=10", "zero": None}
POLICIES = (
    "full",
    "coverage:psi=1",
    "coverage:psi=3",
    "subset:S=1,order=random",
    "subset:S=1",
    "coverage:psi=1,gamma=4",
    "coverage:psi=2,gamma=4",
    "coverage:psi=1,gamma=2",
    "coverage:psi=2,gamma=2",
)
DROPOUT = 0.3
GONE = {2: (6, None), 7: (6, None)}
"""Workers that leave for good: what they answer in exchange 5 is the last thing they say."""
MAX_ROUNDS = 400
"""Far above every bar, so that a run that misses one shows by how much."""
PROCESSES = 2


@dataclass(frozen=True)
class Block:
    """One variation of the paper's setting, and its bar in exchanges."""

    name: str
    title: str
    bar: int | None = 60
    partition: str = "iid"
    workers: int = 10
    regions: int = 4
    dropout: float = 0.0
    gone: bool = False
    method: str = "danl"


BLOCKS = (
    Block("1", "the paper's setting", bar=40),
    Block("2a", "label-sorted shards, 20 % shuffled", partition="sorted:shuffle=0.2"),
    Block("2b", "Dirichlet(0.1) shards", partition="dirichlet:alpha=0.1"),
    Block("2c", "50 workers", workers=50),
    Block("2d", "16 regions", regions=16),
    Block("2e", "2a, 50 workers and 16 regions", partition="sorted:shuffle=0.2", workers=50, regions=16),
    Block("2f", "2b, 50 workers and 16 regions", partition="dirichlet:alpha=0.1", workers=50, regions=16),
    Block("3a", "1, every worker absent with chance 0.3", bar=None, dropout=DROPOUT),
    Block("3b", "1, workers 2 and 7 gone after exchange 5", bar=None, gone=True),
    Block("n", "1 by `newton`, which has no masks: for comparison", bar=None, method="newton"),
)
MOST_TIMES = 4.0
"""Block 3a may take this many times the exchanges of the same run in block 1."""


@dataclass(frozen=True)
class Case:
    """One run, by defaults but for what the setting says."""

    block: Block
    data: str
    policy: str
    start: str
    seed: int

    @property
    def shards(self) -> tuple[str, int, str, int]:
        """What decides the shards: cases that agree in it share the optimum and the start."""
        return self.data, self.seed, self.block.partition, self.block.workers


@dataclass(frozen=True)
class Measured:
    """One run, as a row of the CSV file."""

    block: str
    data: str
    policy: str
    start: str
    seed: int
    status: str
    exchanges: int | None  # until the gap is below GAP
    hessians: int | None
    bytes: int | None
    ended: int  # exchanges until the run stopped by itself
    final_gap: float
    newton_steps: int = 0  # steps taken right after a Hessian exchange, until the gap is below GAP
    memory_steps: int = 0  # steps taken after a gradient exchange: made of the memory
    note: str = ""


def cases(blocks=BLOCKS, data=DATA, policies=POLICIES, starts=tuple(STARTS), seeds=SEEDS) -> list[Case]:
    chosen = [Case(*parts) for parts in product(blocks, data, policies, starts, seeds)]
    return [case for case in chosen if case.block.method == "danl" or case.policy == "full"]


@dataclass(frozen=True)
class Prepared:
    """Shards with their optimum and their starts."""

    problem: danl.Problem
    reference: danl.Reference
    starts: dict[str, np.ndarray | None]


@lru_cache(maxsize=8)
def prepared(data: str, seed: int, partition: str, workers: int) -> Prepared:
    rows = danl.load_dataset(data)
    shards = danl.partition(rows.X, rows.y, workers=workers, scheme=partition, seed=seed)
    problem = danl.Problem(shards, l2=L2)
    reference = danl.reference_optimum(problem)
    assert reference.grad_norm < 1e-13, f"no optimum to measure against: gradient norm {reference.grad_norm:.1e}"
    starts = {
        name: None if spec is None else danl.solve(problem, method=spec, tol=0.0).w for name, spec in STARTS.items()
    }
    return Prepared(problem, reference, starts)


@lru_cache(maxsize=8)
def remaining(data: str, seed: int, partition: str, workers: int) -> danl.Reference:
    """The optimum of the objective of the workers that do not leave."""
    whole = prepared(data, seed, partition, workers).problem
    problem = danl.Problem([shard for i, shard in enumerate(whole.shards) if i not in GONE], l2=L2)
    return danl.reference_optimum(problem)


def run(case: Case) -> danl.Result:
    block, made = case.block, prepared(*case.shards)
    return danl.solve(
        made.problem,
        method=block.method,
        regions=block.regions,
        policy=case.policy,
        w0=made.starts[case.start],
        seed=case.seed,
        max_rounds=MAX_ROUNDS,
        reference=made.reference,
        engine=danl.engines.Local(dropout=block.dropout, away=GONE if block.gone else None, seed=case.seed),
    )


def measure(case: Case) -> Measured:
    """Run a case and count until the gap is below GAP for the first time.

    With workers gone, the objective is another one from some exchange on: the gap is that of the remaining workers'
    objective then, and it counts from the exchange in which the method took to it.
    """
    result = run(case)
    gaps = result.history.column("gap")
    if case.block.gone:
        optimum = remaining(*case.shards)
        gaps = np.where(np.isnan(gaps), result.history.column("objective") - optimum.objective, math.inf)
    below = np.flatnonzero(gaps < GAP)
    reached = int(below[0]) if below.size else None
    until = slice(0, None if reached is None else reached + 1)
    kinds = result.history.column("kind")[until]
    moved = result.history.column("step_norm")[until][1:] > 0
    return Measured(
        block=case.block.name,
        data=case.data,
        policy=case.policy,
        start=case.start,
        seed=case.seed,
        status=result.status,
        exchanges=None if reached is None else reached + 1,
        hessians=None if reached is None else int((kinds == "hessian").sum()),
        bytes=None if reached is None else int(result.history.total_bytes()[reached]),
        ended=len(result.history),
        final_gap=float(gaps[-1]),
        newton_steps=int(moved[kinds[:-1] == "hessian"].sum()),
        memory_steps=int(moved[kinds[:-1] == "gradient"].sum()),
        note="; ".join(result.notes),
    )


def failure(row: Measured, alone: Measured | None = None) -> str:
    """Why a run misses its bar; empty if it holds. `alone` is the same run in block 1, for block 3a."""
    block = next(block for block in BLOCKS if block.name == row.block)
    if row.status != "converged":
        return f"ended as {row.status}"
    if row.exchanges is None or not row.final_gap < GAP:
        return f"gap {row.final_gap:.1e} at the end"
    if block.bar is not None and row.exchanges > block.bar:
        return f"{row.exchanges} exchanges, above {block.bar}"
    if block.dropout and alone is not None and row.exchanges > MOST_TIMES * (alone.exchanges or 0):
        return f"{row.exchanges} exchanges, above {MOST_TIMES:g} times {alone.exchanges}"
    if block.gone and "workers 2, 7:" not in row.note:
        return "says nothing about the workers that left"
    return ""


def available(names: tuple[str, ...]) -> list[str]:
    """The data sets that are on this machine: DANL_DATA_DIR, the package or the cache."""
    return [name for name in names if where_is(lookup(name)) != "not here"]


def measure_all(chosen: list[Case]) -> list[Measured]:
    """Measure in processes of their own, all cases on the same shards in one, in the order of `chosen`."""
    groups: dict[tuple, list[Case]] = {}
    for case in chosen:
        groups.setdefault(case.shards, []).append(case)
    # One thread a process: two cores, two processes. It has to be in the environment before numpy is imported there.
    os.environ.update(OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1")
    done: dict[Case, Measured] = {}
    begun = time.perf_counter()
    with multiprocessing.get_context("spawn").Pool(PROCESSES) as pool:
        for group, rows in pool.imap_unordered(_measure_group, groups.values()):
            done.update(zip(group, rows, strict=True))
            data, seed, partition, workers = group[0].shards
            print(
                f"{len(done):5} of {len(chosen)} runs, {time.perf_counter() - begun:4.0f} s: "
                f"{data}, {partition}, {workers} workers, seed {seed}",
                file=sys.stderr,
            )
    return [done[case] for case in chosen]


def _measure_group(group: list[Case]) -> tuple[list[Case], list[Measured]]:
    return group, [measure(case) for case in group]


def failures(rows: list[Measured]) -> list[str]:
    """Every bar that is missed, a line each."""
    alone = {_setting(row): row for row in rows if row.block == "1"}
    found = [(row, failure(row, alone.get(_setting(row)))) for row in rows]
    return [f"{row.block}, {', '.join(map(str, _setting(row)))}: {why}" for row, why in found if why]


def _setting(row: Measured) -> tuple:
    return row.data, row.policy, row.start, row.seed


def write_rows(path: Path, rows: list[Measured]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([field.name for field in fields(Measured)])
        writer.writerows(["" if value is None else value for value in astuple(row)] for row in rows)


def read_rows(path: Path) -> list[Measured]:
    whole = ("seed", "exchanges", "hessians", "bytes", "ended", "newton_steps", "memory_steps")
    kinds = dict.fromkeys(whole, int) | {"final_gap": float}
    with path.open(newline="", encoding="utf-8") as file:
        return [
            Measured(
                **{
                    name: None if value == "" and name in kinds else kinds.get(name, str)(value)
                    for name, value in line.items()
                }
            )
            for line in csv.DictReader(file)
        ]


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks convergence", description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a1a and seed 0 only")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the tables to FILE too")
    parser.add_argument("--rows", type=Path, metavar="FILE", help="write every run as a row of this CSV file")
    parser.add_argument("--docs", action="store_true", help="put the tables into docs/method.md")
    parser.add_argument("--from-rows", type=Path, metavar="FILE", help="measure nothing; read what --rows wrote")
    options = parser.parse_args(words)
    if options.from_rows:
        rows = read_rows(options.from_rows)
    else:
        wanted = DATA[:1] if options.quick else DATA
        there = available(wanted)
        if len(there) < len(wanted):
            missing = ", ".join(name for name in wanted if name not in there)
            print(f"not here: {missing}; DANL_DATA_DIR names the folder with the LIBSVM files", file=sys.stderr)
        rows = measure_all(cases(data=there, seeds=SEEDS[:1] if options.quick else SEEDS))
    if options.rows:
        write_rows(options.rows, rows)
    missed = failures(rows)
    report = convergence_report.markdown([asdict(row) for row in rows], BLOCKS, missed)
    print(report)
    if options.out:
        options.out.write_text(report + "\n", encoding="utf-8")
    if options.docs:
        BLOCKS_OF_PAGES["convergence"].write(report)
    for line in missed:
        print(f"missed: {line}", file=sys.stderr)
    return 1 if missed else 0
