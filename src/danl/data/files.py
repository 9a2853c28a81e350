"""Readers for the file formats: LIBSVM text, CSV and Parquet, to one `Table` each.

LIBSVM text is read by scikit-learn, which is fast but knows no line numbers: only when it fails, or
may have accepted something it should not, is the text gone through again, slowly, to say which line
is wrong and why. CSV is read line by line, so its errors know their place. What labels mean is the
same in all formats and is settled after reading, in `danl.data.dataset`.
"""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import lzma
import math
import re
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

from danl.errors import InputError, bad_argument
from danl.spec import closest_first

PACKINGS: dict[str, Callable[..., Any]] = {".bz2": bz2.open, ".gz": gzip.open, ".xz": lzma.open}
BROKEN_FILE = (OSError, EOFError, lzma.LZMAError, zlib.error)

_LIBSVM_FORM = "expected '<label> <index>:<value> ...' with indices that increase"
_MAX_INDEX = 2**31 - 1  # what 32-bit sparse indices hold
_INDEX = re.compile(r"[+-]?[0-9]+")
_MISSING = frozenset(("", "nan", "na", "n/a", "null"))


@dataclass(frozen=True, eq=False)
class Table:
    """What a file holds: y is float64, or text where some label is not a number."""

    X: Any
    y: NDArray[Any]
    feature_names: tuple[str, ...] | None = None
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
        raise InputError(f"{path}: there is no such file; check the path")
    if path.is_dir():
        raise InputError(f"{path}: is a folder; give the path of one file")
    try:
        with open_unpacked(path) as file:
            yield file
    except BROKEN_FILE as error:
        raise InputError(f"{path}: cannot be read: {error}; the file was not loaded") from error


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
    from sklearn.datasets import load_svmlight_file

    if n_features is not None and (isinstance(n_features, bool) or n_features < 1):
        raise bad_argument("n_features", n_features, "at least 1, or None to take it from the file")
    with _reading(path) as file:
        text = file.read()
    try:
        X, y = load_svmlight_file(io.BytesIO(text), n_features=n_features, zero_based=bool(zero_based))
    except (ValueError, OverflowError) as error:
        _raise_at_bad_line(path, text, n_features, zero_based)
        raise InputError(f"{path}: {error}; {_LIBSVM_FORM}; the file was not loaded") from error
    if b"_" in text or b"qid:" in text:  # it reads 1_0 as 10, and drops qid:3
        _raise_at_bad_line(path, text, n_features, zero_based)
    if len(y) == 0:
        raise InputError(f"{path}: holds no rows (it is empty, or only comments and blank lines); {_LIBSVM_FORM}")
    narrow = np.int32 if max(X.nnz, X.shape[1]) <= _MAX_INDEX else np.int64
    X = sparse.csr_matrix((X.data, X.indices.astype(narrow), X.indptr.astype(narrow)), shape=X.shape)
    X.eliminate_zeros()
    return Table(X=X, y=np.asarray(y, dtype=np.float64))


def _raise_at_bad_line(path: Path, text: bytes, n_features: int | None, zero_based: bool) -> None:
    for number, raw in enumerate(text.split(b"\n"), start=1):
        line = raw.decode("utf-8", errors="replace").strip()
        fault = _libsvm_fault(line.partition("#")[0].split(), n_features, zero_based)
        if fault:
            raise InputError(
                f"{path}, line {number}: {_shorten(line)!r}: {fault}; {_LIBSVM_FORM}; the file was not loaded"
            )


def _libsvm_fault(tokens: Sequence[str], n_features: int | None, zero_based: bool) -> str | None:
    """Say what is wrong with one line, cut at the blanks; None when nothing is."""
    if not tokens:
        return None
    if ":" in tokens[0]:
        return f"the label is missing before {_shorten(tokens[0])!r}"
    if not is_number(tokens[0]):
        return f"the label {_shorten(tokens[0])!r} is not a number"
    previous = None
    for token in tokens[1:]:
        index_text, colon, value = token.partition(":")
        if not colon:
            return f"{_shorten(token)!r} has no colon"
        if not _INDEX.fullmatch(index_text):
            return f"the index {_shorten(index_text)!r} is not a whole number"
        if not is_number(value):
            return f"the value {_shorten(value)!r} of index {index_text} is not a number"
        index = int(index_text)
        if index < 0:
            return f"the index {index} is negative"
        if index == 0 and not zero_based:
            return "index 0 in a file that counts from 1; pass zero_based=True if it counts from 0"
        if previous is not None and index == previous:
            return f"the index {index} comes twice"
        if previous is not None and index < previous:
            return f"the index {index} comes after {previous}"
        if n_features is not None and index >= n_features + (not zero_based):
            return f"the index {index} is beyond n_features={n_features}"
        if index > _MAX_INDEX:
            return f"the index {index} is beyond {_MAX_INDEX}, the highest there can be"
        previous = index
    return None


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
        _check_header(path, header)
        columns = _choose_columns(path, header, target_column, site_column, weight_column)
        numeric = columns.numeric
        for row, (line, cells) in enumerate(records):
            if len(cells) != len(header):
                raise InputError(
                    f"{path}, line {line}: {_shorten(','.join(cells))!r}: found {len(cells)} "
                    f"cells, expected {len(header)} as in the header; the file was not loaded"
                )
            place = f"{path}, line {line} (row {row}, counted from 0)"
            texts = [cells[position] for position in numeric]
            numbers = _numbers(texts)
            if numbers is None:
                raise _bad_cell(place, [header[position] for position in numeric], texts)
            values.extend(numbers)
            labels.append(cells[columns.target].strip())
            if _is_missing(labels[-1]):
                raise _bad_cell(place, [header[columns.target]], [""])
            if columns.site is not None:
                sites.append(cells[columns.site].strip())
                if not sites[-1]:
                    raise _bad_cell(place, [header[columns.site]], [""])
    if not labels:
        raise InputError(f"{path}: holds a header line and no rows")
    matrix = np.frombuffer(values, dtype=np.float64).reshape(len(labels), -1)
    width = len(columns.features)
    return Table(
        X=np.ascontiguousarray(matrix[:, :width]),
        y=_labels(labels),
        feature_names=tuple(header[position] for position in columns.features),
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
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise InputError(
            f"{path}: reading Parquet needs pyarrow, which is not installed; "
            'install it with: pip install "danl[parquet]"'
        ) from error
    with _reading(path) as file:
        try:
            table = pq.read_table(file)
        except pa.ArrowInvalid as error:
            raise InputError(f"{path}: is not a Parquet file: {error}") from error
    # pandas writes its index as a column of this name; it is no feature
    table = table.select([n for n in table.column_names if not n.startswith("__index_level_")])
    header = list(table.column_names)
    _check_header(path, header)
    columns = _choose_columns(path, header, target_column, site_column, weight_column)
    if table.num_rows == 0:
        raise InputError(f"{path}: holds no rows")

    def column(position: int, *, numeric: bool) -> NDArray[Any]:
        """One column as numbers, or as whatever it holds where text will do."""
        name, cells = header[position], table.column(position)
        if cells.null_count:
            row = int(np.flatnonzero(cells.is_null().to_numpy())[0])
            raise _bad_cell(f"{path}, row {row} (counted from 0)", [name], [""])
        kind = cells.type
        if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind):
            values: NDArray[Any] = cells.to_numpy()
            return values.astype(np.float64) if numeric else values
        is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
        if numeric or not (is_text or pa.types.is_dictionary(kind)):
            raise InputError(f"{path}, column {name!r}: must hold numbers, found {kind}")
        return np.array([str(value).strip() for value in cells.to_pylist()], dtype=str)

    y = column(columns.target, numeric=False)
    return Table(
        X=np.column_stack([column(position, numeric=True) for position in columns.features]),
        y=_labels(y.tolist()) if y.dtype.kind == "U" else y.astype(np.float64),
        feature_names=tuple(header[position] for position in columns.features),
        sites=None if columns.site is None else column(columns.site, numeric=False),
        weights=None if columns.weight is None else column(columns.weight, numeric=True),
    )


@dataclass(frozen=True)
class _Columns:
    """Which position of the header plays which part."""

    features: tuple[int, ...]
    target: int
    site: int | None
    weight: int | None

    @property
    def numeric(self) -> tuple[int, ...]:
        return self.features if self.weight is None else (*self.features, self.weight)


def _choose_columns(
    path: Path, header: Sequence[str], target: str | None, site: str | None, weight: str | None
) -> _Columns:
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
            raise bad_argument(argument, name, f"a column of {path}", f"its columns are: {listed}")
        if name in taken:
            raise bad_argument(argument, name, f"another column than {taken[name]}")
        taken[name] = argument
    free = [name for name in header if name not in taken]
    if target is None and free:
        target = free.pop()
    if target is None or not free:
        raise InputError(
            f"{path}: expected a target and at least one feature, found the columns "
            f"{', '.join(header)}; columns are parted by commas"
        )
    position = {name: index for index, name in enumerate(header)}
    return _Columns(
        features=tuple(position[name] for name in free),
        target=position[target],
        site=None if site is None else position[site],
        weight=None if weight is None else position[weight],
    )


def _check_header(path: Path, header: Sequence[str]) -> None:
    if not header:
        raise InputError(f"{path}: is empty; expected a header line with the column names, then rows")
    doubled = [name for index, name in enumerate(header) if name in header[:index]]
    counted = [str(index) for index in range(len(header))]  # how tables without names are written
    if all(is_number(name) for name in header) and list(header) != counted:
        raise InputError(
            f"{path}, line 1: {_shorten(','.join(header))!r}: expected the column names, found "
            "numbers; put a header line first; the file was not loaded"
        )
    if doubled:
        raise InputError(f"{path}: two columns are called {doubled[0]!r}; names must differ")


def _csv_records(path: Path, text: IO[str]) -> Iterator[tuple[int, list[str]]]:
    """Yield the line number and cells of every line that is not blank."""
    reader = csv.reader(text, strict=True, skipinitialspace=True)
    try:
        for cells in reader:
            if cells:
                yield reader.line_num, cells
    except (csv.Error, UnicodeDecodeError) as error:
        raise InputError(
            f"{path}, line {reader.line_num + isinstance(error, UnicodeDecodeError)}: {error}; "
            "expected comma-separated text in UTF-8; the file was not loaded"
        ) from error


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


def _bad_cell(place: str, names: Sequence[str], texts: Sequence[str]) -> InputError:
    for name, text in zip(names, texts, strict=True):
        if _is_missing(text):
            return InputError(
                f"{place}, column {name!r}: the value is missing; fill it in or drop the row; the file was not loaded"
            )
        if not is_number(text):
            return InputError(
                f"{place}, column {name!r}: {_shorten(text)!r} is not a number; "
                "encode or drop the column; the file was not loaded"
            )
    raise AssertionError("no bad cell")  # pragma: no cover


def _labels(texts: Sequence[str]) -> NDArray[Any]:
    """Return the labels as numbers if all of them are, as text otherwise."""
    numbers = _numbers(texts)
    return np.array(texts, dtype=str) if numbers is None else np.array(numbers, dtype=np.float64)


def _is_missing(text: str) -> bool:
    return text.strip().lower().lstrip("+-") in _MISSING


def is_number(text: str) -> bool:
    """Whether the text is a number; unlike to Python, 1_000 is not one to us."""
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text


def _shorten(text: str, limit: int = 60) -> str:
    return text if len(text) <= limit else f"{text[: limit - 3]}..."
