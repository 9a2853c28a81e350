"""How everything is measured here: one thread, contestants in turn, the best of several, and where it happened."""

from __future__ import annotations

import gc
import math
import os
import platform
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
from scipy import sparse

from benchmarks import THREADS

PACKAGES = ("numpy", "scipy", "tabmat", "scikit-learn", "glum", "matplotlib")

Row = dict[str, Any]
Rows = list[Row]


# --- time ---


@dataclass(frozen=True)
class Contestant:
    """Something to be timed: `run` is on the clock, `prepare` is not, and makes what `run` gets anew every time."""

    name: str
    run: Callable[[Any], Any]
    prepare: Callable[[], Any] = lambda: None
    seconds: Callable[[Any, float], float] = lambda _result, elapsed: elapsed
    """What counts as its time: the time `run` took, unless its result tells it better."""


@dataclass
class Timing:
    """What a contestant took, time by time, on the wall and of the processor, and what it returned last."""

    seconds: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)
    result: Any = None

    @property
    def best(self) -> float:
        return min(self.seconds)

    @property
    def median(self) -> float:
        return float(np.median(self.seconds))


def race(contestants: Sequence[Contestant], repeats: int, *, warm_up: int = 1) -> dict[str, Timing]:
    """Let everyone run in turn, again and again: what disturbs the machine meets all of them.

    Who begins changes from time to time. The first `warm_up` times do not count.
    """
    timings = {contestant.name: Timing() for contestant in contestants}
    for count in range(-warm_up, repeats):
        shift = count % len(contestants)
        for contestant in (*contestants[shift:], *contestants[:shift]):
            prepared = contestant.prepare()
            gc.collect()
            begun, worked = time.perf_counter(), time.process_time()
            result = contestant.run(prepared)
            elapsed, worked = time.perf_counter() - begun, time.process_time() - worked
            timing = timings[contestant.name]
            timing.result = result
            if count >= 0:
                timing.processor.append(worked)
                timing.seconds.append(contestant.seconds(result, elapsed))
    return timings


class Stamps:
    """A callback of `danl.solve` that looks at the clock after every exchange."""

    def __init__(self) -> None:
        self.begun = time.perf_counter()
        self.times: list[float] = []
        self.kinds: list[str] = []

    def __call__(self, row: Any) -> None:
        self.times.append(time.perf_counter())
        self.kinds.append(row.kind)

    @property
    def first(self) -> float:
        """Seconds from the call to the end of the first exchange."""
        return self.times[0] - self.begun

    def spans(self, kind: str) -> list[float]:
        """Seconds of every later exchange of a kind, from the end of the one before to its own."""
        passed = zip(self.times[1:], self.times[:-1], self.kinds[1:], strict=True)
        return [after - before for after, before, own in passed if own == kind]


# --- numbers ---


def geometric_mean(values: Iterable[float]) -> float:
    logs = [math.log(value) for value in values]
    return math.exp(sum(logs) / len(logs)) if logs else math.nan


def exponent(sizes: Sequence[float], values: Sequence[float]) -> float:
    """The p of value = c size^p that fits best in logarithms; nan for fewer than two sizes."""
    if len(set(sizes)) < 2:
        return math.nan
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


def last_decade(sizes: Sequence[float], values: Sequence[float]) -> tuple[list[float], list[float]]:
    """The points whose size is at least a tenth of the largest: there what does not grow matters least."""
    kept = [(size, value) for size, value in zip(sizes, values, strict=True) if size >= 0.0999 * max(sizes)]
    return [size for size, _ in kept], [value for _, value in kept]


def gradient_norm(X: Any, y: np.ndarray, w: np.ndarray, alpha: float) -> float:
    """|grad f(w)| of the averaged logistic loss plus alpha / 2 |w|^2, on the pooled rows, by nobody's code but this."""
    from scipy.special import expit

    return float(np.linalg.norm(X.T @ (expit(X @ w) - y) / len(y) + alpha * w))


# --- data ---


def loaded(data: Iterable[str]) -> Iterator[tuple[str, Any, np.ndarray]]:
    """Data sets by name: each with its rows and targets."""
    import danl

    for name in data:
        found = danl.load_dataset(name)
        yield name, found.X, found.y


def sparse_problem(rows: int, columns: int, entries: int, seed: int = 0) -> tuple[Any, np.ndarray]:
    """Made-up rows for a logistic model: `entries` normal numbers in each, one in every `columns / entries` columns."""
    rng = np.random.default_rng(seed)
    places = (np.arange(entries) + rng.random((rows, entries), dtype=np.float32)) * (columns / entries)
    indices = np.minimum(places.astype(np.int32), columns - 1).ravel()
    values = rng.standard_normal(rows * entries) / math.sqrt(entries)
    X = sparse.csr_matrix((values, indices, np.arange(rows + 1) * entries), shape=(rows, columns))
    X.sum_duplicates()
    chances = 1.0 / (1.0 + np.exp(-(X @ (2 * rng.standard_normal(columns)))))
    y = (rng.random(rows) < chances).astype(float)
    y[:2] = 0.0, 1.0  # both classes, however few the rows
    return X, y


# --- where ---


def environment() -> dict[str, Any]:
    """The machine, the versions and the threads, as they are now."""
    from threadpoolctl import threadpool_info

    from benchmarks.blocks import commit
    from danl import __version__
    from danl.reproduce.pages import processor

    versions = {"danl": __version__, "Python": platform.python_version()}
    for name in PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "not installed"
    pools = [
        {key: pool.get(key) for key in ("user_api", "internal_api", "version", "num_threads")}
        for pool in threadpool_info()
    ]
    return {
        "commit": commit(),
        "processor": processor(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "versions": versions,
        "threads": {name: os.environ.get(name) for name in THREADS},
        "pools": sorted(pools, key=lambda pool: (str(pool["user_api"]), str(pool["internal_api"]))),
        "load": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
    }


# --- Markdown ---


def prose(text: str, *, indent: str = "", **values: Any) -> str:
    """A paragraph in lines of 120 characters, those after the first indented, with the values filled in."""
    words = " ".join(text.format(**values).split())
    return textwrap.fill(words, 120, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def most(rows: Rows, key: str) -> Any:
    return max((row[key] for row in rows), default=0)


def table(header: Sequence[str], lines: Iterable[Sequence[str]], *, left: int = 1) -> str:
    """A Markdown table; the first `left` columns are set to the left, the others to the right."""
    rule = ["---" if place < left else "---:" for place in range(len(header))]
    return "\n".join("| " + " | ".join(line) + " |" for line in [header, rule, *lines])


def digits(value: float | None, significant: int = 3) -> str:
    """A number with so many significant digits and no exponent where people would write none."""
    if value is None or not math.isfinite(value):
        return "-"
    if value == 0:
        return "0"
    if not 1e-3 <= abs(value) < 1e7:
        return f"{value:.{significant - 1}e}"
    places = max(0, significant - 1 - math.floor(math.log10(abs(value))))
    return f"{round(value, places):,.{places}f}"


def milliseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{digits(1e3 * seconds)} ms"


def times(ratio: float | None) -> str:
    return "-" if ratio is None or not math.isfinite(ratio) else f"{digits(ratio)} x"


def amount(count: float) -> str:
    """Bytes as people say them."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if abs(count) >= size:
            return f"{digits(count / size)} {unit}"
    return f"{count:.0f} B"
