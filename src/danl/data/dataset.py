"""Data sets: features and targets as every other part of the library expects them.

`load_dataset` takes the name of a registered set or the path of a file and is where files are checked:
behind it X is finite float64, the two classes of a binary target are 0 and 1, and the labels they stood for
are kept.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from danl.checks import check_choice
from danl.data.fetch import locate
from danl.data.files import file_format, read_csv, read_libsvm, read_parquet
from danl.data.redaction import redacted
from danl.data.registry import REGISTRY, Registered, lookup
from danl.data.shard import check_rows
from danl.data.table import RawTable, is_number
from danl.errors import InputError, bad_argument

Label = int | float | str

_LISTED_VALUES = 5


@dataclass(frozen=True, eq=False)
class Dataset:
    """Features, targets and where they came from.

    Attributes
    ----------
    X
        CSR matrix (LIBSVM files) or dense array (CSV, Parquet), float64.
    y
        Targets, float64; 0 and 1 for a binary target, 0, 1, ..., K - 1 for K classes.
    name
        The registered name, or the file's name.
    classes
        The labels that 0, 1, ... stand for; None for a real-valued target.
    feature_names, target_name
        Names of the columns of X and of the target, where the file has them.
    sites, weights
        Site and weight of each row, where the file has them.
    source
        Path of the file read.
    """

    X: Any = field(repr=False)
    y: NDArray[np.float64] = field(repr=False)
    name: str
    classes: tuple[Label, ...] | None
    feature_names: tuple[str, ...] | None = field(repr=False)
    sites: NDArray[Any] | None = field(repr=False)
    weights: NDArray[np.float64] | None = field(repr=False)
    source: str
    target_name: str | None = None

    @property
    def n_rows(self) -> int:
        """The rows of X."""
        return int(self.X.shape[0])

    @property
    def n_features(self) -> int:
        """The columns of X."""
        return int(self.X.shape[1])


def load_dataset(
    name_or_path: str | os.PathLike[str],
    *,
    n_features: int | None = None,
    zero_based: bool = False,
    target: Literal["binary", "classes", "real"] = "binary",
    target_column: str | None = None,
    site_column: str | None = None,
    weight_column: str | None = None,
    progress: bool = True,
) -> Dataset:
    """Load a registered data set, or a LIBSVM, CSV or Parquet file.

    A registered name wins over a file of the same name; write ``./a1a`` for the file.

    Parameters
    ----------
    name_or_path
        ``"a1a"`` and the like, or a path. The suffix tells the format (.csv, .parquet; anything else is
        LIBSVM); LIBSVM and CSV may be packed (.bz2, .gz, .xz).
    n_features
        LIBSVM: the number of columns. Without it, the highest index in the file counts.
    zero_based
        LIBSVM: whether indices count from 0.
    target
        ``"binary"`` maps the two values found, sorted, to 0 and 1; ``"classes"`` numbers however many there are;
        ``"real"`` keeps them.
    target_column
        CSV, Parquet: name of the target; the last column unless given.
    site_column, weight_column
        CSV, Parquet: names of the columns with each row's site and weight; they are no features.
    progress
        Show a bar on stderr if the set has to be downloaded.
    """
    check_choice("target", target, ("binary", "classes", "real"))
    name, path, table = read_table(
        name_or_path,
        n_features=n_features,
        zero_based=zero_based,
        progress=progress,
        target_column=target_column,
        site_column=site_column,
        weight_column=weight_column,
    )
    return _dataset(table, name=name, source=str(path), target=target)


def read_table(
    name_or_path: str | os.PathLike[str],
    *,
    n_features: int | None,
    zero_based: bool,
    progress: bool = False,
    **columns: str | None,
) -> tuple[str, Path, RawTable]:
    """Find a file or a registered set and read it, labels as they stand there: its name, its path, what it holds."""
    given = [option for option, value in columns.items() if value is not None]
    entry, path = _resolve(name_or_path, progress=progress)
    kind = "libsvm" if entry else file_format(path)
    if kind == "libsvm":
        if given:
            raise bad_argument(given[0], columns[given[0]], f"left out: {path} is LIBSVM text, without columns")
        if entry:
            n_features = _check_registered_options(entry, n_features, zero_based)
        table = read_libsvm(path, n_features=n_features, zero_based=zero_based)
    else:
        if n_features is not None or zero_based:
            raise InputError(f"n_features and zero_based are for LIBSVM text; leave them out for {path}")
        table = (read_csv if kind == "csv" else read_parquet)(path, **columns)
    if entry and table.X.shape != (entry.rows, entry.features):
        raise InputError(
            f"{path} is not the data set {entry.name}: found {table.X.shape[0]} rows and "
            f"{table.X.shape[1]} features, expected {entry.rows} and {entry.features}; "
            f"replace it by the file from {entry.url}"
        )
    return entry.name if entry else path.name, path, table


def encode_labels(labels: NDArray[Any], *, binary: bool = True) -> tuple[NDArray[np.float64], tuple[Label, ...]]:
    """Map the distinct labels, in sorted order, to 0, 1, ...; return them too. A binary target has two."""
    values, codes = np.unique(labels, return_inverse=True)
    if len(values) == 1:
        rule = "target='binary' needs exactly two different values" if binary else "classes are at least two"
        rule = f" in {len(labels)} rows; {rule}; check the target, or bring rows of both classes"
        found = "y: found only"
        raise InputError(f"{found} the value {_plain(values[0])!r}{rule}", redacted=f"{found} one value{rule}")
    if binary and len(values) != 2:
        listed = ", ".join(repr(_plain(value)) for value in values[:_LISTED_VALUES])
        more = ", ..." if len(values) > _LISTED_VALUES else ""
        found = f"y: found {len(values)} different values"
        rule = (
            "; target='binary' needs exactly two; for a real-valued target use loss squared or poisson "
            "(load_dataset(..., target='real') in Python), for more classes loss multinomial (target='classes')"
        )
        raise InputError(f"{found} ({listed}{more}){rule}", redacted=f"{found}{rule}")
    return codes.astype(np.float64), tuple(_plain(value) for value in values)


def _resolve(name_or_path: str | os.PathLike[str], *, progress: bool) -> tuple[Registered | None, Path]:
    """Tell a registered name from a path, and return the file of either."""
    text = os.fspath(name_or_path)
    separators = [each for each in (os.sep, os.altsep) if each]
    explicit = not isinstance(name_or_path, str) or any(each in text for each in separators)
    if not explicit and text in REGISTRY:
        entry = lookup(text)
        return entry, locate(entry, progress=progress)
    path = Path(text).expanduser()
    if explicit or path.suffix or path.exists():
        return None, path
    lookup(text)  # raises, with the names there are
    raise AssertionError(text)  # pragma: no cover


def _check_registered_options(entry: Registered, n_features: int | None, zero_based: bool) -> int:
    if n_features not in (None, entry.features):
        raise bad_argument("n_features", n_features, f"{entry.features} for the data set {entry.name}", "or left out")
    if zero_based:
        raise bad_argument("zero_based", zero_based, f"False: the data set {entry.name} counts from 1")
    return entry.features


def _dataset(table: RawTable, *, name: str, source: str, target: str) -> Dataset:
    textual = table.y.dtype.kind == "U"
    classes = None
    try:
        if textual and target == "real":
            raise not_a_number(table.y)
        numbers = np.zeros(len(table.y)) if textual else table.y
        X, y, weights = check_rows(table.X, numbers, table.weights, feature_names=table.feature_names)
        if target != "real":
            y, classes = encode_labels(table.y, binary=target == "binary")
    except InputError as error:
        raise InputError(f"{source}: {error}", redacted=f"{Path(source).name}: {redacted(error)}") from error
    return Dataset(X, y, name, classes, table.feature_names, table.sites, weights, source, table.target_name)


def not_a_number(labels: NDArray[Any]) -> InputError:
    """The error of the first label that is text where numbers are asked for."""
    row, label = next((row, label) for row, label in enumerate(labels.tolist()) if not is_number(label))
    step = f"it is in row {row} (counted from 0)"
    return bad_argument(f"y[{row}]", label, "a number for target='real'", step, of_a_row=True)


def _plain(value: Any) -> Label:
    """Return the label as people write it: 1 rather than numpy's 1.0."""
    if isinstance(value, str):
        return str(value)
    return int(value) if float(value).is_integer() else float(value)
