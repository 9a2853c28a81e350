"""Bits that a worker sends until the gap is below 1e-12 for good: the default method, and what spares bits.

Counted are the bytes of the replies on the wire (`docs/files.md`), times 8, over the workers. The gap is absolute, and
counts from the exchange after which it is never above it again.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import danl
from benchmarks.measure import Row, Rows, loaded, prose, table
from benchmarks.network import reached
from danl import History
from danl.wording import floored

TITLE = "Bits: what a worker sends to gap 1e-12"
GAP = 1e-12
ALPHA = 1e-3
WORKERS = 10
MAX_ROUNDS = 1_000
DATA = ("a1a", "phishing")
METHODS = (
    "danl",
    "danl:hessian_dtype=float32",
    "danl:curvature=lowrank:10,hessian_dtype=float32",
    "danl:curvature_from=2,hessian_dtype=float32",
    "newton",
)
"""The first is the default; it is judged, and so is what is asked for where bytes are dear."""
JUDGED = {"danl": "default method", "danl:curvature_from=2,hessian_dtype=float32": "two senders in float32"}
GOALS = {"a1a": 3.0e5, "phishing": 7.0e4}
"""Bits that a worker may send."""
CURVE_POINTS = 80


def measure(*, quick: bool = False, data: Sequence[str] = DATA) -> Rows:
    return [row for each in loaded(data[:1] if quick else data) for row in measure_one(*each)]


def measure_one(name: str, X: Any, y: np.ndarray, *, methods: Sequence[str] = METHODS) -> Rows:
    problem = danl.Problem(danl.partition(X, y, workers=WORKERS, seed=0), alpha=ALPHA)
    reference, rows = danl.reference_optimum(problem), []
    for method in methods:
        result = danl.solve(problem, method=method, max_rounds=MAX_ROUNDS, reference=reference)
        rows.append({"data": name, "method": method, "status": result.status, **counted(result.history)})
        print(f"{name}: {method}: {rows[-1]['bits']:,.0f} bits", file=sys.stderr)
    return rows


def counted(history: History) -> Row:
    """Bits and exchanges until the gap is reached, or until the end of the run."""
    bits = np.cumsum(history.column("bytes_up")) * 8 / WORKERS
    last, gaps = reached(history, GAP), history.column("gap")
    until = len(history) if last is None else last + 1
    shown = np.unique(np.linspace(0, len(history) - 1, min(CURVE_POINTS, len(history))).astype(int))
    return {
        "reached": last is not None,
        "bits": float(bits[until - 1]),
        "all_bits": float(bits[-1]),
        "exchanges": until,
        "all_exchanges": len(history),
        "senders": int(history.column("senders")[:until].sum()),
        "gap": float(gaps[-1]) if math.isfinite(gaps[-1]) else None,
        "curve": {
            "bits": [float(f"{bits[i]:.4g}") for i in shown],
            "gap": [float(f"{floored(gaps[i]):.4g}") if math.isfinite(gaps[i]) else None for i in shown],
        },
    }


# --- the document ---

TEXT = """
Bits that a worker sends, on average over the {workers}, until the gap f(w) - f(w\\*) is below {gap:g} for good, from
zero, alpha {alpha:g}; in brackets those of the whole run, to the default tolerance. `danl` is the default method:
"""


def number(bits: float) -> str:
    return f"{bits:.2e}".replace("e+0", "e").replace("e+", "e")


def markdown(rows: Rows) -> str:
    parts = [prose(TEXT, workers=WORKERS, gap=GAP, alpha=ALPHA)]
    for name in dict.fromkeys(row["data"] for row in rows):
        lines = [
            [
                f"`{row['method']}`",
                f"{number(row['bits'])} ({number(row['all_bits'])})" if row["reached"] else _left(row),
                f"{row['exchanges']:,} ({row['all_exchanges']:,})",
                str(row["senders"]),
            ]
            for row in rows
            if row["data"] == name
        ]
        header = ["method", "bits of a worker", "exchanges", "times a worker sent curvature"]
        parts += [f"On {name}:", table(header, lines)]
    return "\n\n".join(parts)


def _left(row: Row) -> str:
    gap = "diverged" if row["gap"] is None else f"gap {row['gap']:.1e}"
    return f"does not reach it in {number(row['all_bits'])}: {gap}"


def goals(rows: Rows) -> list[tuple[str, str, str, bool | None]]:
    return [
        (
            f"bits that a worker sends to gap {GAP:g}, {JUDGED[row['method']]}, {row['data']}",
            number(row["bits"]) if row["reached"] else _left(row),
            number(GOALS[row["data"]]),
            row["reached"] and row["bits"] <= GOALS[row["data"]],
        )
        for row in rows
        if row["method"] in JUDGED and row["data"] in GOALS
    ]


def plots(rows: Rows, folder: Path) -> list[tuple[Path, str]]:
    from benchmarks.drawing import Panel, lines

    panels = [
        Panel(
            title=name,
            x="bits of a worker",
            y="gap",
            lines={
                row["method"]: (row["curve"]["bits"], [np.nan if g is None else g for g in row["curve"]["gap"]])
                for row in rows
                if row["data"] == name
            },
        )
        for name in dict.fromkeys(row["data"] for row in rows)
    ]
    if not panels:
        return []
    return [(lines(folder / "bench-bits.png", panels), "Gap against bits that a worker has sent, on two data sets")]
