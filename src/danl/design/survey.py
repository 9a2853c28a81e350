"""What a site tells of the columns of an analysis before a number of the fit is exchanged.

For every column that the analysis names, and no other: whether it holds numbers or words, how many values are missing,
and, of words, the levels. A level of fewer than `min_cell` complete records is not named, only counted. Of numbers it
tells the order of magnitude, to half a power of ten, so that sites with other units are seen; and the one value that
all have, if they have one.

Everything that could break the fit later is looked at here, so that a broken file ends nothing that has begun: an
`InputError` names file, line and column and carries no value.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from danl.checks import is_finite, is_whole
from danl.data.records import Column, Records
from danl.design.analysis import Analysis
from danl.design.expression import Expression, parse, quoted_name
from danl.design.formula import Model
from danl.errors import InputError
from danl.wording import counted

NUMBERS, WORDS = "numbers", "words"
LONGEST_LEVEL = 200
"""Characters of a level that a site tells, and that a server believes."""
LARGEST = 1e75
"""The largest number that is taken: sums of squares of products of two such are finite."""
MEND = "mend the cell, or leave it empty"
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class ColumnSurvey:
    """What a site tells of one column."""

    name: str
    kind: str
    """"numbers" or "words"."""
    missing: int
    levels: tuple[str, ...] = ()
    """Those of a column whose levels count, with enough records each."""
    rare: int = 0
    """How many levels there are besides, which are not named."""
    magnitude: float | None = None
    """The decimal logarithm of the mean size of its numbers, to a half."""
    constant: float | None = None
    """The value that all complete records have."""


@dataclass(frozen=True)
class Survey:
    """What a site tells before the sites agree on a design."""

    site: str
    records: int
    complete: int
    """Records without a missing value in a column of the analysis."""
    columns: tuple[ColumnSurvey, ...]

    def column(self, name: str) -> ColumnSurvey:
        """One of the columns."""
        return next(column for column in self.columns if column.name == name)

    def to_json(self) -> str:
        """As text."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: object) -> Survey:
        """From text; a site may be broken, too."""
        try:
            values = json.loads(text)  # type: ignore[arg-type]  # whatever came: it is looked at
            columns = tuple(ColumnSurvey(**{**each, "levels": tuple(each["levels"])}) for each in values["columns"])
            survey = cls(**{**values, "columns": columns})
            plain = isinstance(survey.site, str) and is_whole(survey.records, 1) and is_whole(survey.complete, 0)
            if plain and set(values) == {part.name for part in fields(cls)} and all(map(_is_plain, columns)):
                return survey
        except (AttributeError, KeyError, TypeError, ValueError, RecursionError):
            pass
        raise InputError("survey: cannot be read; do both ends run the same danl?")


@dataclass(frozen=True)
class Surveyed:
    """What all sites told, and a line for each that takes no part."""

    surveys: tuple[Survey, ...]
    left_out: tuple[str, ...] = ()


def _is_plain(column: ColumnSurvey) -> bool:
    texts = all(isinstance(level, str) and 0 < len(level) <= LONGEST_LEVEL for level in column.levels)
    numbers = all(value is None or is_finite(value) for value in (column.magnitude, column.constant))
    known = isinstance(column.name, str) and column.kind in (NUMBERS, WORDS)
    return texts and numbers and known and is_whole(column.missing, 0) and is_whole(column.rare, 0)


def survey(
    records: Records, analysis: Analysis, model: Model, *, site: str, min_cell: int = 1, max_levels: int | None = None
) -> Survey:
    """Look at the records of a site; `min_cell` and `max_levels` are the site's own rules."""
    missing = missing_in(records, model.names)
    if analysis.missing == "error" and missing.any():
        row = int(np.argmax(missing))
        name = next(name for name in model.names if records.columns[name].missing[row])
        raise records.error(row, name, "the value is missing, and the analysis has missing='error'; fill it in")
    complete = ~missing
    for name in model.names:
        _check_kind(records, records.columns[name], model)
    if not complete.any():
        empty = next((name for name in model.names if records.columns[name].missing.all()), model.names[0])
        raise records.column_error(empty, "no record has a value in all columns of the analysis")
    _check_numbers(records, analysis, model, complete)
    columns = [_surveyed(records, model, name, complete, min_cell, max_levels) for name in model.names]
    return Survey(site, records.n_records, int(complete.sum()), tuple(columns))


def missing_in(records: Records, names: tuple[str, ...]) -> Mask:
    """The records in which one of the columns has no value."""
    return np.asarray(np.logical_or.reduce([records.columns[name].missing for name in names]))


def kind_of(column: Column, model: Model) -> str:
    """Whether a column counts as numbers or as words; that of clusters alone counts as words."""
    if column.name not in model.valued_names:
        return WORDS
    if column.name in model.word_names and column.name not in model.numeric_names:
        return WORDS
    return WORDS if column.words.any() else NUMBERS


def needs_levels(name: str, kind: str, model: Model) -> bool:
    """Whether the levels of a column are part of the design; a cluster's or a weight's are nobody's matter."""
    coded = name in model.word_names or any(factor.kind == "either" and factor.text == name for factor in model.factors)
    return (coded and (kind == WORDS or name in model.word_names)) or (kind == WORDS and name in model.outcome.names)


def _check_kind(records: Records, column: Column, model: Model) -> None:
    """Refuse words among numbers, and dates."""
    if column.name not in model.valued_names:
        return
    if column.all_dates:
        raise records.column_error(
            column.name, "holds dates; make numbers of them at the site, such as an age in years"
        )
    if column.name in model.word_names and column.name not in model.numeric_names:
        if column.texts is not None and column.name in column.texts[column.words].tolist():
            raise records.error(
                column.texts.tolist().index(column.name), column.name, column.fault(_first_word(column))
            )
        return
    words = column.words
    mixed = words.any() and not (words | column.missing).all()
    must_be_numbers = column.name in model.numeric_names or (
        column.name in model.outcome.names and not model.outcome.is_column
    )
    if mixed or (words.any() and must_be_numbers) or _repeats(column) or _all_commas(column):
        row, numbers = _first_word(column), ~words & ~column.missing
        if not must_be_numbers and column.name not in model.outcome.names and words.sum() > numbers.sum() > 0:
            coding = f"write C({quoted_name(column.name)}) to take both as levels"
            raise records.error(int(np.argmax(numbers)), column.name, f"is a number among words; mend it, or {coding}")
        raise records.error(row, column.name, column.fault(row))


def _first_word(column: Column) -> int:
    assert column.texts is not None
    named = np.flatnonzero(column.texts == column.name)
    return int(named[0]) if len(named) else int(np.argmax(column.words))


def _repeats(column: Column) -> bool:
    return column.texts is not None and bool((column.texts == column.name).any())


def _all_commas(column: Column) -> bool:
    """Whether all words are numbers with decimal commas."""
    words = column.words
    return bool(words.any()) and all("decimal comma" in column.fault(int(row)) for row in np.flatnonzero(words))


def _check_numbers(records: Records, analysis: Analysis, model: Model, complete: Mask) -> None:
    """Refuse numbers of which the design or the family can make nothing."""
    for factor in model.factors:
        if factor.kind == "number":
            for _, text in factor.expressions:
                check_finite(records, parse(text), complete)
        elif kind_of(records.columns[factor.text], model) == NUMBERS:
            check_finite(records, parse(quoted_name(factor.text)), complete)
    if model.offset is not None:
        check_finite(records, model.offset, complete)
    if model.weights is not None:
        _check_all(records, model.weights, complete, lambda found: found >= 0, "must be 0 or more, as a weight")
    check_some_count(records, (model.weights, model.trials), complete)
    if kind_of(records.columns[model.outcome.names[0]], model) == NUMBERS:
        _check_outcome(records, analysis, model, complete)
    elif analysis.family_name != "binomial" or analysis.trials is not None:
        family = f"family {analysis.family_name}" if analysis.trials is None else "trials"
        other = "an outcome of two words is of family='binomial'"
        if analysis.formula is None:
            other += ", and the first column of a cohort holds numbers"
        raise records.column_error(
            model.outcome.names[0], f"holds words, and with {family} it must hold numbers; {other}"
        )


def _check_outcome(records: Records, analysis: Analysis, model: Model, complete: Mask) -> None:
    name = model.outcome.names[0]
    check_finite(records, model.outcome, complete)
    if model.trials is not None:
        check_trials(records, model.outcome, model.trials, complete)
        return
    target = evaluated(records, model.outcome)
    family = analysis.family_name
    if family == "binomial":
        fits, rule = (target == 0) | (target == 1), "must be 0 or 1, or one of two words"
    elif family == "poisson":
        fits, rule = target >= 0, "must be 0 or more, with family poisson"
    elif family == "negative-binomial":
        fits = (target >= 0) & (target == np.floor(target))
        rule = "must be a whole number, 0 or more, with family negative-binomial"
    elif family == "gamma":
        fits, rule = target > 0, "must be above 0, with family gamma"
    else:
        return
    if not fits[complete].all():
        raise records.error(int(np.flatnonzero(complete & ~fits)[0]), name, f"{rule}; {MEND}")


def check_trials(records: Records, outcome: Expression, trials: str, complete: Mask) -> None:
    """Refuse what are no whole numbers of successes among whole numbers of trials."""
    _check_all(records, trials, complete, lambda n: (n >= 0) & (n == np.floor(n)), "must be a whole number of trials")
    target, most = evaluated(records, outcome), records.columns[trials].numbers
    wrong = complete & ~((target >= 0) & (target <= most) & (target == np.floor(target)))
    if wrong.any():
        rule = f"must be a whole number of successes, at most {trials!r}; {MEND}"
        raise records.error(int(np.argmax(wrong)), outcome.names[0], rule)


def evaluated(records: Records, expression: Expression) -> NDArray[np.float64]:
    """The numbers of an expression, one for every record."""
    columns = {name: records.columns[name].numbers for name in expression.names}
    return np.broadcast_to(expression.of(columns), (records.n_records,))


def check_finite(records: Records, expression: Expression, complete: Mask) -> None:
    """Refuse complete records of which an expression makes no finite number, or one too large to add up squares of."""
    values = evaluated(records, expression)
    wrong = complete & ~(np.abs(values) <= LARGEST)
    if wrong.any():
        row = int(np.argmax(wrong))
        size = _size_of(values[row])
        what = f"is {size}" if expression.is_column else f"of it {expression.text} is {size}"
        raise records.error(row, expression.names[0], f"{what}; {MEND}")


def check_some_count(records: Records, names: tuple[str | None, ...], rows: Any) -> None:
    """Refuse records of which none counts: weights and trials by these names, where there are any, are all 0."""
    given = [name for name in names if name is not None]
    if given and not np.prod([records.columns[name].numbers[rows] for name in given], axis=0).any():
        what = "is 0" if len(given) == 1 else f"times {given[1]!r} is 0"
        raise records.column_error(
            given[0], f"{what} in all complete records: none of them counts; mend it, or fit without this site"
        )


def _check_all(records: Records, name: str, complete: Mask, rule: Callable[[Any], Any], text: str) -> None:
    numbers = records.columns[name].numbers
    wrong = complete & ~((np.abs(numbers) <= LARGEST) & np.asarray(rule(numbers)))
    if wrong.any():
        row = int(np.argmax(wrong))
        fault = text if abs(numbers[row]) <= LARGEST else f"is {_size_of(numbers[row])}"
        raise records.error(row, name, f"{fault}; {MEND}")


def _size_of(value: float) -> str:
    """What is wrong with the size of a number that is too large, or none."""
    return f"above {LARGEST:.0e} in size" if math.isfinite(value) else "not finite"


def _surveyed(
    records: Records, model: Model, name: str, complete: Mask, min_cell: int, max_levels: int | None
) -> ColumnSurvey:
    column, kind = records.columns[name], kind_of(records.columns[name], model)
    missing = int(column.missing.sum())
    if needs_levels(name, kind, model):
        labels, counts = np.unique(column.labels[complete].astype(str), return_counts=True)
        told = [str(label) for label, count in zip(labels, counts, strict=True) if count >= min_cell]
        if max_levels is not None and len(labels) > max_levels:
            raise records.column_error(
                name, f"has {counted(len(labels), 'level')}, and at most {max_levels} are allowed; is it an identifier?"
            )
        if any(len(level) > LONGEST_LEVEL for level in told):
            raise records.column_error(name, "has texts too long to be levels; leave it out of the formula")
        return ColumnSurvey(name, kind, missing, tuple(sorted(told)), len(labels) - len(told))
    if kind == WORDS or name == model.cluster:
        return ColumnSurvey(name, kind, missing)
    numbers = column.numbers[complete]
    constant = float(numbers[0]) if len(numbers) >= min_cell and (numbers == numbers[0]).all() else None
    size = float(np.abs(numbers).mean())
    magnitude = round(2 * math.log10(size)) / 2 if 0 < size < math.inf and len(numbers) >= min_cell else None
    return ColumnSurvey(name, kind, missing, (), 0, magnitude, constant)


def surveyed_kinds(surveys: Mapping[str, Survey], name: str) -> dict[str, list[str]]:
    """Which sites have a column as numbers and which as words."""
    kinds: dict[str, list[str]] = {}
    for site, each in surveys.items():
        kinds.setdefault(each.column(name).kind, []).append(site)
    return kinds
