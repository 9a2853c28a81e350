"""How a round and a Hessian exchange grow: with the workers on the same data, with the features, with the rows.

Synthetic sparse rows. Times are those between callbacks, as in `benchmarks.rounds`; the Hessian exchange is Phase I,
from the call of `danl.solve` to the end of its first exchange: opening, the workers' Hessians, the border, the
projection and the first step. Exponents are the slopes of straight lines through the logarithms.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import danl
from benchmarks.measure import (
    Row,
    Rows,
    digits,
    exponent,
    last_decade,
    milliseconds,
    most,
    prose,
    sparse_problem,
    table,
    times,
)
from benchmarks.rounds import ALPHA, METHOD, POLICY, REGIONS, run

TITLE = "Growth: workers, features, rows"
FEW, MANY = 3, 50
"""Rounds a run has, at least and at most."""
SECONDS = 1.0
"""Rounds of a run are to take about this long."""
REPEATS = 5
SLOW = 20.0
"""Points whose run takes longer than this many seconds are measured twice after the warm-up."""
GOAL = 3.0


@dataclass(frozen=True)
class Sweep:
    """One number grows, the others stay."""

    name: str
    what: str
    sizes: tuple[int, ...]
    rows: int = 100_000
    features: int = 50
    entries: int = 10
    workers: int = 10

    def at(self, size: int) -> Sweep:
        """The sizes of one point."""
        return Sweep(self.name, self.what, (size,), **{**self._shape(), self.what: size})

    def _shape(self) -> dict[str, int]:
        return {"rows": self.rows, "features": self.features, "entries": self.entries, "workers": self.workers}

    @property
    def title(self) -> str:
        fixed = {
            "rows": f"{self.rows:,} rows",
            "features": f"{self.features:,} features",
            "workers": f"{self.workers:,} workers",
        }
        rest = ", ".join(text for key, text in fixed.items() if key != self.what)
        return f"{rest}, {self.entries} entries a row"


SWEEPS = (
    Sweep("workers", "workers", (10, 30, 100, 300, 1_000, 3_000, 10_000), rows=1_000_000),
    Sweep("workers-a9a", "workers", (10, 30, 100, 300, 1_000, 3_000, 10_000), rows=32_561, features=123, entries=14),
    Sweep("features", "features", (50, 158, 500, 1_580, 5_000)),
    Sweep("rows", "rows", (1_000, 10_000, 100_000, 1_000_000)),
)
QUICK = (
    Sweep("workers", "workers", (10, 100), rows=2_000),
    Sweep("workers-a9a", "workers", (10, 100), rows=2_000, features=123, entries=14),
    Sweep("features", "features", (20, 80), rows=2_000),
    Sweep("rows", "rows", (1_000, 4_000)),
)


def measure(*, quick: bool = False, sweeps: Sequence[Sweep] | None = None) -> Rows:
    rows: Rows = []
    for sweep in sweeps or (QUICK if quick else SWEEPS):
        X, y, shape = None, np.zeros(0), None
        for size in sweep.sizes:
            point = sweep.at(size)
            if shape != (point.rows, point.features):  # the same rows for every number of workers
                shape = (point.rows, point.features)
                X, y = sparse_problem(point.rows, point.features, min(point.entries, point.features))
            rows.append(measure_point(sweep.name, point, X, y, repeats=1 if quick else REPEATS))
            last = rows[-1]
            print(f"{sweep.name} {size}: round {last['round']:.2e} s, Hessian {last['hessian']:.2e} s", file=sys.stderr)
    return rows


def measure_point(name: str, point: Sweep, X: Any, y: np.ndarray, *, repeats: int) -> Row:
    """Warm up with a few rounds, then runs with as many rounds as fit the time; the best of them."""
    problem = danl.Problem(danl.partition(X, y, workers=point.workers, seed=0), alpha=ALPHA, weighting="samples")
    warm = run(problem, FEW)
    rounds = int(np.clip(SECONDS / float(np.mean(warm.spans("gradient"))), FEW, MANY))
    if warm.times[-1] - warm.begun > SLOW:
        repeats = min(repeats, 2)
    per_round, hessians = [], []
    for _ in range(repeats):
        gc.collect()
        stamps = run(problem, rounds)
        per_round.append(float(np.mean(stamps.spans("gradient"))))
        hessians.append(stamps.first)
    return {
        "sweep": name,
        "what": point.what,
        "size": point.sizes[0],
        "rows": point.rows,
        "features": point.features,
        "workers": point.workers,
        "entries": point.entries,
        "rounds": rounds,
        "repeats": repeats,
        "round": min(per_round),
        "hessian": min(hessians),
    }


# --- the document ---

TEXT = """
Made-up sparse rows, `{method}`, policy `{policy}`, {regions} regions, alpha {alpha:g}, no monitor. A round is the mean
over the rounds of a run, a Hessian exchange is Phase I from the call to the end of the first exchange; the best of
{repeats} runs, or of 2 where a run takes more than {slow:g} s. The exponent p is that of the line through the points in
logarithms, time = c size^p: over all sizes, and over the last decade of them, where what does not grow matters least.
"""


def sweeps_of(rows: Rows) -> dict[str, Rows]:
    found: dict[str, Rows] = {}
    for row in rows:
        found.setdefault(row["sweep"], []).append(row)
    return found


def title_of(rows: Rows) -> str:
    first = rows[0]
    return Sweep(
        first["sweep"], first["what"], (), first["rows"], first["features"], first["entries"], first["workers"]
    ).title


def exponents(rows: Rows, key: str) -> tuple[float, float]:
    """Over all sizes, and over the last decade of them."""
    sizes, values = [row["size"] for row in rows], [row[key] for row in rows]
    return exponent(sizes, values), exponent(*last_decade(sizes, values))


def growth_of(rows: Rows, key: str) -> float:
    """The largest size's time over the smallest size's."""
    return float(rows[-1][key] / rows[0][key])


def markdown(rows: Rows) -> str:
    parts = [
        prose(
            TEXT, method=METHOD, policy=POLICY, regions=REGIONS, alpha=ALPHA, repeats=most(rows, "repeats"), slow=SLOW
        )
    ]
    lines = []
    for own in sweeps_of(rows).values():
        sizes = f"{own[0]['size']:,} to {own[-1]['size']:,}"
        for key, label in (("round", "round"), ("hessian", "Hessian exchange")):
            every, late = exponents(own, key)
            lines.append(
                [
                    own[0]["what"],
                    title_of(own),
                    sizes,
                    label,
                    times(growth_of(own, key)),
                    digits(every, 2),
                    digits(late, 2),
                ]
            )
    parts.append(table(["growing", "with", "from, to", "what", "time grows", "p", "p, last decade"], lines, left=4))
    for own in sweeps_of(rows).values():
        header = [own[0]["what"], *(f"{row['size']:,}" for row in own)]
        parts.append(f"Against {own[0]['what']}, with {title_of(own)}:")
        parts.append(
            table(
                header,
                [
                    ["round", *(milliseconds(row["round"]) for row in own)],
                    ["Hessian exchange", *(milliseconds(row["hessian"]) for row in own)],
                ],
            )
        )
    return "\n\n".join(parts)


def goals(rows: Rows) -> list[tuple[str, str, str, bool | None]]:
    found = []
    for name, own in sweeps_of(rows).items():
        if own[0]["what"] == "workers":
            ratio = growth_of(own, "round")
            size = f"{own[0]['size']:,} to {own[-1]['size']:,} workers, {own[0]['rows']:,} rows"
            found.append((f"time of a round, {size}", times(ratio), f"{GOAL:g} x", ratio <= GOAL if name else None))
    return found


def plots(rows: Rows, folder: Path) -> list[tuple[Path, str]]:
    from benchmarks.drawing import Panel, lines

    panels = [
        Panel(
            title=title_of(own),
            x=own[0]["what"],
            y="milliseconds",
            lines={
                label: ([row["size"] for row in own], [1e3 * row[key] for row in own])
                for key, label in (("round", "round"), ("hessian", "Hessian exchange"))
            },
        )
        for own in sweeps_of(rows).values()
    ]
    path = lines(folder / "bench-growth.png", panels)
    return [(path, "Time of a round and of a Hessian exchange against workers, features and rows, in logarithms")]
