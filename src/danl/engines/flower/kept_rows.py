"""A site's rows as arrays on its own disk, so that a file of text is not read anew for every message.

A Flower site is a new process for every message. Reading a CSV file takes longer than most answers do; the arrays that
were made of it are read again in a few milliseconds.

    FOLDER/<path>-<key>.npz    path: a digest of where the file is; key: one of file, settings, and danl's version

The key has the file's size, times and number, and all that decides what is made of it (columns, coding, design). If any
of these is another one, the file is read. A copy can be read by the site's user alone (mode 0600, in a folder of mode
0700), has no pickle, and is removed when another of the same file is written, or after `DAYS`. What is quick to read is
not copied. ``keep-rows = false`` in the site's configuration turns it off.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from danl._version import __version__
from danl.data.fetch import cache_dir
from danl.data.shard import Shard
from danl.storage.arrays import UnreadableError, from_npz, to_npz
from danl.storage.atomic import written_whole

WORTH = 0.05
"""Seconds reading must take for a copy to be worth its place."""
SETTLED = 2.0
"""Seconds since a file was changed before a copy is made of it: file systems count time in steps of up to as much."""
DAYS = 7
MOST_BYTES = 1 << 30
COPIES = 2
"""Of one file, for runs that make other things of it at the same time."""


def folder_of_copies() -> Path:
    """Where copies are: with what else danl keeps for this user."""
    return cache_dir() / "sites"


@dataclass(frozen=True)
class KeptRows:
    """What is made of one file, and the folder of its copies; None: nothing is kept."""

    path: str | None
    folder: Path | None
    worth: float = WORTH
    settled: float = SETTLED

    def read(self, read: Callable[[], Shard], terms: str) -> Shard:
        """The rows: those of a copy where there is one, else `read()`; `terms` is what decides them beside the file."""
        key = self._key(terms)
        if key is None:
            return read()
        assert self.folder is not None
        copy = self.folder / f"{_digest(str(self.path))[:16]}-{key[:32]}.npz"
        kept = _copied(copy, key)
        if kept is not None:
            return kept
        begun = time.perf_counter()
        shard = read()
        seconds = time.perf_counter() - begun
        if seconds >= self.worth and self._key(terms) == key:  # it did not change while it was read
            self._keep(copy, shard, key)
        return shard

    def _key(self, terms: str) -> str | None:
        """A digest of the file as it is and of the terms; None where there is no file, or it was changed just now."""
        if self.path is None or self.folder is None:
            return None
        try:
            found = os.stat(self.path)
        except OSError:  # a registered name; what is wrong with a path is said where it is read
            return None
        if time.time() - max(found.st_mtime, found.st_ctime) < self.settled:
            return None
        stamp = [found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_dev]
        return _digest(json.dumps([__version__, os.path.abspath(self.path), stamp, terms]))

    def _keep(self, copy: Path, shard: Shard, key: str) -> None:
        """Write a copy; a disk that is full or closed is no reason not to answer."""
        arrays = _arrays_of(shard, key)
        if arrays is None or sum(array.nbytes for array in arrays.values()) > MOST_BYTES:
            return
        try:
            copy.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not _is_private(copy.parent):
                return
            with written_whole(copy) as partial:
                partial.unlink(missing_ok=True)
                handle = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
                with os.fdopen(handle, "wb") as file:
                    file.write(to_npz(arrays))
            self._tidy(copy)
        except OSError:
            return

    def _tidy(self, newest: Path) -> None:
        """Remove older copies of this file, and any that are too old."""
        own = newest.name.partition("-")[0]
        files = sorted(newest.parent.glob("*.npz"), key=lambda path: path.stat().st_mtime, reverse=True)
        ours = [path for path in files if path.name.startswith(f"{own}-") and path != newest]
        old = [path for path in files if time.time() - path.stat().st_mtime > 86_400 * DAYS]
        for path in {*ours[COPIES - 1 :], *old} - {newest}:
            path.unlink(missing_ok=True)


def _arrays_of(shard: Shard, key: str) -> dict[str, Any] | None:
    """A shard as arrays, with a header as text; None where it has something that is neither."""
    arrays: dict[str, Any] = {}
    header: dict[str, Any] = {"key": key}
    for part in fields(shard):
        value = getattr(shard, part.name)
        if sparse.issparse(value):
            matrix = value.tocsr()
            header[part.name] = {"shape": list(matrix.shape)}
            arrays |= {f"{part.name}.{name}": getattr(matrix, name) for name in ("data", "indices", "indptr")}
        elif isinstance(value, np.ndarray) and value.dtype.kind in "fiub":
            arrays[part.name] = value
        elif value is None or isinstance(value, str | int | float):
            header[part.name] = value
        elif isinstance(value, tuple) and all(isinstance(each, str) for each in value):
            header[part.name] = list(value)
        else:
            return None
    return arrays | {"header": np.frombuffer(json.dumps(header).encode(), np.uint8)}


def _copied(copy: Path, key: str) -> Shard | None:
    """The shard of a copy; None where there is none that can be read, or it is not the user's own."""
    try:
        if not (_is_private(copy.parent) and _is_private(copy)):
            return None
        arrays = from_npz(copy.read_bytes(), "copy of a site's rows")
        header = json.loads(arrays.pop("header").tobytes())
        if not isinstance(header, Mapping) or header.get("key") != key:
            return None
        return Shard(**{part.name: _part(part.name, header, arrays) for part in fields(Shard)})
    except (OSError, UnreadableError, KeyError, TypeError, ValueError):
        return None


def _part(name: str, header: Mapping[str, Any], arrays: Mapping[str, Any]) -> Any:
    """A field of a shard, of what was written of it."""
    if name in arrays:
        return arrays[name]
    value = header[name]
    if isinstance(value, dict):
        parts = tuple(arrays[f"{name}.{each}"] for each in ("data", "indices", "indptr"))
        return sparse.csr_matrix(parts, shape=tuple(value["shape"]))
    return tuple(value) if isinstance(value, list) else value


def _is_private(path: Path) -> bool:
    """Whether a file or folder is this user's, and nobody else's; where there are no users, it is."""
    if not hasattr(os, "getuid"):
        return True
    found = path.lstat()
    return found.st_uid == os.getuid() and not found.st_mode & 0o077


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
