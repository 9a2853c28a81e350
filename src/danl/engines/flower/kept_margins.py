"""Margins that a site keeps from one message to the next.

A worker keeps the margins of the newest model it was asked about (`LocalObjective.margins`), and the server's costs
count on it (`danl.protocol.messages.Exchange.kept`). A Flower site is a new process for every message; what lives
between two of them is the node's `context.state`, in the memory of its SuperNode, which no reply carries.

    record    {"key": digest of terms and file, "model": float64, "margins": float64}, all bytes

Margins are put back where they belong to these rows, and to the model if it is the same, number for number; otherwise
they are computed anew. The rows are read for every message, so they may be others. Comparing all of them would take
longer than the margins do: a file must have the size and the time it had, and whatever the rows come from, their
number, that of their entries and the margins of some of them must be the same.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from danl.data.reference import ShardReference
from danl.objective.local_objective import LocalObjective
from danl.objective.losses import Array

KEPT = "danl.margins"
"""The name of the record in the node's state."""
COMPARED_ROWS = 64
"""Rows whose margins are computed to see whether those that were kept are theirs."""
ROUNDING = 1e-9
"""Share of the largest of them that they may differ by: a product of fewer rows may add in another order."""
MOST_BYTES = 1 << 28
"""Margins that are kept at most: a SuperNode holds them in memory, and Flower's limit is 2 GiB."""


@dataclass(frozen=True)
class KeptMargins:
    """The record of a site, for one message; made before the rows are read, so that later changes of the file show."""

    record: MutableMapping[str, Any]
    terms: bytes

    @classmethod
    def of(cls, record: MutableMapping[str, Any], opening: str, reference: ShardReference) -> KeptMargins:
        """The record as it came from the node's state."""
        return cls(record, terms_digest(opening, reference))

    def put_back(self, objective: LocalObjective) -> None:
        """Give the objective its margins again, if these are its own."""
        w = _numbers(self.record.get("model"), (objective.layout.n_coefficients,))
        z = _numbers(self.record.get("margins"), _shape(objective))
        if w is None or z is None or self.record.get("key") != key_of(self.terms, objective):
            return
        if _same_rows(objective, w, z):
            objective.put_back(w, z)

    def keep(self, objective: LocalObjective) -> None:
        """Write down the newest margins, if there are any."""
        if objective.newest is None or objective.newest[1].nbytes > MOST_BYTES:
            return
        model, margins = (np.asarray(each, dtype="<f8").tobytes() for each in objective.newest)
        self.record.update(key=key_of(self.terms, objective), model=model, margins=margins)


def terms_digest(opening: str, reference: ShardReference) -> bytes:
    """A digest of the run's terms and of the file as it is now."""
    source = json.dumps([reference.path, _stamp(reference.path)])
    return hashlib.sha256(source.encode() + b"\n" + opening.encode()).digest()


def key_of(terms: bytes, objective: LocalObjective) -> bytes:
    """What is kept is bound to this: terms, file, and how many rows and entries there are."""
    entries = getattr(objective.X, "nnz", objective.X.size)
    return hashlib.sha256(terms + json.dumps([*objective.X.shape, int(entries)]).encode()).digest()


def _stamp(path: str | None) -> list[int] | None:
    """What changes with a file; None for rows that come from elsewhere."""
    try:
        found = os.stat(path or "")
    except OSError:  # a registered name, or a function: what is wrong with a path is said where it is read
        return None
    return [found.st_size, found.st_mtime_ns, found.st_ino]


def _shape(objective: LocalObjective) -> tuple[int, ...]:
    outputs = objective.layout.n_outputs
    return (objective.n_rows,) if outputs == 1 else (objective.n_rows, outputs)


def _numbers(data: object, shape: tuple[int, ...]) -> Array | None:
    """An array of this shape; None where the bytes are none."""
    if not isinstance(data, bytes) or len(data) != 8 * int(np.prod(shape)):
        return None
    return np.frombuffer(data, "<f8").astype(np.float64).reshape(shape)


def _same_rows(objective: LocalObjective, w: Array, z: Array) -> bool:
    """Whether some of the rows, from the first to the last, have these margins."""
    rows: Any = np.unique(np.linspace(0, objective.n_rows - 1, COMPARED_ROWS).astype(np.intp))
    with np.errstate(over="ignore", invalid="ignore"):  # a model that blew up: its margins are not put back
        largest, difference = np.abs(z[rows]).max(), np.abs(objective.sample(rows).margins(w) - z[rows]).max()
    return bool(np.isfinite(largest) and difference <= ROUNDING * largest)
