"""The trace of a run: who was asked, who answered and trained what, and what it cost each worker, exchange by exchange.

The history has one flat row an exchange; this is the matrix behind each row: sums over workers are the row's bytes, the
largest of the workers' seconds is the row's. A run keeps it only where it is asked for,

    trace = danl.Trace()
    danl.solve(problem, trace=trace)
    trace.trained.sum(axis=(0, 1))              # how often each region was trained

because it grows with exchanges times workers: about 17 bytes and a bit a region for each of them, 25 with profiles.
"""

from __future__ import annotations

import zipfile
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
from danl.storage.atomic import written_whole

Int8Array = np.ndarray[Any, np.dtype[np.int8]]

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
class Kept:
    """One exchange, as it is kept: the mask as bits, seconds None where there are no profiles."""

    exchange: int
    asked: Int8Array
    trained: np.ndarray[Any, np.dtype[np.uint8]]
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
        Their numbers in the history; a run that was taken up again begins with the one it went on from, unless the
        trace of its first part was put before (`go_on_from`).
    asked : int8 array, (T, N)
        0: not asked, 1: asked and answered, 2: asked and did not answer.
    trained : bool array, (T, N, Q)
        Which regions each worker sent something to learn from about.
    bytes_up, bytes_down : int array, (T, N)
        What each sent and was sent; over the workers they sum to the row's bytes.
    simulated_seconds : float array, (T, N)
        What it took each by its profile; nan where it did not answer, and everywhere without profiles.

    """

    def __init__(self, newest: int | None = None) -> None:
        if newest is not None:
            newest = check_whole("newest", newest, next_step="leave it out to keep all exchanges")
        self._kept: deque[Kept] = deque(maxlen=newest)
        self._n_workers = self._n_regions = 0

    def begin(self, n_workers: int, n_regions: int) -> None:
        """Say how many workers and regions the run has; a trace is of one run."""
        self._n_workers, self._n_regions = n_workers, n_regions

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
        self._kept.append(Kept(exchange, asked, np.packbits(trained), bytes_up, bytes_down, simulated_seconds))

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def n_workers(self) -> int:
        return self._n_workers

    @property
    def n_regions(self) -> int:
        return self._n_regions

    @property
    def exchanges(self) -> IntArray:
        return np.array([kept.exchange for kept in self._kept], dtype=np.int64)

    @property
    def asked(self) -> Int8Array:
        return self._by_worker("asked").astype(np.int8)

    @property
    def trained(self) -> Mask:
        count = self._n_workers * self._n_regions
        flat = np.unpackbits(self._packed(), axis=1, count=count).astype(bool)
        return flat.reshape(len(self), self._n_workers, self._n_regions)

    @property
    def bytes_up(self) -> IntArray:
        return self._by_worker("bytes_up")

    @property
    def bytes_down(self) -> IntArray:
        return self._by_worker("bytes_down")

    @property
    def simulated_seconds(self) -> Array:
        seconds = np.full((len(self), self._n_workers), np.nan)
        for row, kept in zip(seconds, self._kept, strict=True):
            if kept.simulated_seconds is not None:
                row[:] = kept.simulated_seconds
        return seconds

    def trained_in(self, index: int) -> Mask:
        """The regions each worker trained in one of the recorded exchanges, (N, Q): `trained[index]` alone."""
        count = self._n_workers * self._n_regions
        flat = np.unpackbits(self._kept[index].trained, count=count).astype(bool)
        return flat.reshape(self._n_workers, self._n_regions)

    def asked_in(self, index: int) -> Int8Array:
        """Who was asked and answered in one of the recorded exchanges, (N,): `asked[index]` alone."""
        return self._kept[index].asked

    def first(self, count: int) -> Trace:
        """The first so many exchanges as a trace of their own; while a run fills this one, another thread may ask."""
        return self.part(0, count)

    def part(self, first: int, end: int) -> Trace:
        """The recorded exchanges from the `first`-th up to the `end`-th, as `first` gives them."""
        trace = Trace()
        trace.begin(self._n_workers, self._n_regions)
        trace._kept.extend(islice(self._kept.copy(), first, end))  # the copy is one step, between two exchanges
        return trace

    def go_on_from(self, earlier: Trace, exchange: int) -> None:
        """Put what an earlier trace knows of the exchanges before `exchange` in front of this one.

        For a run that was taken up again after so many exchanges: with the trace of its first part the whole is one.
        What the earlier one has from `exchange` on is left out, as the run does it again.

        Parameters
        ----------
        earlier : Trace
            Of as many workers and regions, with every exchange from its first one up to `exchange` - 1.
        exchange : int
            The number of the first exchange of this trace, or of the one that would come first.

        """
        if (earlier.n_workers, earlier.n_regions) != (self._n_workers, self._n_regions):
            raise InputError(
                f"earlier={earlier!r}: must have {self._n_workers} workers and {self._n_regions} regions, as this one"
            )
        before = [kept for kept in earlier._kept if kept.exchange < exchange]
        numbers = [kept.exchange for kept in (*before, *self._kept)]
        if not before or before[-1].exchange != exchange - 1 or numbers != list(range(numbers[0], numbers[-1] + 1)):
            raise InputError(
                f"earlier={earlier!r}: must have the exchanges up to {exchange - 1} without a gap, "
                f"and this one those from {exchange} on"
            )
        self._kept = deque([*before, *self._kept], maxlen=self._kept.maxlen)

    def save(self, path: str | Path) -> None:
        """Write an npz without pickled objects, whole or not at all."""
        arrays: dict[str, Any] = {
            "exchanges": self.exchanges,
            "asked": self.asked,
            "trained": self._packed(),
            "bytes_up": self.bytes_up,
            "bytes_down": self.bytes_down,
            "simulated_seconds": self.simulated_seconds,
        }
        shape = np.array([len(self), self._n_workers, self._n_regions])
        with written_whole(path) as partial, partial.open("wb") as file:
            np.savez(file, format=np.array(MAGIC), version=np.array(VERSION), shape=shape, **arrays)

    @classmethod
    def read(cls, path: str | Path) -> Trace:
        """Read what `save` wrote."""
        if not isinstance(path, str | Path):
            raise bad_argument("path", path, "the path of a file", NEXT_STEP)
        path = Path(path)
        try:
            with path.open("rb") as whole, np.load(whole, allow_pickle=False) as file:
                stored = _stored(file)
        except OSError as error:
            why = error.strerror or str(error) or type(error).__name__
            raise InputError(f"{path}: cannot be read ({why}); {NEXT_STEP}") from None
        except Unreadable as error:
            raise InputError(f"{path}: {error}; {NEXT_STEP}") from None
        except Exception as error:  # whatever a torn or foreign file makes numpy and zipfile raise
            raise InputError(f"{path}: is torn, or no trace ({type(error).__name__}); {NEXT_STEP}") from None
        return cls._of(stored)

    @classmethod
    def _of(cls, stored: dict[str, Any]) -> Trace:
        trace = cls()
        trace._n_workers, trace._n_regions = (int(size) for size in stored["shape"][1:])
        columns = (stored[name] for name in TYPES)
        trace._kept.extend(Kept(int(exchange), *rest) for exchange, *rest in zip(*columns, strict=True))
        return trace

    def _by_worker(self, name: str) -> IntArray:
        values = np.empty((len(self), self._n_workers), dtype=np.int64)
        for row, kept in zip(values, self._kept, strict=True):
            row[:] = getattr(kept, name)
        return values

    def _packed(self) -> np.ndarray[Any, np.dtype[np.uint8]]:
        width = -(-self._n_workers * self._n_regions // 8)
        packed = np.empty((len(self), width), dtype=np.uint8)
        for row, kept in zip(packed, self._kept, strict=True):
            row[:] = kept.trained
        return packed

    def __repr__(self) -> str:
        return f"Trace({len(self)} exchanges, {self._n_workers} workers, {self._n_regions} regions)"


class Unreadable(Exception):  # noqa: N818
    """A file that is no whole trace; says why."""


def _stored(file: Any) -> dict[str, Any]:
    """The arrays of a file, each of the type and the shape it must have."""
    archive = getattr(file, "zip", None)
    if archive is None or not {"format", "version", "shape"} <= set(file.files):
        raise Unreadable("is no trace")
    _check_sizes(archive)
    if str(file["format"]) != MAGIC:
        raise Unreadable("is no trace")
    if int(file["version"]) != VERSION:
        raise Unreadable(f"is of another version (format {int(file['version'])}, this is {VERSION})")
    stored = {name: file[name] for name in ("shape", *TYPES)}
    exchanges, workers, regions = (int(size) for size in stored["shape"])
    bits = -(-workers * regions // 8)
    for name, kind in TYPES.items():
        expected = {"exchanges": (exchanges,), "trained": (exchanges, bits)}.get(name, (exchanges, workers))
        if stored[name].dtype.str != kind or stored[name].shape != expected:
            raise Unreadable(f"its {name} has shape {stored[name].shape} of {stored[name].dtype}, not {expected}")
    return stored


def _check_sizes(archive: zipfile.ZipFile) -> None:
    """Refuse arrays that claim more than there is of them, before room is made for any."""
    for entry in archive.infolist():
        if entry.compress_type != zipfile.ZIP_STORED:
            raise Unreadable("is packed, which no trace is")
        with archive.open(entry) as stream:
            np.lib.format.read_magic(stream)
            shape, _, dtype = np.lib.format.read_array_header_1_0(stream)
        if int(np.prod(shape, dtype=object)) * dtype.itemsize > entry.file_size:
            raise Unreadable("is torn: an array claims to be longer than it is")
