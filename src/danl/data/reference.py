"""Shards by reference: where a worker's rows are, so that they are read where the worker runs and nowhere else.

A reference is a file on the worker's machine or a function that gives the rows. The server holds references and never
the rows; what it learns of a shard is its `ShardInfo`: rows, their total weight, features and their names.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from danl.checks import check_choice
from danl.data.dataset import not_a_number, read_table
from danl.data.records import Records, read_records, records_of_frame
from danl.data.redaction import redacted
from danl.data.shard import Shard
from danl.data.table import are_column_numbers, is_number, read_frame
from danl.errors import InputError, bad_argument

BINARY_CODINGS = ({0.0, 1.0}, {-1.0, 1.0})
"""Binary targets every site codes the same way without `positive`; the larger of the two is 1."""


@dataclass(frozen=True)
class ShardReference:
    """The rows of one worker, by where they are.

    Parameters
    ----------
    path : str, optional
        A LIBSVM, CSV or Parquet file on the worker's machine, or a registered name.
    load : callable, optional
        Instead of a file: called without arguments on the worker's machine, gives a `Shard`, or X and y, or X, y and
        weights, or a data frame with the target among its columns. Columns have names where X is a data frame.
    n_features, zero_based : int, bool
        Of a LIBSVM file. Give n_features: a site need not have met every feature.
    target : {"binary", "real"}
        What the target is. A binary one must be coded 0 and 1, or -1 and 1, at every site, or `positive` be given.
    positive : str or number, optional
        The label that is 1; all others are 0.
    target_column, weight_column : str, optional
        Of a CSV or Parquet file, or a data frame.
    name : str
        What the site is called.

    """

    path: str | None = None
    load: Callable[[], Any] | None = None
    n_features: int | None = None
    zero_based: bool = False
    target: Literal["binary", "real"] = "binary"
    positive: str | float | None = None
    target_column: str | None = None
    weight_column: str | None = None
    name: str = ""

    def __post_init__(self) -> None:
        if (self.path is None) == (self.load is None):
            raise InputError("ShardReference: give a path or a function that loads the rows, one of the two")
        if self.path is not None:
            object.__setattr__(self, "path", os.fspath(self.path))
        if self.load is not None and not callable(self.load):
            raise bad_argument("load", self.load, "a function without arguments")
        check_choice("target", self.target, ("binary", "real"))

    def read(self) -> Shard:
        """The rows; called where the worker runs. Errors may show a row: `danl.data.redaction` is for others."""
        if self.load is not None:
            loaded = self.load()
            if isinstance(loaded, Shard):
                return self._checked(loaded)
            if isinstance(loaded, tuple) and len(loaded) in (2, 3):
                weights = loaded[2] if len(loaded) == 3 else None
                return self._checked(Shard.of(*loaded[:2], weights=weights, name=self.name))
            if not hasattr(loaded, "columns"):
                raise bad_argument(
                    "load()", type(loaded).__name__, "a Shard, or X and y, or X, y and weights, or a data frame"
                )
            source, table = "load()", read_frame(loaded, self.target_column, self.weight_column)
        else:
            assert self.path is not None
            source, _, table = read_table(
                self.path,
                n_features=self.n_features,
                zero_based=self.zero_based,
                target_column=self.target_column,
                weight_column=self.weight_column,
            )
        try:
            y = self._coded(table.y) if self.target == "binary" else _numbers(table.y)
            shard = Shard.of(
                table.X,
                y,
                weights=table.weights,
                name=self.name or source,
                feature_names=table.feature_names,
                target_name=table.target_name,
            )
            return self._checked(shard)
        except InputError as error:
            raise InputError(f"{self.path or source}: {error}", redacted=f"{source}: {redacted(error)}") from error

    def records(self, wanted: Sequence[str]) -> Records:
        """The columns of these names, for a design; no other is looked at."""
        if self.path is not None:
            return read_records(Path(self.path), wanted)
        assert self.load is not None
        loaded = self.load()
        if not hasattr(loaded, "columns"):
            allowed = "a data frame: a formula is about columns with names"
            raise bad_argument("load()", type(loaded).__name__, allowed)
        return records_of_frame(loaded, wanted, self.name or "load()")

    def called(self, index: int) -> str:
        """What the site is called: by its name, or that of its file."""
        return self.name or (Path(self.path).stem if self.path is not None else f"worker-{index}")

    def _checked(self, shard: Shard) -> Shard:
        """Refuse names that look like a row: they go to the server, and a file may have no header line.

        Names 0, 1, 2, ... count as no names: that is how tables without names are written.
        """
        features, target = list(shard.feature_names or ()), shard.target_name
        names = features if target is None else [*features, target]
        ordered = features == sorted(features, key=_by_length)
        if features and ordered and are_column_numbers(sorted(names, key=_by_length)):
            return replace(shard, feature_names=None, target_name=None)
        found = [position for position, name in enumerate(names, start=1) if is_number(name)]
        if found:
            rule = "a site's columns must have names that are no numbers; put a header line first, or rename it"
            raise InputError(
                f"column {found[0]} is called {names[found[0] - 1]!r}; {rule}",
                redacted=f"the name of column {found[0]} is a number; {rule}",
            )
        return shard

    def _coded(self, labels: NDArray[Any]) -> NDArray[Any]:
        """Targets as 0 and 1, the same way at every site."""
        textual = labels.dtype.kind == "U"
        if self.positive is not None:
            if not textual and not is_number(str(self.positive)):
                rule = "must be a number, as the targets are"
                raise InputError(f"positive={self.positive!r}: {rule}", redacted=f"positive: {rule}")
            wanted = str(self.positive) if textual else float(self.positive)
            return np.asarray(labels == wanted, dtype=float)
        found = set(np.unique(labels).tolist())
        if textual or not any(found <= coded for coded in BINARY_CODINGS):
            rule = "a site's target must be coded 0 and 1, or -1 and 1, or positive= must say which label is 1"
            if self.target_column is None:
                rule += " (without target_column it is the last column of a table)"
            raise InputError(
                f"the target has the values {sorted(found)[:5]}; {rule}",
                redacted=f"the target has {len(found)} values that are not these; {rule}",
            )
        return np.asarray(labels > 0, dtype=float)

    def to_dict(self) -> dict[str, Any]:
        """As plain data; a function cannot be written down."""
        if self.load is not None:
            raise InputError("ShardReference: a function cannot be written down; give a path")
        return {name: value for name, value in asdict(self).items() if name != "load"}


def _by_length(name: str) -> tuple[int, str]:
    return len(name), name


def _numbers(labels: NDArray[Any]) -> NDArray[Any]:
    if labels.dtype.kind == "U":
        raise not_a_number(labels)
    return labels
