"""What the methods ask of a network: exchanges, bytes and simulated seconds until the gap is below 1e-8 for good.

The runs are real, the network is not: `danl.solve(profiles=...)` takes each worker's machine as a `danl.Profile` and
writes into every row how long the slowest of them would take to receive, compute and send. It knows no latency; here
one is added for every exchange, and the table has the seconds with it and without.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import danl
from benchmarks.measure import Row, Rows, amount, digits, most, prose, table
from danl import History
from danl.wording import floored

TITLE = "Network: exchanges, bytes and simulated seconds"
GAP = 1e-8
ALPHA = 1e-3
WORKERS, REGIONS, POLICY = 10, 4, "coverage:psi=3"
ROWS_PER_SECOND = 1e6
"""Rows a worker takes through a gradient in a second."""
DATA = ("a1a", "phishing")
METHODS = {
    "danl": {"method": "danl", "policy": POLICY},
    "danl, full masks": {"method": "danl"},
    "danl-masked": {"method": "danl-masked", "policy": POLICY},
    "newton": {"method": "newton"},
    "newton-zero": {"method": "newton-zero"},
    "gd": {"method": "gd"},
    "fedavg": {"method": "fedavg"},
}
MAX_ROUNDS = 10_000
TOL = 1e-6
"""Runs stop at this gradient norm: with the penalty's strong convexity the gap is then below TOL^2 / (2 ALPHA)."""
CURVE_POINTS = 80


@dataclass(frozen=True)
class Network:
    """The way between every worker and the server."""

    name: str
    uplink: float
    downlink: float
    latency: float

    @property
    def profile(self) -> danl.Profile:
        return danl.Profile(rows_per_second=ROWS_PER_SECOND, uplink=self.uplink, downlink=self.downlink)

    def described(self) -> str:
        speeds = f"{amount(self.uplink)}/s up, {amount(self.downlink)}/s down"
        return f"{self.name}: {speeds}, {1e3 * self.latency:g} ms an exchange"


NETWORKS = (
    Network("slow", uplink=125e3, downlink=1.25e6, latency=0.1),
    Network("fast", uplink=125e6, downlink=125e6, latency=0.001),
)


def measure(*, quick: bool = False, data: Sequence[str] = DATA) -> Rows:
    rows: Rows = []
    for name in data[:1] if quick else data:
        loaded = danl.load_dataset(name)
        rows += measure_one(name, loaded.X, loaded.y, max_rounds=200 if quick else MAX_ROUNDS)
    return rows


def measure_one(
    name: str, X: Any, y: np.ndarray, *, max_rounds: int, methods: dict[str, dict[str, str]] | None = None
) -> Rows:
    problem = danl.Problem(danl.partition(X, y, workers=WORKERS, seed=0), alpha=ALPHA)
    reference = danl.reference_optimum(problem)
    rows: Rows = []
    for network in NETWORKS:
        for label, options in (METHODS if methods is None else methods).items():
            history = danl.solve(
                problem,
                regions=REGIONS,
                max_rounds=max_rounds,
                tol=TOL,
                reference=reference,
                profiles=[network.profile] * WORKERS,
                **options,
            ).history
            rows.append(
                {
                    "data": name,
                    "method": label,
                    "network": network.name,
                    "max_rounds": max_rounds,
                    **counted(history, network),
                }
            )
            print(f"{name}, {network.name}: {label}: {rows[-1]['exchanges']}", file=sys.stderr)
    return rows


def reached(history: History, gap: float = GAP) -> int | None:
    """The row from which on the gap is never above this again; None if it is at the end."""
    above = np.flatnonzero(~(history.column("gap") <= gap))
    first = int(above[-1]) + 1 if above.size else 0
    return first if first < len(history) else None


def counted(history: History, network: Network) -> Row:
    """Exchanges, bytes and seconds until the gap is reached, or until the end of the run."""
    last = reached(history)
    until = len(history) if last is None else last + 1
    seconds = np.cumsum(history.column("simulated_seconds"))[:until]
    with_latency = seconds + network.latency * np.arange(1, until + 1)
    gaps = history.column("gap")[:until]
    shown = np.unique(np.linspace(0, until - 1, min(CURVE_POINTS, until)).astype(int))
    return {
        "reached": last is not None,
        "exchanges": until,
        "hessians": int((history.column("kind")[:until] == "hessian").sum()),
        "bytes": int(history.total_bytes()[until - 1]),
        "seconds": float(seconds[-1]),
        "seconds_with_latency": float(with_latency[-1]),
        "gap": float(gaps[-1]) if math.isfinite(gaps[-1]) else None,
        "curve": {
            "seconds": [float(f"{with_latency[i]:.4g}") for i in shown],
            "gap": [float(f"{floored(gaps[i]):.4g}") if math.isfinite(gaps[i]) else None for i in shown],
        },
    }


# --- the document ---

TEXT = """
Until the gap f(w) - f(w\\*) is below {gap:g} for good, from zero. {workers} workers, {regions} regions, alpha
{alpha:g}; `danl` and `danl-masked` with policy `{policy}`, the others with everyone on everything; at most {rounds:,}
rounds. The seconds are simulated, of workers that take {speed:,.0f} rows a second through a gradient, on {networks}. In
brackets: without the latency. A method that does not get there is shown with its gap after its last exchange.
"""


def markdown(rows: Rows) -> str:
    networks = list(dict.fromkeys(row["network"] for row in rows))
    parts = [
        prose(
            TEXT,
            gap=GAP,
            workers=WORKERS,
            regions=REGIONS,
            alpha=ALPHA,
            policy=POLICY,
            rounds=most(rows, "max_rounds"),
            speed=ROWS_PER_SECOND,
            networks=" and ".join(network.described() for network in NETWORKS),
        )
    ]
    for name in dict.fromkeys(row["data"] for row in rows):
        own = [row for row in rows if row["data"] == name]
        lines = []
        for method in dict.fromkeys(row["method"] for row in own):
            by_network = {row["network"]: row for row in own if row["method"] == method}
            lines.append(line(method, by_network, networks))
        header = ["method", "exchanges", "of Hessians", "bytes", *(f"seconds, {network}" for network in networks)]
        parts += [f"On {name}:", table(header, lines)]
    return "\n\n".join(parts)


def line(method: str, by_network: dict[str, Row], networks: Sequence[str]) -> list[str]:
    first = next(iter(by_network.values()))
    shown = f"`{method}`" if " " not in method else method
    if not first["reached"]:
        gap = "diverged" if first["gap"] is None else f"gap {first['gap']:.1e}"
        reported = f"does not reach it in {first['exchanges']:,}: {gap}"
        return [shown, reported, "-", "-", *("-" for _ in networks)]
    cells = [
        f"{digits(by_network[name]['seconds_with_latency'])} ({digits(by_network[name]['seconds'])})"
        for name in networks
    ]
    return [shown, f"{first['exchanges']:,}", str(first["hessians"]), amount(first["bytes"]), *cells]


def goals(rows: Rows) -> list[tuple[str, str, str, bool | None]]:
    return []


def plots(rows: Rows, folder: Path) -> list[tuple[Path, str]]:
    from benchmarks.drawing import Panel, lines

    made = []
    for name in dict.fromkeys(row["data"] for row in rows):
        panels = []
        for network in dict.fromkeys(row["network"] for row in rows):
            own = [row for row in rows if (row["data"], row["network"]) == (name, network)]
            panels.append(
                Panel(
                    title=f"{name}, {network} network",
                    x="simulated seconds",
                    y="gap",
                    lines={
                        row["method"]: (
                            row["curve"]["seconds"],
                            [np.nan if g is None else g for g in row["curve"]["gap"]],
                        )
                        for row in own
                    },
                )
            )
        path = lines(folder / f"bench-network-{name}.png", panels)
        made.append((path, f"Gap against simulated seconds on {name}, on a slow and on a fast network"))
    return made
