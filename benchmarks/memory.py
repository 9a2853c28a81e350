"""Peak memory of a fit, each in a process of its own: dense data, many rounds, many workers, many features.

A process imports everything, makes a tiny fit, makes its data, gives back what it freed on the way, sets its peak to
what it has now, runs, and looks at its peak. On Linux that is VmHWM of /proc/self/status. Elsewhere it is `ru_maxrss`,
which cannot be set back, and is never below what the parent process had when it started this one.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import os
import resource
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

import danl
from benchmarks import THREADS
from benchmarks.measure import Row, Rows, amount, digits, exponent, last_decade, prose, sparse_problem, table, times

TITLE = "Memory: peaks"
ALPHA = 1e-3
WORKERS = 10
DENSE_ROWS, DENSE_COLUMNS = 1_000_000, 100
LONG, SHORT = 5_000, 100
SWEEP_ROUNDS = 5
"""Exchanges after Phase I in the sweeps."""
SWEEPS = {
    "workers": {"sizes": (10, 100, 1_000, 10_000), "rows": 20_000, "features": 50},
    "features": {"sizes": (50, 158, 500, 1_580, 5_000), "rows": 5_000, "features": 50},
}
POLICY = "coverage:psi=3"
CHUNK = 10_000


def measure(*, quick: bool = False) -> Rows:
    rows: Rows = []
    dense = {"rows": 20_000, "columns": 50} if quick else {"rows": DENSE_ROWS, "columns": DENSE_COLUMNS}
    for kind in ("dense-shards", "dense-matrix"):
        rows.append(in_process({"kind": kind, **dense}))
    for rounds in (20, 200) if quick else (SHORT, LONG):
        rows.append(in_process({"kind": "rounds", "rounds": rounds}))
    for what, sweep in SWEEPS.items():
        sizes: Sequence[int] = sweep["sizes"][:2] if quick else sweep["sizes"]  # type: ignore[index]
        for size in sizes:
            shape = {"workers": WORKERS, "features": sweep["features"], "rows": sweep["rows"], what: size}
            rows.append(in_process({"kind": "sweep", "what": what, "size": size, **shape}))
    return rows


def in_process(case: dict[str, Any]) -> Row:
    """Run a case in a process of its own and return what it found."""
    command = [sys.executable, "-m", "benchmarks.memory", json.dumps(case)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env={**os.environ, **THREADS})
    row: Row = json.loads(done.stdout.splitlines()[-1])
    print(f"memory: {case}: {amount(row['peak'] - row['base'])} above {amount(row['base'])}", file=sys.stderr)
    return row


# --- in the process of a case ---


def resident(name: str = "VmRSS") -> int | None:
    """Bytes that are resident now (VmRSS) or were at most (VmHWM), where the system tells."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith(f"{name}:")), None)


def peak() -> int:
    """Bytes of the largest resident set since `baseline`, or ever."""
    highest = resident("VmHWM")
    if highest is not None:
        return highest
    counted = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return counted if sys.platform == "darwin" else 1024 * counted


def baseline() -> int:
    """Give back what was freed, so that it is not taken for nothing; what is left is the new peak."""
    gc.collect()
    try:
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except (AttributeError, OSError):
        return peak()
    return resident() or peak()


def play(case: dict[str, Any]) -> Row:
    """One case: what it found, with the peak before and after."""
    warm_up()
    empty = baseline()
    match case["kind"]:
        case "dense-shards":
            return {**case, "empty": empty, **dense_shards(case["rows"], case["columns"])}
        case "dense-matrix":
            return {**case, "empty": empty, **dense_matrix(case["rows"], case["columns"])}
        case "rounds":
            return {**case, "empty": empty, **many_rounds(case["rounds"])}
        case _:
            return {**case, "empty": empty, **one_size(case["rows"], case["features"], case["workers"])}


def warm_up() -> None:
    """A fit of each kind that follows: what is imported on the way is then there."""
    X, y = sparse_problem(200, 10, 3)
    for rows in (X, X.toarray()):
        problem = danl.Problem(danl.partition(rows, y, workers=4, seed=0), alpha=ALPHA)
        for method in ("danl", "danl-masked"):
            danl.solve(problem, method=method, policy=POLICY, max_rounds=3, monitor=False)


def dense_rows(rows: int, columns: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Normal numbers and labels by a planted model, made without a second copy."""
    rng = np.random.default_rng(seed)
    X, y = np.empty((rows, columns)), np.empty(rows)
    planted = np.random.default_rng(0).standard_normal(columns) / np.sqrt(columns)
    for begin in range(0, rows, CHUNK):
        part = X[begin : begin + CHUNK]
        part[:] = rng.standard_normal(part.shape)
        y[begin : begin + CHUNK] = rng.random(len(part)) < 1 / (1 + np.exp(-(part @ planted)))
    return X, y


def dense_shards(rows: int, columns: int) -> Row:
    """Every worker's rows made where they stay: the data is in memory once."""
    shards = []
    for worker in range(WORKERS):
        X, y = dense_rows(rows // WORKERS, columns, seed=worker + 1)
        shards.append(danl.Shard.of(X, y, name=f"worker-{worker}"))
    base = baseline()
    status = danl.solve(danl.Problem(shards, alpha=ALPHA)).status
    return {"data": sum(shard.X.nbytes for shard in shards), "base": base, "peak": peak(), "status": status}


def dense_matrix(rows: int, columns: int) -> Row:
    """From one matrix, which the caller keeps, through `danl.partition`, which copies the rows, to the fit."""
    X, y = dense_rows(rows, columns, seed=1)
    base = baseline()
    status = danl.solve(danl.Problem(danl.partition(X, y, workers=WORKERS, seed=0), alpha=ALPHA)).status
    return {"data": X.nbytes, "base": base, "peak": peak(), "status": status}


def many_rounds(rounds: int) -> Row:
    X, y = sparse_problem(1_600, 123, 14)
    problem = danl.Problem(danl.partition(X, y, workers=WORKERS, seed=0), alpha=ALPHA)
    base = baseline()
    result = danl.solve(problem, method="danl-masked", policy=POLICY, max_rounds=rounds, tol=0.0, monitor=False)
    after = peak()
    return {
        "data": shard_bytes(problem),
        "base": base,
        "peak": after,
        "exchanges": len(result.history),
        "history": size_of(result.history),
    }


def one_size(rows: int, features: int, workers: int) -> Row:
    X, y = sparse_problem(rows, features, 10)
    shards = danl.partition(X, y, workers=workers, seed=0)
    del X, y
    problem = danl.Problem(shards, alpha=ALPHA)
    base = baseline()
    result = danl.solve(problem, method="danl-masked", policy=POLICY, max_rounds=SWEEP_ROUNDS, tol=0.0, monitor=False)
    return {"data": shard_bytes(problem), "base": base, "peak": peak(), "exchanges": len(result.history)}


def shard_bytes(problem: danl.Problem) -> int:
    return sum(shard.nbytes for shard in problem.shards)


def size_of(history: danl.History) -> int:
    """Bytes of the rows of a history: the rows, their places for values, and every value once."""
    names = [field.name for field in fields(danl.Row)]
    values = {id(value): value for row in history for value in (getattr(row, name) for name in names)}
    return sum(sys.getsizeof(row) + 8 * len(names) for row in history) + sum(map(sys.getsizeof, values.values()))


# --- the document ---

TEXT = """
Peaks of the resident set, each in a process of its own that has imported everything and made a tiny fit before its
data. A dense fit with the default method and {workers} workers, end to end, monitor included; the peak counts from
before the data was made, the last amount from when it was ready:
"""
ROUNDS = """
A run of {many:,} exchanges peaks {grown} higher than one of {few:,} (`danl-masked`, {workers} workers, 1,600 rows, 123
features); the rows of its history take {kept} of it by their sizes, which leaves {left}.
"""
SWEEP = """
Peak beyond the ready data against {what} ({fixed}, 10 entries a row, Phase I and {rounds} rounds of `danl-masked`);
exponent {every} over all, {late} over the last decade:
"""


def markdown(rows: Rows) -> str:
    lines = [
        [
            "from one matrix, kept by the caller, through `danl.partition`"
            if row["kind"] == "dense-matrix"
            else "shards that are there",
            f"{row['rows']:,} x {row['columns']:,}",
            amount(row["data"]),
            amount(row["peak"] - row["empty"]),
            times((row["peak"] - row["empty"]) / row["data"]),
            amount(row["peak"] - row["base"]),
            row["status"],
        ]
        for row in rows
        if row["kind"].startswith("dense")
    ]
    parts = [
        prose(TEXT, workers=WORKERS),
        table(
            ["the fit", "rows x columns", "data", "peak", "over data", "of it beyond the ready data", "status"],
            lines,
            left=2,
        ),
    ]
    parts += [text for text in (rounds_text(rows),) if text]
    for what in SWEEPS:
        own = [row for row in rows if row["kind"] == "sweep" and row["what"] == what]
        if own:
            parts += sweep_text(what, own)
    return "\n\n".join(parts)


def rounds_text(rows: Rows) -> str:
    runs = [row for row in rows if row["kind"] == "rounds"]
    if len(runs) < 2:
        return ""
    short, long = runs[0], runs[-1]
    grown, kept = grown_and_kept(short, long)
    return prose(
        ROUNDS,
        many=long["exchanges"],
        few=short["exchanges"],
        workers=WORKERS,
        grown=amount(grown),
        kept=amount(kept),
        left=amount(max(grown - kept, 0)),
    )


def grown_and_kept(short: Row, long: Row) -> tuple[int, int]:
    """How much higher the longer run peaks, and how much more its history takes."""
    grown = (long["peak"] - long["base"]) - (short["peak"] - short["base"])
    return max(grown, 0), long["history"] - short["history"]


def beyond(row: Row) -> int:
    """How far the peak is above the ready data; a page at least, so that it has a logarithm."""
    return max(int(row["peak"] - row["base"]), 4096)


def sweep_text(what: str, own: Rows) -> list[str]:
    sizes, above = [row["size"] for row in own], [beyond(row) for row in own]
    fixed = f"{own[0]['rows']:,} rows" + (
        f", {own[0]['features']:,} features" if what == "workers" else f", {own[0]['workers']:,} workers"
    )
    unit = "8 N d" if what == "workers" else "8 d^2"
    units = [8 * row["workers"] * row["features"] if what == "workers" else 8 * row["features"] ** 2 for row in own]
    return [
        prose(
            SWEEP,
            what=what,
            fixed=fixed,
            rounds=SWEEP_ROUNDS,
            every=digits(exponent(sizes, above), 2),
            late=digits(exponent(*last_decade(sizes, above)), 2),
        ),
        table(
            [what, *(f"{size:,}" for size in sizes)],
            [
                ["shards", *(amount(row["data"]) for row in own)],
                ["peak beyond them", *(amount(value) for value in above)],
                [f"over {unit}", *(times(value / bytes_) for value, bytes_ in zip(above, units, strict=True))],
            ],
        ),
    ]


def goals(rows: Rows) -> list[tuple[str, str, str, bool | None]]:
    found: list[tuple[str, str, str, bool | None]] = []
    for row in rows:
        if row["kind"] == "dense-shards":
            ratio = (row["peak"] - row["empty"]) / row["data"]
            found.append(
                ("peak of a dense fit over its data, shards ready", times(ratio), "data + O(d^2) + O(N d)", None)
            )
    runs = [row for row in rows if row["kind"] == "rounds"]
    if len(runs) >= 2:
        grown, kept = grown_and_kept(runs[0], runs[-1])
        label = f"memory that {runs[-1]['exchanges'] - runs[0]['exchanges']:,} more rounds take, history aside"
        found.append((label, amount(max(grown - kept, 0)), "nothing", None))
    return found


def plots(rows: Rows, folder: Path) -> list[tuple[Path, str]]:
    from benchmarks.drawing import Panel, lines

    panels = []
    for what in SWEEPS:
        own = [row for row in rows if row["kind"] == "sweep" and row["what"] == what]
        if own:
            sizes = [row["size"] for row in own]
            panels.append(
                Panel(
                    title=f"{own[0]['rows']:,} rows",
                    x=what,
                    y="megabytes",
                    lines={
                        "peak beyond the shards": (sizes, [beyond(row) / 1e6 for row in own]),
                        "shards": (sizes, [row["data"] / 1e6 for row in own]),
                    },
                )
            )
    if not panels:
        return []
    return [(lines(folder / "bench-memory.png", panels), "Peak memory beyond the shards against workers and features")]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="One case, in this process.")
    parser.add_argument("case", type=json.loads)
    print(json.dumps(play(parser.parse_args().case)))
