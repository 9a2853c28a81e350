"""Time to gradient norm 1e-9: danl with 10 workers in this process, scikit-learn and glum on the pooled rows.

What is judged of danl is its default call, `danl.solve(problem)`, with nothing tuned, where what it returns has that
norm. What is compared is the true gradient norm of the averaged objective at the coefficients a solver returns,
computed here and by none of them. A peer's own tolerance is searched before anything is timed: the loosest of a grid
with which the true norm is small enough. One that gets there with no tolerance of the grid does not reach it.
"""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import danl
from benchmarks.measure import (
    Contestant,
    Row,
    Rows,
    Timing,
    digits,
    geometric_mean,
    gradient_norm,
    milliseconds,
    most,
    prose,
    race,
    table,
    times,
)

TITLE = "Speed: time to gradient norm 1e-9"
NORM = 1e-9
ALPHA = 1e-3
WORKERS = 10
CALLS: dict[str, dict[str, Any]] = {"danl": {}, "danl, again": {}, "danl, monitor=False": {"monitor": False}}
"""How danl is called. The first is judged; the second solves the problem of the run before, the third measures less."""
BARE = "danl, monitor=False"
WEIGHTING = "samples"
"""The pooled objective, also where shards are not all of one size."""
DATA = ("a1a", "phishing", "a9a", "w8a")
GRID = tuple(10.0 ** (-half / 2) for half in range(2, 29))
"""Tolerances: 1e-1, 3.2e-2, 1e-2, ..., 1e-14."""
MAX_ITERATIONS = 10_000
DENSE_FROM = 0.1
"""Peers are also tried on a dense copy of the data where at least this share of the entries is stored."""
REPEATS = 9
GOAL_MEAN, GOAL_WORST = 0.5, 0.8
GOAL_MONITOR = 5.0
"""Percent of a default run that the monitor may take."""
FORMS = ("CSR", "dense")

Fit = Callable[[Any, np.ndarray, float], np.ndarray]


def scikit_learn(solver: str) -> Fit:
    def fit(X: Any, y: np.ndarray, tol: float) -> np.ndarray:
        from sklearn.linear_model import LogisticRegression

        model = LogisticRegression(
            C=1 / (ALPHA * len(y)), fit_intercept=False, solver=solver, tol=tol, max_iter=MAX_ITERATIONS
        )
        return np.asarray(model.fit(X, y).coef_[0])

    return fit


def glum(X: Any, y: np.ndarray, tol: float) -> np.ndarray:
    from glum import GeneralizedLinearRegressor

    model = GeneralizedLinearRegressor(
        family="binomial",
        alpha=ALPHA,
        l1_ratio=0,
        fit_intercept=False,
        solver="irls-ls",
        gradient_tol=tol,
        max_iter=MAX_ITERATIONS,
    )
    return np.asarray(model.fit(X, y).coef_)


PEERS: dict[str, Fit] = {
    "scikit-learn lbfgs": scikit_learn("lbfgs"),
    "scikit-learn newton-cg": scikit_learn("newton-cg"),
    "scikit-learn newton-cholesky": scikit_learn("newton-cholesky"),
    "glum irls-ls": glum,
}


@dataclass(frozen=True)
class Found:
    """The loosest tolerance that reaches the norm (None if none does), and the smallest norm that was seen."""

    tol: float | None
    norm: float


def search(fit: Fit, X: Any, y: np.ndarray, *, sparse_X: Any = None, grid: Sequence[float] = GRID) -> Found:
    """Go through the tolerances from loose to tight until the true norm is small enough."""
    smallest = np.inf
    for tol in grid:
        norm = gradient_norm(X if sparse_X is None else sparse_X, y, fit(X, y, tol), ALPHA)
        if norm <= NORM:
            return Found(tol, norm)
        smallest = min(smallest, norm)
    return Found(None, float(smallest))


def danl_contestants(X: Any, y: np.ndarray) -> list[Contestant]:
    """danl with shards and problem made anew for every run, and with the problem of the run before."""

    def problem() -> danl.Problem:
        return danl.Problem(danl.partition(X, y, workers=WORKERS, seed=0), alpha=ALPHA, weighting=WEIGHTING)

    kept = problem()
    return [
        Contestant(
            label,
            lambda made, call=call: danl.solve(made, **call),
            (lambda: kept) if label == "danl, again" else problem,
        )
        for label, call in CALLS.items()
    ]


def measure(*, quick: bool = False, data: Sequence[str] = DATA) -> Rows:
    rows: Rows = []
    for name in data:
        loaded = danl.load_dataset(name)
        rows += measure_one(name, loaded.X, loaded.y, repeats=2 if quick else REPEATS)
    return rows


def measure_one(name: str, X: Any, y: np.ndarray, *, repeats: int, peers: dict[str, Fit] | None = None) -> Rows:
    """Search the peers' tolerances on one data set, then time everyone in turn."""
    given = {"CSR": X}
    if X.nnz >= DENSE_FROM * X.shape[0] * X.shape[1]:
        given["dense"] = X.toarray()
    contestants, found = danl_contestants(X, y), {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a peer that does not converge says so; here its norm does
        for peer, fit in (PEERS if peers is None else peers).items():
            for form, matrix in given.items():
                label = f"{peer}, {form}"
                found[label] = search(fit, matrix, y, sparse_X=X)
                print(f"{name}: {label}: tolerance {found[label].tol}, {found[label].norm:.1e}", file=sys.stderr)
                if found[label].tol is not None:
                    contestants.append(_peer(label, fit, matrix, y, found[label].tol))
        timings = race(contestants, repeats)
    rows = [_danl_row(name, X, y, label, timings[label]) for label in CALLS]
    for label, searched in found.items():
        peer, form = label.rsplit(", ", 1)
        timing = timings.get(label)
        rows.append(
            {
                "data": name,
                "solver": peer,
                "given": form,
                "tol": searched.tol,
                "norm": searched.norm if timing is None else gradient_norm(X, y, timing.result, ALPHA),
                **_seconds(timing),
            }
        )
    for row in rows:
        row["reaches"] = row["norm"] <= NORM
    return rows


def _peer(label: str, fit: Fit, X: Any, y: np.ndarray, tol: float | None) -> Contestant:
    assert tol is not None
    return Contestant(label, lambda _: fit(X, y, tol))


def _danl_row(name: str, X: Any, y: np.ndarray, label: str, timing: Timing) -> Row:
    result = timing.result
    return {
        "data": name,
        "solver": label,
        "given": "10 shards",
        "tol": result.settings["tol"],
        "norm": gradient_norm(X, y, result.w, ALPHA),
        "exchanges": len(result.history),
        "hessians": int((result.history.column("kind") == "hessian").sum()),
        **_seconds(timing),
    }


def _seconds(timing: Timing | None) -> Row:
    if timing is None:
        return {"seconds": None, "median": None, "repeats": 0}
    return {"seconds": timing.best, "median": timing.median, "repeats": len(timing.seconds)}


# --- the document ---

TEXT = """
Logistic regression, alpha {alpha:g}, no intercept, to a gradient norm of the averaged objective of at most {norm:g}.
danl runs with {workers} workers in this process, called as `danl.solve(problem)`: its default method, tolerance and
monitor, nothing tuned; in brackets the gradient norm of what it returns. For every run its shards and its problem are
made anew, outside the clock; what it makes of them is on the clock. `danl, again` solves the same problem object a
second time; `danl, monitor=False` does not measure objective and gradient norm after every exchange. The peers get all
rows at once, as a CSR matrix, and as a dense array, too, where at least {share:g} % of the entries are not zero. Best
of {repeats}, in turn:
"""
TOLERANCES = """
The peers' tolerances, the loosest that reach it of {first:g}, {second}, {third:g}, ..., {last:g}, and danl's default,
which is [no gradient norm](method.md#the-end); and the gradient norms of what was returned:
"""


def fastest(rows: Rows, name: str, forms: Sequence[str]) -> Row | None:
    """The fastest peer on a data set that reaches the norm, given the data in one of these forms."""
    peers = [
        row
        for row in rows
        if row["data"] == name and row["given"] in forms and row["reaches"] and row["seconds"] is not None
    ]
    return min(peers, key=lambda row: float(row["seconds"]), default=None)


def ratios(rows: Rows, solver: str = "danl", forms: Sequence[str] = FORMS) -> dict[str, float]:
    """danl's time over that of the fastest peer, for every data set where both reach the norm."""
    found = {}
    for row in rows:
        rival = fastest(rows, row["data"], forms)
        if row["solver"] == solver and row["reaches"] and rival is not None:
            found[row["data"]] = row["seconds"] / rival["seconds"]
    return found


def names(rows: Rows) -> list[str]:
    return list(dict.fromkeys(row["data"] for row in rows))


def markdown(rows: Rows) -> str:
    every = names(rows)
    solvers = list(dict.fromkeys((row["solver"], row["given"]) for row in rows))
    by_key = {(row["solver"], row["given"], row["data"]): row for row in rows}
    lines = [
        [solver, form, *(_cell(by_key.get((solver, form, name))) for name in every)]
        for solver, form in solvers
        if any((solver, form, name) in by_key for name in every)
    ]
    parts = [
        prose(
            TEXT,
            alpha=ALPHA,
            norm=NORM,
            workers=WORKERS,
            share=100 * DENSE_FROM,
            repeats=most(rows, "repeats"),
        ),
        table(["solver", "data as", *every], lines, left=2),
        "danl's time over that of the fastest peer that reaches it:",
        ratio_table(rows),
        prose(TOLERANCES, first=GRID[0], second=digits(GRID[1], 2), third=GRID[2], last=GRID[-1]),
        table(
            ["solver", "data as", *every],
            [[s, f, *(_tol(by_key.get((s, f, n))) for n in every)] for s, f in solvers],
            left=2,
        ),
    ]
    counts = [
        f"{row['data']} {row['exchanges']} ({row['hessians']} of Hessians)" for row in rows if row["solver"] == "danl"
    ]
    parts.append(f"Exchanges danl took: {', '.join(counts)}.")
    return "\n\n".join(parts)


def monitor_shares(rows: Rows) -> dict[str, float]:
    """Percent of a default run that the monitor takes, by data set: what a run without it is faster by."""
    seconds = {(row["solver"], row["data"]): row["seconds"] for row in rows}
    return {
        name: max(0.0, 100 * (1 - seconds[BARE, name] / seconds["danl", name]))
        for name in names(rows)
        if (BARE, name) in seconds and ("danl", name) in seconds
    }


def ratio_table(rows: Rows) -> str:
    every, lines = names(rows), []
    for label, solver, forms in (
        ("danl to peers given CSR or dense", "danl", FORMS),
        ("danl to peers given CSR", "danl", ("CSR",)),
        *((f"{solver}, to peers given CSR or dense", solver, FORMS) for solver in list(CALLS)[1:]),
    ):
        found = ratios(rows, solver, forms)
        lines.append([label, *(times(found.get(name)) for name in every), times(geometric_mean(found.values()))])
    rivals = [fastest(rows, name, FORMS) for name in every]
    lines.append(["fastest peer", *("-" if row is None else f"{row['solver']}, {row['given']}" for row in rivals), ""])
    shares = monitor_shares(rows)
    lines.append(["the monitor's share", *(percent(shares.get(name)) for name in every), ""])
    return table(["ratio", *every, "geometric mean"], lines)


def percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1f} %"


def short_table(rows: Rows) -> str:
    """For the README: danl, and of every package the fastest of its solvers that reaches the norm, in any form."""
    every = names(rows)
    lines = [["danl's defaults, 10 shards", *(_cell(row, "") for row in rows if row["solver"] == "danl")]]
    for package in dict.fromkeys(peer.split()[0] for peer in PEERS):
        own = [row for row in rows if row["solver"].startswith(package)]
        best = [fastest(own, name, FORMS) for name in every]
        lines.append([f"{package}, pooled", *(_named(row) for row in best)])
    return table(short_header(every), lines)


def short_header(data: Sequence[str]) -> list[str]:
    return [f"to gradient norm {NORM:g}", *data]


def _named(row: Row | None) -> str:
    if row is None:
        return "not reached"
    return f"{milliseconds(row['seconds'])} ({row['solver'].split()[-1]}, {row['given']})"


def _cell(row: Row | None, norms_of: str = "danl") -> str:
    if row is None:
        return "not tried"
    if not row["reaches"] or row["seconds"] is None:
        return f"does not reach it ({row['norm']:.1e})"
    shown = f" ({row['norm']:.1e})" if norms_of and row["solver"].startswith(norms_of) else ""
    return milliseconds(row["seconds"]) + shown


def _tol(row: Row | None) -> str:
    if row is None:
        return "not tried"
    return f"{'none' if row['tol'] is None else digits(row['tol'], 2)}: {row['norm']:.1e}"


def goals(rows: Rows) -> list[tuple[str, str, str, bool | None]]:
    """What is held against a bar: what, measured, bar, whether it is met."""
    judged = [row for row in rows if row["solver"] == "danl"]
    if not judged:
        return []
    found, shares = ratios(rows), monitor_shares(rows)
    lost = [row["data"] for row in judged if not row["reaches"]]
    without = f", and does not reach it on {', '.join(lost)}" if lost else ""
    mean, worst = geometric_mean(found.values()), max(found.values(), default=math.nan)
    label = f"default solve to {NORM:g}, over the fastest peer"
    bars: list[tuple[str, str, str, bool | None]] = [
        (f"{label}, geometric mean", times(mean) + without, f"{GOAL_MEAN:g} x", not lost and mean <= GOAL_MEAN),
        (f"{label}, worst", times(worst) + without, f"{GOAL_WORST:g} x", not lost and worst <= GOAL_WORST),
    ]
    if shares:
        most_of = max(shares.values())
        what = "the monitor's share of a default run, worst"
        bars.append((what, percent(most_of), f"{GOAL_MONITOR:g} %", most_of <= GOAL_MONITOR))
    return bars


def plots(rows: Rows, folder: Path) -> list[tuple[Path, str]]:
    from benchmarks.drawing import bars

    every = names(rows)
    series: dict[str, list[float | None]] = {}
    for solver in dict.fromkeys(row["solver"] for row in rows if row["solver"] != "danl, again"):
        own = [
            [row["seconds"] for row in rows if (row["solver"], row["data"]) == (solver, name) and row["reaches"]]
            for name in every
        ]
        series[solver] = [min((1e3 * value for value in values if value is not None), default=None) for values in own]
    path = bars(
        folder / "bench-speed.png",
        every,
        series,
        f"milliseconds to gradient norm {NORM:g}",
        "Time of a solve, one thread",
    )
    return [(path, "Time to gradient norm 1e-9 of danl, scikit-learn and glum on four data sets")]
