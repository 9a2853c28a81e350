"""Fleets of unequal machines: simulated seconds from zero to a gap of 1e-8 (docs/heterogeneous.md).

Ten workers, 8 regions, four data sets, three penalties, even and label-sorted shards, and three fleets:

    A   three machines with processors 20 times and uplinks 50 times slower than those of the other seven
    B   every machine slower than the one before it, processor and lines, over two decades
    C   equal processors, three uplinks 50 times slower

`danl` where everyone waits for the slowest is held against the best of `newton`, `danl` and `danl-secant` as they were
before (BEFORE: simulated seconds depend on no machine, so they are stored; `--before FILE` measures them again, with
that version on the path). With a deadline that leaves the slowest machine a quarter or a half of the regions a round it
is held against `danl` with that deadline, as it was, and against itself without one.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path

import numpy as np

import danl
from benchmarks import drawing
from benchmarks.blocks import BLOCKS as PAGES
from benchmarks.blocks import ROOT, commit, made_with, markdown_table
from danl.policies.profiles import Fleet, load_of, seconds

BEFORE = Path(__file__).with_name("fleets_before.json")
SLOW = danl.Profile(rows_per_second=1_000, uplink=2e4, downlink=1e5)
FAST = danl.Profile(rows_per_second=20_000, uplink=1e6, downlink=1e6)
THIN = danl.Profile(rows_per_second=20_000, uplink=2e4, downlink=1e6)
FLEETS = {
    "A": [SLOW] * 3 + [FAST] * 7,
    "B": [danl.Profile(2e4 * factor, 1e6 * factor, 1e6 * factor) for factor in (10.0 ** (-i / 4.5) for i in range(10))],
    "C": [THIN] * 3 + [FAST] * 7,
}
DATA = ("a1a", "a3a", "phishing", "w8a")
PENALTIES = {"alpha 1e-3": {"alpha": 1e-3}, "alpha 1e-4": {"alpha": 1e-4}, "lambda 1e-4": {"l2": 1e-4}}
SHARDS = {"even": "iid", "sorted": "sorted"}
RIVALS = ("newton", "danl", "danl-secant")
SHARES = {"quarter": 2, "half": 4}
"""Of the 8 regions, what a deadline leaves the slowest machine."""
REGIONS = 8
GAP = 1e-8
MAX_ROUNDS = 3000
BARS = {"waiting": (0.33, 1.2), "deadline": (0.3, 1.0), "price": (1.6, 4.0)}
"""Geometric mean and worst: over the best of before, over `danl` with that deadline before, over `danl` without one."""
THIN_LINES = 1.1
"""The most over `danl` without a deadline where uplinks are the bottleneck: fleet C, phishing and w8a, even shards."""


@dataclass(frozen=True)
class Setting:
    data: str
    penalty: str
    shards: str
    fleet: str

    @property
    def key(self) -> str:
        return "|".join((self.data, self.penalty, self.shards, self.fleet))


@dataclass(frozen=True)
class Measured:
    """One run: until the gap is below GAP, and its longest exchange."""

    seconds: float | None
    exchanges: int | None
    hessians: int
    longest: float
    status: str
    deadline: float | None


def settings(data: Iterable[str] = DATA) -> list[Setting]:
    return [Setting(*parts) for parts in product(data, PENALTIES, SHARDS, FLEETS)]


def problem_of(data: str, penalty: str, shards: str) -> danl.Problem:
    rows = danl.load_dataset(data)
    made = danl.partition(rows.X, rows.y, workers=10, scheme=SHARDS[shards], seed=0)
    return danl.Problem(made, **PENALTIES[penalty])


def deadline_of(problem: danl.Problem, fleet: str, regions: int) -> float:
    """The seconds the slowest machine needs for so many of the largest regions."""
    sizes = np.sort(problem.layout.regions(REGIONS).sizes)[::-1]
    load = load_of(
        int(sizes[:regions].sum()),
        rows=np.array(problem.rows),
        shard_bytes=0,
        n_coefficients=problem.n_coefficients,
        n_regions=REGIONS,
    )
    costs = {"work_rows": load.work_rows, "bytes_down": load.bytes_down, "bytes_up": load.bytes_up}
    return float(np.max(seconds(Fleet.of(FLEETS[fleet]), **costs))) * (1 + 1e-9)


def measured(
    problem: danl.Problem, reference: danl.Reference, method: str, fleet: str, deadline: float | None
) -> Measured:
    profiles = FLEETS[fleet]
    policy = "full" if deadline is None else danl.policies.ResourceAware(profiles, deadline=deadline)
    run = danl.solve(
        problem,
        method=method,
        policy=policy,
        regions=REGIONS,
        profiles=profiles,
        reference=reference,
        max_rounds=MAX_ROUNDS,
        callback=lambda row: row.gap < GAP,
    )
    each, kinds = run.history.column("simulated_seconds"), run.history.column("kind")
    reached = run.history[-1].gap < GAP
    return Measured(
        seconds=float(each.sum()) if reached else None,
        exchanges=len(run.history) if reached else None,
        hessians=int((kinds == "hessian").sum()),
        longest=float(each.max()),
        status=run.status,
        deadline=deadline,
    )


def runs_of(group: tuple[str, str, str, tuple[str, ...]]) -> dict[str, dict[str, dict]]:
    """Every run on the same shards; with the deadlines for the default method."""
    *where, methods = group
    problem = problem_of(*where)
    reference, made = danl.reference_optimum(problem), {}
    for fleet in FLEETS:
        own = {method: measured(problem, reference, method, fleet, None) for method in methods}
        for share, regions in SHARES.items():
            own[share] = measured(problem, reference, "danl", fleet, deadline_of(problem, fleet, regions))
        made[Setting(*where, fleet).key] = {name: asdict(run) for name, run in own.items()}
    return made


def measure_all(data: Iterable[str], methods: tuple[str, ...]) -> dict[str, dict[str, dict]]:
    os.environ.update(OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1")
    groups = [(*where, methods) for where in product(data, PENALTIES, SHARDS)]
    made: dict[str, dict[str, dict]] = {}
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        for done in pool.imap_unordered(runs_of, groups):
            made.update(done)
            print(f"{len(made):3} of {3 * len(groups)}: {next(iter(done))}", file=sys.stderr)
    return made


# The report, from the rows alone.


def geometric(ratios: list[float]) -> float:
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def ratio(above: dict | None, below: dict | None) -> float:
    """Of two runs' seconds; inf where the first was not there in MAX_ROUNDS exchanges."""
    assert below is not None
    return math.inf if above is None or above["seconds"] is None else above["seconds"] / below["seconds"]


@dataclass(frozen=True)
class Ratios:
    """What the bars are about, by setting."""

    waiting: dict[str, float]
    deadline: dict[str, float]
    price: dict[str, float]
    past: dict[str, float]  # the longest exchange over the deadline

    @classmethod
    def of(cls, runs: dict, before: dict) -> Ratios:
        waiting, deadline, price, past = {}, {}, {}, {}
        for key, own in runs.items():
            best = min((before[key][method] for method in RIVALS), key=lambda run: run["seconds"] or math.inf)
            waiting[key] = ratio(own["danl"], best)
            for share in SHARES:
                deadline[f"{key}|{share}"] = ratio(own[share], before[key][share])
                past[f"{key}|{share}"] = own[share]["longest"] / own[share]["deadline"]
                if "lambda" not in key:
                    price[f"{key}|{share}"] = ratio(own[share], own["danl"])
        return cls(waiting, deadline, price, past)


def headers() -> list[list[str]]:
    return [
        ["fleet", "penalty", "seconds", "best before", "geometric mean", "worst", "where"],
        ["fleet", "regions a round", "over before", "worst", "over no deadline", "worst", "longest exchange"],
    ]


def chosen(ratios: dict[str, float], *words: str) -> dict[str, float]:
    return {key: value for key, value in ratios.items() if all(word in key.split("|") for word in words)}


def summary(ratios: dict[str, float]) -> list[str]:
    worst = max(ratios, key=lambda key: ratios[key])
    return [f"{geometric(list(ratios.values())):.2f} x", f"{ratios[worst]:.2f} x"]


def tables(runs: dict, before: dict) -> str:
    made, lines, more = Ratios.of(runs, before), [], []
    for fleet, penalty in product(FLEETS, PENALTIES):
        own = chosen(made.waiting, fleet, penalty)
        if not own:
            continue
        worst = max(own, key=lambda key: own[key]).split("|")
        took = sorted(runs[key]["danl"]["seconds"] for key in own)
        best = sorted(min(before[key][method]["seconds"] for method in RIVALS) for key in own)
        spans = [f"{each[0]:.3g} to {each[-1]:.3g}" for each in (took, best)]
        lines.append([fleet, penalty, *spans, *summary(own), f"{worst[0]}, {worst[2]}"])
    lines.append(["all", "", "", "", *summary(made.waiting), ""])
    for fleet, share in product(FLEETS, SHARES):
        over, price = chosen(made.deadline, fleet, share), chosen(made.price, fleet, share)
        longest = max(chosen(made.past, fleet, share).values())
        more.append([fleet, f"a {share}", *summary(over), *summary(price), f"{longest:.3f} of the deadline"])
    all_of = [*summary(made.deadline), *summary(made.price), f"{max(made.past.values()):.3f} of the deadline"]
    more.append(["all", "", *all_of])
    first, second = headers()
    return f"{markdown_table(first, lines, left=2)}\n\n{markdown_table(second, more, left=2)}"


def missed(runs: dict, before: dict) -> list[str]:
    """Every bar that is missed, a line each."""
    made, found = Ratios.of(runs, before), []
    for name, (mean, worst) in BARS.items():
        ratios = getattr(made, name)
        if geometric(list(ratios.values())) > mean:
            found.append(f"{name}: geometric mean {geometric(list(ratios.values())):.3f}, above {mean:g}")
        found += [f"{name}: {key} {value:.2f}, above {worst:g}" for key, value in ratios.items() if value > worst]
    thin = {key: value for data in ("phishing", "w8a") for key, value in chosen(made.price, data, "even", "C").items()}
    found += [
        f"thin lines: {key} {value:.2f}, above {THIN_LINES:g}" for key, value in thin.items() if value > THIN_LINES
    ]
    found += [f"past the deadline: {key} {value:.4f}" for key, value in made.past.items() if value > 1]
    return found


def draw(path: Path) -> None:
    """Seconds against gap on a1a, fleet A, as it was and as it is, with and without a deadline."""
    problem = problem_of("a1a", "alpha 1e-3", "even")
    reference = danl.reference_optimum(problem)
    deadline = deadline_of(problem, "A", SHARES["half"])
    runs = {
        "newton": ("newton", "full"),
        "danl, Hessians of everyone": ("danl:curvature_from=everyone,hessian_dtype=float64", "full"),
        "danl": ("danl", "full"),
        f"danl, deadline {deadline:.2f} s": ("danl", danl.policies.ResourceAware(FLEETS["A"], deadline=deadline)),
    }
    lines_of = {}
    for label, (method, policy) in runs.items():
        run = danl.solve(
            problem, method=method, policy=policy, regions=REGIONS, profiles=FLEETS["A"], reference=reference
        )
        gaps = np.maximum(run.history.column("gap"), 1e-15)
        lines_of[label] = (np.cumsum(run.history.column("simulated_seconds")).tolist(), gaps.tolist())
    title = "a1a, alpha 1e-3, three slow machines of ten"
    drawing.lines(path, [drawing.Panel(title, "simulated seconds", "gap", lines_of, beside=True)])


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks fleets", description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a1a alone")
    parser.add_argument("--before", type=Path, metavar="FILE", help="write what this version takes, for later ones")
    parser.add_argument("--rows", type=Path, metavar="FILE", help="write every run to this JSON file")
    parser.add_argument("--docs", action="store_true", help="put tables and figure into docs/heterogeneous.md")
    options = parser.parse_args(words)
    data = DATA[:1] if options.quick else DATA
    runs = measure_all(data, RIVALS if options.before else ("danl",))
    if options.before:
        options.before.write_text(json.dumps({"version": commit(), "runs": runs}) + "\n", encoding="utf-8")
        return 0
    if options.rows:
        options.rows.write_text(json.dumps(runs) + "\n", encoding="utf-8")
    before = json.loads(BEFORE.read_text(encoding="utf-8"))["runs"]
    report = f"{tables(runs, before)}\n\n{made_with()}"
    print(report)
    if options.docs:
        PAGES["fleets"].write(report)
        draw(ROOT / "docs" / "images" / "fleets.png")
    over = missed(runs, before)
    for line in over:
        print(f"missed: {line}", file=sys.stderr)
    return 1 if over else 0
