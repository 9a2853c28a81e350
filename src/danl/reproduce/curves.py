"""From stored runs to the figures' data: over the seeds of a line, the median of the gap and a band from min to max.

    View        what one picture shows; pictures and data files are named by it
    CurveData   one line of a panel: median and band after 0, 1, 2, ... exchanges, promised and measured masks
    PanelData   one data set: its lines, and how far the F* they are measured against is above the optimum

The band is all of the seeds, not quartiles: of five seeds, quartiles would hide two. Numbers are kept as they were
measured (a gap may be negative, infinite or, without any F*, nan); flooring and clipping is left to the drawing. A data
file says everything a picture shows, so that pictures are made from files.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from danl.errors import InputError
from danl.methods.base import LOST
from danl.reproduce.runs import FIGURES, PAPER, Curve, Plan
from danl.reproduce.store import Store, StoredRun
from danl.storage.atomic import written_whole

AGAINST = ("optimum", "newton20")
"""What F* is: the verified optimum, or the value after the paper's twenty Newton steps."""
PENALTY_FIGURES = ("fig1", "fig2")
"""The figures whose lines the picture of all penalties shows."""
HEADER = (
    *("data", "reference_low", "reference_high", "curve", "seeds", "endings"),
    *("promised_psi", "promised_S", "promised_gamma", "measured_psi", "measured_S", "measured_gamma"),
    *("exchange", "median", "low", "high"),
)
MEASURES: tuple[tuple[str, str, str, Any], ...] = (
    ("psi", "psi*", "min_coverage", min),
    ("S", "S*", "min_trained", min),
    ("gamma", "gamma", "max_staleness", max),
)
"""What is measured of masks: its name in `Masks`, in the paper and in a record, and which of several is the worst."""


@dataclass(frozen=True)
class View:
    """What one picture shows: a figure's lines, in one reading or in several, at one penalty or at several."""

    figure: str
    """A name of `FIGURES`, or ``penalties``: the lines of `PENALTY_FIGURES` at every penalty."""
    readings: tuple[str, ...]
    penalties: tuple[str, ...]
    against: str = "optimum"

    @property
    def name(self) -> str:
        """The files' name, without suffix."""
        if self.figure == "penalties":
            return "penalties"
        reading = self.readings[0] if len(self.readings) == 1 else "overview"
        suffix = "" if self.against == "optimum" else f"-{self.against}"
        return f"{self.figure}-{reading}-{slug(self.penalties[0])}{suffix}"

    @property
    def curves(self) -> tuple[Curve, ...]:
        """The lines, in the legend's order."""
        names = PENALTY_FIGURES if self.figure == "penalties" else (self.figure,)
        return tuple(curve for name in names for curve in FIGURES[name].curves)

    def config(self, plan: Plan) -> dict[str, Any]:
        """What decides the picture, as JSON: a picture with another config was made by another plan."""
        run = next(plan.curve_runs(plan.data[0], self.penalties[0], self.readings[0], self.curves[0]))
        return {
            "figure": self.figure,
            "readings": list(self.readings),
            "penalties": list(self.penalties),
            "against": self.against,
            "data": list(plan.data),
            "n_seeds": plan.n_seeds,
            "curves": [{"label": curve.label, "policy": curve.policy} for curve in self.curves],
            **{name: getattr(run, name) for name in ("rounds", "workers", "regions", "start")},
        }


class Masks(NamedTuple):
    """psi*, S* and gamma; None where nothing is promised."""

    psi: int | None
    S: int | None
    gamma: int | None


@dataclass(frozen=True)
class CurveData:
    """One line: entry k of `median`, `low` and `high` is the gap after k exchanges; entry 0 is the start's."""

    label: str
    seeds: int
    """Runs the median is over."""
    endings: tuple[tuple[str, int], ...]
    """How many runs ended with each status."""
    promised: Masks
    measured: Masks
    """The worst over the seeds: the least psi* and S*, the largest gamma."""
    median: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]

    @property
    def diverged(self) -> bool:
        """Whether most runs diverged."""
        ends = dict(self.endings)
        return 2 * sum(ends.get(status, 0) for status in LOST) > sum(ends.values())


@dataclass(frozen=True)
class PanelData:
    """The lines of one data set."""

    data: str
    curves: tuple[CurveData, ...]
    reference: tuple[float, float]
    """Least and largest height of F* above the verified optimum over the seeds; infinite where F* is nowhere finite."""


def views(name: str, plan: Plan) -> list[View]:
    """Every picture of one reading of a figure: against the optimum, and at the paper's penalty also against its F*."""
    return [
        View(name, (reading,), (penalty,), against)
        for penalty, reading in product(plan.penalties, FIGURES[name].readings)
        for against in (AGAINST if penalty == PAPER else AGAINST[:1])
    ]


def overviews(name: str, plan: Plan) -> list[View]:
    """All readings of a figure in one picture, one a penalty; none for a figure of a single reading."""
    readings = FIGURES[name].readings
    return [View(name, readings, (penalty,)) for penalty in plan.penalties if len(readings) > 1]


def penalties_view(plan: Plan) -> View:
    return View("penalties", FIGURES[PENALTY_FIGURES[0]].readings, plan.penalties)


def slug(penalty: str) -> str:
    """The penalty in a file name: ``lambda=0.0001`` becomes lambda-1e-4."""
    kind, value = penalty.split("=")
    return f"{kind}-{np.format_float_scientific(float(value), trim='-', exp_digits=1)}"


Runs = Mapping[str, Mapping[Curve, Sequence[StoredRun]]]
"""By data set, by line: the runs of all seeds."""


def read_figure_runs(store: Store, plan: Plan, name: str, penalty: str, reading: str) -> Runs:
    """Read the runs of one reading of a figure, each once."""
    return {
        data: {
            curve: [store.read(run) for run in plan.curve_runs(data, penalty, reading, curve)]
            for curve in FIGURES[name].curves
        }
        for data in plan.data
    }


def panels(runs: Runs, against: str = "optimum") -> tuple[PanelData, ...]:
    """Make the panels, one a data set, from the runs."""
    return tuple(
        PanelData(
            data,
            tuple(curve_data(curve.label, stored, against) for curve, stored in lines.items()),
            _reference([one for stored in lines.values() for one in stored], against),
        )
        for data, lines in runs.items()
    )


def curve_data(label: str, stored: Sequence[StoredRun], against: str = "optimum") -> CurveData:
    """Make one line from the runs of all seeds; seeds without an F* count in the endings, not in the median."""
    known = [one for one in stored if one.record[against]["objective"] is not None]
    if known:
        gaps = np.array([one.gaps(against) for one in known])
        gaps[np.isnan(gaps)] = np.inf  # f(w) overflowed
        median, low, high = np.median(gaps, axis=0), gaps.min(axis=0), gaps.max(axis=0)
    else:
        median = low = high = stored[0].gaps(against)
    return CurveData(
        label,
        len(known),
        tuple(sorted(Counter(one.status for one in stored).items())),
        _masks([one.record["promised"] for one in stored]),
        _masks([one.record["summary"] for one in stored]),
        *(tuple(values.tolist()) for values in (median, low, high)),
    )


def _masks(records: Sequence[Mapping[str, Any]]) -> Masks:
    known = {key: [each[key] for each in records if each[key] is not None] for _, _, key, _ in MEASURES}
    return Masks(*(worst(known[key], default=None) for _, _, key, worst in MEASURES))


def _reference(stored: Iterable[StoredRun], against: str) -> tuple[float, float]:
    pairs = [(one.record[against]["objective"], one.record["optimum"]["objective"]) for one in stored]
    above = [np.inf if value is None else value - optimum for value, optimum in pairs]
    return float(min(above)), float(max(above))


def write_panels(parts: Iterable[PanelData], path: Path) -> Path:
    """Write the panels as one long table, a row an exchange of a line; floats keep every digit."""
    with written_whole(path) as partial, partial.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(HEADER)
        for panel in parts:
            for curve in panel.curves:
                endings = " ".join(f"{status}:{count}" for status, count in curve.endings)
                line = [panel.data, *panel.reference, curve.label, curve.seeds, endings]
                line += [*curve.promised, *curve.measured]  # None is an empty cell
                gaps = zip(curve.median, curve.low, curve.high, strict=True)
                writer.writerows([*line, exchange, *values] for exchange, values in enumerate(gaps))
    return path


def read_panels(path: Path) -> tuple[PanelData, ...]:
    """Read what `write_panels` wrote."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            if tuple(reader.fieldnames or ()) != HEADER:
                raise ValueError("other columns")
            by_data = groupby(reader, key=lambda line: line["data"])
            return tuple(_panel(data, list(rows)) for data, rows in by_data)
    except (OSError, ValueError, KeyError, TypeError, csv.Error) as error:
        raise InputError(
            f"{path}: is not the data of a figure ({error}); run danl reproduce again, it writes it anew"
        ) from None


def _panel(data: str, rows: list[dict[str, str]]) -> PanelData:
    curves = tuple(_curve(label, list(part)) for label, part in groupby(rows, key=lambda row: row["curve"]))
    return PanelData(data, curves, (float(rows[0]["reference_low"]), float(rows[0]["reference_high"])))


def _curve(label: str, rows: list[dict[str, str]]) -> CurveData:
    first = rows[0]
    pairs = [ending.split(":") for ending in first["endings"].split()]
    promised, measured = (
        Masks(*(int(first[f"{kind}_{name}"]) if first[f"{kind}_{name}"] else None for name in Masks._fields))
        for kind in ("promised", "measured")
    )
    median, low, high = (tuple(float(row[name]) for row in rows) for name in ("median", "low", "high"))
    endings = tuple((status, int(count)) for status, count in pairs)
    return CurveData(label, int(first["seeds"]), endings, promised, measured, median, low, high)
