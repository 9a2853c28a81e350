"""Writing checkpoints while a run goes, and taking one up again: `solve`'s ``checkpoint`` and ``resume``."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from danl.errors import InputError, bad_argument, warn
from danl.objective.problem import Problem
from danl.run.checkpoint import KEPT, Checkpoints, Found, columns_of, fingerprint_of, history_of, line_of
from danl.run.result import Result
from danl.run.run import Run
from danl.storage.appended import Appended, LostError
from danl.storage.folder import claimed, why_not
from danl.wording import counted

ANOTHER = "give another folder for the new checkpoints (checkpoint=, --checkpoint)"


@dataclass
class Keeper:
    """Writes a checkpoint every so many exchanges, with the start the run had.

    A checkpoint that cannot be written is a warning, once, and no end of the run; the next one is tried again.
    """

    checkpoints: Checkpoints
    fingerprint: str
    w0: np.ndarray[Any, Any]
    start: Result | None
    written: int = 0  # exchanges when the newest was written
    log: Appended | None = None
    logged: tuple[int, int] = (0, 0)  # rows and failures that are in it
    own: list[Path] = field(default_factory=list)  # this run's checkpoints, the oldest first
    warned: bool = False

    def save(self, carried: Mapping[str, Any], *, last: bool) -> None:
        """Keep what is carried, if it is time."""
        if not carried:
            return  # interrupted before the first exchange was over
        exchanges = carried["rows"]
        if exchanges <= self.written or not (last or exchanges - self.written >= self.checkpoints.every):
            return
        try:
            self._write(exchanges, carried)
        except OSError as error:
            if not self.warned:
                there = f"the newest one is of {counted(self.written, 'exchange')}" if self.written else "there is none"
                warn(
                    f"checkpoint={str(self.checkpoints.folder)!r}: {why_not(self.checkpoints.folder, error)} after "
                    f"{counted(exchanges, 'exchange')}; the run goes on, and {there}"
                )
            self.warned = True

    def _write(self, exchanges: int, carried: Mapping[str, Any]) -> None:
        self.checkpoints.folder.mkdir(parents=True, exist_ok=True)
        mark = self._add(carried)
        plain = {name: value for name, value in carried.items() if name not in ("history", "failures")}
        whole = plain | {"log": mark, "w0": self.w0, "start": _start_of(self.start)}
        path = self.checkpoints.write(exchanges, whole, self.fingerprint)
        self.written = exchanges
        self.own = [*(each for each in self.own if each != path), path]
        while len(self.own) > KEPT:
            self.own[0].unlink(missing_ok=True)
            self.own.pop(0)

    def _add(self, carried: Mapping[str, Any]) -> tuple[int, str]:
        """Add the rows and the failures since the last time to the file that grows; how much of it is theirs."""
        until = (carried["rows"], carried["failed_replies"])
        if self.log is not None and self.logged != until:
            try:
                self.log.append(_line(carried, self.logged, until))
            except LostError:
                self.log = None  # removed by somebody: it is in memory, too
        if self.log is None:
            log = Appended(self.checkpoints.log)
            log.append(_line(carried, (0, 0), until))
            self.log = log
        self.logged = until
        return self.log.mark


@dataclass(frozen=True)
class Taken:
    """What a checkpoint gave back."""

    carried: dict[str, Any]
    w0: np.ndarray[Any, Any]
    start: Result | None
    found: Found

    def keeper(self, checkpoints: Checkpoints, fingerprint: str) -> Keeper:
        """Goes on with the files it was taken up from, or writes all of them where they are to be in another folder."""
        kept = Keeper(checkpoints, fingerprint, self.w0, self.start)
        if not _same(checkpoints.folder, self.found.log.path.parent):
            return kept
        rows, failures = self.carried["rows"], self.carried["failed_replies"]
        return replace(kept, written=rows, log=self.found.log, logged=(rows, failures), own=list(self.found.own))


def make_checkpoints(checkpoint: Checkpoints | str | Path | None, resume: str | Path | None) -> Checkpoints | None:
    """Where checkpoints go: where they were told to, or where the run is taken up from."""
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
def held(checkpoints: Checkpoints | None, resume: str | Path | None) -> Iterator[None]:
    """Have the folder of the checkpoints for this process alone; refuse one that holds those of another run."""
    if checkpoints is None:
        yield
        return
    goes_on = resume is not None and _same(checkpoints.folder, Path(resume))
    argument, otherwise = ("resume", ANOTHER) if goes_on else ("checkpoint", "choose another folder")
    with claimed(checkpoints.folder, argument, otherwise, lock=".checkpoint.lock"):
        there = checkpoints.there()
        if there and not goes_on:
            raise InputError(
                f"checkpoint={str(checkpoints.folder)!r}: holds the checkpoints of a run already ({there[0].name}); "
                "go on with that run by resuming it from this folder, or choose another folder"
            )
        checkpoints.tidy()
        yield


def take_up(folder: str | Path, fingerprint: str) -> Taken:
    """The newest whole checkpoint of this run in a folder."""
    found = Checkpoints(Path(folder)).newest(fingerprint)
    carried = found.carried
    w0, start = carried.pop("w0"), carried.pop("start")
    return Taken(carried | {"history": found.history, "failures": found.failures}, w0, _start_from(start), found)


def _same(one: Path, other: Path) -> bool:
    return one.resolve() == other.resolve()


def _line(carried: Mapping[str, Any], begin: tuple[int, int], end: tuple[int, int]) -> bytes:
    rows = [carried["history"][index] for index in range(begin[0], end[0])]
    return line_of(rows, carried["failures"][begin[1] : end[1]])


def fingerprint(run: Run, w0: object) -> str:
    """What makes two runs the same run: everything but how far it may go, how exact it must be, and the engine."""
    problem, setup = run.problem, run.setup
    parts: dict[str, Any] = {
        "method": _plain(run.method),
        "policy": _plain(setup.policy),
        "regions": setup.regions.of_feature,
        "loss": problem.loss.name,
        "penalties": problem.penalties,
        "weights": problem.weights,
        "intercept": problem.intercept,
        **({} if problem.feature_names is None else {"feature_names": list(problem.feature_names)}),
        "rows": np.asarray(problem.rows),
        "seed": setup.seed,
        "w0": w0 if isinstance(w0, np.ndarray) else _plain(w0),
    }
    if isinstance(problem, Problem):
        parts["data"] = [_shard_digest(shard) for shard in problem.shards]
    return fingerprint_of(parts)


def _plain(value: Any) -> Any:
    """A configuration as plain data that is the same in every process."""
    if is_dataclass(value) and not isinstance(value, type):
        own = {part.name: _plain(getattr(value, part.name)) for part in fields(value)}
        return [type(value).__qualname__, own]
    if isinstance(value, np.ndarray):
        return [value.dtype.str, list(value.shape), hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()]
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if callable(value):
        return f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', type(value).__qualname__)}"
    return value if value is None or isinstance(value, bool | int | float | str) else repr(value)


def _shard_digest(shard: Any) -> str:
    digest = hashlib.sha256()
    X = shard.X
    for part in (X.data, X.indices, X.indptr) if sparse.issparse(X) else (X,):
        digest.update(np.ascontiguousarray(part).tobytes())
    digest.update(shard.y.tobytes())
    if shard.weights is not None:
        digest.update(shard.weights.tobytes())
    return digest.hexdigest()


def _start_of(start: Result | None) -> dict[str, Any] | None:
    if start is None:
        return None
    return {
        "w": start.w,
        "status": start.status,
        "method": start.method,
        "settings": start.settings,
        "centre": start.centre,
        "columns": columns_of(start.history),
    }


def _start_from(kept: Mapping[str, Any] | None) -> Result | None:
    if kept is None:
        return None
    history = history_of(kept["columns"])
    return Result(
        kept["w"], kept["status"], history, kept["method"], settings=dict(kept["settings"]), centre=kept["centre"]
    )
