"""Writing checkpoints while a run goes, and taking one up again: `solve`'s ``checkpoint`` and ``resume``."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from danl.checkpoint import Checkpoints, columns_of, fingerprint_of, history_of
from danl.errors import InputError, bad_argument
from danl.history import History
from danl.problem import Problem
from danl.result import Result
from danl.run import Run


@dataclass
class Keeper:
    """Writes a checkpoint every so many exchanges, with the start the run had."""

    checkpoints: Checkpoints
    fingerprint: str
    w0: np.ndarray[Any, Any]
    start: Result | None
    written: int = 0  # exchanges when the newest was written

    def save(self, carried: Mapping[str, Any], *, last: bool) -> None:
        """Keep what is carried, if it is time."""
        if not carried:
            return  # interrupted before the first exchange was over
        exchanges = carried["rows"]
        if exchanges <= self.written or not (last or exchanges - self.written >= self.checkpoints.every):
            return
        history = History(carried["history"][index] for index in range(exchanges))
        plain = {name: value for name, value in carried.items() if name not in ("history", "rows")}
        whole = plain | {"columns": columns_of(history), "w0": self.w0, "start": _start_of(self.start)}
        self.checkpoints.write(exchanges, whole, self.fingerprint)
        self.written = exchanges


@dataclass(frozen=True)
class Taken:
    """What a checkpoint gave back."""

    carried: dict[str, Any]
    w0: np.ndarray[Any, Any]
    start: Result | None
    passed_over: tuple[str, ...]


def make_checkpoints(checkpoint: Checkpoints | str | Path | None, resume: str | Path | None) -> Checkpoints | None:
    """Where checkpoints go: where they were told to, or where the run is taken up from."""
    if checkpoint is None:
        return None if resume is None else Checkpoints(Path(resume))
    if isinstance(checkpoint, Checkpoints):
        return checkpoint
    if not isinstance(checkpoint, str | Path):
        raise bad_argument("checkpoint", checkpoint, "a folder, or danl.Checkpoints(folder, every=k)")
    return Checkpoints(Path(checkpoint))


def take_up(folder: str | Path, fingerprint: str) -> Taken:
    """The newest whole checkpoint of this run in a folder."""
    if not Path(folder).is_dir():
        raise InputError(f"resume={str(folder)!r}: must be a folder with checkpoints, and there is none of that name")
    carried, passed = Checkpoints(Path(folder)).newest(fingerprint)
    history = history_of(carried.pop("columns"))
    w0, start = carried.pop("w0"), carried.pop("start")
    return Taken(carried | {"history": history}, w0, _start_from(start), tuple(passed))


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
        "columns": columns_of(start.history),
    }


def _start_from(kept: Mapping[str, Any] | None) -> Result | None:
    if kept is None:
        return None
    history = history_of(kept["columns"])
    return Result(kept["w"], kept["status"], history, kept["method"], settings=dict(kept["settings"]))
