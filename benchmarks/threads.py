"""Two threads against one: what danl gains by the second, beside scikit-learn and glum.

Every number of threads has processes of its own, with the environment that says it (OMP_NUM_THREADS and the like), in
turn. In these everyone fits with default tolerances: a gain is a solver's own time with one thread over that with two.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import danl
from benchmarks import THREADS
from benchmarks.measure import Contestant, Rows, milliseconds, prose, race, table, times

TITLE = "Threads: what the second one gains"
ALPHA = 1e-3
WORKERS = 10
DATA = ("a9a", "w8a")
DENSE, DENSE_QUICK = (200_000, 50), (2_000, 10)
COUNTS = (1, 2)
ROUNDS, REPEATS = 2, 2
OWN = "danl.solve"
PEERS = ("scikit-learn lbfgs", "scikit-learn newton-cholesky", "glum")


def dense_problem(rows: int, columns: int) -> tuple[np.ndarray, np.ndarray]:
    """Normal numbers, and classes by a logistic model of them."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((rows, columns))
    chances = 1.0 / (1.0 + np.exp(-X @ (2 * rng.standard_normal(columns) / np.sqrt(columns))))
    return X, (rng.random(rows) < chances).astype(float)


def problems(names: Sequence[str], *, quick: bool) -> Iterator[tuple[str, Any, np.ndarray]]:
    """The data by name, and dense rows that are made up."""
    for name in names:
        loaded = danl.load_dataset(name)
        yield name, loaded.X, loaded.y
    shape = DENSE_QUICK if quick else DENSE
    yield f"dense, {shape[0]:,} x {shape[1]}", *dense_problem(*shape)


def contestants(X: Any, y: np.ndarray) -> list[Contestant]:
    """Everyone, with an intercept, on the pooled rows or on those of 10 workers."""
    from glum import GeneralizedLinearRegressor
    from sklearn.linear_model import LogisticRegression

    kept = danl.Problem(danl.partition(X, y, workers=WORKERS, seed=0), alpha=ALPHA, intercept=True)
    penalty = {"C": 1 / (ALPHA * len(y))}
    lbfgs = LogisticRegression(**penalty, solver="lbfgs", max_iter=1000)
    cholesky = LogisticRegression(**penalty, solver="newton-cholesky")
    generalised = GeneralizedLinearRegressor(family="binomial", alpha=ALPHA, l1_ratio=0)
    return [
        Contestant(OWN, lambda _: danl.solve(kept)),
        Contestant("DANLClassifier", lambda _: danl.DANLClassifier(alpha=ALPHA, workers=WORKERS).fit(X, y)),
        Contestant(PEERS[0], lambda _: lbfgs.fit(X, y)),
        Contestant(PEERS[1], lambda _: cholesky.fit(X, y)),
        Contestant(PEERS[2], lambda _: generalised.fit(X, y)),
    ]


def in_this_process(names: Sequence[str], *, quick: bool) -> dict[str, dict[str, float]]:
    """The best time of everyone on every problem, with the threads there are."""
    found = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of solvers that stop early: their time counts all the same
        for name, X, y in problems(names, quick=quick):
            timings = race(contestants(X, y), 1 if quick else REPEATS)
            found[name] = {label: timing.best for label, timing in timings.items()}
    return found


def measure(*, quick: bool = False, data: Sequence[str] = DATA) -> Rows:
    words = [sys.executable, "-m", "benchmarks.threads", *data, *(["--quick"] if quick else [])]
    best: dict[tuple[str, str], dict[int, float]] = {}
    for _ in range(1 if quick else ROUNDS):
        for count in COUNTS:
            set_to = {**os.environ, **dict.fromkeys(THREADS, str(count))}
            told = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True, env=set_to).stdout
            for name, own in json.loads(told.splitlines()[-1]).items():
                for label, seconds in own.items():
                    times_of = best.setdefault((name, label), {})
                    times_of[count] = min(seconds, times_of.get(count, np.inf))
    return [
        {"data": name, "solver": label, "one": own[1], "two": own[2], "cores": os.cpu_count()}
        for (name, label), own in best.items()
    ]


# --- the document ---

TEXT = """
Whole fits with an intercept, alpha {alpha:g} and everyone's default tolerance, `danl.solve` with {workers} workers, in
processes with one thread or two (`OMP_NUM_THREADS` and the like); the best of {rounds} times {repeats}. The gain is the
time with one over that with two: 2 x would be all there is. The numbers of danl are the same to the bit. Where fits
take some milliseconds there is little to share, and a machine on which others work gains less:
"""


def gains(rows: Rows) -> dict[str, dict[str, float]]:
    """By data and solver."""
    found: dict[str, dict[str, float]] = {}
    for row in rows:
        found.setdefault(row["data"], {})[row["solver"]] = row["one"] / row["two"]
    return found


def markdown(rows: Rows) -> str:
    lines = [
        [row["data"], row["solver"], milliseconds(row["one"]), milliseconds(row["two"]), times(row["one"] / row["two"])]
        for row in rows
    ]
    return "\n\n".join(
        [
            prose(TEXT, alpha=ALPHA, workers=WORKERS, rounds=ROUNDS, repeats=REPEATS),
            table(["data", "solver", "one thread", "two threads", "gain"], lines, left=2),
        ]
    )


def goals(rows: Rows) -> list[tuple[str, str, str, bool | None]]:
    found: list[tuple[str, str, str, bool | None]] = []
    for data, own in gains(rows).items():
        ratio = max(own[peer] for peer in PEERS) / own[OWN]
        found.append(
            (f"two threads over one, {data}: the best peer's gain over danl's", times(ratio), "1 x", ratio <= 1)
        )
    return found


def plots(rows: Rows, folder: Path) -> list[tuple[Path, str]]:
    return []


if __name__ == "__main__":
    given = [word for word in sys.argv[1:] if word != "--quick"]
    print(json.dumps(in_this_process(given, quick="--quick" in sys.argv)))
