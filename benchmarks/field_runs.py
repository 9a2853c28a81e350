"""The runs of docs/field.md: every method on the same problems, each stored with what it cost, none computed twice.

    claims/<name>.json          what became of a paper's claim
    runs/<data>/<name>.json     what was run, the code and the data it was run with, and after every exchange the gap,
                                the bytes a worker sent and got, passes over the data, seconds on two networks

A run that is there, whole, for the same code and data is not done again, so that the command goes on where it was
stopped. Step sizes that a paper leaves to tuning are chosen by a grid on a seed that is in no table (`TUNED`), for each
data set and penalty; the runs of the grid are stored like all others.
"""

from __future__ import annotations

import hashlib
import json
import math
import multiprocessing
import os
import re
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.network import NETWORKS
from danl.engines.local import Local
from danl.errors import DanlWarning
from danl.policies.profiles import seconds
from danl.protocol.costs import loads_of
from danl.protocol.message_bytes import bytes_down
from danl.reproduce.execute import digest, prepared, with_learning_rate
from danl.reproduce.store import code_digest
from danl.run.solver import solve
from danl.storage.atomic import write_json

DATA = ("a1a", "a2a", "a3a", "phishing", "w8a", "a9a")
PENALTIES = ("alpha=0.001", "alpha=0.0001", "lambda=0.0001")
WORKERS = (10, 100)
PARTITIONS = ("iid", "dirichlet:alpha=0.5")
SEEDS = range(5)
HELD_OUT = 1000
"""The seed that step sizes are tuned on."""
ROUNDS, TUNING_ROUNDS = 200, 100
"""Exchanges after the first one, of a run and of one that tunes."""
ENOUGH, LOST = 1e-12, 1e3
"""A run ends where its gap is at most the one, as there is nothing more to see, or above the other: it has blown up."""
STALLED = 60
"""It ends where its gap has not halved in so many exchanges; of those that get to 1e-8 none was seen to wait for 30."""
PASSES = 1_500
"""Passes over the data after which it ends; the default method takes some 30 to a gap of 1e-8."""
COSTS = ("up", "down", "passes", *(network.name for network in NETWORKS))
"""What is counted of a run beside its exchanges: bytes a worker sent and got, passes over all rows, seconds."""


@dataclass(frozen=True)
class Rival:
    """A method of the tables: how it is called, and where its step size is from."""

    label: str
    spec: str
    """With {} for a step size that is tuned: a multiple of 1 / L, or a share of the method's own step."""
    step: str
    """Where the step size is from."""
    grid: tuple[float, ...] = ()
    second_order: bool = True
    policy: str = "full"
    most_workers: int | None = None
    """It is left out of runs with more."""


WIDE = (0.1, 0.3, 1.0, 2.0, 5.0, 10.0, 30.0)
"""Multiples of 1 / L, which is a bound for the worst model: near the optimum curvature may be far below it."""
RIVALS = (
    Rival("danl", "danl", "its own safeguard"),
    Rival("newton", "newton", "line search"),
    Rival("newton-zero", "newton-zero", "1"),
    Rival("fednl", "fednl", "1 (Algorithm 1, projection, rank 1)"),
    Rival("fednl-ls", "fednl:ls=true", "line search (Algorithm 3)", most_workers=10),
    Rival("bl", "bl", "1 (BL1, top r)"),
    Rival("giant", "giant", "line search"),
    Rival("dingo", "dingo", "line search"),
    Rival("fedsn", "fedsn:steps=20,learning_rate={}/L", "tuned", WIDE),
    Rival("gd", "gd", "1 / L", second_order=False),
    Rival("fedavg", "fedavg", "10 steps of 1 / L", second_order=False),
    Rival("accelerated-sgd", "accelerated-sgd", "Lan's: 1 / (2 L), less by the noise (AC-SA)", second_order=False),
    Rival("svrg", "svrg:learning_rate={}/L", "tuned", WIDE, second_order=False),
    Rival("spider-sqn", "spider-sqn:learning_rate={}", "tuned", (0.02, 0.05, 0.1, 0.25, 0.5, 1.0)),
    Rival("pruned-sgd", "pruned-sgd:learning_rate={}/L", "tuned", WIDE, second_order=False),
    Rival("dsgd", "dsgd:learning_rate={}/L", "tuned", WIDE, second_order=False),
    Rival("st-sopro", "st-sopro", "safe damping"),
    Rival("vr-sqn", "vr-sqn:alpha={}", "tuned", (0.05, 0.1, 0.3, 1.0, 2.0)),
)


@dataclass(frozen=True)
class FieldRun:
    """One run."""

    data: str
    penalty: str
    workers: int
    partition: str
    seed: int
    method: str
    policy: str = "full"
    rounds: int = ROUNDS

    @property
    def problem(self) -> tuple[Any, ...]:
        """What decides shards and objective, as `danl.reproduce.execute` has it."""
        return self.data, self.penalty, self.partition, 0.0, self.workers, self.seed

    @property
    def name(self) -> str:
        mark = hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:10]
        words = [self.penalty, str(self.workers), self.partition, self.method, f"seed{self.seed}"]
        return "_".join(re.sub(r"[^\w.=-]+", "-", word) for word in words) + f"_{mark}"


class Counting(Local):
    """The engine of this process, with what every exchange costs each worker."""

    def open(self, problem: Any, *, regions: Any, policy: Any, seed: int) -> None:
        super().open(problem, regions=regions, policy=policy, seed=seed)
        self.costs: list[dict[str, float]] = []
        self.passes = 0.0
        self._problem, self._regions = problem, regions
        self._entries = np.array([info.entries_per_row for info in problem.shard_info])

    def exchange(self, exchange: Any, *, deadline: float | None = None) -> Any:
        replies = super().exchange(exchange, deadline=deadline)
        rows, n = self._problem.rows, self._problem.n_workers
        work, down, up = loads_of(exchange, replies, rows, self._entries, self._regions)
        everyone = bytes_down(exchange, self._regions).sum()
        cost = {"up": up.sum() / n, "down": everyone / n, "passes": work.sum() / rows.sum()}
        self.passes += cost["passes"]
        for network in NETWORKS:
            each = seconds(network.profile, work_rows=work, bytes_down=down, bytes_up=up)
            cost[network.name] = network.latency + each.max(initial=0.0)
        self.costs.append(cost)
        return replies


class Patience:
    """When there is nothing more to see of a run."""

    def __init__(self) -> None:
        self._halved, self._wait = math.inf, 0

    def ended(self, gap: float) -> bool:
        if gap <= self._halved / 2:
            self._halved, self._wait = gap, 0
        self._wait += 1
        return not ENOUGH < gap <= LOST or self._wait > STALLED


def execute(run: FieldRun) -> dict[str, Any]:
    """Do a run: its gaps and its costs, exchange by exchange."""
    begun = time.process_time()
    problem, optimum = prepared(run.problem)
    engine, patience = Counting(), Patience()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DanlWarning)  # a run that ends badly says so in its status
        result = solve(
            problem,
            method=with_learning_rate(run.method, problem),
            policy=run.policy,
            max_rounds=run.rounds,
            tol=1e-12,
            seed=run.seed,
            reference=optimum,
            engine=engine,
            callback=lambda row: patience.ended(row.gap) or engine.passes > PASSES,
        )
    gaps = np.asarray(result.history.column("gap"), dtype=float)
    costs = engine.costs[: len(gaps)]
    record: dict[str, Any] = {"status": result.status, "gaps": [_plain(gap) for gap in gaps.tolist()]}
    record["seconds"] = time.process_time() - begun
    for name in COSTS:
        record[name] = np.round(np.cumsum([cost[name] for cost in costs]), 6).tolist()
    return record


def _plain(gap: float) -> float | None:
    return float(f"{gap:.4g}") if math.isfinite(gap) else None


class FieldStore:
    """The folder of the runs."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def path(self, run: FieldRun) -> Path:
        return self.root / "runs" / run.data / f"{run.name}.json"

    def read(self, run: FieldRun) -> dict[str, Any] | None:
        """The record of a run that is there for this code and these data; else None."""
        try:
            record: dict[str, Any] = json.loads(self.path(run).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        known = (record.get("run"), record.get("data_sha256"), record.get("code_sha256"))
        return record if known == (asdict(run), digest(run.data), code_digest()) else None

    def write(self, run: FieldRun, record: dict[str, Any]) -> None:
        path = self.path(run)
        path.parent.mkdir(parents=True, exist_ok=True)
        mark = {"run": asdict(run), "data_sha256": digest(run.data), "code_sha256": code_digest()}
        write_json(path, mark | record)

    def read_claim(self, name: str) -> dict[str, Any] | None:
        """What became of a paper's claim, where it is there for this code; else None."""
        try:
            record: dict[str, Any] = json.loads(self._claim(name).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return record["claim"] if record.get("code_sha256") == code_digest() else None

    def write_claim(self, name: str, claim: dict[str, Any]) -> None:
        self._claim(name).parent.mkdir(parents=True, exist_ok=True)
        write_json(self._claim(name), {"claim": claim, "code_sha256": code_digest()})

    def _claim(self, name: str) -> Path:
        return self.root / "claims" / f"{name}.json"

    def missing(self, runs: Iterable[FieldRun]) -> list[FieldRun]:
        return [run for run in dict.fromkeys(runs) if self.read(run) is None]


def complete(store: FieldStore, runs: Sequence[FieldRun], *, processes: int, say: Callable[[str], object]) -> None:
    """Do the runs that are missing, problem by problem, on several processes with one thread each."""
    by_problem: dict[tuple[Any, ...], list[FieldRun]] = {}
    for run in store.missing(runs):
        by_problem.setdefault(run.problem, []).append(run)
    batches = sorted(by_problem.values(), key=lambda batch: -batch[0].workers * len(batch))
    if not batches:
        return
    total, done = sum(map(len, batches)), 0
    with pool(processes, len(batches)) as workers:
        for future in as_completed([workers.submit(_do, store.root, batch) for batch in batches]):
            done += future.result()
            say(f"{done} of {total} runs")


def pool(processes: int, jobs: int) -> ProcessPoolExecutor:
    """Processes with one thread each."""
    context = multiprocessing.get_context("spawn")  # a forked child of a process with BLAS threads can hang
    return ProcessPoolExecutor(max(1, min(processes, jobs)), mp_context=context, initializer=_one_thread)


def _one_thread() -> None:
    from threadpoolctl import threadpool_limits

    os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", DANL_NUM_THREADS="1")
    threadpool_limits(1)


def _do(root: Path, batch: list[FieldRun]) -> int:
    store = FieldStore(root)
    for run in batch:
        store.write(run, execute(run))
    return len(batch)


# --- which runs ---


@dataclass(frozen=True)
class Plan:
    """What the tables are made of."""

    data: tuple[str, ...] = DATA
    penalties: tuple[str, ...] = PENALTIES
    workers: tuple[int, ...] = WORKERS
    partitions: tuple[str, ...] = PARTITIONS
    seeds: tuple[int, ...] = tuple(SEEDS)
    rivals: tuple[Rival, ...] = RIVALS
    rounds: int = ROUNDS

    def tuning(self) -> list[FieldRun]:
        """The runs that step sizes are chosen by: 10 workers, even shards, the held-out seed."""
        runs = []
        for data, penalty, rival in product(self.data, self.penalties, self.rivals):
            runs += [self._trial(data, penalty, rival, value) for value in rival.grid]
        return runs

    def _trial(self, data: str, penalty: str, rival: Rival, value: float) -> FieldRun:
        method = rival.spec.format(f"{value:g}")
        return FieldRun(data, penalty, 10, "iid", HELD_OUT, method, rival.policy, min(TUNING_ROUNDS, self.rounds))

    def chosen(self, store: FieldStore, data: str, penalty: str, rival: Rival) -> float:
        """The step size of the grid whose run ended lowest."""
        ends = {}
        for value in rival.grid:
            record = store.read(self._trial(data, penalty, rival, value))
            last = record["gaps"][-1] if record is not None and record["gaps"] else None
            bad = record is None or record["status"] == "diverged" or last is None
            ends[value] = math.inf if bad else float(last)
        return min(ends, key=lambda value: ends[value])

    def spec(self, store: FieldStore, data: str, penalty: str, rival: Rival) -> str:
        return rival.spec.format(f"{self.chosen(store, data, penalty, rival):g}") if rival.grid else rival.spec

    def runs(self, store: FieldStore) -> dict[FieldRun, Rival]:
        """All runs of the tables; the step sizes are known."""
        made = {}
        for data, penalty, rival in product(self.data, self.penalties, self.rivals):
            method = self.spec(store, data, penalty, rival)
            counts = [each for each in self.workers if rival.most_workers is None or each <= rival.most_workers]
            for workers, scheme, seed in product(counts, self.partitions, self.seeds):
                run = FieldRun(data, penalty, workers, scheme, seed, method, rival.policy, self.rounds)
                made[run] = rival
        return made


QUICK = Plan(data=("a1a",), penalties=("alpha=0.001",), workers=(10,), partitions=("iid",), seeds=(0,), rounds=60)
