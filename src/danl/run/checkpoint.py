"""Checkpoints: everything a run needs to go on, in a file that is there whole or not at all, and one that grows.

A checkpoint is an npz file without pickled objects: one array for every array of the state, and a JSON text that says
how they fit together. `tree` turns a state (frozen dataclasses of arrays, numbers, words, tuples and mappings) into
the two, `grown` turns them back, and takes only classes that are named here.

    magic, version        what the file is
    digest                SHA-256 of the JSON and of every array: a torn or changed file is refused
    fingerprint           SHA-256 of what the run is: problem, method, policy, regions, seed (not rounds or tolerance)

What only ever grows, the rows of the history and the replies that did not come, is added to a file beside it
(`danl.storage.appended`), so that a checkpoint costs the same however long the run is; it says how much of that file
is its own.

The newest two are kept: if the newest is torn, the one before it is used. Random draws are functions of the seed and of
the exchange (`danl.protocol.streams`), so there are no generator states to keep, and a run that is taken up again takes
the very steps it would have taken.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

from danl.checks import check_whole
from danl.errors import InputError
from danl.methods.algorithm1 import Algorithm1State
from danl.methods.descent import DescentState
from danl.methods.ending import Origin, Remark
from danl.methods.fedavg import FedAvgState
from danl.methods.newton import NewtonState
from danl.methods.safeguarded_state import Gathered, Known, Noise, Pace, SafeguardedState, Seen, Step, Stretch
from danl.policies import MaskRecord
from danl.protocol.messages import Failure
from danl.run.history import History, Row
from danl.server.curvature import Curvature
from danl.server.memory import Memory, RunningSum
from danl.server.partial_curvature import Blocks, Diagonal, LowRank, QuasiNewton
from danl.server.quasi_newton import Secant
from danl.storage.appended import Appended, LostError
from danl.storage.atomic import written_whole

MAGIC = "danl-checkpoint"
VERSIONS = {MAGIC: 2, "danl-estimator": 1}
"""The format of every kind of file of this make."""
KEPT = 2
CLASSES: dict[str, type] = {
    kind.__name__: kind
    for kind in (
        Algorithm1State,
        Blocks,
        Curvature,
        DescentState,
        Diagonal,
        Failure,
        FedAvgState,
        Gathered,
        Known,
        LowRank,
        MaskRecord,
        Memory,
        NewtonState,
        Origin,
        Noise,
        Pace,
        QuasiNewton,
        Remark,
        Row,
        RunningSum,
        SafeguardedState,
        Secant,
        Seen,
        Step,
        Stretch,
    )
}
"""What may be in a checkpoint. A method of your own adds its state's class here."""
DTYPES = ("<f8", "<i8", "|b1")
OTHER_VERSION = "written by another version of danl"
NEXT_STEP = "give the folder and the options of the run that was interrupted"


class UnreadableError(Exception):
    """A file that is no whole checkpoint of this run; says why."""


@dataclass(frozen=True)
class Checkpoints:
    """Where and how often a run writes checkpoints.

    Parameters
    ----------
    folder : path
        Where they are kept; made if need be.
    every : int
        Exchanges between two of them.

    """

    folder: Path
    every: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "folder", Path(self.folder))
        object.__setattr__(self, "every", check_whole("every", self.every))

    def path(self, exchange: int) -> Path:
        """The file of the checkpoint after so many exchanges."""
        return self.folder / f"checkpoint-{exchange:08d}.npz"

    def there(self) -> list[Path]:
        """The checkpoints of the folder, the newest first."""
        return sorted(self.folder.glob("checkpoint-[0-9]*[0-9].npz"), reverse=True)

    @property
    def log(self) -> Path:
        """The file of rows and failures that the checkpoints share."""
        return self.folder / "checkpoint-rows.jsonl"

    def tidy(self) -> None:
        """Remove what a process left that was killed while it wrote; for whoever alone has the folder."""
        for partial in self.folder.glob("checkpoint-[0-9]*.partial.npz"):
            partial.unlink(missing_ok=True)

    def write(self, exchange: int, carried: Mapping[str, Any], fingerprint: str) -> Path:
        """Keep what is carried."""
        path = self.path(exchange)
        with written_whole(path, durable=True) as partial:
            partial.write_bytes(packed(carried, fingerprint))
        return path

    def newest(self, fingerprint: str) -> Found:
        """The newest whole checkpoint of this run."""
        passed: list[str] = []
        there = self.there()
        for number, path in enumerate(there):
            try:
                carried = unpacked(path.read_bytes(), fingerprint)
                log, data = Appended.taken_up(self.log, tuple(carried.pop("log")))
                history, failures = rows_and_failures(data)
            except OSError as error:
                passed.append(f"{path.name}: {Path(error.filename or path).name} cannot be read ({error.strerror})")
            except (UnreadableError, LostError) as error:
                passed.append(f"{path.name}: {error}")
            else:
                older = [each for each in there[number + 1 :] if _is_of(each, fingerprint)]
                return Found(carried, history, failures, log, (*reversed(older), path), tuple(passed))
        reason = f" ({'; '.join(passed)})" if passed else ""
        old = any(OTHER_VERSION in why for why in passed)
        next_step = "go on with the danl that wrote them, or begin anew in another folder" if old else NEXT_STEP
        raise InputError(f"resume={str(self.folder)!r}: holds no checkpoint of this run{reason}; {next_step}")


@dataclass(frozen=True)
class Found:
    """What a folder of checkpoints gave back."""

    carried: dict[str, Any]
    history: History
    failures: list[Failure]
    log: Appended
    own: tuple[Path, ...]
    """The checkpoints of this run up to the one that was found, the oldest first."""
    passed_over: tuple[str, ...]
    """Why newer files were."""


def line_of(rows: Sequence[Row], failures: Sequence[Failure]) -> bytes:
    """One line of the file that grows: what came since the line before."""
    told = {"rows": tree(list(rows), {}), "failures": tree(list(failures), {})}
    return json.dumps(told, separators=(",", ":")).encode() + b"\n"


def rows_and_failures(data: bytes) -> tuple[History, list[Failure]]:
    """What the lines of the file tell together."""
    history, failures = History(), []
    try:
        for line in data.splitlines():
            told = json.loads(line)
            for row in grown(told["rows"], {}):
                history.append(row)
            failures.extend(grown(told["failures"], {}))
    except Exception as error:  # whatever lines that nobody wrote make json and the classes raise
        raise UnreadableError(f"its rows cannot be read ({type(error).__name__})") from None
    return history, failures


def _is_of(path: Path, fingerprint: str) -> bool:
    try:
        unpacked(path.read_bytes(), fingerprint)
    except (OSError, UnreadableError):
        return False
    return True


def columns_of(history: History) -> dict[str, Any]:
    """The rows of a history by column: a few arrays, however many rows there are."""
    if not len(history):
        return {}
    names = [part.name for part in fields(Row)]
    return {name: [str(k) for k in history.column(name)] if name == "kind" else history.column(name) for name in names}


def history_of(columns: Mapping[str, Any]) -> History:
    """The history that `columns_of` took apart."""
    names = list(columns)
    rows = zip(*(columns[name] if name == "kind" else columns[name].tolist() for name in names), strict=True)
    made = (dict(zip(names, row, strict=True)) for row in rows)
    return History(Row(**{**row, "coverage": tuple(row["coverage"])}) for row in made)


def fingerprint_of(parts: Mapping[str, Any]) -> str:
    """A digest of what a run is, from plain data and arrays."""
    digest = hashlib.sha256()
    for name in sorted(parts):
        value = parts[name]
        digest.update(name.encode())
        if isinstance(value, np.ndarray):
            digest.update(str((value.dtype.str, value.shape)).encode())
            digest.update(np.ascontiguousarray(value).tobytes())
        else:
            digest.update(json.dumps(value, sort_keys=True, default=repr).encode())
    return digest.hexdigest()


def packed(carried: Mapping[str, Any], fingerprint: str, magic: str = MAGIC) -> bytes:
    """The bytes of a checkpoint, or of another file of this make."""
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    text = json.dumps({"fingerprint": fingerprint, "carried": {k: tree(v, arrays) for k, v in carried.items()}})
    head = json.dumps({"magic": magic, "version": VERSIONS[magic], "digest": _digest(text, arrays)})
    whole = io.BytesIO()
    whole_arrays: dict[str, Any] = {
        "head": np.frombuffer(head.encode(), dtype=np.uint8),
        "text": np.frombuffer(text.encode(), dtype=np.uint8),
        **arrays,
    }
    np.savez(whole, **whole_arrays)
    return whole.getvalue()


def unpacked(data: bytes, fingerprint: str, magic: str = MAGIC) -> dict[str, Any]:
    """What a checkpoint carried; `UnreadableError` says what is wrong with anything else."""
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as file:
            _check_sizes(file)
            stored = {name: file[name] for name in file.files}
        head = json.loads(bytes(stored.pop("head")).decode())
        text = bytes(stored.pop("text")).decode()
        if not isinstance(head, dict) or head.get("magic") != magic:
            raise UnreadableError(f"no {magic} file")
        if head.get("version") != VERSIONS[magic]:
            raise UnreadableError(f"{OTHER_VERSION} (format {head.get('version')}, this is {VERSIONS[magic]})")
        if head.get("digest") != _digest(text, stored):
            raise UnreadableError("torn or changed: its digest is another")
        whole = json.loads(text)
        if whole["fingerprint"] != fingerprint:
            raise UnreadableError("of another run: problem, data, method, masks or seed differ")
        return {name: grown(part, stored) for name, part in whole["carried"].items()}
    except UnreadableError:
        raise
    except Exception as error:  # whatever a torn or hostile archive makes numpy, zipfile, json and struct raise
        raise UnreadableError(f"torn, or no {magic} file ({type(error).__name__})") from None


def tree(value: Any, arrays: dict[str, np.ndarray[Any, Any]]) -> Any:
    """A state as JSON, its arrays put aside under numbered names."""
    if isinstance(value, np.ndarray):
        name = f"a{len(arrays)}"
        arrays[name] = value
        return {"array": name}
    if is_dataclass(value) and not isinstance(value, type):
        kind = type(value).__name__
        if CLASSES.get(kind) is not type(value):
            raise InputError(
                f"checkpoint: a {kind} cannot be written down; add its class to danl.run.checkpoint.CLASSES, "
                "or run without checkpoints"
            )
        return {"class": kind, "fields": {part.name: tree(getattr(value, part.name), arrays) for part in fields(value)}}
    if isinstance(value, Mapping):
        return {"mapping": [[tree(key, arrays), tree(item, arrays)] for key, item in value.items()]}
    if isinstance(value, tuple | list):
        return {"tuple" if isinstance(value, tuple) else "list": [tree(item, arrays) for item in value]}
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": repr(value)}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise InputError(f"checkpoint: a {type(value).__name__} cannot be written down; run without checkpoints")


def grown(part: Any, arrays: Mapping[str, np.ndarray[Any, Any]]) -> Any:
    """The state that `tree` wrote."""
    if not isinstance(part, dict):
        if part is None or isinstance(part, bool | int | float | str):
            return part
        raise UnreadableError("its text is not a state's")
    match part:
        case {"array": name}:
            return arrays[name]
        case {"class": name, "fields": values}:
            kind = CLASSES[name]
            return kind(**{key: grown(item, arrays) for key, item in values.items()})
        case {"mapping": pairs}:
            return {grown(key, arrays): grown(item, arrays) for key, item in pairs}
        case {"tuple": items}:
            return tuple(grown(item, arrays) for item in items)
        case {"list": items}:
            return [grown(item, arrays) for item in items]
        case {"float": text}:
            return float(text)
    raise UnreadableError("its text is not a state's")


def _check_sizes(file: Any) -> None:
    """Refuse an archive whose arrays claim more than there is of them, before room is made for anything."""
    archive: zipfile.ZipFile = file.zip
    for entry in archive.infolist():
        if entry.compress_type != zipfile.ZIP_STORED:
            raise UnreadableError("packed, which no checkpoint is")
        with archive.open(entry) as stream:
            if np.lib.format.read_magic(stream) != (1, 0):
                raise UnreadableError("an array in another format")
            shape, _, dtype = np.lib.format.read_array_header_1_0(stream)
        if math.prod(shape) * dtype.itemsize > entry.file_size:
            raise UnreadableError("an array claims to be longer than it is")


def _digest(text: str, arrays: Mapping[str, np.ndarray[Any, Any]]) -> str:
    digest = hashlib.sha256(text.encode())
    for name in sorted(arrays):
        array = arrays[name]
        if array.dtype.str not in DTYPES:
            raise UnreadableError(f"an array of {array.dtype.str}")
        digest.update(str((name, array.dtype.str, array.shape)).encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
