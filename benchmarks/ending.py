"""No more than asked: what a default run still does after its model has the tolerance.

After every exchange the model that the run would return is looked at from outside: the Newton decrement over the square
root of the objective, of all rows' gradient and whole Hessian there, which is what `tol` is compared with. The run has
that gradient, too: each exchange ends with a model that everyone was asked about. From the first exchange after which
that number is at most `tol`, one more may be needed to know it, and no curvature.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import danl
from benchmarks.limited_memory import PENALTIES as ALL_PENALTIES
from benchmarks.measure import Row, Rows, loaded, prose, table

TITLE = "Ending: no more than asked"
WORKERS = 10
DATA = ("a1a", "phishing", "a9a", "w8a")
PENALTIES = {name: ALL_PENALTIES[name] for name in ("alpha 1e-3", "lambda 1e-4")}
CALLS: tuple[dict[str, float], ...] = ({}, {"tol": danl.DANLClassifier().tol})
"""The default call, and one with the default tolerance of the estimators."""
GOAL_EXCHANGES, GOAL_HESSIANS = 1, 0


def measure(*, quick: bool = False, data: Sequence[str] = DATA) -> Rows:
    return [row for each in loaded(data[:1] if quick else data) for row in measure_one(*each)]


def measure_one(name: str, X: Any, y: np.ndarray) -> Rows:
    shards, rows = danl.partition(X, y, workers=WORKERS, seed=0), []
    for penalty, options in PENALTIES.items():
        problem = danl.Problem(shards, **options)
        for call in CALLS:
            rows.append({"data": name, "penalty": penalty, **watched(problem, **call)})
            print(f"{name}, {penalty}: {rows[-1]['met']} of {rows[-1]['exchanges']}", file=sys.stderr)
    return rows


def watched(problem: danl.Problem, **call: float) -> Row:
    """A run with the default method, and what each of its exchanges left."""
    decrements: list[float] = []
    result = danl.solve(problem, callback=lambda _, w: decrements.append(decrement(problem, w)), **call)
    tol, history = result.settings["tol"], result.history
    return {"tol": tol, "status": result.status, **after(history, decrements, tol), "left": decrements[-1]}


def decrement(problem: danl.Problem, w: np.ndarray) -> float:
    """sqrt(grad^T H^-1 grad / f) at w."""
    value, gradient = problem.value_and_gradient(w)
    return math.sqrt(float(gradient @ np.linalg.solve(problem.hessian(w), gradient)) / value)


def after(history: danl.History, decrements: Sequence[float], tol: float) -> Row:
    """The exchanges up to the one that met the tolerance, and what came after it; None where none met it."""
    there = np.flatnonzero(np.asarray(decrements) <= tol)
    own = np.flatnonzero(history.column("decrement") <= tol)
    met = int(there[0]) + 1 if there.size else None
    later = history[met:] if met is not None else []
    return {
        "met": met,
        "own": int(own[0]) + 1 if own.size else None,
        "exchanges": len(history),
        "later": None if met is None else len(later),
        "later_hessians": None if met is None else sum(row.kind == "hessian" for row in later),
        "why": [row.why or row.kind for row in later],
    }


# --- the document ---

TEXT = """
`danl.solve(problem)` with {workers} workers, at its default tolerance and at that of the estimators. After every
exchange the model it would return is looked at from outside: the decrement of all rows' gradient and whole Hessian
there, which is what `tol` is compared with. `met` counts the exchanges to the first model with at most `tol`, `known`
those to the first whose own estimate in the history is; then the exchanges of the run, and how many of them, and of
Hessians, came after `met`:
"""


def markdown(rows: Rows) -> str:
    lines = [
        [
            *(row["data"], row["penalty"], f"{row['tol']:g}"),
            *(_count(row[key]) for key in ("met", "own", "exchanges", "later", "later_hessians")),
            *(f"{row['left']:.1e}", row["status"]),
        ]
        for row in rows
    ]
    header = ["data", "penalty", "tol", "met", "known", "exchanges", "after", "of Hessians", "decrement", "status"]
    return "\n\n".join([prose(TEXT, workers=WORKERS), table(header, lines, left=2)])


def _count(count: int | None) -> str:
    return "never" if count is None else str(count)


def goals(rows: Rows) -> list[tuple[str, str, str, bool | None]]:
    if not rows:
        return []
    lost = sum(row["met"] is None for row in rows)
    without = f", {lost} of {len(rows)} not met" if lost else ""
    found = []
    for what, key, bar in (
        ("exchanges after the tolerance was met, default call, worst", "later", GOAL_EXCHANGES),
        ("Hessians asked after that, worst", "later_hessians", GOAL_HESSIANS),
    ):
        worst = max((row[key] for row in rows if row[key] is not None), default=0)
        found.append((what, f"{worst}{without}", str(bar), not lost and worst <= bar))
    return found


def plots(rows: Rows, folder: Path) -> list[tuple[Path, str]]:
    return []
