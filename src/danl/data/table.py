"""Tables: what a file or a data frame holds, which of its columns is what, and what its cells mean.

The errors know their place. What may leave a site (`danl.data.redaction`) has no value of a row, and counts columns
instead of naming them: names may be a row's, where a file has no header line.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from danl.data.schema import Names
from danl.errors import InputError, bad_argument
from danl.spec import closest_first

_MISSING = frozenset(("", "nan", "na", "n/a", "null"))


@dataclass(frozen=True, eq=False)
class RawTable:
    """What a file holds: y is float64, or text where some label is not a number."""

    X: Any
    y: NDArray[Any]
    feature_names: Names | None = None
    target_name: str | None = None
    sites: NDArray[Any] | None = None
    weights: NDArray[np.float64] | None = None


@dataclass(frozen=True)
class Columns:
    """The names of the columns, and which position plays which part."""

    header: Sequence[str]
    features: tuple[int, ...]
    target: int
    site: int | None
    weight: int | None

    @classmethod
    def choose(
        cls,
        path: Path,
        header: Sequence[str],
        *,
        target_column: str | None = None,
        site_column: str | None = None,
        weight_column: str | None = None,
    ) -> Columns:
        """Of a header line: the target is the last column that is not taken unless it is named."""
        _check_header(path, header)
        named = {"target_column": target_column, "site_column": site_column, "weight_column": weight_column}
        taken: dict[str, str] = {}
        for argument, name in named.items():
            if name is None:
                continue
            if name not in header:
                listed = ", ".join(closest_first(name, header))
                unknown = bad_argument(argument, name, f"a column of {path}", f"its columns are: {listed}")
                unknown.redacted = f"{argument}={name!r}: is no column of {path.name}; check its header line"
                raise unknown
            if name in taken:
                twice = f"{argument}={name!r}: must be another column than {taken[name]}"
                raise InputError(twice, redacted=twice)
            taken[name] = argument
        free = [index for index, name in enumerate(header) if name not in taken]
        target, site, weight = (None if name is None else header.index(name) for name in named.values())
        if target is None and free:
            target = free.pop()
        if target is None or not free:
            expected, parted = ": expected a target and at least one feature, found", "columns are parted by commas"
            shown = f"{expected} the columns {', '.join(header)}; {parted}"
            raise error_at(path, f"{expected} {len(header)} columns; {parted}", shown)
        return cls(header, tuple(free), target, site, weight)

    def table(self, X: Any, y: Any, sites: Any, weights: Any) -> RawTable:
        """The table of these columns."""
        names = tuple(self.header[position] for position in self.features)
        return RawTable(X, y, names, self.header[self.target], sites, weights)

    def bad_cell(self, path: Path, place: str, positions: Sequence[int], texts: Sequence[str]) -> InputError:
        """The error of the first cell that is no number."""
        for position, text in zip(positions, texts, strict=True):
            counted, named = f"{place}, column {position + 1}", f"{place}, column {self.header[position]!r}"
            if is_missing(text):
                fault = ": the value is missing; fill it in or drop the row; the file was not loaded"
                return error_at(path, f"{counted}{fault}", f"{named}{fault}")
            if not is_number(text):
                fault = "is not a number; encode or drop the column; the file was not loaded"
                return error_at(path, f"{counted}: {fault}", f"{named}: {shorten(text)!r} {fault}")
        raise AssertionError("no bad cell")  # pragma: no cover


def _check_header(path: Path, header: Sequence[str]) -> None:
    """Refuse a header line that is missing, or in which two columns have one name."""
    if not header:
        raise error_at(path, ": is empty; expected a header line with the column names, then rows")
    if all(is_number(name) for name in header) and not are_column_numbers(header):
        wrong = ": expected the column names, found numbers; put a header line first; the file was not loaded"
        raise error_at(path, f", line 1{wrong}", f", line 1: {shorten(','.join(header))!r}{wrong}")
    for index, name in enumerate(header):
        if name in header[:index]:
            places = f": columns {header.index(name) + 1} and {index + 1} have the same name; names must differ"
            raise error_at(path, places, f": two columns are called {name!r}; names must differ")


def are_column_numbers(header: Sequence[str]) -> bool:
    """Whether the names are 0, 1, 2, ...: so tables without names are written."""
    return list(header) == [str(index) for index in range(len(header))]


def read_frame(frame: Any, target_column: str | None, weight_column: str | None) -> RawTable:
    """A data frame, pandas' or another library's, with the target among its columns: the last, unless it is named."""
    where = Path("load()")
    header = [str(name) for name in frame.columns]
    columns = Columns.choose(where, header, target_column=target_column, weight_column=weight_column)

    def column(position: int) -> NDArray[Any]:
        return np.asarray(frame[frame.columns[position]].to_numpy())

    def numbers(position: int) -> NDArray[np.float64]:
        try:
            return column(position).astype(np.float64)
        except (TypeError, ValueError):
            place = f"{where}: column {position + 1} must hold numbers"
            raise InputError(f"{place}; it is called {header[position]!r}", redacted=place) from None

    y = column(columns.target)
    texts = [] if y.dtype.kind in "biuf" else [str(value).strip() for value in y.tolist()]
    for row, text in enumerate(texts):
        if is_missing(text) or text in ("None", "<NA>", "NaT"):
            place = f"{where}, row {row} (counted from 0), column {columns.target + 1}: the target is missing"
            raise InputError(place, redacted=place)
    X = np.column_stack([numbers(position) for position in columns.features])
    weights = None if columns.weight is None else numbers(columns.weight)
    return columns.table(X, labels_of(texts) if texts else y.astype(np.float64), None, weights)


def error_at(path: Path, place: str, shown: str | None = None) -> InputError:
    """The error of a file: `place` may leave a site, `shown` is for whoever has the file."""
    return InputError(f"{path}{place if shown is None else shown}", redacted=f"{path.name}{place}")


def numbers_of(texts: Sequence[str]) -> list[float] | None:
    """The cells as numbers; None when one of them is not a number or is NaN."""
    if "_" in "".join(texts):  # float() reads 1_0 as 10
        return None
    try:
        numbers = [float(text) for text in texts]
    except ValueError:
        return None
    # A sum is NaN if a term is (or if infinities cancel), and quicker than a look at each.
    return None if math.isnan(sum(numbers)) and any(map(math.isnan, numbers)) else numbers


def labels_of(texts: Sequence[str]) -> NDArray[Any]:
    """The labels as numbers if all of them are, as text otherwise."""
    numbers = numbers_of(texts)
    return np.array(texts, dtype=str) if numbers is None else np.array(numbers, dtype=np.float64)


def is_missing(text: str) -> bool:
    """Whether a cell says that nothing is known."""
    return text.strip().lower().lstrip("+-") in _MISSING


def is_number(text: str | bytes) -> bool:
    """Whether the text is a number. Unlike Python, 1_000 is refused."""
    try:
        float(text)
    except ValueError:
        return False
    return b"_" not in text if isinstance(text, bytes) else "_" not in text


def shorten(text: str, limit: int = 60) -> str:
    """The text, or its beginning and dots: how much of a line an error shows."""
    return text if len(text) <= limit else f"{text[: limit - 3]}..."
