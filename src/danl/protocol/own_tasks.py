"""Tasks that bring their own work: what is asked, what is answered, and what a worker does in between, in one place.

The tasks of `danl.protocol.messages` are those of Algorithm 1 and its readings, which every engine knows how to answer
for many workers at once. The methods of the field each ask for something else: a learned Hessian, a Newton direction,
steps on a quadratic. A task of theirs is a subclass of `OwnTask` (`danl.tasks`) with

    answer                       the class of its reply
    work(place)                  the reply, from the worker's rows
    fault(reply, d)              what is wrong with the form of a reply, whoever it came from
    work_rows(rows, entries)     passes over a row that it takes, for simulated seconds

It is answered worker by worker, on every engine alike, and its replies reach the method as they are:
`Replies.messages`. A kind that many workers of one process can answer in the same few passes has `work_together` too.

A `StatefulTask` works on what the worker has kept, under a name, since the last one: a slot. The task says which
version of it the server counts on. A worker that has another one, or none, as it was started anew, answers with a
`Failure` of kind "forgot" and keeps what it has; version 0 begins a slot, whatever there was. Checkpoints of a run have
the versions and not the slots, so that a run that is resumed begins its workers anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from danl.objective.batch import Batch
from danl.objective.batch_parts import of_workers, sampled
from danl.objective.local_objective import LocalObjective
from danl.objective.regions import IntArray, Regions
from danl.protocol.messages import Array, Failure, Mask, ModelTask, Reply
from danl.protocol.streams import stream

OWN_TASKS: dict[str, type[OwnTask]] = {}
"""Those there are, by the name that sites know them by."""


HIDDEN = -1.0
"""What stands for a count that is not told."""


def untold(counts: Array | NDArray[np.intp], least: int) -> Mask:
    """Which cells are not told: those of fewer records than `least`, but for nobody, and where these alone could be had
    as the rest of a total, the next smallest, until there are two and together enough.
    """
    small = (counts > 0) & (counts < least)
    for place in np.argsort(counts, kind="stable") if small.any() else ():
        if np.count_nonzero(small) > 1 and counts[small].sum() >= least:
            break
        small[place] |= counts[place] > 0
    return np.asarray(small)


class FewRowsError(Exception):
    """An answer would be of fewer rows than a site answers about; the text says in what."""


@dataclass(frozen=True)
class Workplace:
    """Where a task is worked on: a worker's number, its rows, and what is common to the run."""

    worker: int
    objective: LocalObjective
    regions: Regions
    seed: int
    least_rows: int = 1
    """The fewest rows that an answer may be of."""
    min_cell: int = 1
    """The fewest records that a cell of a table may be of, if it is of any."""

    def rows(self, purpose: int, size: int | None, *key: int) -> IntArray | None:
        """A mini-batch, drawn with replacement by a function of seed, purpose and key; None for all rows."""
        return None if size is None else self.drawn(purpose, size, *key)

    def drawn(self, purpose: int, size: int, *key: int) -> IntArray:
        """So many rows.

        `FewRowsError` where it is of fewer rows than the site answers about: whoever chooses seed and key could look
        for a draw that has few rows many times.
        """
        rng = stream(self.seed, purpose, *key)
        rng.bit_generator.advance(self.worker * size)  # type: ignore[attr-defined]  # to the worker's own part of it
        return self._rows(rng.random(size))

    def _rows(self, draws: Array) -> IntArray:
        rows = (draws * self.objective.n_rows).astype(np.int64)
        if self.least_rows > 1 and len(np.unique(rows)) < self.least_rows:
            raise FewRowsError("a draw has fewer rows")
        return rows

    def tellable(self, counts: Array) -> Array:
        """Counts of records with `HIDDEN` in place of the cells that would tell of too few of them."""
        return np.where(untold(counts, self.min_cell), HIDDEN, counts)


@dataclass(frozen=True)
class OwnTask(ModelTask):
    """A task about a model that says itself what a worker does."""

    gradient_field: ClassVar[str | None] = None
    """The field of the reply that is the whole gradient at w, where there is one."""
    by_default: ClassVar[bool] = False
    """Whether sites answer it unless their rules say otherwise: plain sums over all rows at w, or cells."""
    cells: ClassVar[bool] = False
    """Whether its numbers are counts in cells, of which it tells none of too few (`Workplace.tellable`): these are not
    held against the number of rows."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "name" in cls.__dict__:
            OWN_TASKS[cls.name] = cls

    def work(self, place: Workplace) -> Reply:
        """The answer."""
        raise NotImplementedError

    def work_together(self, tasks: Sequence[Any], places: Sequence[Workplace], batch: Batch) -> dict[int, Reply] | None:
        """The answers of many workers of one process; None, the default: each works by itself.

        They are those of `work`, up to rounding. `tasks` are of this kind, one for each place; `batch` has the rows of
        all workers of the process.
        """
        return None

    def margins_besides(self, objective: LocalObjective) -> Sequence[Array]:
        """The margins it is about beside those at w: a site holds these against its rules, too."""
        return ()

    def terms_besides(self, objective: LocalObjective) -> Sequence[Array]:
        """Squares, one of each record, whose sums it tells: a site holds the shares of the records in these, too."""
        return ()

    @property
    def squares_slopes(self) -> bool:
        """Whether it tells sums of squares of the rows' gradients."""
        return False

    def fault(self, reply: Any, d: int) -> str | None:
        """What is wrong with the form of a reply, in a few words that have no value of it; None where nothing is."""
        raise NotImplementedError

    def work_rows(self, rows: int, entries_per_row: float) -> float:
        """Passes over a row that it takes on a shard of so many rows."""
        raise NotImplementedError


def own_models(tasks: Sequence[Any], name: str = "w") -> Array:
    """The models of tasks: (d,) where it is one, else one of each, (n, d)."""
    models = [getattr(task, name) for task in tasks]
    return models[0] if all(model is models[0] for model in models) else np.array(models)


def drawn_by_each(places: Sequence[Workplace], purpose: int, size: int, *key: int) -> list[IntArray]:
    """What `Workplace.drawn` gives each of them, from one stream."""
    draws = stream(places[0].seed, purpose, *key).random((1 + max(place.worker for place in places), size))
    return [place._rows(draws[place.worker]) for place in places]


def batch_of(places: Sequence[Workplace], batch: Batch, rows: Sequence[IntArray] | None) -> Batch:
    """The workers of these places together, on rows of each or on all they have."""
    workers = np.array([place.worker for place in places])
    if rows is not None:
        return sampled(batch, workers, rows)
    return batch if len(workers) == batch.n_workers else of_workers(batch, workers)


@dataclass(frozen=True)
class Slot:
    """What a worker keeps under a name: how often it was renewed, and the arrays."""

    version: int
    arrays: Mapping[str, Array]


@dataclass(frozen=True)
class StatefulTask(OwnTask):
    """A task on what the worker has kept in `slot` since it was asked for `version` - 1; version 0 begins it."""

    slot: str
    version: int

    def work_with(self, place: Workplace, kept: Mapping[str, Array] | None) -> tuple[Reply, Mapping[str, Array]]:
        """The answer, and what is kept for the next task; `kept` is None where it begins."""
        raise NotImplementedError

    def worked(self, place: Workplace, slots: dict[str, Slot]) -> Reply | Failure:
        """The answer, with the slot renewed; or that the worker has not kept what the task counts on."""
        kept = slots.get(self.slot)
        if self.version > 0 and (kept is None or kept.version != self.version):
            has = "nothing" if kept is None else f"version {kept.version}"
            detail = f"keeps {has} as {self.slot}, and version {self.version} is asked for"
            return Failure(place.worker, "forgot", detail)
        reply, after = self.work_with(place, None if self.version == 0 or kept is None else kept.arrays)
        slots[self.slot] = Slot(self.version + 1, after)
        return reply


@lru_cache(maxsize=64)
def _fields_of(kind: Any) -> tuple[str, ...]:
    return tuple(part.name for part in fields(kind))


def field_names(message: object) -> tuple[str, ...]:
    """The names of the fields of a message."""
    kind: Any = type(message)
    return _fields_of(kind)


def array_fields(message: Any) -> dict[str, np.ndarray[Any, Any]]:
    """The arrays of a message, and of messages in it, by the names of their fields."""
    found: dict[str, np.ndarray[Any, Any]] = {}
    for part in (message, *parts_of(message)):
        values = ((name, getattr(part, name)) for name in field_names(part))
        found |= {_of(part, message, name): value for name, value in values if isinstance(value, np.ndarray)}
    return found


def number_fields(message: Any) -> dict[str, float]:
    """The floats of a message that must be finite: all but its loss, which is looked at by itself, and smoothness."""
    found: dict[str, float] = {}
    for part in (message, *parts_of(message)):
        names = (name for name in field_names(part) if name != "loss" and not name.endswith("smoothness"))
        values = ((_of(part, message, name), getattr(part, name)) for name in names)
        found |= {name: float(value) for name, value in values if isinstance(value, float | np.floating)}
    return found


def parts_of(message: object) -> tuple[Any, ...]:
    """The messages in a message of several (`danl.tasks.several`)."""
    parts = getattr(message, "parts", ())
    return parts if isinstance(parts, tuple) else ()


def _of(part: object, message: object, name: str) -> str:
    """What a field is called: that of a part by the part, too."""
    return name if part is message else f"{name} of {type(part).__name__}"


def vectors_fault(reply: Any, lengths: Mapping[str, int], dtype: type = np.float64) -> str | None:
    """What is wrong with arrays of a reply that must have these lengths."""
    for name, length in lengths.items():
        value = getattr(reply, name, None)
        if not isinstance(value, np.ndarray) or value.dtype != dtype or value.shape != (length,):
            return f"its {name} is not an array of {length} numbers"
    return None
