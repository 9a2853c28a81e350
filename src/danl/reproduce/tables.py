"""Tables beside the figures: how the runs ended, what their masks came to, and which F* the gaps are against."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np

from danl.methods.base import LOST
from danl.reproduce.claims.base import NumbersTable, Reader
from danl.reproduce.claims.measures import SOLVED
from danl.reproduce.curves import MEASURES
from danl.reproduce.runs import FIGURES, Plan
from danl.wording import gap_text


def endings(plan: Plan, figure: str, read: Reader) -> NumbersTable:
    """For each reading, mask setting and penalty: the median gap at the end, for each data set."""
    rows = []
    for reading, curve in product(FIGURES[figure].readings, FIGURES[figure].curves):
        for penalty in plan.penalties:
            cells = []
            for data in plan.data:
                stored = [read(run) for run in plan.curve_runs(data, penalty, reading, curve)]
                gap = float(np.median([each.gaps()[-1] for each in stored]))
                diverged = sum(each.status in LOST for each in stored)
                cells.append(shown_gap(gap) + (f", {diverged} of {len(stored)} diverged" if diverged else ""))
            rows.append((f"`{reading}`", curve.label, penalty, *cells))
    return NumbersTable(("reading", "masks", "penalty", *plan.data), tuple(rows))


def masks(plan: Plan, figure: str, read: Reader) -> NumbersTable:
    """What the masks were promised to satisfy, and what was measured over all data sets, penalties and seeds.

    `danl` stops when it has converged, so its masks have fewer rounds in which to be at their worst.
    """
    rows = []
    for reading, curve in product(FIGURES[figure].readings, FIGURES[figure].curves):
        records = [
            read(run).record
            for data, penalty in product(plan.data, plan.penalties)
            for run in plan.curve_runs(data, penalty, reading, curve)
        ]
        cells = [f"`{reading}`", f"`{curve.policy}`"]
        for _, _, name, _ in MEASURES:
            promised = {record["promised"][name] for record in records}
            cells.append(", ".join("-" if value is None else str(value) for value in sorted(promised, key=str)))
            measured = sorted({record["summary"][name] for record in records})
            cells.append(str(measured[0]) if len(measured) == 1 else f"{measured[0]} to {measured[-1]}")
        rows.append(tuple(cells))
    columns = [column for _, name, _, _ in MEASURES for column in (f"{name} promised", "measured")]
    return NumbersTable(("reading", "policy", *columns), tuple(rows))


def optima(plan: Plan, read: Reader) -> NumbersTable:
    """The verified optimum, and what twenty undamped Newton steps from the start make of it."""
    rows = []
    for data, penalty in product(plan.data, plan.penalties):
        curve = FIGURES["fig1"].curves[1]
        stored = [read(run) for run in plan.curve_runs(data, penalty, "danl", curve)]
        worst = max(each.record["optimum"]["grad_norm"] for each in stored)
        ends = [(each.record["newton20"]["objective"], each.record["optimum"]["objective"]) for each in stored]
        above = [value - optimum for value, optimum in ends if value is not None]
        missed = len(ends) - sum(value <= SOLVED for value in above)
        most = shown_gap(max(above)) if above else "-"
        rows.append((data, penalty, f"{worst:.1e}", most, f"{missed} of {len(stored)}"))
    measured = ("gradient norm at w*, worst", "f after 20 Newton steps - f(w*), worst")
    return NumbersTable(("data", "penalty", *measured, f"seeds more than {SOLVED:.0e} off"), tuple(rows))


def shown_gap(gap: float) -> str:
    """A gap for a cell: infinity is a run that left."""
    return "left" if np.isinf(gap) else gap_text(gap, ".0e")


def all_tables(plan: Plan, figures: Sequence[str], read: Reader) -> list[tuple[str, NumbersTable]]:
    """Every table for these figures, with its title."""
    made = [(f"Median gap at the end: {FIGURES[name].title}", endings(plan, name, read)) for name in figures]
    made += [(f"Masks, promised and measured: {FIGURES[name].title}", masks(plan, name, read)) for name in figures]
    if "fig1" in figures:
        made.append(("F* both ways", optima(plan, read)))
    return made
