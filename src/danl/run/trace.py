"""The trace of a run: who was asked, who answered and trained what, and what it cost each worker, exchange by exchange.

The history has one flat row an exchange; this is the matrix behind each row: sums over workers are the row's bytes, the
largest of the workers' seconds is the row's. A run keeps it only where it is asked for,

    trace = danl.Trace()
    danl.solve(problem, trace=trace)
    trace.trained.sum(axis=(0, 1))              # how often each region was trained

because it grows with exchanges times workers: about 17 bytes and a bit a region for each of them, 25 with profiles.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from danl.checks import check_whole
from danl.errors import InputError, bad_argument
from danl.objective.regions import IntArray
from danl.protocol.messages import Array, Mask
from danl.storage.arrays import UnreadableError, from_npz, to_npz
from danl.storage.atomic import write_bytes

Int8Array = np.ndarray[Any, np.dtype[np.int8]]
Bits = np.ndarray[Any, np.dtype[np.uint8]]

NOT_ASKED, ANSWERED, SILENT = 0, 1, 2
"""What `asked` says of a worker: not asked, asked and answered, asked and did not answer."""
MAGIC = "danl-trace"
VERSION = 1
NEXT_STEP = "give the workers.npz of a run, or what Trace.save wrote"
TYPES = {
    "exchanges": "<i8",
    "asked": "|i1",
    "trained": "|u1",
    "bytes_up": "<i8",
    "bytes_down": "<i8",
    "simulated_seconds": "<f8",
}
"""The arrays of a file beside `format` (the magic word), `version` and `shape` (T, N, Q)."""


@dataclass(frozen=True)
class TraceRow:
    """One exchange, as it is kept: the mask as bits, seconds None where there are no profiles."""

    exchanges: int
    asked: Int8Array
    trained: Bits
    bytes_up: IntArray
    bytes_down: IntArray
    simulated_seconds: Array | None


class Trace:
    """Who did what in each exchange of a run; `danl.solve(..., trace=trace)` fills it as the run goes.

    Parameters
    ----------
    newest : int, optional
        Keep only so many exchanges, the newest. Default: all.

    With T exchanges, N workers and Q regions:

    Attributes
    ----------
    exchanges : int array, (T,)
        Their numbers in the history; a run that was resumed begins with the one it went on from, unless the
        trace of its first part was put before (`go_on_from`).
    asked : int8 array, (T, N)
        0: not asked, 1: asked and answered, 2: asked and did not answer.
    trained : bool array, (T, N, Q)
        Which regions each worker sent something to learn from about.
    bytes_up, bytes_down : int array, (T, N)
        What each sent and was sent; over the workers they sum to the row's bytes.
    simulated_seconds : float array, (T, N)
        What it took each by its profile; nan where it did not answer, and everywhere without profiles.
    n_workers, n_regions : int
        N and Q.

    """

    def __init__(self, newest: int | None = None) -> None:
        if newest is not None:
            newest = check_whole("newest", newest, next_step="leave it out to keep all exchanges")
        self._rows: deque[TraceRow] = deque(maxlen=newest)
        self.n_workers = self.n_regions = 0

    def begin(self, n_workers: int, n_regions: int) -> None:
        """Say how many workers and regions the run has; a trace is of one run."""
        self.n_workers, self.n_regions = n_workers, n_regions

    def note(
        self,
        exchange: int,
        asked: Int8Array,
        trained: Mask,
        bytes_up: IntArray,
        bytes_down: IntArray,
        simulated_seconds: Array | None = None,
    ) -> None:
        """Keep one exchange: `asked` and what it cost by worker, (N,), and the pairs that were `trained`, (N, Q)."""
        self._rows.append(TraceRow(exchange, asked, np.packbits(trained), bytes_up, bytes_down, simulated_seconds))

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def exchanges(self) -> IntArray:
        return self._column("exchanges")

    @property
    def asked(self) -> Int8Array:
        return self._column("asked")

    @property
    def trained(self) -> Mask:
        return self._unpacked(self._column("trained"))

    @property
    def bytes_up(self) -> IntArray:
        return self._column("bytes_up")

    @property
    def bytes_down(self) -> IntArray:
        return self._column("bytes_down")

    @property
    def simulated_seconds(self) -> Array:
        return self._column("simulated_seconds")

    def trained_in(self, index: int) -> Mask:
        """The regions each worker trained in one of the recorded exchanges, (N, Q): `trained[index]` alone."""
        return self._unpacked(self._rows[index].trained)

    def asked_in(self, index: int) -> Int8Array:
        """Who was asked and answered in one of the recorded exchanges, (N,): `asked[index]` alone."""
        return self._rows[index].asked

    def first(self, count: int) -> Trace:
        """The first so many exchanges as a trace of their own; while a run fills this one, another thread may ask."""
        return self.part(0, count)

    def part(self, first: int, end: int) -> Trace:
        """The recorded exchanges from the `first`-th up to the `end`-th, as `first` gives them."""
        trace = Trace()
        trace.begin(self.n_workers, self.n_regions)
        trace._rows.extend(islice(self._rows.copy(), first, end))  # the copy is one step, between two exchanges
        return trace

    def go_on_from(self, earlier: Trace, exchange: int) -> None:
        """Put what an earlier trace knows of the exchanges before `exchange` in front of this one.

        For a run that was resumed after so many exchanges: with the trace of its first part the whole is one.
        What the earlier one has from `exchange` on is left out, as the run does it again.

        Parameters
        ----------
        earlier : Trace
            Of as many workers and regions, with every exchange from its first one up to `exchange` - 1.
        exchange : int
            The number of the first exchange of this trace, or of the one that would come first.

        """
        if (earlier.n_workers, earlier.n_regions) != (self.n_workers, self.n_regions):
            raise InputError(
                f"earlier={earlier!r}: must have {self.n_workers} workers and {self.n_regions} regions, as this one"
            )
        before = [row for row in earlier._rows if row.exchanges < exchange]
        numbers = [row.exchanges for row in (*before, *self._rows)]
        if not before or before[-1].exchanges != exchange - 1 or numbers != list(range(numbers[0], numbers[-1] + 1)):
            raise InputError(
                f"earlier={earlier!r}: must have the exchanges up to {exchange - 1} without a gap, "
                f"and this one those from {exchange} on"
            )
        self._rows = deque([*before, *self._rows], maxlen=self._rows.maxlen)

    def save(self, path: str | Path) -> None:
        """Write an npz without pickled objects, whole or not at all."""
        arrays = {name: self._column(name) for name in TYPES}
        shape = np.array([len(self), self.n_workers, self.n_regions])
        write_bytes(path, to_npz({"format": MAGIC, "version": VERSION, "shape": shape, **arrays}))

    @classmethod
    def read(cls, path: str | Path) -> Trace:
        """Read what `save` wrote."""
        if not isinstance(path, str | Path):
            raise bad_argument("path", path, "the path of a file", NEXT_STEP)
        try:
            stored = _checked(from_npz(Path(path).read_bytes(), "trace"))
        except OSError as error:
            why = error.strerror or str(error) or type(error).__name__
            raise InputError(f"{path}: cannot be read ({why}); {NEXT_STEP}") from None
        except UnreadableError as error:
            raise InputError(f"{path}: is {error}; {NEXT_STEP}") from None
        trace = cls()
        trace.begin(*(int(size) for size in stored["shape"][1:]))
        columns = zip(*(stored[name] for name in TYPES), strict=True)
        trace._rows.extend(TraceRow(int(exchange), *rest) for exchange, *rest in columns)
        return trace

    def _column(self, name: str) -> np.ndarray[Any, Any]:
        """What every exchange has of a name, as in a file; nan where it has nothing."""
        values = np.empty(_shape(name, len(self), self.n_workers, self.n_regions), dtype=TYPES[name])
        for index, row in enumerate(self._rows):
            kept = getattr(row, name)
            values[index] = np.nan if kept is None else kept
        return values

    def _unpacked(self, packed: Bits) -> Mask:
        """The masks of such bits, (..., N, Q)."""
        flat = np.unpackbits(packed, axis=-1, count=self.n_workers * self.n_regions).astype(bool)
        return flat.reshape(*packed.shape[:-1], self.n_workers, self.n_regions)

    def __repr__(self) -> str:
        return f"Trace({len(self)} exchanges, {self.n_workers} workers, {self.n_regions} regions)"


def _shape(name: str, exchanges: int, workers: int, regions: int) -> tuple[int, ...]:
    """The shape of an array of a file; a mask has a bit for each pair of worker and region."""
    if name == "exchanges":
        return (exchanges,)
    return exchanges, -(-workers * regions // 8) if name == "trained" else workers


def _checked(stored: dict[str, Any]) -> dict[str, Any]:
    """The arrays of a file, each of the type and the shape it must have."""
    try:
        if str(stored["format"]) != MAGIC:
            raise UnreadableError("no trace")
        if int(stored["version"]) != VERSION:
            raise UnreadableError(f"of another version (format {int(stored['version'])}, this is {VERSION})")
        sizes = [int(size) for size in stored["shape"]]
        for name, kind in TYPES.items():
            array, expected = stored[name], _shape(name, *sizes)
            if array.dtype.str != kind or array.shape != expected:
                raise UnreadableError(f"torn: its {name} has shape {array.shape} of {array.dtype}, not {expected}")
    except UnreadableError:
        raise
    except (KeyError, TypeError, ValueError):
        raise UnreadableError("no trace") from None
    return stored
