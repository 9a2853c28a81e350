"""The tables, figures and sentences of docs/field.md, made of stored runs alone (`benchmarks.field_runs`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.blocks import markdown_table
from benchmarks.field_runs import FieldRun, FieldStore, Plan, Rival

GAPS = (1e-4, 1e-8, 1e-12)
MEASURES = {
    "exchanges": "exchanges",
    "up": "bytes a worker sends",
    "both": "bytes a worker sends and gets",
    "passes": "passes over the data",
    "slow": "simulated seconds, slow network",
    "fast": "simulated seconds, fast network",
}
"""What is counted until a gap is reached, and what the tables call it."""
PROFILED = ("exchanges", "up", "slow", "passes")
FACTORS = np.geomspace(1, 1e3, 200)


@dataclass(frozen=True)
class Judged:
    """A run with what it took to each gap; infinite where it did not get there."""

    run: FieldRun
    rival: Rival
    status: str
    costs: dict[tuple[str, float], float]
    record: dict[str, Any]

    @classmethod
    def of(cls, run: FieldRun, rival: Rival, record: dict[str, Any]) -> Judged:
        gaps = np.array([math.inf if gap is None else gap for gap in record["gaps"]], dtype=float)
        costs = {}
        for target in GAPS:
            there = np.flatnonzero(gaps <= target)
            for name in MEASURES:
                costs[name, target] = _cost(record, name, int(there[0])) if there.size else math.inf
        return cls(run, rival, str(record["status"]), costs, record)


def _cost(record: dict[str, Any], name: str, at: int) -> float:
    if name == "exchanges":
        return at + 1.0
    if name == "both":
        return float(record["up"][at] + record["down"][at])
    return float(record[name][at])


def judged(plan: Plan, store: FieldStore) -> list[Judged]:
    """All runs of the plan that are there."""
    found = ((run, rival, store.read(run)) for run, rival in plan.runs(store).items())
    return [Judged.of(run, rival, record) for run, rival, record in found if record is not None]


# --- tables ---


def labels(rows: Iterable[Judged]) -> list[str]:
    return list(dict.fromkeys(row.rival.label for row in rows))


def short(value: float) -> str:
    """Three digits, or a dash for what was not reached."""
    if not math.isfinite(value):
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def overview_headers() -> list[str]:
    return [
        "method",
        "step size",
        *(f"reach {gap:.0e}" for gap in GAPS),
        *(f"{MEASURES[m]} to 1e-08" for m in MEASURES),
    ]


def overview(rows: Sequence[Judged]) -> str:
    """Of every method the share of problems on which it gets there, and the median of what it takes where it does."""
    lines = []
    for label in labels(rows):
        own = [row for row in rows if row.rival.label == label]
        reached = [np.mean([math.isfinite(row.costs["exchanges", gap]) for row in own]) for gap in GAPS]
        cells = []
        for name in MEASURES:
            values = [row.costs[name, 1e-8] for row in own if math.isfinite(row.costs[name, 1e-8])]
            cells.append(short(float(np.median(values)) if values else math.inf))
        lines.append([f"`{label}`", own[0].rival.step, *(f"{100 * share:.0f} %" for share in reached), *cells])
    return markdown_table(overview_headers(), lines, left=2)


def by_problem_headers(rows: Sequence[Judged]) -> list[str]:
    return ["method", *dict.fromkeys(f"{row.run.data}, {row.run.penalty}" for row in rows)]


def by_problem(rows: Sequence[Judged], name: str, gap: float, workers: int, partition: str) -> str:
    """Of every data set and penalty the median over the seeds; a dash where the median run does not get there.

    Methods that would have dashes alone are named below the table.
    """
    own = [row for row in rows if (row.run.workers, row.run.partition) == (workers, partition)]
    header, lines, nowhere = by_problem_headers(own), [], []
    for label in labels(own):
        cells = []
        for problem in header[1:]:
            values = [
                row.costs[name, gap]
                for row in own
                if row.rival.label == label and f"{row.run.data}, {row.run.penalty}" == problem
            ]
            cells.append(short(float(np.median(values)) if values else math.inf))
        if all(cell == short(math.inf) for cell in cells):
            nowhere.append(f"`{label}`")
        else:
            lines.append([f"`{label}`", *cells])
    table = markdown_table(header, lines)
    return f"{table}\n\nOn none of them there: {', '.join(nowhere)}." if nowhere else table


def winners(rows: Sequence[Judged], name: str, gap: float) -> dict[str, int]:
    """How often each method takes the least of something, over all problems that somebody solves; all of a tie do."""
    best = least(rows, name, gap)
    counted: dict[str, int] = {}
    for row in rows:
        if math.isfinite(row.costs[name, gap]) and row.costs[name, gap] == best[row.run.problem]:
            counted[row.rival.label] = counted.get(row.rival.label, 0) + 1
    return dict(sorted(counted.items(), key=lambda pair: -pair[1]))


def least(rows: Iterable[Judged], name: str, gap: float) -> dict[tuple[Any, ...], float]:
    """Of every problem the least that any method takes."""
    best: dict[tuple[Any, ...], float] = {}
    for row in rows:
        best[row.run.problem] = min(best.get(row.run.problem, math.inf), row.costs[name, gap])
    return best


def winners_table(rows: Sequence[Judged]) -> str:
    lines = []
    for name, text in MEASURES.items():
        cells = []
        for gap in GAPS:
            counted = winners(rows, name, gap)
            cells.append(", ".join(f"`{label}` {count}" for label, count in list(counted.items())[:4]) or "-")
        lines.append([text, *cells])
    return markdown_table(["least", *(f"to {gap:.0e}" for gap in GAPS)], lines)


def against(rows: Sequence[Judged], label: str, name: str, gap: float) -> tuple[float, float, int]:
    """A rival's cost over that of danl: median and least ratio over the problems both solve, and how many these are."""
    ours = {row.run.problem: row.costs[name, gap] for row in rows if row.rival.label == "danl"}
    ratios = [
        row.costs[name, gap] / ours[row.run.problem]
        for row in rows
        if row.rival.label == label
        and math.isfinite(row.costs[name, gap])
        and math.isfinite(ours.get(row.run.problem, math.inf))
    ]
    return (float(np.median(ratios)), min(ratios), len(ratios)) if ratios else (math.inf, math.inf, 0)


def against_table(rows: Sequence[Judged]) -> str:
    """Every rival beside danl where both get to 1e-8: the median of the ratios, and in how many it takes less."""
    ours = {row.run.problem: row for row in rows if row.rival.label == "danl"}
    lines = []
    for label in labels(rows):
        if label == "danl":
            continue
        own = [row for row in rows if row.rival.label == label and row.run.problem in ours]
        both = [row for row in own if math.isfinite(row.costs["up", 1e-8])]
        both = [row for row in both if math.isfinite(ours[row.run.problem].costs["up", 1e-8])]
        cells = []
        for name in MEASURES:
            ratios = [row.costs[name, 1e-8] / ours[row.run.problem].costs[name, 1e-8] for row in both]
            less = sum(ratio < 1 for ratio in ratios)
            cells.append(f"{np.median(ratios):.2g} x, less in {less}" if ratios else "-")
        lines.append([f"`{label}`", f"{len(both)} of {len(own)}", *cells])
    return markdown_table(["method over `danl`", "problems", *MEASURES.values()], lines, left=2)


# --- figures ---


def styles(names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """A colour and a dash for every method; danl is black and thick."""
    import matplotlib as mpl

    colours = mpl.colormaps["tab20"].colors  # type: ignore[attr-defined]
    dashes = ("-", "--", ":")
    made: dict[str, dict[str, Any]] = {}
    for place, name in enumerate(name for name in names if name != "danl"):
        made[name] = {"color": colours[place % 20], "linestyle": dashes[place % 3], "linewidth": 1.3}
    made["danl"] = {"color": "black", "linestyle": "-", "linewidth": 2.2, "zorder": 5}
    return made


def profile(rows: Sequence[Judged], path: Path, gap: float = 1e-8) -> Path:
    """Performance profiles (Dolan & Moré, 2002): the share of problems solved at most so many times the least cost.

    The share is of the problems that a method was run on.
    """
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    names = labels(rows)
    looks = styles(names)
    figure, panels = plt.subplots(1, len(PROFILED), figsize=(4.2 * len(PROFILED), 4.0), sharey=True)
    for panel, name in zip(panels, PROFILED, strict=True):
        for label in names:
            share = solved_within(rows, label, name, gap)
            if share[-1]:
                panel.step(FACTORS, share, where="post", label=label, **looks[label])
        panel.set(xscale="log", xlabel=f"{MEASURES[name]}, over the least", ylim=(0, 1.02), xlim=(1, FACTORS[-1]))
        panel.grid(alpha=0.3)
    panels[0].set_ylabel(f"share of problems with a gap of {gap:.0e}")
    handles, texts = panels[0].get_legend_handles_labels()
    figure.legend(handles, texts, loc="lower center", ncols=9, frameon=False, fontsize=8)
    figure.tight_layout(rect=(0, 0.12, 1, 1))
    figure.savefig(path, dpi=110)
    plt.close(figure)
    return path


def solved_within(rows: Sequence[Judged], label: str, name: str, gap: float) -> list[float]:
    """The share of its problems that a method solves at most so many times the least cost, for each of `FACTORS`."""
    best, own = least(rows, name, gap), [row for row in rows if row.rival.label == label]
    costs = [(row.costs[name, gap], best[row.run.problem]) for row in own if math.isfinite(row.costs[name, gap])]
    return [sum(cost <= factor * lowest for cost, lowest in costs) / len(own) for factor in FACTORS]


def curves(rows: Sequence[Judged], path: Path, data: Sequence[str], penalty: str, workers: int, scheme: str) -> Path:
    """Gap against exchanges and against bytes: the median over the seeds, and the band between least and most."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    own = [row for row in rows if (row.run.penalty, row.run.workers, row.run.partition) == (penalty, workers, scheme)]
    names = labels(own)
    looks = styles(names)
    figure, panels = plt.subplots(2, len(data), figsize=(4.6 * len(data), 7.2), squeeze=False)
    for column, name in enumerate(data):
        for label in names:
            runs = [row.record for row in own if row.rival.label == label and row.run.data == name]
            runs = [run for run in runs if run["gaps"]]
            if not runs:
                continue
            length = max(len(run["gaps"]) for run in runs)
            table = np.array(
                [_padded([math.inf if g is None else max(g, 1e-16) for g in run["gaps"]], length) for run in runs]
            )
            low, middle, high = table.min(axis=0), np.median(table, axis=0), table.max(axis=0)
            sent = np.median([_padded(run["up"], length) for run in runs], axis=0)
            for panel, x in ((panels[0, column], np.arange(1, length + 1)), (panels[1, column], sent)):
                panel.plot(x, middle, label=label, **looks[label])
                panel.fill_between(x, low, np.minimum(high, 1e3), color=looks[label]["color"], alpha=0.12, linewidth=0)
        for panel, text in ((panels[0, column], MEASURES["exchanges"]), (panels[1, column], MEASURES["up"])):
            panel.set(yscale="log", xscale="log", xlabel=text, ylim=(1e-14, 10))
            panel.grid(alpha=0.3)
        panels[0, column].set_title(f"{name}, {penalty}, {workers} workers")
    for row in panels:
        row[0].set_ylabel("gap f(w) - f(w*)")
    handles, texts = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, texts, loc="lower center", ncols=6, frameon=False, fontsize=8)
    figure.tight_layout(rect=(0, 0.08, 1, 1))
    figure.savefig(path, dpi=110)
    plt.close(figure)
    return path


def _padded(values: Sequence[float], length: int) -> list[float]:
    return [*values, *([values[-1]] * (length - len(values)))]


# --- what is read off ---


def sentences(rows: Sequence[Judged]) -> list[str]:
    """Who wins where, in numbers."""
    problems = {row.run.problem for row in rows}
    told = []

    def share(label: str, gap: float, keep: Callable[[Judged], bool] = lambda row: True) -> str:
        own = [row for row in rows if row.rival.label == label and keep(row)]
        return f"{sum(math.isfinite(row.costs['exchanges', gap]) for row in own)} of {len(own)}"

    told.append(f"`danl` reaches a gap of 1e-12 on {share('danl', 1e-12)} problems ({len(problems)} in all).")
    for name in ("exchanges", "up", "slow", "passes"):
        counted = winners(rows, name, 1e-8)
        first = ", ".join(f"`{label}` on {count}" for label, count in list(counted.items())[:3])
        told.append(f"Least {MEASURES[name]} to 1e-8: {first}.")
    for label in ("newton", "fednl", "bl", "giant"):
        middle, least, count = against(rows, label, "up", 1e-8)
        if count:
            told.append(
                f"`{label}` gets to 1e-8 on {share(label, 1e-8)} problems; where `danl` does, too, it sends "
                f"{middle:.2g} times the bytes of `danl` at the median and {least:.2g} times at best."
            )
    first_order = [rival for rival in labels(rows) if rival in ("gd", "fedavg", "accelerated-sgd", "svrg", "dsgd")]
    got = [share(label, 1e-4) for label in first_order]
    pairs = ", ".join(f"`{label}` {count}" for label, count in zip(first_order, got, strict=True))
    told.append(f"First-order methods that reach 1e-4 within the exchanges allowed: {pairs}.")
    return told[:10]
