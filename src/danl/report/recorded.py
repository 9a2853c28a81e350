"""A run as its folder has it: rows, who did what, and how it was made. Reports are made of this and of nothing else."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from danl.errors import InputError
from danl.run.history import TRAINING, History
from danl.run.trace import Trace

FIT = "danl fit --out wrote"
REPRODUCTION = ("index.md", "environment.json")
"""Files by which a folder of `danl reproduce` is known."""
NO_TRACE = (
    "There is no workers.npz in the folder: the run is of an older version, or was made where it is not written. "
    "What each worker did is not known; coverage is the count of workers by region from history.csv."
)


@dataclass(frozen=True)
class RecordedRun:
    """One run. `trace` is None where the folder does not have it; `config` is empty where it does not."""

    name: str
    history: History
    trace: Trace | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    tables: Mapping[str, Any] = field(default_factory=dict)
    """What `danl fit --summary` wrote of the model; empty where there is none."""

    @property
    def status(self) -> str:
        """How it ended; "unknown" where there is no config.json."""
        return str(self.config.get("status") or "unknown")

    def config_at(self, *keys: str) -> Any:
        """What config.json says under these keys, one in the other; None where it does not."""
        value: Any = self.config
        for key in keys:
            if not isinstance(value, Mapping):
                return None
            value = value.get(key)
        return value

    @property
    def method(self) -> str:
        """The method, with the options it was given."""
        return str(self.config_at("options", "method") or self.config_at("settings", "method") or "")

    @property
    def rounds(self) -> np.ndarray[Any, Any]:
        """Which rows are rounds of training, as a mask over the rows."""
        return np.isin(self.history.column("kind"), TRAINING)

    @property
    def known_since(self) -> int:
        """The exchange from which on it is known who did what: 0, or where a run went on whose trace was not kept."""
        return 0 if self.trace is None or not len(self.trace) else int(self.trace.exchanges[0])

    @property
    def notes(self) -> list[str]:
        """What the run itself had to say."""
        notes = self.config_at("notes")
        return [str(note) for note in notes] if isinstance(notes, list) else []


def read_runs(paths: Sequence[str | Path]) -> list[RecordedRun]:
    """Read the runs of these folders; the folder of a comparison stands for the runs in it."""
    if not paths:
        raise InputError("DIR: is missing; give the folder that danl fit --out wrote")
    folders: list[tuple[str, Path]] = []
    for path in map(Path, paths):
        folders += _compared(path) if (path / "comparison.json").is_file() else [("", path)]
    names = _distinct([label or path.name or str(path.resolve().name) for label, path in folders])
    return [read_run(path, name) for name, (_, path) in zip(names, folders, strict=True)]


def read_run(path: str | Path, name: str | None = None) -> RecordedRun:
    """Read one folder of `danl fit --out`."""
    path = Path(path)
    if not path.is_dir():
        raise InputError(f"DIR={str(path)!r}: must be a folder that exists; give the one danl fit --out wrote")
    rows = path / "history.csv"
    if not rows.is_file() and all((path / name).is_file() for name in REPRODUCTION):
        raise InputError(
            f"DIR={str(path)!r}: is a folder of danl reproduce, which has no report; open {str(path / 'index.md')!r}, "
            "or give a folder danl fit --out wrote"
        )
    if not rows.is_file():
        raise InputError(
            f"DIR={str(path)!r}: has no history.csv, so there is no run in it; give the folder danl fit --out wrote"
        )
    history = History.read_csv(rows)
    config = _json(path / "config.json", FIT) or _json(path / "result.json", FIT)
    trace = _trace(path / "workers.npz")
    if trace is not None:
        _check_together(path, history, trace)
    tables = _json(path / "summary.json", FIT)
    return RecordedRun(name or path.resolve().name, history, trace, config, tables)


def _compared(path: Path) -> list[tuple[str, Path]]:
    """The runs that a comparison.json names, by their label; folders are looked for beside it, wherever it is now."""
    runs = _json(path / "comparison.json", "danl compare --out wrote").get("runs")
    if not isinstance(runs, list) or not runs:
        raise InputError(f"{path / 'comparison.json'}: names no runs; give the folder danl compare --out wrote")
    found = []
    for run in runs:
        label, out = (run.get("label"), run.get("out")) if isinstance(run, dict) else (None, None)
        if not isinstance(label, str) or not isinstance(out, str):
            raise InputError(
                f"{path / 'comparison.json'}: a run in it has no label or no folder; run danl compare --out again"
            )
        found.append((label, path / Path(out).name))
    return found


def _trace(path: Path) -> Trace | None:
    if not path.is_file():
        return None
    try:
        return Trace.read(path)
    except InputError as error:
        raise InputError(f"{error}; or remove it for a report without workers") from None


def _json(path: Path, writer: str) -> dict[str, Any]:
    """The object in a file; none where the file is not there."""
    if not path.is_file():
        return {}
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); give the folder {writer}") from None
    except (ValueError, RecursionError):
        raise InputError(f"{path}: is damaged, not the JSON {writer}; remove it or run again with --force") from None
    if not isinstance(value, dict):
        raise InputError(f"{path}: must be one JSON object, as {writer}; remove it or run again with --force")
    return value


def _check_together(path: Path, history: History, trace: Trace) -> None:
    """Refuse rows and a trace of different runs: nothing right could be said of them together."""
    regions = len(history[0].coverage) if len(history) else trace.trained.shape[2]
    known = set(history.column("exchange").tolist())
    if trace.trained.shape[2] != regions or not known.issuperset(trace.exchanges.tolist()):
        raise InputError(
            f"DIR={str(path)!r}: history.csv and workers.npz are of different runs; remove workers.npz, or run again "
            "with --force"
        )


def _distinct(names: list[str]) -> list[str]:
    """Distinct names: the second of the same name gets (2)."""
    before = [names[:place].count(name) for place, name in enumerate(names)]
    return [f"{name} ({count + 1})" if count else name for name, count in zip(names, before, strict=True)]
