"""What tasks with a state keep at a site from one message to the next (`danl.protocol.own_tasks.Slot`).

A Flower site is a new process for every message, so `Worker.slots` begins empty each time. A slot is written into the
record of the node's state that the margins are in, too (`danl.engines.flower.kept_margins`), and no reply carries it.

    record    {"slot RUN NAME": 32 bytes of a digest, and a frame}
    frame     the version and the arrays, with their shapes (`danl.storage.arrays`); no pickle

RUN stands for the run's opening, the file and the size of its rows. The digest is over it, the name and the frame: what
is damaged, cut off or somebody else's is nothing kept, and the worker then says that it forgot. Slots of other runs are
dropped when one of this run is written.
"""

from __future__ import annotations

import hashlib
from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from danl.data.reference import ShardReference
from danl.engines.flower.kept_margins import MOST_BYTES, key_of, terms_digest
from danl.objective.local_objective import LocalObjective
from danl.protocol.messages import Task
from danl.protocol.own_tasks import Slot, StatefulTask
from danl.storage.arrays import UnreadableError, frame_header, frame_vectors, to_frame
from danl.worker.worker import Worker

PREFIX = "slot "
MAGIC = b"DNS1"
DTYPES = ("<f8", "<f4", "<i8", "<i4", "<i2", "|b1")
"""What the arrays of a slot may be made of."""


@dataclass(frozen=True)
class KeptSlots:
    """The record of a site, for one message; made before the rows are read, so that later changes of the file show."""

    record: MutableMapping[str, Any]
    terms: bytes

    @classmethod
    def of(cls, record: MutableMapping[str, Any], opening: str, reference: ShardReference) -> KeptSlots:
        """The record as it came from the node's state."""
        return cls(record, terms_digest(opening, reference))

    def put_back(self, worker: Worker, task: Task) -> None:
        """Give the worker the slot that a task goes on from, if it is there."""
        if isinstance(task, StatefulTask) and task.version > 0:
            key, entry = self._entry(worker.objective, task.slot)
            slot = from_bytes(self.record.get(entry), key + entry.encode())
            if slot is not None:
                worker.slots[task.slot] = slot

    def keep(self, worker: Worker, task: Task) -> None:
        """Write down the slot of a task; one that is too large is not kept."""
        if not isinstance(task, StatefulTask) or task.slot not in worker.slots:
            return
        key, entry = self._entry(worker.objective, task.slot)
        ours = entry.removesuffix(task.slot)
        for other in [name for name in self.record if name.startswith(PREFIX) and not name.startswith(ours)]:
            del self.record[other]
        data = to_bytes(worker.slots[task.slot], key + entry.encode())
        if len(data) <= MOST_BYTES:
            self.record[entry] = data
        else:
            self.record.pop(entry, None)

    def _entry(self, objective: LocalObjective, slot: str) -> tuple[bytes, str]:
        """What a slot is bound to, and what it is called in the record."""
        key = key_of(self.terms, objective)
        return key, f"{PREFIX}{key.hex()[:16]} {slot}"


def to_bytes(slot: Slot, bound_to: bytes) -> bytes:
    """A slot as bytes that are read again only for the same terms, rows and name."""
    arrays = {name: np.asarray(value) for name, value in slot.arrays.items()}
    arrays = {name: array.astype(array.dtype.newbyteorder("<"), copy=False) for name, array in arrays.items()}
    for name, array in arrays.items():
        if array.dtype.str not in DTYPES:
            raise TypeError(f"{name}: an array of {array.dtype} cannot be kept")
    shapes = {name: array.shape for name, array in arrays.items()}
    frame = to_frame(MAGIC, {"version": int(slot.version), "shapes": shapes}, arrays)
    return _digest(frame, bound_to) + frame


def from_bytes(data: object, bound_to: bytes) -> Slot | None:
    """The slot of these bytes; None where they are damaged, or not bound to these terms, rows and name."""
    if not isinstance(data, bytes) or data[:32] != _digest(data[32:], bound_to):
        return None
    try:
        header, body = frame_header(data[32:], MAGIC)
        shapes = header["shapes"]
        arrays = frame_vectors(header["arrays"], body, dict.fromkeys(shapes, DTYPES))
        return Slot(header["version"], {name: arrays[name].reshape(shape) for name, shape in shapes.items()})
    except (UnreadableError, KeyError, TypeError, ValueError):
        return None


def _digest(frame: bytes, bound_to: bytes) -> bytes:
    return hashlib.sha256(bound_to + b"\n" + frame).digest()
