"""Readers for the file formats: LIBSVM text, CSV and Parquet, to one `Table` each.

LIBSVM text is read in `danl.data.libsvm`, fast where it is well formed, line by line where it may not be.
CSV is read line by line, so its errors know their place. What labels mean is the same in all formats and
is settled after reading, in `danl.data.dataset`.
"""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import lzma
import math
import zlib
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from danl.checks import check_installed, check_whole
from danl.data import libsvm
from danl.data.schema import Names
from danl.data.text import is_number, shorten
from danl.errors import InputError, bad_argument
from danl.spec import closest_first

PACKINGS: dict[str, Callable[..., Any]] = {".bz2": bz2.open, ".gz": gzip.open, ".xz": lzma.open}
BROKEN_FILE = (OSError, EOFError, lzma.LZMAError, zlib.error)

_MISSING = frozenset(("", "nan", "na", "n/a", "null"))


@dataclass(frozen=True, eq=False)
class Table:
    """What a file holds: y is float64, or text where some label is not a number."""

    X: Any
    y: NDArray[Any]
    feature_names: Names | None = None
    target_name: str | None = None
    sites: NDArray[Any] | None = None
    weights: NDArray[np.float64] | None = None


def file_format(path: Path) -> str:
    """Tell ``"csv"``, ``"parquet"`` or ``"libsvm"`` (any other suffix, or none) from the file's name."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in PACKINGS:
        suffixes.pop()
    return {".csv": "csv", ".parquet": "parquet", ".pq": "parquet"}.get(suffixes[-1] if suffixes else "", "libsvm")


def open_unpacked(path: Path) -> IO[bytes]:
    """Open a file for reading its plain bytes, whether it is packed (.bz2, .gz, .xz) or not."""
    opener = PACKINGS.get(path.suffix.lower(), open)
    return opener(path, "rb")  # type: ignore[no-any-return]


@contextmanager
def _reading(path: Path) -> Iterator[IO[bytes]]:
    """Open a file for its plain bytes; whatever goes wrong while reading names the file."""
    if not path.exists():
        raise _at(path, ": there is no such file; check the path")
    if path.is_dir():
        raise _at(path, ": is a folder; give the path of one file")
    try:
        with open_unpacked(path) as file:
            yield file
    except BROKEN_FILE as error:
        why, lost = getattr(error, "strerror", None) or type(error).__name__, "the file was not loaded"
        raise _at(path, f": cannot be read: {why}; {lost}", f": cannot be read: {error}; {lost}") from error


def _at(path: Path, told: str, shown: str | None = None) -> InputError:
    """The error of a file: `told` may leave a site, `shown` is for whoever has the file."""
    return InputError(f"{path}{told if shown is None else shown}", place=f"{path.name}{told}")


def read_libsvm(path: Path, *, n_features: int | None = None, zero_based: bool = False) -> Table:
    """Read LIBSVM text, plain or packed, to a CSR matrix.

    Parameters
    ----------
    path
        The file; ``#`` starts a comment and blank lines are skipped.
    n_features
        The number of columns; None takes the highest index in the file, which may be too few.
    zero_based
        Whether the first feature has index 0 rather than 1.
    """
    if n_features is not None:
        check_whole("n_features", n_features, next_step="None takes it from the file")
    with _reading(path) as file:
        text = file.read()
    base = 0 if zero_based else 1
    highest = libsvm.MAX_INDEX if n_features is None else min(n_features - 1 + base, libsvm.MAX_INDEX)
    found = libsvm.read_at_once(text, lowest=base, highest=highest)
    if found is None:
        found = libsvm.read_by_line(str(path), text, n_features=n_features, zero_based=zero_based)
    if len(found.labels) == 0:
        raise _at(path, f": holds no rows (it is empty, or only comments and blank lines); {libsvm.FORM}")
    width = n_features if n_features is not None else max(int(found.indices.max(initial=base)) + 1 - base, 1)
    narrow = np.int32 if max(len(found.values), width) <= libsvm.MAX_INDEX else np.int64
    starts = np.zeros(len(found.counts) + 1, dtype=narrow)
    np.cumsum(found.counts, out=starts[1:])
    indices = np.subtract(found.indices, base, dtype=narrow, casting="unsafe")
    X = sparse.csr_matrix((found.values, indices, starts), shape=(len(found.labels), width))
    X.eliminate_zeros()
    return Table(X=X, y=found.labels)


def read_csv(
    path: Path,
    *,
    target_column: str | None = None,
    site_column: str | None = None,
    weight_column: str | None = None,
) -> Table:
    """Read a CSV file with a header line, plain or packed, to a dense matrix.

    Parameters
    ----------
    path
        The file.
    target_column
        Name of the target; None takes the last column that holds neither sites nor weights.
    site_column, weight_column
        Names of the columns that hold each row's site and weight, if there are such columns.
    """
    values, labels, sites = array("d"), [], []
    with (
        _reading(path) as file,
        io.TextIOWrapper(file, encoding="utf-8-sig", newline="") as text,
    ):
        records = _csv_records(path, text)
        header = [name.strip() for name in next(records, (0, []))[1]]
        check_header(path, header)
        columns = choose_columns(path, header, target_column, site_column, weight_column)
        numeric = columns.numeric
        for row, (line, cells) in enumerate(records):
            if len(cells) != len(header):
                found = f": found {len(cells)} cells, expected {len(header)} as in the header; the file was not loaded"
                line_shown = f", line {line}: {shorten(','.join(cells))!r}{found}"
                raise _at(path, f", line {line}{found}", line_shown)
            place = f", line {line} (row {row}, counted from 0)"
            texts = [cells[position] for position in numeric]
            numbers = _numbers(texts)
            if numbers is None:
                raise _bad_cell(path, place, header, numeric, texts)
            values.extend(numbers)
            labels.append(cells[columns.target].strip())
            if is_missing(labels[-1]):
                raise _bad_cell(path, place, header, [columns.target], [""])
            if columns.site is not None:
                sites.append(cells[columns.site].strip())
                if not sites[-1]:
                    raise _bad_cell(path, place, header, [columns.site], [""])
    if not labels:
        raise _at(path, ": holds a header line and no rows")
    matrix = np.frombuffer(values, dtype=np.float64).reshape(len(labels), -1)
    width = len(columns.features)
    return Table(
        X=np.ascontiguousarray(matrix[:, :width]),
        y=labels_of(labels),
        feature_names=tuple(header[position] for position in columns.features),
        target_name=header[columns.target],
        sites=None if columns.site is None else np.array(sites, dtype=str),
        weights=None if columns.weight is None else matrix[:, width].copy(),
    )


def read_parquet(
    path: Path,
    *,
    target_column: str | None = None,
    site_column: str | None = None,
    weight_column: str | None = None,
) -> Table:
    """Read a Parquet file to a dense matrix; the parameters are those of `read_csv`."""
    check_installed(str(path), "pyarrow", "parquet")
    import pyarrow as pa
    import pyarrow.parquet as pq

    with _reading(path) as file:
        try:
            table = pq.read_table(file)
        except pa.ArrowInvalid as error:
            raise _at(path, ": is not a Parquet file", f": is not a Parquet file: {error}") from error
    # pandas writes its index as a column of this name; it is no feature
    table = table.select([n for n in table.column_names if not n.startswith("__index_level_")])
    header = list(table.column_names)
    check_header(path, header)
    columns = choose_columns(path, header, target_column, site_column, weight_column)
    if table.num_rows == 0:
        raise _at(path, ": holds no rows")

    def column(position: int, *, numeric: bool) -> NDArray[Any]:
        """One column as numbers, or as whatever it holds where text will do."""
        name, cells = header[position], table.column(position)
        if cells.null_count:
            row = int(np.flatnonzero(cells.is_null().to_numpy())[0])
            raise _bad_cell(path, f", row {row} (counted from 0)", header, [position], [""])
        kind = cells.type
        if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind):
            values: NDArray[Any] = cells.to_numpy()
            return values.astype(np.float64) if numeric else values
        is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
        if numeric or not (is_text or pa.types.is_dictionary(kind)):
            found = f": must hold numbers, found {kind}"
            raise _at(path, f", column {position + 1}{found}", f", column {name!r}{found}")
        return np.array([str(value).strip() for value in cells.to_pylist()], dtype=str)

    y = column(columns.target, numeric=False)
    return Table(
        X=np.column_stack([column(position, numeric=True) for position in columns.features]),
        y=labels_of(y.tolist()) if y.dtype.kind == "U" else y.astype(np.float64),
        feature_names=tuple(header[position] for position in columns.features),
        target_name=header[columns.target],
        sites=None if columns.site is None else column(columns.site, numeric=False),
        weights=None if columns.weight is None else column(columns.weight, numeric=True),
    )


@dataclass(frozen=True)
class Columns:
    """Which position of the header plays which part."""

    features: tuple[int, ...]
    target: int
    site: int | None
    weight: int | None

    @property
    def numeric(self) -> tuple[int, ...]:
        return self.features if self.weight is None else (*self.features, self.weight)


def choose_columns(
    path: Path, header: Sequence[str], target: str | None, site: str | None, weight: str | None
) -> Columns:
    """Which column is the target, which holds sites and weights, and which are features."""
    taken: dict[str, str] = {}
    for argument, name in (
        ("target_column", target),
        ("site_column", site),
        ("weight_column", weight),
    ):
        if name is None:
            continue
        if name not in header:
            listed = ", ".join(closest_first(name, header))
            unknown = bad_argument(argument, name, f"a column of {path}", f"its columns are: {listed}")
            unknown.place = f"{argument}={name!r}: is no column of {path.name}; check its header line"
            raise unknown
        if name in taken:
            twice = f"{argument}={name!r}: must be another column than {taken[name]}"
            raise InputError(twice, place=twice)
        taken[name] = argument
    free = [name for name in header if name not in taken]
    if target is None and free:
        target = free.pop()
    if target is None or not free:
        expected, parted = ": expected a target and at least one feature, found", "columns are parted by commas"
        shown = f"{expected} the columns {', '.join(header)}; {parted}"
        raise _at(path, f"{expected} {len(header)} columns; {parted}", shown)
    position = {name: index for index, name in enumerate(header)}
    return Columns(
        features=tuple(position[name] for name in free),
        target=position[target],
        site=None if site is None else position[site],
        weight=None if weight is None else position[weight],
    )


def check_header(path: Path, header: Sequence[str]) -> None:
    """Refuse a header line that is missing, or in which two columns have one name."""
    if not header:
        raise _at(path, ": is empty; expected a header line with the column names, then rows")
    if all(is_number(name) for name in header) and not counted(header):
        wrong = ": expected the column names, found numbers; put a header line first; the file was not loaded"
        raise _at(path, f", line 1{wrong}", f", line 1: {shorten(','.join(header))!r}{wrong}")
    for index, name in enumerate(header):
        if name in header[:index]:
            places = f": columns {header.index(name) + 1} and {index + 1} have the same name; names must differ"
            raise _at(path, places, f": two columns are called {name!r}; names must differ")


def counted(header: Sequence[str]) -> bool:
    """Whether the names are 0, 1, 2, ...: so tables without names are written."""
    return list(header) == [str(index) for index in range(len(header))]


def _csv_records(path: Path, text: IO[str]) -> Iterator[tuple[int, list[str]]]:
    """Yield the line number and cells of every line that is not blank."""
    reader = csv.reader(text, strict=True, skipinitialspace=True)
    try:
        for cells in reader:
            if cells:
                yield reader.line_num, cells
    except (csv.Error, UnicodeDecodeError) as error:
        place = f", line {reader.line_num + isinstance(error, UnicodeDecodeError)}: "
        expected = "expected comma-separated text in UTF-8; the file was not loaded"
        raise _at(path, f"{place}{expected}", f"{place}{error}; {expected}") from error


def _numbers(texts: Sequence[str]) -> list[float] | None:
    """Return the cells as numbers; None when one of them is not a number or is NaN."""
    if "_" in "".join(texts):  # float() reads 1_0 as 10
        return None
    try:
        numbers = [float(text) for text in texts]
    except ValueError:
        return None
    # A sum is NaN if a term is (or if infinities cancel), and quicker than a look at each.
    return None if math.isnan(sum(numbers)) and any(map(math.isnan, numbers)) else numbers


def _bad_cell(
    path: Path, place: str, header: Sequence[str], positions: Sequence[int], texts: Sequence[str]
) -> InputError:
    """The error of the first cell that is no number. A site counts columns: names may be a row's, without a header."""
    for position, text in zip(positions, texts, strict=True):
        told, shown = f"{place}, column {position + 1}", f"{place}, column {header[position]!r}"
        if is_missing(text):
            fault = ": the value is missing; fill it in or drop the row; the file was not loaded"
            return _at(path, f"{told}{fault}", f"{shown}{fault}")
        if not is_number(text):
            fault = "is not a number; encode or drop the column; the file was not loaded"
            return _at(path, f"{told}: {fault}", f"{shown}: {shorten(text)!r} {fault}")
    raise AssertionError("no bad cell")  # pragma: no cover


def labels_of(texts: Sequence[str]) -> NDArray[Any]:
    """The labels as numbers if all of them are, as text otherwise."""
    numbers = _numbers(texts)
    return np.array(texts, dtype=str) if numbers is None else np.array(numbers, dtype=np.float64)


def is_missing(text: str) -> bool:
    """Whether a cell says that nothing is known."""
    return text.strip().lower().lstrip("+-") in _MISSING
