"""Time of one masked round in this process, against a bare sparse gradient on the pooled rows.

A run of `danl-masked` looks at the clock after every exchange (a callback of `danl.solve`). A round is the time between
two looks: masks, tasks, the workers' gradients and losses, the validation of replies, the server's step, the row of the
history. What stands in the table is the mean over the rounds of a run, the best of several runs. The bare gradient is
X @ w and then X.T @ r with a vector r that is ready, as often as the run has rounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import danl
from benchmarks.measure import Contestant, Rows, Stamps, digits, milliseconds, most, prose, race, table, times

TITLE = "Rounds: a masked round against a bare gradient"
ALPHA = 1e-3
WORKERS, REGIONS, POLICY = 10, 4, "coverage:psi=3"
METHOD = "danl-masked"
DATA = ("a1a", "phishing", "a9a", "w8a")
ROUNDS = 50
REPEATS = 25
GOAL, GOAL_DATA = 2.0, "a9a"


def run(problem: danl.Problem, rounds: int, method: Any = METHOD, policy: str = POLICY) -> Stamps:
    """A run that does not stop by itself, with the times of its exchanges."""
    stamps = Stamps()
    danl.solve(
        problem,
        method=method,
        regions=REGIONS,
        policy=policy,
        max_rounds=rounds,
        tol=0.0,
        monitor=False,
        callback=stamps,
    )
    return stamps


def mean_round(stamps: Stamps) -> float:
    return float(np.mean(stamps.spans("gradient")))


def bare_gradient(X: Any, y: np.ndarray, count: int) -> None:
    w, r = np.full(X.shape[1], 1e-3), y - 0.5
    for _ in range(count):
        X @ w
        X.T @ r


def whole_gradient(X: Any, y: np.ndarray, count: int) -> None:
    """Loss and gradient of the averaged objective: what the replies of a round add up to."""
    from scipy.special import expit

    w = np.full(X.shape[1], 1e-3)
    for _ in range(count):
        z = X @ w
        float(np.mean(np.logaddexp(0.0, z) - y * z)) + ALPHA / 2 * float(w @ w)
        X.T @ ((expit(z) - y) / len(y)) + ALPHA * w


def measure(*, quick: bool = False, data: Sequence[str] = DATA) -> Rows:
    rows: Rows = []
    for name in data:
        loaded = danl.load_dataset(name)
        rows.append(measure_one(name, loaded.X, loaded.y, rounds=ROUNDS, repeats=2 if quick else REPEATS))
    return rows


def measure_one(name: str, X: Any, y: np.ndarray, *, rounds: int, repeats: int) -> dict[str, Any]:
    problem = danl.Problem(danl.partition(X, y, workers=WORKERS, seed=0), alpha=ALPHA, weighting="samples")
    # A curvature that is never due: its gradient exchanges follow each other, but for steps that are refused.
    default = danl.methods.DANL(curvature=10**6)
    timings = race(
        [
            Contestant("round", lambda _: run(problem, rounds), seconds=lambda stamps, _: mean_round(stamps)),
            Contestant(
                "default",
                lambda _: run(problem, rounds, default),
                seconds=lambda stamps, _: mean_round(stamps) if stamps.spans("gradient") else np.inf,
            ),
            Contestant("bare", lambda _: bare_gradient(X, y, rounds), seconds=lambda _, elapsed: elapsed / rounds),
            Contestant("whole", lambda _: whole_gradient(X, y, rounds), seconds=lambda _, elapsed: elapsed / rounds),
        ],
        repeats,
    )
    best = {label: timing.best for label, timing in timings.items()}
    return {
        "data": name,
        "rows": int(X.shape[0]),
        "features": int(X.shape[1]),
        "entries": int(X.nnz),
        "rounds": len(timings["round"].result.spans("gradient")),
        "default_rounds": len(timings["default"].result.spans("gradient")),
        "repeats": repeats,
        "round": best["round"],
        "default_round": best["default"] if np.isfinite(best["default"]) else None,
        "bare": best["bare"],
        "whole": best["whole"],
    }


TEXT = """
{workers} workers, {regions} regions, policy `{policy}`, alpha {alpha:g}, no monitor. The bare gradient is `X @ w` and
`X.T @ r` on the pooled CSR matrix; with loss and penalty it is what a server would compute of pooled rows. A round of
`{method}` is the time from one callback of `danl.solve` to the next, the mean over {rounds} rounds of a run; everything
is the best of {repeats}, in turn. The last column is a masked round of `danl`, the default method, with the curvature
of Phase I kept:
"""


def markdown(rows: Rows) -> str:
    lines = [
        [
            row["data"],
            digits(row["entries"]),
            milliseconds(row["bare"]),
            milliseconds(row["whole"]),
            milliseconds(row["round"]),
            times(row["round"] / row["bare"]),
            times(row["round"] / row["whole"]),
            milliseconds(row["default_round"]),
        ]
        for row in rows
    ]
    return "\n\n".join(
        [
            prose(
                TEXT,
                workers=WORKERS,
                regions=REGIONS,
                policy=POLICY,
                alpha=ALPHA,
                method=METHOD,
                rounds=most(rows, "rounds"),
                repeats=most(rows, "repeats"),
            ),
            table(
                [
                    "data",
                    "entries",
                    "bare gradient",
                    "with loss",
                    f"round, `{METHOD}`",
                    "over bare",
                    "over with loss",
                    "round, `danl`",
                ],
                lines,
            ),
        ]
    )


def goals(rows: Rows) -> list[tuple[str, str, str, bool | None]]:
    return [
        (
            f"masked round over a bare gradient, {row['data']}",
            times(row["round"] / row["bare"]),
            f"{GOAL:g} x",
            row["round"] / row["bare"] <= GOAL,
        )
        for row in rows
        if row["data"] == GOAL_DATA
    ]


def plots(rows: Rows, folder: Path) -> list[tuple[Path, str]]:
    from benchmarks.drawing import bars

    series = {
        label: [1e3 * row[key] for row in rows]
        for label, key in (("bare gradient", "bare"), ("with loss", "whole"), (f"round of {METHOD}", "round"))
    }
    path = bars(
        folder / "bench-rounds.png", [row["data"] for row in rows], series, "milliseconds", "One round, one thread"
    )
    return [(path, "Time of a bare gradient, of one with its loss, and of a masked round, on four data sets")]
