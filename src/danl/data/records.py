"""The records of a site by the names of their columns, of which only those that are asked for are looked at.

A CSV or Parquet file, or a data frame, becomes `Records`: of every column that is wanted its numbers, which cells are
missing and what the others say. A cell that is broken in another column is nobody's matter. Errors name file, line and
column and show no cell: they leave the site as they are, without the folder.
"""

from __future__ import annotations

import csv
import io
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from danl.checks import check_installed
from danl.data.files import file_format, reading
from danl.data.table import error_at, is_missing, is_number
from danl.errors import InputError, bad_argument
from danl.frozen import cached_property
from danl.spec import closest_first

PARTED = {";": "semicolons", "\t": "tabs", "|": "bars"}
UTF_16 = (b"\xff\xfe", b"\xfe\xff")
AS_UTF_8 = "save the file as comma-separated text in UTF-8"
FRAME = "pandas.DataFrame(...) makes one of a dictionary of lists"
_PLAIN = re.compile(r"[+-]?(0|[1-9][0-9]*)(\.[0-9]+)?")
_DECIMAL_COMMA = re.compile(r"[+-]?[0-9]+,[0-9]+")
_DATE = re.compile(r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([ T].*)?|[0-9]{1,2}([./-])[0-9]{1,2}\2[0-9]{4}")
_NOTHING = frozenset(("None", "<NA>", "NaT"))


@dataclass(frozen=True, eq=False)
class Column:
    """A column: its numbers (nan where a cell is none), which cells are missing, and the texts where it has any."""

    name: str
    numbers: NDArray[np.float64] = field(repr=False)
    missing: NDArray[np.bool_] = field(repr=False)
    texts: NDArray[Any] | None = field(repr=False, default=None)
    dates: bool = False
    """Whether its type says that it holds dates."""

    @cached_property
    def words(self) -> NDArray[np.bool_]:
        """The cells that are neither missing nor a number."""
        return np.asarray(~self.missing & np.isnan(self.numbers))

    @cached_property
    def labels(self) -> NDArray[Any]:
        """Every cell as the name of a level, the same at every site; empty where it is missing.

        A number is the same level however it is written: 1, 1.0 and +1. Codes such as 007 and 1e5 stay words.
        """
        if self.texts is None:
            known = {value: plain_number(value) for value in np.unique(self.numbers[~self.missing]).tolist()}
            return np.array([known.get(value, "") for value in self.numbers.tolist()], dtype=object)
        known = {text: as_level(text) for text in set(self.texts.tolist())}
        labels = np.array([known[text] for text in self.texts.tolist()], dtype=object)
        labels[self.missing] = ""
        return labels

    @cached_property
    def all_dates(self) -> bool:
        """Whether everything in it is a date."""
        if self.texts is None or not self.words.any():
            return self.dates
        return not (~self.missing & ~self.words).any() and all(
            _DATE.fullmatch(text) for text in set(self.texts[self.words].tolist())
        )

    def fault(self, row: int) -> str:
        """What is wrong with a cell that is to be a number and is none; its text is not shown."""
        assert self.texts is not None
        text = str(self.texts[row])
        if text == self.name:
            return "repeats the name of the column: a second header line; delete that line"
        if _DECIMAL_COMMA.fullmatch(text):
            return "has a decimal comma; write numbers with a point"
        if _DATE.fullmatch(text):
            return "is a date, not a number; make a number of it, such as an age in years"
        second = " (a second header line?)" if row == 0 and int(self.words.sum()) == 1 and len(self.words) > 1 else ""
        return f"is not a number{second}; mend the cell, or leave it empty where the value is missing"


@dataclass(frozen=True, eq=False)
class Records:
    """Named columns of one site, and where each record stands."""

    source: Path
    columns: dict[str, Column] = field(repr=False)
    n_records: int
    lines: NDArray[np.intp] | None = field(repr=False, default=None)
    """The line of the file each record begins in; None where there are no lines."""
    places: dict[str, int] = field(repr=False, default_factory=dict)
    """Which column of the file each one is, counted from 1."""

    def error(self, row: int, name: str, fault: str) -> InputError:
        """The error of one cell: file, line, column, and what is wrong; never its value."""
        where = f", line {self.lines[row]}" if self.lines is not None else f", row {row} (counted from 0)"
        return error_at(self.source, f"{where}, column {self.called(name)}: {fault}")

    def column_error(self, name: str, fault: str) -> InputError:
        """The error of a whole column."""
        return error_at(self.source, f", column {self.called(name)}: {fault}")

    def called(self, name: str) -> str:
        """A column by its name and its place."""
        return f"{name!r}" + (f" ({self.places[name]})" if name in self.places else "")


def plain_number(value: float) -> str:
    """A number as the name of a level."""
    return str(int(value)) if float(value).is_integer() else repr(float(value))


def as_level(text: str) -> str:
    """A cell as the name of a level."""
    return plain_number(float(text)) if _PLAIN.fullmatch(text) and len(text) <= 15 else composed(text)


def composed(text: str) -> str:
    """The same text with every accent in its letter: systems differ in that, and nobody sees it."""
    return unicodedata.normalize("NFC", text)


def read_records(path: Path, wanted: Sequence[str]) -> Records:
    """The wanted columns of a CSV or Parquet file."""
    kind = file_format(path)
    if kind == "libsvm":
        raise error_at(path, ": columns are asked for by name; give a CSV or Parquet file (.csv, .parquet)")
    return (_read_csv if kind == "csv" else _read_parquet)(path, tuple(dict.fromkeys(wanted)))


def _read_csv(path: Path, wanted: tuple[str, ...]) -> Records:
    with reading(path) as file:
        _check_is_text(path, file.read(4))
        file.seek(0)
        text = io.TextIOWrapper(file, encoding="utf-8-sig", errors="surrogateescape", newline="")
        rows = csv.reader(text, strict=True, skipinitialspace=True)
        begins = 1
        try:
            header: list[str] = []
            while not header:
                begins = rows.line_num + 1
                header = [composed(name.strip()) for name in next(rows)]
            places = _places(path, header, wanted, begins)
            found: list[list[str]] = []
            lines: list[int] = []
            positions = [places[name] - 1 for name in wanted]
            begins = rows.line_num + 1
            for cells in rows:
                if len(cells) == len(header):
                    found.append([cells[position] for position in positions])
                    lines.append(begins)
                elif cells:
                    why = " (a decimal comma, or a comma in a text without quotes?)" if len(cells) > len(header) else ""
                    fault = f"found {len(cells)} cells, expected {len(header)} as in the header{why}; mend the line"
                    raise error_at(path, f", line {begins}: {fault}")
                begins = rows.line_num + 1
        except StopIteration:
            raise error_at(path, ", line 1: is empty; expected the names of the columns, then records") from None
        except csv.Error:
            fault = "a quotation mark is not closed, or stands inside a text; mend it"
            raise error_at(path, f", line {begins}: {fault}") from None
    if not found:
        raise error_at(path, f", line {begins}: there are no records after the header line")
    made = Records(path, {}, len(found), np.array(lines, dtype=np.intp), places)
    for name, texts in zip(wanted, zip(*found, strict=True), strict=True):
        made.columns[name] = _of_texts(made, name, [text.strip() for text in texts])
    return made


def _check_is_text(path: Path, start: bytes) -> None:
    if start[:2] in UTF_16 or b"\0" in start:
        raise error_at(path, f", line 1: is in UTF-16, or no text; {AS_UTF_8}")
    if start[:2] == b"PK":
        raise error_at(path, ", line 1: is a spreadsheet or an archive, not text; export it as comma-separated text")


def _places(path: Path, header: list[str], wanted: Sequence[str], line: int) -> dict[str, int]:
    """Where each wanted column is; what a header line has besides is not told, for it may be a record."""
    for mark, parted in PARTED.items():
        if len(header) == 1 and mark in header[0]:
            raise error_at(path, f", line {line}: columns are parted by {parted}; part them by commas")
    places: dict[str, int] = {}
    for name in wanted:
        at = [place for place, each in enumerate(header, start=1) if each == name]
        if len(at) > 1:
            raise error_at(
                path, f", line {line}: columns {at[0]} and {at[1]} are both called {name!r}; rename one of them"
            )
        if at:
            places[name] = at[0]
    lacking = [name for name in wanted if name not in places]
    if lacking and any(_is_other_encoding(name) for name in header):
        fault = f"there is no column {lacking[0]!r}, and the line is not in UTF-8; {AS_UTF_8}"
        raise error_at(path, f", line {line}: {fault}")
    if lacking:
        near = _nearest(lacking[0], header, places)
        hint = f"rename {near}" if near else "the header line must have it under this name"
        raise error_at(path, f", line {line}: there is no column {lacking[0]!r}; {hint}")
    return places


def _nearest(name: str, header: Sequence[str], places: dict[str, int]) -> str:
    """Names of the header like the one that lacks, where this is a header line for sure: else it may be a record."""
    if not places or any(is_number(each) or _DATE.fullmatch(each) for each in header):
        return ""
    like = closest_first(name, header)
    close = [each for each in like[:2] if _alike(each, name) and each not in places]
    return " or ".join(f"column {each!r}" for each in close)


def _alike(one: str, other: str) -> bool:
    from difflib import SequenceMatcher

    return SequenceMatcher(None, one.lower(), other.lower()).ratio() >= 0.6


def _of_texts(records: Records, name: str, texts: list[str]) -> Column:
    """A column of cells as text."""
    known: dict[str, tuple[float, bool]] = {}
    for row, text in enumerate(texts):
        if text not in known:
            missing = is_missing(text) or text in _NOTHING
            if _is_other_encoding(text):
                raise records.error(row, name, f"is not in UTF-8; {AS_UTF_8}")
            known[text] = (float("nan") if missing or not is_number(text) else float(text), missing)
    found = [known[text] for text in texts]
    numbers = np.array([number for number, _ in found], dtype=np.float64)
    return Column(name, numbers, np.array([missing for _, missing in found]), np.array(texts, dtype=object))


def _is_other_encoding(text: str) -> bool:
    """Whether bytes of it were no UTF-8."""
    return any("\udc80" <= letter <= "\udcff" for letter in text)


def _read_parquet(path: Path, wanted: tuple[str, ...]) -> Records:
    check_installed(str(path), "pyarrow", "parquet")
    import pyarrow as pa
    import pyarrow.parquet as pq

    with reading(path) as file:
        try:
            opened = pq.ParquetFile(file)
            written = opened.schema_arrow.names
            places = _places(path, [composed(name) for name in written], wanted, 1)
            table = opened.read(columns=[written[places[name] - 1] for name in wanted])
        except (pa.ArrowInvalid, OSError):
            raise error_at(path, ": is not a Parquet file, or not a whole one") from None
    if table.num_rows == 0:
        raise error_at(path, ": there are no records")
    made = Records(path, {}, table.num_rows, None, places)
    for name in wanted:
        cells = table.column(written[places[name] - 1])
        kind = cells.type
        if pa.types.is_dictionary(kind):
            kind = kind.value_type
        if pa.types.is_temporal(kind):
            made.columns[name] = _of_dates(name, cells.is_null().to_numpy())
        elif pa.types.is_string(kind) or pa.types.is_large_string(kind):
            texts = ["" if value is None else str(value).strip() for value in cells.to_pylist()]
            made.columns[name] = _of_texts(made, name, texts)
        elif pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind):
            values = [float("nan") if value is None else float(value) for value in cells.to_pylist()]
            made.columns[name] = of_numbers(name, np.array(values))
        else:
            raise made.column_error(name, f"is of type {kind}; it must hold numbers or words")
    return made


def records_of_frame(frame: Any, wanted: Sequence[str], source: str = "load()") -> Records:
    """The wanted columns of a data frame, pandas' or another library's."""
    if not hasattr(frame, "columns"):
        raise bad_argument(source, type(frame).__name__, "a data frame with named columns", FRAME)
    header = [composed(str(name)) for name in frame.columns]
    wanted = tuple(dict.fromkeys(wanted))
    path = Path(source)
    places = _places(path, header, wanted, 1)
    if not len(frame):
        raise error_at(path, ": there are no records")
    made = Records(path, {}, len(frame), None, places)
    for name in wanted:
        series = frame[frame.columns[places[name] - 1]]
        values = np.asarray(series.to_numpy())
        if values.dtype.kind in "mM":
            made.columns[name] = _of_dates(name, np.isnat(values))
        elif values.dtype.kind in "biuf":
            made.columns[name] = of_numbers(name, values.astype(np.float64))
        else:
            cells = values.tolist()
            if any(isinstance(cell, date) for cell in cells):
                made.columns[name] = _of_dates(name, np.array([not isinstance(cell, date) for cell in cells]))
            else:
                made.columns[name] = _of_texts(made, name, [_cell_text(cell) for cell in cells])
    return made


def of_numbers(name: str, numbers: NDArray[np.float64]) -> Column:
    """A column of numbers, where nan is a missing value."""
    return Column(name, numbers, np.isnan(numbers))


def _of_dates(name: str, missing: NDArray[np.bool_]) -> Column:
    return Column(name, np.full(len(missing), np.nan), np.asarray(missing, dtype=bool), None, True)


def _cell_text(cell: object) -> str:
    return "" if cell is None or cell != cell else str(cell).strip()
