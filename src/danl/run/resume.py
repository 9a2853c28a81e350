"""`solve`'s ``checkpoint`` and ``resume``: the folder, that no other process has it, and the fingerprint of a run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from danl.errors import InputError, bad_argument
from danl.objective.problem import Problem
from danl.run.checkpoint import Checkpoints
from danl.run.prepared import PreparedRun
from danl.storage.folder import claimed

ANOTHER = "give another folder for the new checkpoints (checkpoint=, --checkpoint)"


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
        checkpoints.tidy()
        yield


def fingerprint(run: PreparedRun, w0: object) -> str:
    """What makes two runs the same run: everything but how far it may go, how exact it must be, and the engine."""
    problem, setup = run.problem, run.setup
    parts: dict[str, Any] = {
        "method": run.method,
        "policy": setup.policy,
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
    return hashlib.sha256(json.dumps(_plain(parts), sort_keys=True).encode()).hexdigest()


def _plain(value: Any) -> Any:
    """A configuration as plain data that is the same in every process."""
    if is_dataclass(value) and not isinstance(value, type):
        own = {part.name: _plain(getattr(value, part.name)) for part in fields(value)}
        return [type(value).__qualname__, own]
    if isinstance(value, np.ndarray):
        return [value.dtype.str, list(value.shape), hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()]
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
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
