"""Checkpoints: what a run goes on from, in a file that is there whole or not at all, and one that grows.

A checkpoint is a `RunState` and the run that made its start (`danl.storage.serialize`), with a fingerprint: SHA-256 of
what the run is, problem, method, policy, graph, regions, seed (not rounds or tolerance). What only ever grows, the
rows of the history and the replies that did not come, is added to a file beside it (`danl.storage.appended`), so that a
checkpoint costs the same however long the run is; it says how much of that file is its own.

The newest two are kept: if the newest is torn, the one before it is used. Random draws are functions of the seed and of
the exchange (`danl.protocol.streams`), so there are no generator states to keep, and a run that is resumed takes the
very steps it would have taken.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from danl.checks import check_whole
from danl.errors import InputError, bad_argument, warn
from danl.objective.problem import Problem
from danl.protocol.messages import Failure
from danl.run.history import History, Row
from danl.run.prepared import PreparedRun
from danl.run.result import Result
from danl.run.state import RunState
from danl.storage.appended import Appended
from danl.storage.arrays import UnreadableError
from danl.storage.atomic import write_bytes
from danl.storage.folder import claimed, why_not
from danl.storage.serialize import OTHER_VERSION, deserialize, from_file, plain, serialize, to_file
from danl.wording import counted

MAGIC, VERSION = "danl-checkpoint", 5
KEPT = 2
AS_THEY_ARE = ("w", "status", "method", "dropped", "centre")
"""Fields of a result that a file has a place for."""
ANOTHER = "give another folder for the new checkpoints (checkpoint=, --checkpoint)"
NEXT_STEP = "give the folder and the options of the run that was interrupted"


@dataclass(frozen=True)
class Resumed:
    """What a folder of checkpoints gave back."""

    state: RunState
    history: History
    failures: Sequence[Failure]
    start: Result | None
    """The run that made w0, where a method was given for it."""
    log: Appended
    own: tuple[Path, ...]
    """The checkpoints of this run up to the one that was read, the oldest first."""
    passed_over: tuple[str, ...]
    """Why newer files were."""


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

    def write(self, exchange: int, values: Mapping[str, Any], fingerprint: str) -> Path:
        """Write a checkpoint after so many exchanges."""
        path = self.path(exchange)
        write_bytes(path, to_file(values, magic=MAGIC, version=VERSION, fingerprint=fingerprint), durable=True)
        return path

    def newest(self, fingerprint: str) -> Resumed:
        """The newest whole checkpoint of this run."""
        passed_over: list[str] = []
        there = self.there()
        for number, path in enumerate(there):
            try:
                values = _read(path, fingerprint)
                log, data = Appended.reopen(self.log, tuple(values["log"]))
                history, failures = rows_from_lines(data)
            except OSError as error:
                name = Path(error.filename or path).name
                passed_over.append(f"{path.name}: {name} cannot be read ({error.strerror})")
            except UnreadableError as error:
                passed_over.append(f"{path.name}: {error}")
            else:
                own = (*(each for each in reversed(there[number + 1 :]) if _is_of(each, fingerprint)), path)
                start = None if values["start"] is None else plain_to_result(values["start"])
                return Resumed(values["state"], history, failures, start, log, own, tuple(passed_over))
        reason = f" ({'; '.join(passed_over)})" if passed_over else ""
        old = any(OTHER_VERSION in why for why in passed_over)
        next_step = "go on with the danl that wrote them, or begin anew in another folder" if old else NEXT_STEP
        raise InputError(f"resume={str(self.folder)!r}: holds no checkpoint of this run{reason}; {next_step}")


@dataclass
class CheckpointWriter:
    """Writes a checkpoint every so many exchanges, with the run that made its start.

    A checkpoint that cannot be written is a warning, once, and no end of the run; the next one is tried again.
    """

    checkpoints: Checkpoints
    fingerprint: str
    start: Result | None
    written: int = 0  # exchanges when the newest was written
    log: Appended | None = None
    logged: tuple[int, int] = (0, 0)  # rows and failures that are in it
    own: list[Path] = field(default_factory=list)  # this run's checkpoints, the oldest first
    warned: bool = False

    @classmethod
    def after(
        cls, resumed: Resumed | None, checkpoints: Checkpoints, fingerprint: str, start: Result | None
    ) -> CheckpointWriter:
        """Goes on with the files the run was resumed from; writes all of them for a new run, or to another folder."""
        if resumed is None or checkpoints.folder.resolve() != resumed.log.path.parent.resolve():
            return cls(checkpoints, fingerprint, start)
        rows, failures = resumed.state.exchanges, resumed.state.n_failures
        return cls(checkpoints, fingerprint, start, rows, resumed.log, (rows, failures), list(resumed.own))

    def save(self, state: RunState, history: History, failures: Sequence[Failure], *, last: bool) -> None:
        """Write the state, if it is time."""
        new = state.exchanges - self.written
        if new <= 0 or not (last or new >= self.checkpoints.every):
            return
        try:
            self._write(state, history, failures)
        except OSError as error:
            if not self.warned:
                there = f"the newest one is of {counted(self.written, 'exchange')}" if self.written else "there is none"
                warn(
                    f"checkpoint={str(self.checkpoints.folder)!r}: {why_not(self.checkpoints.folder, error)} after "
                    f"{counted(state.exchanges, 'exchange')}; the run goes on, and {there}"
                )
            self.warned = True

    def _write(self, state: RunState, history: History, failures: Sequence[Failure]) -> None:
        self.checkpoints.folder.mkdir(parents=True, exist_ok=True)
        self._log(state, history, failures)
        assert self.log is not None
        start = None if self.start is None else result_to_plain(self.start)
        values = {"state": state, "log": self.log.mark, "start": start}
        path = self.checkpoints.write(state.exchanges, values, self.fingerprint)
        self.written = state.exchanges
        self.own = [*(each for each in self.own if each != path), path]
        while len(self.own) > KEPT:
            self.own[0].unlink(missing_ok=True)
            self.own.pop(0)

    def _log(self, state: RunState, history: History, failures: Sequence[Failure]) -> None:
        """Add the rows and the failures since the last time to the file that grows."""

        def line(rows: int, failed: int) -> bytes:
            return rows_to_line([history[index] for index in range(rows, until[0])], failures[failed : until[1]])

        until = (state.exchanges, state.n_failures)
        if self.log is not None and self.logged != until:
            try:
                self.log.append(line(*self.logged))
            except UnreadableError:
                self.log = None  # removed by somebody: it is in memory, too
        if self.log is None:
            log = Appended(self.checkpoints.log)
            log.append(line(0, 0))
            self.log = log
        self.logged = until


def rows_to_line(rows: Sequence[Row], failures: Sequence[Failure]) -> bytes:
    """One line of the file that grows: what came since the line before."""
    line = {"rows": serialize(list(rows), {}), "failures": serialize(list(failures), {})}
    return json.dumps(line, separators=(",", ":")).encode() + b"\n"


def rows_from_lines(data: bytes) -> tuple[History, list[Failure]]:
    """What the lines of the file have together."""
    history, failures = History(), []
    try:
        for line in map(json.loads, data.splitlines()):
            for row in deserialize(line["rows"], {}):
                history.append(row)
            failures.extend(deserialize(line["failures"], {}))
    except Exception as error:  # whatever lines that nobody wrote make json and the classes raise
        raise UnreadableError(f"its rows cannot be read ({type(error).__name__})") from None
    return history, failures


def result_to_plain(result: Result) -> dict[str, Any]:
    """A result as values that a file has a place for."""
    return {name: getattr(result, name) for name in AS_THEY_ARE} | {
        "notes": list(result.notes),
        "failures": [vars(failure) for failure in result.failures],
        "settings": plain(result.settings, otherwise=str),
        "columns": result.history.to_columns(),
    }


def plain_to_result(values: Mapping[str, Any]) -> Result:
    """The result that `result_to_plain` took apart."""
    return Result(
        **{name: values[name] for name in (*AS_THEY_ARE, "settings")},
        history=History.from_columns(values["columns"]),
        failures=tuple(Failure(**each) for each in values["failures"]),
        notes=tuple(values["notes"]),
    )


def _read(path: Path, fingerprint: str) -> dict[str, Any]:
    return from_file(path.read_bytes(), magic=MAGIC, version=VERSION, fingerprint=fingerprint)


def _is_of(path: Path, fingerprint: str) -> bool:
    try:
        _read(path, fingerprint)
    except (OSError, UnreadableError):
        return False
    return True


def make_checkpoints(checkpoint: Checkpoints | str | Path | None, resume: str | Path | None) -> Checkpoints | None:
    """Where checkpoints go: where they are asked for, or where the run is resumed from."""
    if resume is not None and not Path(resume).is_dir():
        raise InputError(f"resume={str(resume)!r}: must be a folder with checkpoints, and there is none of that name")
    if checkpoint is None:
        return None if resume is None else Checkpoints(Path(resume))
    if isinstance(checkpoint, Checkpoints):
        return checkpoint
    if not isinstance(checkpoint, str | Path):
        raise bad_argument("checkpoint", checkpoint, "a folder, or danl.Checkpoints(folder, every=k)")
    return Checkpoints(Path(checkpoint))


@contextmanager
def locked_checkpoints(checkpoints: Checkpoints | None, resume: str | Path | None) -> Iterator[None]:
    """Have the folder of the checkpoints for this process alone; refuse one that holds those of another run."""
    if checkpoints is None:
        yield
        return
    goes_on = resume is not None and checkpoints.folder.resolve() == Path(resume).resolve()
    argument, otherwise = ("resume", ANOTHER) if goes_on else ("checkpoint", "choose another folder")
    with claimed(checkpoints.folder, argument, otherwise, lock=".checkpoint.lock"):
        there = checkpoints.there()
        if there and not goes_on:
            raise InputError(
                f"checkpoint={str(checkpoints.folder)!r}: holds the checkpoints of a run already ({there[0].name}); "
                "go on with that run by resuming it from this folder, or choose another folder"
            )
        for partial in checkpoints.folder.glob("checkpoint-[0-9]*.partial.npz"):  # of a process that was killed
            partial.unlink(missing_ok=True)
        yield


def fingerprint(run: PreparedRun, w0: object) -> str:
    """What makes two runs the same run: everything but how far it may go, how exact it must be, and the engine."""
    problem, setup = run.problem, run.setup
    parts: dict[str, Any] = {
        "method": run.method,
        "policy": setup.policy,
        **({} if setup.graph is None else {"graph": setup.graph.adjacency}),
        "regions": setup.regions.of_coefficient,
        "loss": problem.loss.name,
        "penalties": problem.penalties,
        "weights": problem.weights,
        "intercept": problem.intercept,
        **({} if problem.feature_names is None else {"feature_names": list(problem.feature_names)}),
        "rows": np.asarray(problem.rows),
        "seed": setup.seed,
        "w0": w0,
    }
    if isinstance(problem, Problem):
        parts["data"] = [_shard_digest(shard) for shard in problem.shards]
    return hashlib.sha256(json.dumps(plain(parts, otherwise=_described), sort_keys=True).encode()).hexdigest()


def _described(value: Any) -> Any:
    """A configuration as plain data that is the same in every process."""
    if is_dataclass(value) and not isinstance(value, type):
        own = {part.name: plain(getattr(value, part.name), otherwise=_described) for part in fields(value)}
        return [type(value).__qualname__, own]
    if callable(value):
        return f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', type(value).__qualname__)}"
    return repr(value)


def _shard_digest(shard: Any) -> str:
    digest = hashlib.sha256()
    X = shard.X
    for part in (X.data, X.indices, X.indptr) if sparse.issparse(X) else (X,):
        digest.update(np.ascontiguousarray(part).tobytes())
    digest.update(shard.y.tobytes())
    if shard.weights is not None:
        digest.update(shard.weights.tobytes())
    if shard.offset is not None:
        digest.update(b"offset" + shard.offset.tobytes())
    return digest.hexdigest()
