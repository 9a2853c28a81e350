r"""A table of the cohort by site and over all sites, before anything is fitted; `danl.cohort` and `danl cohort`.

It is of the records that a model of these columns would be fitted to, the complete ones; what is missing in each column
is beside them. Numbers have mean, standard deviation and quartiles, words their levels.

    1  the sites tell of their columns, and agree on levels        names, missing values
    2  moments: sum, and squares about each site's mean            mean and standard deviation
    3  counts between edges made of these moments                  quartiles, read off the counts; levels

No site tells its smallest or largest value. Cells of fewer records than a site's `min-cell` (3) are hidden there; what
is hidden of a histogram is spread evenly over its hidden bins, so quartiles are about those of the records. A total
over the sites has no number where a site hides its own.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import ndtri

from danl.checks import check_installed
from danl.design.analysis import Analysis, names_in
from danl.design.design import Design
from danl.engines import Engine
from danl.errors import InputError, bad_argument
from danl.objective.problem import RemoteProblem
from danl.protocol.messages import Array
from danl.protocol.own_tasks import HIDDEN
from danl.run.prepared import connected
from danl.statistics.diagnostics import filled
from danl.statistics.fit_answers import Asked, ask, why_silent
from danl.statistics.glm import references_of
from danl.statistics.held_engine import HeldEngine
from danl.statistics.standardised import pooled_moments
from danl.storage.atomic import write_text
from danl.tasks.column_counts import NUMBERS
from danl.wording import coefficient

ALL = "all sites"
N_EDGES = 23
BINARY = 1e-9
"""A variance that is by so small a share off that of 0 and 1 with the same mean is of a column of these."""
QUARTILES = (0.25, 0.5, 0.75)
COARSE = 0.25
"""A quartile in a bin with a larger share of the records is not known well enough to be told."""
TOO_COARSE = "bins too coarse"
WIDEST = 160
"""Characters of a line of the text, if a site does not take more alone."""
FEWEST = "hidden"
"""What the text shows where a site does not tell."""
FILES = CSV, JSON, TEXT = ("cohort.csv", "cohort.json", "cohort.txt")
"""What a table is written to; the last is there when all are."""


@dataclass(frozen=True)
class CohortLine:
    """What a site has of a column of numbers, or of one level of a column of words; nan where it does not tell.

    A column of 0 and 1 has a count of ones, and no quartiles.
    """

    column: str
    level: str | None
    site: str
    records: int
    missing: int
    mean: float = math.nan
    std: float = math.nan
    quartiles: tuple[float, float, float] = (math.nan, math.nan, math.nan)
    count: float = math.nan


@dataclass(frozen=True)
class Cohort:
    """The lines of the table, and whose they are; `print` it."""

    lines: tuple[CohortLine, ...]
    sites: tuple[str, ...]
    """With "all sites" as the last."""
    records: dict[str, int]
    left_out: dict[str, int]
    notes: tuple[str, ...] = ()

    def to_frame(self) -> Any:
        """A pandas frame, a line a site and column, or level."""
        check_installed("to_frame", "pandas", "pandas")
        import pandas as pd

        return pd.DataFrame(self._rows()).set_index(["column", "level", "site"])

    def to_csv(self, path: str | Path | None = None) -> str:
        """The lines as CSV, written to a file if one is given; empty where a site does not tell."""
        text, rows = io.StringIO(), self._rows()
        writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({name: "" if value is None or value != value else value for name, value in row.items()})
        if path is not None:
            write_text(path, text.getvalue())
        return text.getvalue()

    def to_dict(self) -> dict[str, Any]:
        """As plain data; None where a site does not tell."""
        rows = [{name: None if value != value else value for name, value in row.items()} for row in self._rows()]
        about = {"sites": list(self.sites), "records": self.records, "left_out": self.left_out}
        return about | {"lines": rows, "notes": list(self.notes)}

    def to_json(self, path: str | Path | None = None) -> str:
        """The same as JSON, written to a file if one is given."""
        text = json.dumps(self.to_dict(), indent=2, allow_nan=False) + "\n"
        if path is not None:
            write_text(path, text)
        return text

    def files(self) -> dict[str, str]:
        """The text of each of `FILES`."""
        return {CSV: self.to_csv(), JSON: self.to_json(), TEXT: f"{self}\n"}

    def _rows(self) -> list[dict[str, Any]]:
        rows = []
        for line in self.lines:
            row = asdict(line)
            quartiles = row.pop("quartiles")
            rows.append(row | dict(zip(("q25", "median", "q75"), quartiles, strict=True)))
        return rows

    def __str__(self) -> str:
        head = ["", *self.sites]
        lines = [head, ["records", *(str(self.records[site]) for site in self.sites)]]
        lines.append(["left out", *(str(self.left_out[site]) for site in self.sites)])
        found = {(line.column, line.level, line.site): line for line in self.lines}
        for column, level in dict.fromkeys((line.column, line.level) for line in self.lines):
            own = [found[column, level, site] for site in self.sites]
            if level is not None or not any(math.isnan(line.count) for line in own):
                lines.append([f"{column}={1 if level is None else level}", *map(_level_text, own)])
            else:
                lines.append([f"{column}, mean (sd)", *map(_moments_text, own)])
                lines.append(["  median (quartiles)", *map(_quartiles_text, own)])
            if any(line.missing for line in own) and (level is None or _is_last(found, column, level)):
                lines.append(["  missing", *(str(line.missing) for line in own)])
        return "\n".join([*_in_parts(lines), *self.notes])

    __repr__ = __str__


def cohort(
    formula: str | Analysis | None = None,
    data: Any = None,
    *,
    sites: Any = None,
    site: str | None = None,
    columns: str | Sequence[str] | None = None,
    family: str = "gaussian",
    engine: str | Engine = "local",
) -> Cohort:
    """Describe the records of the sites, column by column.

    Parameters
    ----------
    formula : str or Analysis, optional
        That of the model to come: its outcome and its columns.
    data, sites, site
        As in `danl.glm`.
    columns : sequence of str, or str with commas, optional
        Instead of a formula. The first must hold numbers.
    family : str
        Of the model to come: an outcome in words needs "binomial".
    engine : str or engine
        As in `danl.solve`; a Flower federation finds its sites itself.

    """
    problem = RemoteProblem(references_of(data, sites, site), analysis=analysis_of(formula, columns, family))
    with HeldEngine(engine) as held:
        return cohort_of(connected(problem, held), held)


def analysis_of(formula: str | Analysis | None, columns: str | Sequence[str] | None, family: str) -> Analysis:
    """The analysis whose columns are described."""
    if (formula is None) == (columns is None):
        raise InputError("cohort: give a formula, or columns=['age', 'smoking']: one of the two")
    if isinstance(formula, Analysis):
        analysis = formula.alone(family=family)
        for name in ("weights", "trials"):
            if getattr(analysis, name) is not None:
                raise bad_argument(name, getattr(analysis, name), "left out", "a table of the cohort counts records")
        return analysis
    if formula is not None:
        return Analysis(formula=formula, family=family)
    parted = [name.strip() for name in columns.split(",") if name.strip()] if isinstance(columns, str) else columns
    names = names_in(parted) or ()
    if len(names) < 2:
        raise InputError(f"columns={columns!r}: must be at least two columns, the first of numbers")
    return Analysis(outcome=names[0], columns=names[1:], family=family)


def cohort_of(problem: RemoteProblem, engine: HeldEngine) -> Cohort:
    """The table of a problem whose sites have agreed on a design: two exchanges."""
    assert problem.design is not None
    table = _Columns.of(problem.design)
    w = np.zeros(problem.n_coefficients)
    first = ask(problem, "column-counts", w, engine, groups=table.groups, edges=np.empty(0))
    *_, mean, deviation = _moments(first)
    numbers = np.flatnonzero(table.groups == NUMBERS)
    grid = ndtri(np.arange(1, N_EDGES + 1) / (N_EDGES + 1))
    spread = np.where(np.isfinite(deviation) & (deviation > 0), deviation, 1.0)
    middle = np.where(np.isfinite(mean), mean, 0.5)
    edges = middle[numbers, None] + spread[numbers, None] * grid
    second = ask(problem, "column-counts", w, engine, groups=table.groups, edges=edges.ravel(), n_edges=N_EDGES)
    weight, means, squares, mean, deviation = _moments(second)  # of those that answered this time
    workers = second.workers.tolist()
    names = [problem.shard_info[worker].site for worker in workers]
    missing = _missing(engine, names)
    info = {problem.shard_info[worker].site: problem.shard_info[worker] for worker in workers}
    records = {name: info[name].records for name in names}
    left_out = {name: info[name].left_out + info[name].unknown_levels for name in names}
    lines: list[CohortLine] = []
    for place, column in enumerate(numbers):
        counts = second.arrays["counts"].reshape(len(workers), len(numbers), N_EDGES + 1)[:, place]
        whole, _ = filled(counts, weight)
        moments = [
            (m, math.sqrt(q / (n - 1)) if n > 1 else math.nan) if q != HIDDEN else (math.nan, math.nan)
            for n, m, q in zip(weight, means[:, column], squares[:, column], strict=True)
        ]
        moments.append((float(mean[column]), float(deviation[column])))
        told = [*whole, whole.sum(axis=0)]
        for name, (average, std), own in zip([*names, ALL], moments, told, strict=True):
            what = table.names[column]
            size = float(records.get(name, sum(records.values())))
            variance, of_two = std**2 * (size - 1) / size, average * (1 - average)
            binary = abs(variance - of_two) <= BINARY * max(variance, abs(of_two))  # of 0 and 1
            known = math.isfinite(average) and not binary
            lines.append(
                CohortLine(
                    column=what,
                    level=None,
                    site=name,
                    records=records.get(name, sum(records.values())),
                    missing=missing(what, name),
                    mean=float(average),
                    std=float(std),
                    quartiles=_quartiles(own, edges[place]) if known else (math.nan, math.nan, math.nan),
                    count=average * size if binary else math.nan,
                )
            )
    at = 0
    for what, levels in table.factors:
        counts = second.arrays["levels"][:, at : at + len(levels)]
        at += len(levels)
        for place, level in enumerate(levels):
            if level is None:
                continue
            known_counts = np.where(counts[:, place] == HIDDEN, np.nan, counts[:, place])
            for name, count in zip([*names, ALL], [*known_counts, known_counts.sum()], strict=True):
                total = records.get(name, sum(records.values()))
                lines.append(CohortLine(what, level, name, total, missing(what, name), count=float(count)))
    asked = problem.design.analysis
    if asked.columns is not None:  # as they were named; of a formula the outcome is the last
        named = (asked.outcome, *asked.columns)
        lines.sort(key=lambda line: named.index(line.column))
    records[ALL], left_out[ALL] = sum(records.values()), sum(left_out.values())
    unasked = engine.surveyed.left_out if engine.surveyed is not None else ()
    silent = [f"not in it: {why_silent(problem.shard_info[each.worker].site, each)}" for each in second.failures]
    return Cohort(tuple(lines), (*names, ALL), records, left_out, (*unasked, *silent))


def _moments(asked: Asked) -> tuple[Array, ...]:
    """Weight, means and squares of each site, and mean and deviation over all of them."""
    weight, means, squares = asked.arrays["weight"][:, 0], asked.arrays["means"], asked.arrays["squares"]
    return weight, means, squares, *pooled_moments(weight, means, squares)


@dataclass(frozen=True)
class _Columns:
    """The columns of the table: which are numbers, which are levels of one column of words, and their names."""

    groups: Array
    names: tuple[str, ...]
    factors: tuple[tuple[str, tuple[str | None, ...]], ...]
    """Columns of words, and what is counted of each: first the records of none of its columns (None: nobody)."""

    @classmethod
    def of(cls, design: Design) -> _Columns:
        factors: dict[str, list[str | None]] = {}
        groups, names = [], []
        for column in design.columns:
            part = column.parts[0]
            if len(column.parts) == 1 and part.kind == "level":
                first = design.levels[part.text][0]  # a column of its own where there is no intercept
                own = factors.setdefault(part.text, [None if part.level == first else first])
                own.append(part.level)
                groups.append(float(list(factors).index(part.text)))
            else:
                groups.append(NUMBERS)
            names.append(column.name)
        if design.outcome_levels is not None:
            factors[design.outcome] = list(design.outcome_levels)
            groups.append(float(len(factors) - 1))
        else:
            groups.append(NUMBERS)
        told = tuple((name, tuple(levels)) for name, levels in factors.items())
        return cls(np.array(groups), (*names, design.outcome), told)


def _missing(engine: HeldEngine, names: Sequence[str]) -> Any:
    """How many values of a column are missing at a site, by what the sites told before."""
    told: dict[tuple[str, str], int] = {}
    for survey in engine.surveyed.surveys if engine.surveyed is not None else ():
        for column in survey.columns:
            told[column.name, survey.site] = column.missing

    def missing(column: str, site: str) -> int:
        return sum(told.get((column, name), 0) for name in names) if site == ALL else told.get((column, site), 0)

    return missing


def _quartiles(counts: Array, edges: Array) -> tuple[float, float, float]:
    """Read off the counts between edges, along a straight line within a bin; at the outermost edges at most.

    Nan where a bin that one of them is in has more than `COARSE` of the records: a skewed column, or one of few values.
    """
    total, below = counts.sum(), np.cumsum(counts)[:-1]
    if total <= 0 or counts[np.searchsorted(below, np.array(QUARTILES) * total)].max() > COARSE * total:
        return (math.nan, math.nan, math.nan)
    first, second, third = np.interp([share * total for share in QUARTILES], below, edges)
    return float(first), float(second), float(third)


def _in_parts(lines: list[list[str]]) -> list[str]:
    """A table of text, the columns of many sites below one another; each part begins with the names of the lines."""
    first, *widths = (max(len(line[place]) for line in lines) for place in range(len(lines[0])))
    parts, room = [[0]], 0
    for place, width in enumerate(widths):
        if place and first + room + 2 + width > WIDEST:
            parts, room = [*parts, [0]], 0
        parts[-1].append(place + 1)
        room += 2 + width
    table: list[str] = []
    for part in parts:
        table += [""] if table else []
        for line in lines:
            cells = (line[place].rjust(widths[place - 1]) for place in part[1:])
            table.append("  ".join([line[0].ljust(first), *cells]))
    return table


def _level_text(line: CohortLine) -> str:
    if math.isnan(line.count):
        return FEWEST
    return f"{line.count:.0f} ({100 * line.count / line.records:.0f} %)"


def _moments_text(line: CohortLine) -> str:
    return FEWEST if math.isnan(line.mean) else f"{coefficient(line.mean)} ({coefficient(line.std)})"


def _quartiles_text(line: CohortLine) -> str:
    low, median, high = line.quartiles
    if math.isnan(line.mean):
        return FEWEST
    return TOO_COARSE if math.isnan(median) else f"{coefficient(median)} ({coefficient(low)} to {coefficient(high)})"


def _is_last(found: Any, column: str, level: str) -> bool:
    return bool([each for name, each, _ in found if name == column][-1] == level)
