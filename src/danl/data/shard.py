"""The rows of one worker, and the checks that every row passes on its way in.

Data enter the library here, by `Shard.of`, `danl.partition` or `danl.load_dataset`, which share `check_rows`: past this
border every X is CSR or dense float64 and every entry is finite.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from danl.data.schema import Names, name_of, names_of
from danl.errors import InputError, bad_argument
from danl.frozen import cached_property

Rows = NDArray[np.intp]
Codes = NDArray[np.int64]
FINITE, MEND = "a finite number", ": fill it in or drop the row"


@dataclass(frozen=True, eq=False)
class Shard:
    """The rows of one worker; `partition` makes them, `Shard.of` checks rows that came another way.

    Attributes
    ----------
    X
        CSR matrix or dense array, float64, one row an example.
    y
        Targets, float64.
    weights
        Weight of each row, or None when all count the same.
    rows
        Where each row was in the data that were divided: the record it is of. Two rows may be of one record.
    name
        ``"worker-3"``, or the site's id.
    feature_names, target_name
        What the columns of X and the target are called, where that is known.
    offset
        What is added to the margin of each row, or None.
    clusters
        The cluster of each row as a number of this shard's own, or None: for standard errors, not for the fit.
    left_out, unknown_levels
        Records of the file that are not among the rows: a value is missing, or a level that no site may name.
    """

    X: Any = field(repr=False)
    y: NDArray[np.float64] = field(repr=False)
    weights: NDArray[np.float64] | None = field(repr=False)
    rows: Rows = field(repr=False)
    name: str
    feature_names: Names | None = field(repr=False, default=None)
    target_name: str | None = field(repr=False, default=None)
    offset: NDArray[np.float64] | None = field(repr=False, default=None)
    clusters: Codes | None = field(repr=False, default=None)
    left_out: int = field(repr=False, default=0)
    unknown_levels: int = field(repr=False, default=0)

    @classmethod
    def of(
        cls,
        X: Any,
        y: ArrayLike,
        *,
        weights: ArrayLike | None = None,
        rows: ArrayLike | None = None,
        name: str = "worker-0",
        feature_names: Sequence[str] | None = None,
        target_name: str | None = None,
        offset: ArrayLike | None = None,
        clusters: ArrayLike | None = None,
    ) -> Shard:
        """Make a shard from a worker's own rows, with the checks that `partition` makes.

        Names are those of a data frame, unless given; clusters are whole numbers.
        """
        names = names_of(X, feature_names)
        target_name = target_name if target_name is not None else name_of(y)
        X, targets, row_weights = check_rows(X, y, weights, feature_names=names)
        indices = np.arange(len(targets)) if rows is None else np.asarray(rows, dtype=np.intp)
        if indices.shape != targets.shape:
            raise InputError(f"rows: found {indices.shape}, must have one index for each of the {len(targets)} rows")
        own = check_offset(offset, len(targets)), _check_clusters(clusters, len(targets))
        return cls(X, targets, row_weights, indices, name, names, target_name, *own)

    @property
    def n_rows(self) -> int:
        """The rows of X."""
        return len(self.y)

    @property
    def n_records(self) -> int:
        """The records that the rows are of: distinct entries of `rows`."""
        return self.n_rows if self.records is None else int(self.records.max()) + 1

    @cached_property
    def records(self) -> Codes | None:
        """The record of each row, numbered from 0; None where each row is a record of its own."""
        return _codes_of_twins(self.rows)

    @property
    def n_features(self) -> int:
        """The columns of X."""
        return int(self.X.shape[1])

    @property
    def total_weight(self) -> float:
        """The number of rows, or the sum of their weights."""
        return float(self.n_rows) if self.weights is None else float(self.weights.sum())

    @property
    def nbytes(self) -> int:
        """Memory the shard takes, index arrays included."""
        X, of_rows = self.X, self.y.nbytes + self.rows.nbytes
        of_rows += sum(part.nbytes for part in (self.weights, self.offset, self.clusters) if part is not None)
        return int(of_rows + (X.data.nbytes + X.indices.nbytes + X.indptr.nbytes if sparse.issparse(X) else X.nbytes))


@dataclass(frozen=True)
class ShardInfo:
    """What the server knows of a shard."""

    rows: int
    """Of X."""
    records: int
    """That the rows are of, at most as many: what a site's rules count."""
    total_weight: float
    n_features: int
    nbytes: int
    entries_per_row: float
    fewest_of_a_class: int
    """Rows of the rarer class of a binary target; 0 where there is one class only, rows for other targets."""
    feature_names: Names | None = None
    """What the columns are called, in the shard's own order; None where they have no names."""
    target_name: str | None = None
    site: str = ""
    """What the site, or its file, is called."""
    offset: bool = False
    """Whether its rows have an offset."""
    left_out: int = 0
    """Records in which a value is missing."""
    unknown_levels: int = 0
    """Complete records with a level that no site may name."""


def info_of(shard: Shard, binary: bool) -> ShardInfo:
    """What the server is to know of a shard."""
    rows, stored = shard.n_rows, int(shard.X.indptr[-1]) if sparse.issparse(shard.X) else int(shard.X.size)
    ones = int(np.count_nonzero(shard.y == 1)) if binary else 0
    return ShardInfo(
        rows=rows,
        records=shard.n_records,
        total_weight=shard.total_weight,
        n_features=shard.n_features,
        nbytes=shard.nbytes,
        entries_per_row=stored / rows,
        fewest_of_a_class=min(ones, rows - ones) if binary else rows,
        feature_names=shard.feature_names,
        target_name=shard.target_name,
        site=shard.name,
        offset=shard.offset is not None,
        left_out=shard.left_out,
        unknown_levels=shard.unknown_levels,
    )


def check_rows(
    X: Any,
    y: ArrayLike,
    weights: ArrayLike | None = None,
    *,
    feature_names: Sequence[str] | None = None,
    known_finite: bool = False,
) -> tuple[Any, NDArray[np.float64], NDArray[np.float64] | None]:
    """Return X as CSR or dense float64 and y and weights as float64, or say which entry is wrong.

    Entries must be finite, lengths must agree, weights must not be negative nor all zero. With `known_finite` somebody
    has looked at the entries already, and a pass over them is saved.
    """
    X = _as_matrix(X)
    targets = _as_vector("y", y, X.shape[0])
    row_weights = None if weights is None else _as_vector("weights", weights, X.shape[0])
    if known_finite:
        return X, targets, row_weights
    entry = _first_not_finite(X)
    if entry is not None:
        row, column, value = entry
        where = f"{column} (counted from 0)" if feature_names is None else repr(feature_names[column])
        raise _bad_row(f"X[{row}, {column}]", value, FINITE, row, f", column {where}{MEND}")
    for name, vector in (("y", targets), ("weights", row_weights)):
        if vector is not None and not np.isfinite(vector).all():
            row = int(np.argmin(np.isfinite(vector)))
            raise _bad_row(f"{name}[{row}]", float(vector[row]), FINITE, row, MEND)
    if row_weights is not None:
        if (row_weights < 0).any():
            row = int(np.argmax(row_weights < 0))
            raise _bad_row(f"weights[{row}]", float(row_weights[row]), "0 or more", row)
        if not row_weights.any():
            raise InputError(f"weights: all {len(row_weights)} are 0; at least one row must count")
    return X, targets, row_weights


def check_offset(offset: ArrayLike | None, n_rows: int) -> NDArray[np.float64] | None:
    """An offset as float64, or the first entry that is wrong."""
    if offset is None:
        return None
    values = _as_vector("offset", offset, n_rows)
    if not np.isfinite(values).all():
        row = int(np.argmin(np.isfinite(values)))
        raise _bad_row(f"offset[{row}]", float(values[row]), FINITE, row, f"{MEND}; a log needs exposures above 0")
    return values


def _check_clusters(clusters: ArrayLike | None, n_rows: int) -> Codes | None:
    if clusters is None:
        return None
    codes = np.asarray(clusters)
    if codes.shape != (n_rows,) or codes.dtype.kind not in "iu":
        raise InputError(
            f"clusters: must be whole numbers, one for each of the {n_rows} rows of X; found shape {codes.shape} of "
            f"type {codes.dtype}; numpy.unique(column, return_inverse=True) numbers the values of a column"
        )
    return np.ascontiguousarray(codes, dtype=np.int64)


def _codes_of_twins(rows: Rows) -> Codes | None:
    """Numbers of distinct entries; None where all differ. Rows mostly lie in order, and then none is sorted."""
    if bool((rows[1:] > rows[:-1]).all()):
        return None
    found, codes = np.unique(rows, return_inverse=True)
    return None if found.size == rows.size else codes.astype(np.int64)


def _bad_row(entry: str, value: float, allowed: str, row: int, rest: str = "") -> InputError:
    return bad_argument(entry, value, allowed, f"it is in row {row} (counted from 0){rest}", of_a_row=True)


def rows_of(X: Any, first: int, last: int) -> Any:
    """Consecutive rows, in the memory of the whole."""
    if first == 0 and last == X.shape[0]:
        return X
    if not sparse.issparse(X):
        return X[first:last]
    start, end = X.indptr[first], X.indptr[last]
    part = sparse.csr_matrix((last - first, X.shape[1]))
    part.data, part.indices = X.data[start:end], X.indices[start:end]
    part.indptr = X.indptr[first : last + 1] - start
    return part


def stacked_rows(parts: Sequence[Any]) -> Any:
    """The matrices one below the other, sparse if one is; where they lie so in memory already, that memory."""
    if not any(sparse.issparse(part) for part in parts):
        return stacked(parts)
    parts = [part if sparse.issparse(part) else sparse.csr_matrix(part) for part in parts]
    starts = list(accumulate((int(part.indptr[-1]) for part in parts), initial=0))
    kind: Any = parts[0].indptr.dtype if starts[-1] < 2**31 else np.int64
    made = sparse.csr_matrix((sum(part.shape[0] for part in parts), parts[0].shape[1]))
    made.data = stacked([part.data[: part.indptr[-1]] for part in parts])
    made.indices = stacked([part.indices[: part.indptr[-1]] for part in parts])
    ends = [np.add(part.indptr[1:], start, dtype=kind) for part, start in zip(parts, starts[:-1], strict=True)]
    made.indptr = np.concatenate([np.zeros(1, dtype=kind), *ends])
    return made


def stacked(parts: Sequence[Any]) -> Any:
    """Arrays one after the other, without a copy where they are consecutive pieces of one array."""
    if len(parts) == 1:
        return parts[0]
    whole, shape = parts[0].base, parts[0].shape[1:]
    if isinstance(whole, np.ndarray) and whole.flags.c_contiguous and whole.dtype == parts[0].dtype:
        start = place = parts[0].__array_interface__["data"][0]
        for part in parts:
            if part.base is not whole or part.__array_interface__["data"][0] != place or not part.flags.c_contiguous:
                break
            place += part.nbytes
        else:
            first = (start - whole.__array_interface__["data"][0]) // whole.itemsize
            return whole.reshape(-1)[first : first + (place - start) // whole.itemsize].reshape(-1, *shape)
    return np.concatenate(parts)


def _as_matrix(X: Any) -> Any:
    rule = "a matrix of real numbers, sparse or dense, one row an example"
    if not sparse.issparse(X):
        X = np.asarray(X)
    if X.ndim != 2 or X.shape[0] == 0 or X.shape[1] == 0:
        raise InputError(f"X: must be {rule}; found shape {X.shape}")
    if X.dtype.kind not in "biufO":
        raise InputError(f"X: must be {rule}; found entries of type {X.dtype}")
    if sparse.issparse(X):
        X = sparse.csr_matrix(X, dtype=np.float64)
        if not X.has_canonical_format:
            X = X.copy()
            X.sum_duplicates()
        return X
    try:
        return np.ascontiguousarray(X, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"X: must be {rule}; {error}", redacted=f"X: must be {rule}") from error


def _as_vector(name: str, values: ArrayLike, n_rows: int) -> NDArray[np.float64]:
    vector = np.asarray(values)
    if vector.shape != (n_rows,):
        raise InputError(f"{name}: must have one entry for each of the {n_rows} rows of X; found shape {vector.shape}")
    try:
        if vector.dtype.kind not in "biufO":
            raise TypeError(f"found entries of type {vector.dtype}")
        return np.ascontiguousarray(vector, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"{name}: must hold numbers; {error}; danl.load_dataset turns two labels into 0 and 1",
            redacted=f"{name}: must hold numbers",
        ) from error


def _first_not_finite(X: Any) -> tuple[int, int, float] | None:
    entries = X.data if sparse.issparse(X) else X
    finite = np.isfinite(entries)
    if finite.all():
        return None
    position = int(np.argmin(finite))  # in a dense X, the position in the flattened matrix
    if not sparse.issparse(X):
        row, column = divmod(position, X.shape[1])
        return row, column, float(X[row, column])
    row = int(np.searchsorted(X.indptr, position, side="right")) - 1
    return row, int(X.indices[position]), float(X.data[position])
