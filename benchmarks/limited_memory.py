"""Parts of Hessians beside limited-memory BFGS: evaluations until the gap is a tenth of a billionth of the optimum.

scipy's L-BFGS-B evaluates the pooled objective and its gradient; an exchange of danl's workers in which gradients are
sent is such an evaluation, with a part of the Hessian where one is asked. Whoever asks for curvature should not need
more of them than who asks for none. Both start from zero, and both count until the first evaluation after which the
model at hand has the gap.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from scipy.special import expit

import danl
from benchmarks.measure import Row, Rows, digits, geometric_mean, loaded, most, prose, table, times
from benchmarks.shape_cases import Shape, made
from danl.server.quasi_newton import ON_A_PART

TITLE = "Parts of Hessians beside limited-memory BFGS"
GAP = 1e-10
"""f - f* over f*."""
WORKERS, BLOCKS, PAIRS = 10, 10, 20
DATA = ("a1a", "a9a", "w8a", "phishing")
PENALTIES: dict[str, dict[str, float]] = {
    "alpha 1e-3": {"alpha": 1e-3},
    "alpha 1e-5": {"alpha": 1e-5},
    "lambda 1e-4": {"l2": 1e-4},
}
METHODS: dict[str, dict[str, Any]] = {
    "danl": {"method": "danl"},
    "lowrank:10": {"method": "danl:curvature=lowrank:10"},
    "lowrank:50": {"method": "danl:curvature=lowrank:50"},
    "diag": {"method": "danl:curvature=diag"},
    "block": {"method": "danl:curvature=block", "regions": BLOCKS},
}
MAX_ROUNDS = 1_000
GOAL_RATIO, GOAL_REFUSED = 1.1, 10.0
EVALUATIONS = ("gradient", "hessian")
"""Kinds of exchange in which gradients are sent."""


def one_hot(rows: int = 5_000, groups: int = 20, levels: int = 100, seed: int = 0) -> tuple[Any, np.ndarray]:
    """Rows with one of so many levels of every group, as frequent as words are; noisy labels."""
    rng = np.random.default_rng(seed)
    frequency = 1.0 / np.arange(1, levels + 1)
    drawn = rng.choice(levels, size=(rows, groups), p=frequency / frequency.sum())
    indices = (drawn + levels * np.arange(groups)).ravel()
    X = sparse.csr_matrix(
        (np.ones(rows * groups), indices, groups * np.arange(rows + 1)), shape=(rows, groups * levels)
    )
    z = X @ rng.standard_normal(groups * levels)
    return X, (rng.random(rows) < expit(2.0 * (z - z.mean()) / z.std())).astype(float)


def made_up() -> dict[str, Callable[[], tuple[Any, np.ndarray]]]:
    return {"one-hot 5,000 x 2,000": one_hot, "sparse 20,000 x 2,000": lambda: made(Shape("binary", 20_000, 2_000, 50))}


def measure(*, quick: bool = False, data: Sequence[str] = DATA) -> Rows:
    if quick:
        X, y = one_hot(300, 4, 5)
        return measure_one("one-hot 300 x 20", X, y, max_rounds=100)
    return [row for name, X, y in settings(data) for row in measure_one(name, X, y)]


def settings(data: Sequence[str]) -> Iterator[tuple[str, Any, np.ndarray]]:
    yield from loaded(data)
    for name, make in made_up().items():
        X, y = make()
        yield name, X, np.asarray(y, dtype=float)


def measure_one(name: str, X: Any, y: np.ndarray, *, max_rounds: int = MAX_ROUNDS) -> Rows:
    """Everyone's evaluations on one data set, by penalty."""
    shards, rows = danl.partition(X, y, workers=WORKERS, seed=0), []
    for penalty, options in PENALTIES.items():
        problem = danl.Problem(shards, **options)
        optimum = danl.reference_optimum(problem).objective
        bfgs, more = (evaluations(problem, optimum, pairs=pairs) for pairs in (PAIRS, ON_A_PART * PAIRS))
        decided = max(max_rounds, math.ceil(GOAL_RATIO * (bfgs or 0)))  # what is not there by then has missed the bar
        for label, call in METHODS.items():
            row = {"data": name, "penalty": penalty, "method": label, "max_rounds": max_rounds, "bfgs": bfgs}
            rows.append(row | {"bfgs_more_pairs": more} | counted(problem, optimum, call, decided))
            print(f"{name}, {penalty}: {label}: {rows[-1]['evaluations']}, L-BFGS {bfgs}", file=sys.stderr)
    return rows


class ReachedError(Exception):
    """The gap is there; what L-BFGS-B would do next is not asked for."""


def evaluations(
    problem: danl.Problem, optimum: float, at_most: int = 10 * MAX_ROUNDS, pairs: int = PAIRS
) -> int | None:
    """Evaluations that scipy's L-BFGS-B needs until the gap is there; None where it ends before."""
    from scipy.optimize import minimize

    count = 0

    def evaluate(w: np.ndarray) -> tuple[float, np.ndarray]:
        nonlocal count
        count += 1
        value, gradient = problem.value_and_gradient(w)
        if value <= optimum * (1 + GAP):
            raise ReachedError
        return value, gradient

    limits = {"maxcor": pairs, "maxiter": at_most, "maxfun": at_most, "ftol": 0.0, "gtol": 0.0}
    try:
        minimize(evaluate, np.zeros(problem.n_coefficients), jac=True, method="L-BFGS-B", options=limits)
    except ReachedError:
        return count
    return None


def counted(problem: danl.Problem, optimum: float, call: dict[str, Any], max_rounds: int) -> Row:
    """Exchanges of a run until the gap is there, by what was sent, and the trials that were refused."""
    target = optimum * (1 + GAP)
    result = danl.solve(
        problem, tol=0.0, max_rounds=max_rounds, callback=lambda row: bool(row.objective <= target), **call
    )
    history, last = result.history, result.history[-1].objective
    kinds = history.column("kind")
    return {
        "reached": bool(last <= target),
        "status": result.status,
        "gap": float(last / optimum - 1),
        "evaluations": int(np.isin(kinds, EVALUATIONS).sum()),
        "exchanges": len(history),
        "curvature": int((kinds == "hessian").sum()),
        "refused": int(history.column("refused").sum()),
    }


# --- the document ---

TEXT = """
Evaluations until the objective is above its optimum by {gap:g} of it: for danl, with {workers} workers, exchanges in
which gradients are sent, of these with curvature in brackets; for `scipy.optimize.minimize(method="L-BFGS-B")` with
{pairs} pairs, calls of the function and gradient of the pooled objective. From zero; at most {rounds:,} exchanges, or
{bar:g} x what L-BFGS took where that is more; a run that is not there then, or that ends by itself before, is shown
with what is left. `danl` is the default method with its own choice, the others are
`curvature=` of it; `block` has {blocks} regions. On a part danl keeps up to {kept} pairs, so L-BFGS with as many stands
beside it, not judged. lambda is the paper's penalty, l2 over the rows of a worker. The
one-hot rows have 20 groups of 100 levels, as frequent as words are; the sparse ones are those of the shapes part:
"""
RATIOS = """
Evaluations over those of L-BFGS, and in brackets the share of the exchanges in which the losses refused a trial step:
"""


def ratio(row: Row) -> float | None:
    return row["evaluations"] / row["bfgs"] if row["reached"] and row["bfgs"] else None


def refused(row: Row) -> float:
    """Percent of the exchanges whose trial was refused."""
    return 100 * row["refused"] / max(row["exchanges"], 1)


def markdown(rows: Rows) -> str:
    methods = list(dict.fromkeys(row["method"] for row in rows))
    found = {(row["data"], row["penalty"], row["method"]): row for row in rows}
    counts, shares = [], []
    for name, penalty in dict.fromkeys((row["data"], row["penalty"]) for row in rows):
        own = [found[name, penalty, method] for method in methods]
        bfgs = own[0]["bfgs"]
        peers = ["not reached" if each is None else str(each) for each in (bfgs, own[0]["bfgs_more_pairs"])]
        counts.append([name, penalty, *peers, *map(_count, own)])
        shares.append([name, penalty, *(f"{times(ratio(row))} ({refused(row):.0f} %)" for row in own)])
    by_method = [[row for row in rows if row["method"] == method] for method in methods]
    shares.append(["geometric mean", "", *(times(geometric_mean(_ratios(own))) for own in by_method)])
    shares.append(["worst", "", *(_worst(own) for own in by_method)])
    return "\n\n".join(
        [
            prose(
                TEXT,
                gap=GAP,
                workers=WORKERS,
                pairs=PAIRS,
                rounds=most(rows, "max_rounds"),
                bar=GOAL_RATIO,
                blocks=BLOCKS,
                kept=ON_A_PART * PAIRS,
            ),
            table(
                ["data", "penalty", "L-BFGS", f"{ON_A_PART * PAIRS} pairs", *(f"`{method}`" for method in methods)],
                counts,
                left=2,
            ),
            prose(RATIOS),
            table(["data", "penalty", *(f"`{method}`" for method in methods)], shares, left=2),
        ]
    )


def _count(row: Row) -> str:
    shown = f"{row['evaluations']:,} ({row['curvature']})"
    if row["reached"]:
        return shown
    ended = " and has ended" if row["status"] != "max_rounds" else ""
    return f"{row['gap']:.1e} after {shown}{ended}"


def _ratios(rows: Rows) -> list[float]:
    return [value for value in map(ratio, rows) if value is not None]


def _worst(rows: Rows) -> str:
    """The largest ratio, and how many settings have none."""
    lost = sum(not row["reached"] for row in rows)
    return times(max(_ratios(rows), default=math.nan)) + (f", {lost} not reached" if lost else "")


def goals(rows: Rows) -> list[tuple[str, str, str, bool | None]]:
    """Of the default's own choice, and of the parts that are asked for by name."""
    default = [row for row in rows if row["method"] == "danl"]
    named = [row for row in rows if row["method"] != "danl"]
    found = []
    for who, own in (("the default", default), ("parts of Hessians asked for by name", named)):
        if own:
            worst, share = max(_ratios(own), default=math.inf), max(map(refused, own))
            met = worst <= GOAL_RATIO and all(row["reached"] for row in own)
            found += [
                (f"{who}: evaluations over L-BFGS, gap {GAP:g}, worst", _worst(own), f"{GOAL_RATIO:g} x", met),
                (f"{who}: trials refused, worst", f"{digits(share)} %", f"{GOAL_REFUSED:g} %", share < GOAL_REFUSED),
            ]
    return found


def plots(rows: Rows, folder: Path) -> list[tuple[Path, str]]:
    return []
