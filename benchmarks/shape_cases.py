"""The shapes of `benchmarks.shapes`: their rows, the two fits of each, and one objective for both, in one process.

A process makes the rows of one shape, fits them with scikit-learn's default call, and lets danl go until its objective
is the one that scikit-learn reached. It writes down what it has after every stage: where a fit of danl is not back
after LIMIT seconds, a watchdog ends the process, and the lines that were written are what is known. The watchdog is
`faulthandler`'s, a thread that asks nobody for the interpreter's lock: one exchange may be one call of LAPACK.
"""

from __future__ import annotations

import argparse
import faulthandler
import gc
import json
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from scipy.special import expit, logsumexp, xlogy

from benchmarks.measure import Contestant, Row, Timing, race
from benchmarks.memory import baseline, peak

LIMIT = 60.0
"""Seconds after which a fit of danl is given up."""
SLACK = 1e-12
"""What the objective may be above that of scikit-learn, relative to it: rounding, and no more."""
BUDGET, MOST = 4.0, 25
"""A pair of fits is repeated for about so many seconds, and so many times at most."""
NOT_REPEATED = 15.0
"""A pair of fits that takes longer is timed once."""


@dataclass(frozen=True)
class Shape:
    """Rows to be made and what is fitted to them."""

    kind: str
    """"binary", "classes" (five of them), "ridge" or "poisson"."""
    rows: int
    columns: int
    entries: int | None = None
    """Of a row of a CSR matrix; None for a dense array."""

    @property
    def label(self) -> str:
        return f"{self.kind}, {self.rows:,} x {self.columns:,} {'dense' if self.entries is None else 'sparse'}"


# --- rows ---


def made(shape: Shape) -> tuple[Any, np.ndarray]:
    """The rows and the targets of a shape; the same every time."""
    if shape.kind in ("binary", "classes") and shape.entries is None:
        from sklearn.datasets import make_classification

        classes = 2 if shape.kind == "binary" else 5
        informative = min(50 if shape.columns >= 1_000 else 20, shape.columns // 2)
        X, y = make_classification(
            shape.rows, shape.columns, n_informative=informative, n_classes=classes, random_state=0
        )
        return X, y
    rng = np.random.default_rng(0)
    X = rng.standard_normal((shape.rows, shape.columns)) if shape.entries is None else scattered(shape, rng)
    planted = rng.standard_normal(shape.columns) * (rng.random(shape.columns) < 0.2)
    planted[0] = 1.0  # something to find, however few the columns
    z = X @ planted
    if shape.kind == "binary":
        return X, (rng.random(shape.rows) < expit(2.0 * z / z.std())).astype(int)
    if shape.kind == "ridge":
        return X, z + rng.standard_normal(shape.rows)
    return X, rng.poisson(2.0 * np.exp(0.5 * z / z.std() - 0.125)).astype(float)  # 2 of a row on average


def scattered(shape: Shape, rng: np.random.Generator) -> Any:
    """Normal numbers at random places, so many in every row; the few that meet are added up."""
    assert shape.entries is not None
    indices = rng.integers(shape.columns, size=shape.rows * shape.entries, dtype=np.int32)
    starts = np.arange(shape.rows + 1, dtype=np.int32) * np.int32(shape.entries)
    values = rng.standard_normal(len(indices))
    X = sparse.csr_matrix((values, indices, starts), shape=(shape.rows, shape.columns))
    X.sum_duplicates()
    return X


def data_bytes(X: Any) -> int:
    return int(X.nbytes if isinstance(X, np.ndarray) else X.data.nbytes + X.indices.nbytes + X.indptr.nbytes)


# --- fits ---


def peer(shape: Shape) -> Any:
    """scikit-learn's estimator at its defaults."""
    from sklearn import linear_model

    names = {"ridge": "Ridge", "poisson": "PoissonRegressor"}
    return getattr(linear_model, names.get(shape.kind, "LogisticRegression"))()


def ours(shape: Shape, callback: Callable[[Any], object] | None = None) -> Any:
    """danl's estimator at its defaults, with the penalty of `peer`."""
    from danl import DANLClassifier, DANLRegressor

    if shape.kind == "ridge":
        return DANLRegressor(C=1.0, callback=callback)  # Ridge(alpha=1)
    if shape.kind == "poisson":
        return DANLRegressor("poisson", alpha=1.0, callback=callback)  # PoissonRegressor(alpha=1)
    return DANLClassifier(callback=callback)  # C=1 for both


def objective(shape: Shape, X: Any, y: np.ndarray, model: Any) -> float:
    """Mean loss and penalty of any fitted estimator, by nobody's code but this."""
    coefficients = np.atleast_2d(model.coef_)
    z = np.asarray(X @ coefficients.T + np.ravel(model.intercept_))
    alpha = 1.0 if shape.kind == "poisson" else 1.0 / len(y)
    if shape.kind == "classes":
        losses = logsumexp(z, axis=1) - z[np.arange(len(y)), y]
    elif shape.kind == "binary":
        losses = np.logaddexp(0.0, (1 - 2 * y) * z[:, 0])
    elif shape.kind == "ridge":
        losses = 0.5 * np.square(z[:, 0] - y)
    else:
        losses = np.exp(z[:, 0]) - y * z[:, 0] + xlogy(y, y) - y
    return float(losses.mean() + alpha / 2 * np.square(coefficients).sum())


def stop_at(target: float) -> Callable[[Any], bool]:
    """A callback that ends a fit whose objective is at most this, and rounding."""
    return lambda row: bool(row.objective <= target + SLACK / 2 * abs(target))


# --- in the process of a case ---


@contextmanager
def watched(seconds: float = LIMIT) -> Iterator[None]:
    """End the process if what happens here takes longer."""
    faulthandler.dump_traceback_later(seconds, exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


def once(fit: Callable[[], Any]) -> Timing:
    """One fit, timed."""
    gc.collect()
    begun, worked = time.perf_counter(), time.process_time()
    result = fit()
    return Timing([time.perf_counter() - begun], [time.process_time() - worked], result)


def timed(shape: Shape, limit: float = LIMIT) -> Iterator[Row]:
    """What both take, stage by stage: every row has what the one before had, and more."""
    warm_up(shape)
    X, y = made(shape)
    theirs = once(lambda: peer(shape).fit(X, y))
    target = objective(shape, X, y, theirs.result)
    row: Row = {
        **vars(shape),
        "label": shape.label,
        "data": data_bytes(X),
        "limit": limit,
        "peer": type(theirs.result).__name__,
        "iterations": iterations(theirs.result),
        "target": target,
        **seconds("peer", theirs),
        "repeats": 1,
    }
    yield row

    def to_target() -> Any:
        return ours(shape, stop_at(target)).fit(X, y)

    with watched(limit):
        own = once(to_target)
    row = {**row, **seconds("danl", own), **run(own.result, shape, X, y, target)}
    yield row
    pair = theirs.best + own.best
    if pair <= NOT_REPEATED:
        contestants = [
            Contestant("peer", lambda _: peer(shape).fit(X, y)),
            Contestant("danl", lambda _: to_target()),
        ]
        repeats = max(1, min(MOST, int(BUDGET / pair)))
        found = race(contestants, repeats, warm_up=0)
        both = {**seconds("peer", found["peer"]), **seconds("danl", found["danl"])}
        row = {**row, **both, "repeats": repeats}
        yield row
    with watched(limit):
        whole = once(lambda: ours(shape).fit(X, y))
    again = [once(lambda: ours(shape).fit(X, y)) for _ in range(min(5, int(1.0 / whole.best)))]
    whole = Timing(
        [each.best for each in (whole, *again)], [each.processor[0] for each in (whole, *again)], whole.result
    )
    yield {**row, **seconds("end", whole), "end_exchanges": whole.result.n_iter_, "status": whole.result.result_.status}


def run(model: Any, shape: Shape, X: Any, y: np.ndarray, target: float) -> Row:
    """Where a fit of danl came to, and by what."""
    reached = objective(shape, X, y, model)
    return {
        "objective": reached,
        "reaches": reached <= target + SLACK * abs(target),
        "exchanges": model.n_iter_,
        "hessians": int((model.history_.column("kind") == "hessian").sum()),
    }


def seconds(who: str, timing: Timing) -> Row:
    return {f"{who}_processor": min(timing.processor), f"{who}_wall": timing.best}


def iterations(model: Any) -> int | None:
    """What scikit-learn counts; None where it solves directly."""
    counted = getattr(model, "n_iter_", None)
    return None if counted is None else int(np.max(counted))


def grown(shape: Shape, limit: float = LIMIT) -> Iterator[Row]:
    """The peak that the default fit adds to the ready rows."""
    warm_up(shape)
    X, y = made(shape)
    base = baseline()
    with watched(limit):
        ours(shape).fit(X, y)
    yield {"added": peak() - base}


def warm_up(shape: Shape) -> None:
    """A tiny fit of each: what is imported on the way is then there."""
    tiny = Shape(shape.kind, 60, 10, None if shape.entries is None else 3)
    X, y = made(tiny)
    peer(tiny).fit(X, y)
    ours(tiny).fit(X, y)


def play(what: str, shape: Shape, limit: float = LIMIT) -> Iterator[Row]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn's iterations end, danl is stopped: both warn of it
        yield from (timed if what == "time" else grown)(shape, limit)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="One shape, in this process: a JSON line after every stage.")
    parser.add_argument("what", choices=("time", "memory"))
    parser.add_argument("shape", type=json.loads)
    parser.add_argument("--limit", type=float, default=LIMIT)
    options = parser.parse_args()
    for found in play(options.what, Shape(**options.shape), options.limit):
        print(json.dumps(found), flush=True)
