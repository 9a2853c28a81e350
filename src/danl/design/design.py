"""The design that the sites agreed on: the same columns, in the same order, at every site.

It is plain data and travels as JSON. A column is a product of parts: an expression of columns, whether the record has
some level, whether the site is some site. A site needs no formula library to make its matrix, and runs nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from danl.data.records import Records
from danl.data.shard import Shard
from danl.design.analysis import Analysis
from danl.design.expression import parse
from danl.design.formula import MOST_COLUMNS, SITE, DesignColumn, Part, coded, read_model
from danl.design.survey import check_some_count, check_trials, evaluated, missing_in
from danl.errors import InputError
from danl.frozen import replace

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Design:
    """What every site makes of its records.

    Attributes
    ----------
    analysis
        What was asked for.
    outcome
        The target: a column, or an expression.
    intercept
        Whether there is one; it is no column.
    levels
        Of each column of words, the levels of all sites, the reference level first.
    outcome_levels
        Of an outcome in words: the other one, and the event, which is 1.
    sites
        The sites that have an effect each, the first the one that others are compared with; none without such effects.
    columns
        The columns of X.

    """

    analysis: Analysis
    outcome: str
    intercept: bool
    levels: Mapping[str, tuple[str, ...]]
    outcome_levels: tuple[str, ...] | None
    sites: tuple[str, ...]
    columns: tuple[DesignColumn, ...] = field(repr=False)

    @property
    def names(self) -> tuple[str, ...]:
        """What the columns are called, in the order of w."""
        return tuple(column.name for column in self.columns)

    @property
    def references(self) -> dict[str, str]:
        """The reference level of each column of words; none of one all of whose levels have columns everywhere.

        With effects of sites that of `SITE` is the site that has none.
        """
        found = {name: levels[0] for name, levels in self.levels.items() if self._compares(name, levels[0])}
        sites = [part.text for column in self.columns for part in column.parts if part.kind == "site"]
        return found | ({SITE: self.sites[0]} if self.sites and self.sites[0] not in sites else {})

    def _compares(self, name: str, first: str) -> bool:
        """Whether some columns of the levels of `name` are without that of the first level."""
        beside: dict[tuple[Part, ...], set[str]] = {}
        for column in self.columns:
            rest = tuple(part for part in column.parts if part.kind != "level" or part.text != name)
            if len(rest) < len(column.parts):
                beside.setdefault(rest, set()).update(part.level for part in column.parts if part not in rest)
        return any(first not in levels for levels in beside.values())

    @property
    def explaining(self) -> tuple[str, ...]:
        """The columns of a file that X and the offset are made of: what a prediction needs."""
        found = [name for column in self.columns for part in column.parts for name in part.names]
        found += self.offset_names
        return tuple(dict.fromkeys(found))

    @property
    def needed(self) -> tuple[str, ...]:
        """The columns of a file that a shard is made of."""
        asked = self.analysis
        cluster = None if asked.cluster == SITE else asked.cluster
        more = [name for name in (asked.weights, asked.trials, cluster) if name is not None]
        return tuple(dict.fromkeys([*parse(self.outcome).names, *self.explaining, *more]))

    @property
    def offset_names(self) -> tuple[str, ...]:
        """The columns of the offset."""
        return () if self.analysis.offset is None else parse(self.analysis.offset).names

    def matrix(self, records: Records, rows: NDArray[np.intp], site: str = "") -> Array:
        """X of some records, dense, one column of the design after the other."""
        X = np.empty((len(rows), len(self.columns)))
        made: dict[Part, Any] = {}
        for place, column in enumerate(self.columns):
            values: Any = 1.0
            for part in column.parts:
                if part not in made:
                    made[part] = self._values(part, records, rows, site)
                values = values * made[part]
            X[:, place] = values
        return X

    def offset(self, records: Records, rows: NDArray[np.intp]) -> Array | None:
        """The offsets of some records; None where there are none."""
        given = self.analysis.offset
        return None if given is None else evaluated(records, parse(given))[rows]

    def usable(self, records: Records, names: tuple[str, ...]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """The records without a missing value in these columns, and those whose levels the design knows."""
        complete = ~missing_in(records, names)
        known = np.ones(records.n_records, dtype=bool)
        for name, levels in self.levels.items():
            if name in names:
                known &= np.isin(records.columns[name].labels.astype(str), levels)
        return complete, known

    def levels_of(self, records: Records) -> Iterator[tuple[dict[str, int], tuple[str, ...] | None]]:
        """Of every column whose levels count here: its levels among complete records, and those there are columns of.

        None stands for all of them.
        """
        complete = ~missing_in(records, self.needed)
        parted = {part.text: None for column in self.columns for part in column.parts if part.kind == "level"}
        of_outcome = {} if self.outcome_levels is None else {parse(self.outcome).names[0]: self.outcome_levels}
        for levels in (parted, {name: own for name, own in self.levels.items() if name in self.needed}, of_outcome):
            for name, own in levels.items():
                labels, counts = np.unique(records.columns[name].labels[complete].astype(str), return_counts=True)
                yield dict(zip(labels.tolist(), counts.tolist(), strict=True)), own

    def shard(self, records: Records, site: str = "") -> Shard:
        """The rows of a site: complete records whose levels are part of the design."""
        complete, known = self.usable(records, self.needed)
        outcome = parse(self.outcome)
        target = records.columns[outcome.names[0]]
        if self.outcome_levels is not None:
            labels = target.labels.astype(str)
            known &= np.isin(labels, self.outcome_levels)
            y = (labels == self.outcome_levels[1]).astype(float)
        else:
            y = evaluated(records, outcome)
        asked, usable = self.analysis, complete & known
        if not usable.any():
            raise records.column_error(outcome.names[0], "no record has values and levels that the design knows")
        check_some_count(records, (asked.weights, asked.trials), usable)
        if asked.trials is not None:
            check_trials(records, outcome, asked.trials, usable)
            complete &= records.columns[asked.trials].numbers > 0  # a share of no trials is a missing value
        rows = np.flatnonzero(complete & known)
        X, offset = self.matrix(records, rows, site), self.offset(records, rows)
        weights = None if asked.weights is None else records.columns[asked.weights].numbers[rows]
        clusters: NDArray[np.intp] | None = None
        if asked.cluster == SITE:
            clusters = np.zeros(len(rows), dtype=np.intp)
        elif asked.cluster is not None:
            clusters = np.unique(records.columns[asked.cluster].labels[rows].astype(str), return_inverse=True)[1]
        y = y[rows]
        if asked.trials is not None:  # a record becomes two rows: so many successes, so many failures
            trials, ones = records.columns[asked.trials].numbers[rows], np.ones(len(rows))
            counts = np.concatenate([y, trials - y]) * (1.0 if weights is None else np.tile(weights, 2))
            order = np.argsort(np.tile(np.arange(len(rows)), 2), kind="stable")
            order = order[counts[order] > 0]
            X, rows, weights = np.tile(X, (2, 1))[order], np.tile(rows, 2)[order], counts[order]
            y = np.concatenate([ones, 0.0 * ones])[order]
            offset = None if offset is None else np.tile(offset, 2)[order]
            clusters = None if clusters is None else np.tile(clusters, 2)[order]
        made = Shard.of(
            X, y, weights=weights, rows=rows, name=site or records.source.name, feature_names=self.names,
            target_name=self.outcome, offset=offset, clusters=clusters,
        )  # fmt: skip
        return replace(made, left_out=int((~complete).sum()), unknown_levels=int((complete & ~known).sum()))

    def _values(self, part: Part, records: Records, rows: NDArray[np.intp], site: str) -> Any:
        if part.kind == "number":
            return evaluated(records, parse(part.text))[rows]
        if part.kind == "site":
            return float(part.text == site)
        return (records.columns[part.text].labels[rows] == part.level).astype(float)

    @property
    def products(self) -> tuple[tuple[str, ...], ...]:
        """Of outcome, offset and every column the expressions that are multiplied."""
        offset = self.analysis.offset
        columns = (tuple(part.text for part in column.parts if part.kind == "number") for column in self.columns)
        return ((self.outcome,), *(() if offset is None else ((offset,),)), *columns)

    def is_of_its_formula(self) -> bool:
        """Whether formula and levels make these very columns: for a site that allows some formulas and no others."""
        model = read_model(self.analysis)
        first = {factor.text: factor.reference for factor in model.factors if factor.reference is not None}
        if any(name not in self.levels or self.levels[name][0] != level for name, level in first.items()):
            return False
        if model.event is not None and (self.outcome_levels is None or self.outcome_levels[1] != model.event):
            return False
        return (model.intercept, model.outcome.text, coded(model, self.levels, self.sites)) == (
            self.intercept,
            self.outcome,
            self.columns,
        )

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "analysis": self.analysis.to_dict(),
            "outcome": self.outcome,
            "intercept": self.intercept,
            "levels": {name: list(levels) for name, levels in self.levels.items()},
            "outcome_levels": None if self.outcome_levels is None else list(self.outcome_levels),
            "sites": list(self.sites),
            "columns": [[column.name, [[p.kind, p.text, p.level] for p in column.parts]] for column in self.columns],
        }

    @classmethod
    def from_dict(cls, values: Any) -> Design:
        """From plain data; expressions are checked, wherever they come from."""
        try:
            _must(isinstance(values, Mapping) and set(values) == {part.name for part in fields(cls)})
            columns = tuple(
                DesignColumn(_text(name), tuple(Part(*map(_text, part)) for part in parts))  # type: ignore[arg-type]
                for name, parts in values["columns"]
            )
            outcome_levels = values["outcome_levels"]
            made = cls(
                Analysis.from_dict(values["analysis"]),
                _text(values["outcome"]),
                values["intercept"],
                {_text(name): tuple(map(_text, levels)) for name, levels in values["levels"].items()},
                None if outcome_levels is None else tuple(map(_text, outcome_levels)),
                tuple(map(_text, values["sites"])),
                columns,
            )
            kinds = {part.kind for column in columns for part in column.parts}
            _must(
                isinstance(made.intercept, bool)
                and kinds <= {"number", "level", "site"}
                and 0 < len(columns) <= MOST_COLUMNS
            )
            _must(outcome_levels is None or len(outcome_levels) == 2)
            _must(all(len(set(levels)) == len(levels) > 1 for levels in made.levels.values()))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError("design: cannot be read; do both ends run the same danl?") from None
        made.needed  # noqa: B018  # reads every expression
        return made

    def to_json(self) -> str:
        """As text."""
        return json.dumps(self.to_dict())

    @classmethod
    def from_json(cls, text: object) -> Design:
        """From text."""
        try:
            return cls.from_dict(json.loads(text))  # type: ignore[arg-type]  # whatever came: it is looked at
        except (TypeError, RecursionError, json.JSONDecodeError):
            raise InputError("design: is no JSON") from None


@dataclass(frozen=True)
class Agreement:
    """A design, and what people should know of how it came to be."""

    design: Design
    notes: tuple[str, ...] = ()


def _must(right: bool) -> None:
    if not right:
        raise TypeError


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value
