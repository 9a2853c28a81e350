"""Where the rows are: two files a run, and no run is computed twice.

    runs/<data set>/<name>.csv    the history, one row an exchange
    runs/<data set>/<name>.json   what was run, how it ended, what it was measured against

The record is written last, so a run whose record is there is whole. A run counts as there when its record says the same
settings, the same data and the same code; anything else (a torn file, another version) is computed anew.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from danl.errors import InputError
from danl.methods.base import LOST
from danl.protocol.messages import Array
from danl.reproduce.runs import RunSpec
from danl.run.history import History
from danl.storage.atomic import write_json

ROOT = Path(__file__).parents[1]
"""The folder of the package danl."""
NOT_RUN = ("__main__.py", "callbacks", "cli", "estimators", "federation", "plots", "report", "reproduce")
"""What stands above the runs and decides none of their rows; of `reproduce` itself, RUN does."""
RUN = ("__init__.py", "execute.py", "runs.py")


def code_files() -> list[Path]:
    """The files of the package that may decide the rows of a run: all but those of parts that only use or show them."""
    below = (path for path in ROOT.rglob("*.py") if path.relative_to(ROOT).parts[0] not in NOT_RUN)
    return sorted([*below, *(ROOT / "reproduce" / name for name in RUN)])


@lru_cache
def code_digest() -> str:
    """A digest of the source that decides the rows: results of other code are not taken for results of this one."""
    digest = hashlib.sha256()
    for path in code_files():
        digest.update(f"{path.relative_to(ROOT).as_posix()}\n".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


@dataclass(frozen=True)
class StoredRun:
    """One run, as its files tell it."""

    run: RunSpec
    history: History
    record: dict[str, Any]

    @property
    def status(self) -> str:
        return str(self.record["status"])

    @cached_property
    def objectives(self) -> Array:
        """f(w) after 0, 1, 2, ..., `rounds` + 1 exchanges; the first is the start's.

        A run that ended before its time keeps its last value if it converged, and has infinity if it diverged.
        """
        values = np.array([self.record["start"]["objective"], *self.history.column("objective")])
        rest = self.run.rounds + 2 - len(values)
        end = np.inf if self.status in LOST else values[-1]
        return np.concatenate([values, np.full(max(rest, 0), end)])

    def gaps(self, against: str = "optimum") -> Array:
        """f(w) - F*, with F* the verified optimum or, ``against="newton20"``, the paper's twenty Newton steps.

        All nan where those twenty steps ended nowhere finite.
        """
        best = self.record[against]["objective"]
        return self.objectives - (np.nan if best is None else best)


class Store:
    """The folder of a reproduction."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def path(self, run: RunSpec) -> Path:
        """The record's file; the history has the suffix .csv."""
        return self.root / "runs" / run.data / f"{run.name}.json"

    def has(self, run: RunSpec, digest: str) -> bool:
        """Whether both files are there, whole, for these data and by this code."""
        path = self.path(run)
        if not path.with_suffix(".csv").exists():
            return False
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return False
        known = (record.get("run"), record.get("data_sha256"), record.get("code_sha256"))
        return known == (asdict(run), digest, code_digest())

    def write(self, run: RunSpec, history: History, record: dict[str, Any], digest: str) -> None:
        """Keep a run: the history first, the record last."""
        path = self.path(run)
        path.parent.mkdir(parents=True, exist_ok=True)
        history.to_csv(path.with_suffix(".csv"))
        whole = {"run": asdict(run), "data_sha256": digest, "code_sha256": code_digest()} | record
        write_json(path, whole, indent=1)

    def read(self, run: RunSpec) -> StoredRun:
        """The run's history and record."""
        path = self.path(run)
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise InputError(
                f"{path}: cannot be read ({error}); run danl reproduce again, it fills what is missing"
            ) from None
        return StoredRun(run, History.read_csv(path.with_suffix(".csv")), record)
