"""The estimators beside scikit-learn's defaults: many rows, many columns, few of both, dense and sparse.

The target of a shape is the objective that scikit-learn's default call reaches on it, whatever its gradient. danl is
judged by the processor time that its default call takes to the same objective, over that of scikit-learn's call.
`benchmarks.shape_cases` is what happens in the process of a shape.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks import THREADS
from benchmarks.measure import Row, Rows, amount, digits, geometric_mean, prose, table, times
from benchmarks.shape_cases import LIMIT, SLACK, Shape

TITLE = "Shapes: the estimators beside scikit-learn's defaults"
ENTRIES = 50
SHAPES = (
    Shape("binary", 100_000, 50),
    Shape("classes", 100_000, 50),
    Shape("binary", 3_000, 1_000),
    Shape("binary", 500, 10),
    Shape("binary", 20_000, 2_000, ENTRIES),
    Shape("binary", 20_000, 5_000, ENTRIES),
    Shape("binary", 200_000, 20_000, ENTRIES),
    Shape("ridge", 100_000, 50),
    Shape("ridge", 3_000, 1_000),
    Shape("poisson", 100_000, 50),
    Shape("poisson", 20_000, 2_000, ENTRIES),
)
QUICK = (
    Shape("binary", 400, 12),
    Shape("classes", 400, 12),
    Shape("binary", 400, 60, 10),
    Shape("ridge", 400, 12),
    Shape("poisson", 400, 60, 10),
)
GOAL_MEAN, GOAL_WORST, GOAL_MEMORY = 1.0, 1.5, 2.5
JUDGED_FROM = 1_000_000
"""Bytes of data from which on the peak of memory is held against a bar: below, it is that of the code."""


def measure(*, quick: bool = False, shapes: Sequence[Shape] | None = None, limit: float = LIMIT) -> Rows:
    chosen = shapes if shapes is not None else QUICK if quick else SHAPES
    return [measure_one(shape, limit) for shape in chosen]


def measure_one(shape: Shape, limit: float = LIMIT) -> Row:
    """Time and memory of a shape, each in a process of its own."""
    row = in_process("time", shape, limit)
    if "end_processor" in row:  # else the same fit would be given up once more
        row.update(in_process("memory", shape, limit))
    told = f"{digits(row['danl_processor'])} s" if "danl_processor" in row else f"not in {limit:g} s"
    print(f"shapes: {shape.label}: {digits(row['peer_processor'])} s, danl {told}", file=sys.stderr)
    return row


def in_process(what: str, shape: Shape, limit: float) -> Row:
    """Run a case in a process of its own; of one that was given up, what it had written."""
    words = [what, json.dumps(vars(shape)), "--limit", str(limit)]
    command = [sys.executable, "-m", "benchmarks.shape_cases", *words]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **THREADS}, check=False)
    if done.returncode and "Timeout (" not in done.stderr:
        raise RuntimeError(f"{shape.label}: {done.stderr.strip()}")
    written = done.stdout.splitlines()
    row: Row = json.loads(written[-1]) if written else {}
    return row


# --- the document ---

TEXT = """
Each estimator with its defaults, one thread, the penalty of danl set to that of scikit-learn where their defaults
differ: `DANLClassifier()` beside `LogisticRegression()`, `DANLRegressor(C=1)` beside `Ridge()` and
`DANLRegressor("poisson", alpha=1)` beside `PoissonRegressor()`. The target is the objective that scikit-learn's call
reaches; a callback ends danl's when its own is at most that ({slack:g} of it for rounding), and one function evaluates
the objectives of what both return. On the clock is `fit` from arrays to coefficients: checks, the division into 10
workers and the monitor included. Seconds of the processor, in brackets those on the wall, the best of up to {repeats}
in turn; the ratio is of processor seconds:
"""
SPARSE = """
`binary` and `classes` (five of them) are `make_classification` where they are dense; the others are rows of normal
numbers, {entries} in a sparse row at random places, with targets by a planted model and noise. `to its own end` is the
default call without the callback: danl goes on to its own tolerance, many digits past that objective.
"""
MEMORY = """
Peak of memory: the rows and what the peak of danl's default `fit` is above them, in a process of its own, over the
bytes of the rows (values, and a CSR matrix's indices):
"""


def ratios(rows: Rows) -> dict[str, float]:
    """danl's processor seconds over scikit-learn's, where danl reaches its objective."""
    return {row["label"]: row["danl_processor"] / row["peer_processor"] for row in rows if row.get("reaches")}


def markdown(rows: Rows) -> str:
    found = ratios(rows)
    lines = [
        [
            row["label"],
            _seconds(row, "peer"),
            "direct" if row["iterations"] is None else str(row["iterations"]),
            _reached(row),
            f"{row['exchanges']} ({row['hessians']})" if "exchanges" in row else "-",
            times(found.get(row["label"])),
            _seconds(row, "end"),
            str(row.get("end_exchanges", "-")),
        ]
        for row in rows
    ]
    header = [
        *("shape", "scikit-learn", "iterations", "danl to its objective", "exchanges (of Hessians)", "ratio"),
        *("to its own end", "exchanges"),
    ]
    peaks = [
        [
            row["label"],
            amount(row["data"]),
            amount(row["added"]) if "added" in row else f"not in {row['limit']:g} s",
            times(_peak(row)),
        ]
        for row in rows
    ]
    return "\n\n".join(
        [
            prose(TEXT, slack=SLACK, repeats=max((row["repeats"] for row in rows), default=0)),
            table(header, lines),
            prose(SPARSE, entries=ENTRIES),
            prose(MEMORY),
            table(["shape", "data", "fit adds", "data and that, over data"], peaks),
        ]
    )


def _seconds(row: Row, who: str) -> str:
    if f"{who}_processor" not in row:
        return f"not in {row['limit']:g} s"
    return f"{digits(row[f'{who}_processor'])} s ({digits(row[f'{who}_wall'])})"


def _reached(row: Row) -> str:
    if "reaches" in row and not row["reaches"]:
        return f"does not reach it ({row['objective'] / row['target'] - 1:.1e} above)"
    return _seconds(row, "danl")


def _peak(row: Row) -> float | None:
    return (row["data"] + row["added"]) / row["data"] if "added" in row else None


def goals(rows: Rows) -> list[tuple[str, str, str, bool | None]]:
    """A shape whose objective is not reached, or not in time, misses the bars; so does one whose peak is not known."""
    found, label = ratios(rows), "default fit to scikit-learn's objective, over its default fit, processor time"
    missing = len(rows) - len(found)
    mean, worst = geometric_mean(found.values()), max(found.values(), default=0.0)
    without = f", {missing} of {len(rows)} shapes not reached" if missing else ""
    bars: list[tuple[str, str, str, bool | None]] = [
        (f"{label}, geometric mean", times(mean) + without, f"{GOAL_MEAN:g} x", not missing and mean <= GOAL_MEAN),
        (f"{label}, worst", times(worst) + without, f"{GOAL_WORST:g} x", not missing and worst <= GOAL_WORST),
    ]
    judged = [row for row in rows if row["data"] >= JUDGED_FROM]
    peaks = [value for value in map(_peak, judged) if value is not None]
    if judged:
        unknown = len(judged) - len(peaks)
        without = f", {unknown} of {len(judged)} shapes not known" if unknown else ""
        highest = max(peaks, default=0.0)
        met = not unknown and highest <= GOAL_MEMORY
        what = "peak of a default fit over its data, the data included, worst shape"
        bars.append((what, times(highest) + without, f"{GOAL_MEMORY:g} x", met))
    return bars


def plots(rows: Rows, folder: Path) -> list[tuple[Path, str]]:
    from benchmarks.drawing import bars

    series = {
        "scikit-learn": [row["peer_processor"] for row in rows],
        "danl, to its objective": [row.get("danl_processor") for row in rows],
        "danl, to its own end": [row.get("end_processor") for row in rows],
    }
    groups = [row["label"].replace(" ", "\n").replace(",\n", "\n").replace("x\n", "x ") for row in rows]
    path = bars(folder / "bench-shapes.png", groups, series, "processor seconds", "Default fits, one thread")
    return [(path, "Processor seconds of default fits of scikit-learn and danl on eleven shapes")]
