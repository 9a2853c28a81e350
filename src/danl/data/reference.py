"""Shards by reference: where a worker's rows are, so that they are read where the worker runs and nowhere else.

A reference is a file on the worker's machine or a function that gives the rows. The server holds references and never
the rows; what it learns of a shard are its facts (`ShardFacts`): rows, their total weight, features.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from scipy import sparse

from danl.data.dataset import load_dataset
from danl.data.partition import Shard
from danl.errors import InputError, bad_argument

CODED = ({0.0, 1.0}, {-1.0, 1.0})
"""Binary targets every site codes the same way without being told; the larger of the two is 1."""


@dataclass(frozen=True)
class ShardFacts:
    """What the server is told of a shard."""

    rows: int
    total_weight: float
    n_features: int
    nbytes: int
    entries_per_row: float
    fewest_of_a_class: int
    """Rows of the rarer class of a binary target; 0 where there is one class only, rows for other targets."""


@dataclass(frozen=True)
class ShardReference:
    """The rows of one worker, by where they are.

    Parameters
    ----------
    path : str, optional
        A LIBSVM, CSV or Parquet file on the worker's machine, or a registered name.
    load : callable, optional
        Instead of a file: called without arguments on the worker's machine, gives a `Shard`, or X and y.
    n_features, zero_based : int, bool
        Of a LIBSVM file. Give n_features: a site need not have met every feature.
    target : {"binary", "real"}
        What the target is. A binary one must be coded 0 and 1, or -1 and 1, at every site, or `positive` be given.
    positive : str or number, optional
        The label that is 1; all others are 0.
    target_column, weight_column : str, optional
        Of a CSV or Parquet file.
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
        if self.target not in ("binary", "real"):
            raise bad_argument("target", self.target, "'binary' or 'real'")

    def read(self) -> Shard:
        """The rows; called where the worker runs."""
        if self.load is not None:
            loaded = self.load()
            if isinstance(loaded, Shard):
                return loaded
            if isinstance(loaded, tuple) and len(loaded) in (2, 3):
                return Shard.of(*loaded[:2], weights=loaded[2] if len(loaded) == 3 else None, name=self.name)
            raise bad_argument("load()", type(loaded).__name__, "a Shard, or X and y, or X, y and weights")
        assert self.path is not None
        textual = isinstance(self.positive, str)
        data = load_dataset(
            self.path,
            n_features=self.n_features,
            zero_based=self.zero_based,
            target="binary" if textual else "real",
            target_column=self.target_column,
            weight_column=self.weight_column,
            progress=False,
        )
        y = data.y
        if self.target == "binary":
            y = self._coded(data.y, data.classes)
        return Shard.of(data.X, y, weights=data.weights, name=self.name or data.name)

    def _coded(self, y: Any, classes: Any) -> Any:
        """Targets as 0 and 1, the same way at every site."""
        if self.positive is not None:
            labels = np.array(classes)[y.astype(int)] if classes is not None else y
            wanted = self.positive if classes is not None else float(self.positive)
            return (labels == wanted).astype(float)
        found = set(np.unique(y).tolist())
        if not any(found <= coded for coded in CODED):
            raise InputError(
                f"{self.path}: the target has the values {sorted(found)[:5]}; a site's target must be coded 0 and 1, "
                "or -1 and 1, or positive= must say which label is 1"
            )
        return (y > 0).astype(float)

    def to_dict(self) -> dict[str, Any]:
        """As plain data; a function cannot be written down."""
        if self.load is not None:
            raise InputError("ShardReference: a function cannot be written down; give a path")
        return {name: value for name, value in asdict(self).items() if name != "load"}


def facts_of(shard: Shard, binary: bool) -> ShardFacts:
    """What is told of a shard."""
    stored = int(shard.X.nnz) if sparse.issparse(shard.X) else int(shard.X.size)
    ones = int(np.count_nonzero(shard.y == 1))
    return ShardFacts(
        rows=shard.n_rows,
        total_weight=shard.total_weight,
        n_features=int(shard.X.shape[1]),
        nbytes=shard.nbytes,
        entries_per_row=stored / shard.n_rows,
        fewest_of_a_class=min(ones, shard.n_rows - ones) if binary else shard.n_rows,
    )
