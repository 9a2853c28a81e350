"""How a round and a Hessian exchange grow: with the workers on the same data, with the features, with the rows.

Synthetic sparse rows. Times are those between callbacks, as in `benchmarks.rounds`; the Hessian exchange is Phase I,
from the call of `danl.solve` to the end of its first exchange: opening, the workers' Hessians, the validation of
replies, the projection and the first step. Exponents are the slopes of straight lines through the logarithms.
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
from benchmarks.rounds import ALPHA, METHOD, REGIONS, mean_round, run

TITLE = "Growth: workers, features, rows"
FEW, MANY = 3, 50
"""Rounds a run has, at least and at most."""
SECONDS = 1.0
"""Rounds of a run are to take about this long."""
REPEATS = 5
SLOW = 20.0
"""Points whose run takes longer than this many seconds are measured once after the warm-up."""
SHARE = 0.3
"""Of the workers on each region in a masked round: the same share of the rows, however many workers there are."""
A_FEW = 3
"""Workers on each region in a round that asks a few: as many, however many workers there are."""
MEASURES = {
    "round": "round, full masks",
    "masked": "round, masked",
    "few": "round that asks a few",
    "hessian": "Hessian exchange",
}
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
            reported = ", ".join(f"{label} {last[key]:.2e} s" for key, label in MEASURES.items())
            print(f"{sweep.name} {size}: {reported}", file=sys.stderr)
    return rows


def measure_point(name: str, point: Sweep, X: Any, y: np.ndarray, *, repeats: int) -> Row:
    """Warm up with a few rounds, then runs with as many rounds as fit the time; the best of them."""
    problem = danl.Problem(danl.partition(X, y, workers=point.workers, seed=0), alpha=ALPHA, weighting="samples")
    policies = {
        "round": "full",
        "masked": f"coverage:psi={max(1, round(SHARE * point.workers))}",
        "few": f"coverage:psi={A_FEW}",
    }
    warm = {key: run(problem, FEW, policy=policy) for key, policy in policies.items()}
    rounds = int(np.clip(SECONDS / mean_round(warm["round"]), FEW, MANY))
    if warm["round"].times[-1] - warm["round"].begun > SLOW:
        repeats = 1
    found: dict[str, list[float]] = {key: [] for key in MEASURES}
    for _ in range(repeats):
        for key, policy in policies.items():
            gc.collect()
            stamps = run(problem, rounds, policy=policy)
            found[key].append(mean_round(stamps))
            found["hessian"].append(stamps.first)
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
        **{key: min(values) for key, values in found.items()},
    }


# --- the document ---

TEXT = """
Made-up sparse rows, `{method}`, {regions} regions, alpha {alpha:g}, no monitor. A round is the mean over the rounds of
a run: with full masks, where everyone trains everything; masked, with {share:g} % of the workers on each region (policy
`coverage`); or with {few} workers on each region, however many there are. A Hessian exchange is Phase I from the call
to the end of the first exchange. The best of {repeats} runs, or one where a run takes more than {slow:g} s. The
exponent p is that of the line through the points in logarithms, time = c size^p: over all sizes, and over the last
decade of them, where what does not grow matters least.
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
            TEXT,
            method=METHOD,
            regions=REGIONS,
            alpha=ALPHA,
            share=100 * SHARE,
            few=A_FEW,
            repeats=most(rows, "repeats"),
            slow=SLOW,
        )
    ]
    lines = []
    for own in sweeps_of(rows).values():
        sizes = f"{own[0]['size']:,} to {own[-1]['size']:,}"
        for key, label in MEASURES.items():
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
                [[label, *(milliseconds(row[key]) for row in own)] for key, label in MEASURES.items()],
            )
        )
    return "\n\n".join(parts)


def goals(rows: Rows) -> list[tuple[str, str, str, bool | None]]:
    found: list[tuple[str, str, str, bool | None]] = []
    for own in sweeps_of(rows).values():
        if own[0]["what"] == "workers":
            size = f"{own[0]['size']:,} to {own[-1]['size']:,} workers, {own[0]['rows']:,} rows"
            for key in ("round", "masked", "few"):
                ratio = growth_of(own, key)
                found.append((f"time of a {MEASURES[key]}, {size}", times(ratio), f"{GOAL:g} x", ratio <= GOAL))
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
                for key, label in MEASURES.items()
            },
        )
        for own in sweeps_of(rows).values()
    ]
    path = lines(folder / "bench-growth.png", panels)
    return [(path, "Time of a round and of a Hessian exchange against workers, features and rows, in logarithms")]
