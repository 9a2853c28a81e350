"""Readers for the file formats: LIBSVM text, CSV and Parquet, to one `RawTable` each.

LIBSVM text is read in `danl.data.libsvm`, fast where it is well formed, line by line where it may not be.
CSV is read line by line, so its errors know their place. What columns and cells mean is in `danl.data.table`, what
labels mean is settled after reading, in `danl.data.dataset`.
"""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import lzma
import zlib
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from danl.checks import check_installed, check_whole
from danl.data import libsvm
from danl.data.table import Columns, RawTable, error_at, is_missing, labels_of, numbers_of, shorten

PACKINGS: dict[str, Callable[..., Any]] = {".bz2": bz2.open, ".gz": gzip.open, ".xz": lzma.open}
BROKEN_FILE = (OSError, EOFError, lzma.LZMAError, zlib.error)


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
def reading(path: Path) -> Iterator[IO[bytes]]:
    """Open a file for its plain bytes; whatever goes wrong while reading names the file."""
    if not path.exists():
        raise error_at(path, ": there is no such file; check the path")
    if path.is_dir():
        raise error_at(path, ": is a folder; give the path of one file")
    try:
        with open_unpacked(path) as file:
            yield file
    except BROKEN_FILE as error:
        why, lost = getattr(error, "strerror", None) or type(error).__name__, "the file was not loaded"
        raise error_at(path, f": cannot be read: {why}; {lost}", f": cannot be read: {error}; {lost}") from error


def read_libsvm(path: Path, *, n_features: int | None = None, zero_based: bool = False) -> RawTable:
    """Read LIBSVM text, plain or packed, to a CSR matrix; ``#`` starts a comment and blank lines are skipped.

    Without `n_features` the highest index in the file counts, which may be too few columns.
    """
    if n_features is not None:
        check_whole("n_features", n_features, next_step="None takes it from the file")
    with reading(path) as file:
        text = file.read()
    base = 0 if zero_based else 1
    highest = libsvm.MAX_INDEX if n_features is None else min(n_features - 1 + base, libsvm.MAX_INDEX)
    found = libsvm.read_at_once(text, lowest=base, highest=highest)
    if found is None:
        found = libsvm.read_by_line(str(path), text, n_features=n_features, zero_based=zero_based)
    if len(found.labels) == 0:
        raise error_at(path, f": holds no rows (it is empty, or only comments and blank lines); {libsvm.FORM}")
    width = n_features if n_features is not None else max(int(found.indices.max(initial=base)) + 1 - base, 1)
    narrow = np.int32 if max(len(found.values), width) <= libsvm.MAX_INDEX else np.int64
    starts = np.zeros(len(found.counts) + 1, dtype=narrow)
    np.cumsum(found.counts, out=starts[1:])
    indices = np.subtract(found.indices, base, dtype=narrow, casting="unsafe")
    X = sparse.csr_matrix((found.values, indices, starts), shape=(len(found.labels), width))
    X.eliminate_zeros()
    return RawTable(X=X, y=found.labels)


def read_csv(path: Path, **named: str | None) -> RawTable:
    """Read a CSV file with a header line, plain or packed, to a dense matrix; `named` is as in `Columns.choose`."""
    values, labels, sites = array("d"), [], []
    with reading(path) as file, io.TextIOWrapper(file, encoding="utf-8-sig", newline="") as text:
        records = _csv_records(path, text)
        header = [name.strip() for name in next(records, (0, []))[1]]
        columns = Columns.choose(path, header, **named)
        numeric = columns.features if columns.weight is None else (*columns.features, columns.weight)
        for row, (line, cells) in enumerate(records):
            if len(cells) != len(header):
                found = f": found {len(cells)} cells, expected {len(header)} as in the header; the file was not loaded"
                line_shown = f", line {line}: {shorten(','.join(cells))!r}{found}"
                raise error_at(path, f", line {line}{found}", line_shown)
            place = f", line {line} (row {row}, counted from 0)"
            texts = [cells[position] for position in numeric]
            numbers = numbers_of(texts)
            if numbers is None:
                raise columns.bad_cell(path, place, numeric, texts)
            values.extend(numbers)
            labels.append(cells[columns.target].strip())
            if is_missing(labels[-1]):
                raise columns.bad_cell(path, place, [columns.target], [""])
            if columns.site is not None:
                sites.append(cells[columns.site].strip())
                if not sites[-1]:
                    raise columns.bad_cell(path, place, [columns.site], [""])
    if not labels:
        raise error_at(path, ": holds a header line and no rows")
    matrix = np.frombuffer(values, dtype=np.float64).reshape(len(labels), -1)
    width = len(columns.features)
    weights = None if columns.weight is None else matrix[:, width].copy()
    where = None if columns.site is None else np.array(sites, dtype=str)
    return columns.table(np.ascontiguousarray(matrix[:, :width]), labels_of(labels), where, weights)


def read_parquet(path: Path, **named: str | None) -> RawTable:
    """Read a Parquet file to a dense matrix; the parameters are those of `read_csv`."""
    check_installed(str(path), "pyarrow", "parquet")
    import pyarrow as pa
    import pyarrow.parquet as pq

    with reading(path) as file:
        try:
            table = pq.read_table(file)
        except pa.ArrowInvalid as error:
            raise error_at(path, ": is not a Parquet file", f": is not a Parquet file: {error}") from error
    # pandas writes its index as a column of this name; it is no feature
    table = table.select([n for n in table.column_names if not n.startswith("__index_level_")])
    columns = Columns.choose(path, list(table.column_names), **named)
    if table.num_rows == 0:
        raise error_at(path, ": holds no rows")

    def column(position: int, *, numeric: bool) -> NDArray[Any]:
        """One column as numbers, or as whatever it holds where text will do."""
        name, cells = columns.header[position], table.column(position)
        if cells.null_count:
            row = int(np.flatnonzero(cells.is_null().to_numpy())[0])
            raise columns.bad_cell(path, f", row {row} (counted from 0)", [position], [""])
        kind = cells.type
        if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind):
            values: NDArray[Any] = cells.to_numpy()
            return values.astype(np.float64) if numeric else values
        is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
        if numeric or not (is_text or pa.types.is_dictionary(kind)):
            found = f": must hold numbers, found {kind}"
            raise error_at(path, f", column {position + 1}{found}", f", column {name!r}{found}")
        return np.array([str(value).strip() for value in cells.to_pylist()], dtype=str)

    y = column(columns.target, numeric=False)
    return columns.table(
        np.column_stack([column(position, numeric=True) for position in columns.features]),
        labels_of(y.tolist()) if y.dtype.kind == "U" else y.astype(np.float64),
        None if columns.site is None else column(columns.site, numeric=False),
        None if columns.weight is None else column(columns.weight, numeric=True),
    )


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
        raise error_at(path, f"{place}{expected}", f"{place}{error}; {expected}") from error
