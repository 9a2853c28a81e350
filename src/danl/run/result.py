"""What a run returns: the model, how it ended, and the record of how it got there; and the folder it is kept in.

history.csv   a row an exchange
model.npz     the model, its start, its coefficients and intercepts, the names of the features where they have some
workers.npz   who did what in each exchange, where the run had a trace
result.json   status, settings, notes and failures, with the numbers of `Result.summary`; written last
start/        the same of the run that made w0, where there was one
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import numpy as np

from danl.errors import InputError
from danl.frozen import at_once
from danl.methods.base import Status
from danl.objective.layout import Layout
from danl.protocol.messages import Array, Failure
from danl.run.history import History
from danl.run.trace import Trace
from danl.storage.arrays import from_npz, to_npz
from danl.storage.atomic import write_bytes, write_text
from danl.wording import known

RESULT, CONFIG, WORKERS = "result.json", "config.json", "workers.npz"


@dataclass(frozen=True)
class Reference:
    """A point to measure against: the optimum, as well as it could be had."""

    w: Array
    """The model."""
    objective: float
    """f there."""
    grad_norm: float
    """What was reached: the gradient norm at w."""
    exchanges: int = 0
    """What it took to get there."""


@at_once
@dataclass(frozen=True)
class Result:
    """The end of a run. Not reaching the tolerance is a status, never an exception."""

    w: Array
    """The model."""
    status: Status
    """converged, max_rounds, diverged, quorum_lost, interrupted (by Ctrl-C) or stopped (by a callback)."""
    history: History
    """One row an exchange."""
    method: str
    """The name of the method."""
    failures: tuple[Failure, ...] = ()
    """Workers that did not answer, in the order it happened."""
    notes: tuple[str, ...] = ()
    """What a reader of the result should know: workers that left, refused or were quarantined, for example."""
    dropped: int = 0
    """Replies that came late, twice or for another exchange, and were dropped."""
    start: Result | None = None
    """The run that made w0, where a method was given for it."""
    products: dict[str, Array] = field(default_factory=dict)
    """What a method computed beside the model."""
    settings: dict[str, Any] = field(default_factory=dict)
    """What the run was asked to do, in words and numbers."""
    centre: Array | None = None
    """What columns were moved by inside, where their means are large; the model is that of the columns as they were."""
    trace: Trace | None = None
    """Who did what in each exchange, where the run was asked for it: ``danl.solve(..., trace=True)``."""

    @property
    def n_rounds(self) -> int:
        """Exchanges after the first one (the paper's T); one for the means of the columns is not among them."""
        asked = len(self.history) > 0 and self.history[0].kind == "moments"
        return max(len(self.history) - 1 - asked, 0)

    @property
    def objective(self) -> float:
        """F at the model, by the newest row; nan where it is not known."""
        return self.history[-1].objective if len(self.history) else float("nan")

    @property
    def layout(self) -> Layout:
        """The places of coefficients and intercepts in w."""
        settings = self.settings
        return Layout(settings["features"], settings.get("outputs", 1), settings.get("intercept", False))

    @property
    def coef(self) -> Array:
        """The coefficients, (1, features), or (classes, features) for a multinomial loss; as in `model.npz`."""
        return self.layout.split(self.w)[0]

    @property
    def intercept(self) -> Array:
        """The intercepts, (1,) or (classes,); zeros where none was fitted."""
        return self.layout.split(self.w)[1]

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """What the features are called, in the order of the coefficients; None where they have no names."""
        names = self.settings.get("feature_names")
        return None if names is None else tuple(names)

    @property
    def w0(self) -> Array:
        """The model the run started from."""
        return np.asarray(self.settings["w0"], dtype=float)

    def summary(self) -> dict[str, Any]:
        """The run in one flat dictionary of plain numbers and words; None where a number is not known."""
        history = self.history
        last = history[-1] if len(history) else None

        def newest(*names: str) -> dict[str, Any]:
            values = {name: None if last is None else getattr(last, name) for name in names}
            return {name: known(value) if isinstance(value, float) else value for name, value in values.items()}

        return {
            "status": self.status,
            "method": self.method,
            "rounds": self.n_rounds,
            "exchanges": len(history),
            "hessian_exchanges": int(np.sum(history.column("kind") == "hessian")),
            **newest("objective", "gap", "grad_norm", "decrement"),
            "bytes_up": int(history.column("bytes_up").sum()),
            "bytes_down": int(history.column("bytes_down").sum()),
            **newest("min_coverage", "max_staleness", "min_trained", "pruning_error"),
            "seconds": float(history.column("seconds").sum()),
            "simulated_seconds": known(float(history.column("simulated_seconds").sum())),
            "failed_replies": len(self.failures),
            "dropped_replies": self.dropped,
            "notes": list(self.notes),
            "w_sha256": hashlib.sha256(np.ascontiguousarray(self.w).tobytes()).hexdigest(),
        }

    def save(self, folder: str | Path) -> None:
        """Write the run into a folder, as `danl fit --out` does; `Result.load` and `danl report` read it.

        The files of a run that is there already are replaced. What a method computed beside the model (`products`) is
        not written.
        """
        write_files(folder, files_of(self))

    @classmethod
    def load(cls, folder: str | Path) -> Result:
        """Read the run that `save`, `danl fit --out` or the app of a federation wrote into a folder."""
        folder = Path(folder)
        try:
            name = RESULT if (folder / RESULT).is_file() else CONFIG  # older versions of danl fit wrote only this one
            record = json.loads((folder / name).read_text(encoding="utf-8"))
            model = from_npz((folder / "model.npz").read_bytes(), "model")
            return cls(
                w=model["w"],
                status=record["status"],
                history=History.read_csv(folder / "history.csv"),
                method=record["settings"]["method"],
                failures=tuple(Failure(each["worker"], each["kind"], each["detail"]) for each in record["failures"]),
                notes=tuple(record["notes"]),
                dropped=int(record.get("dropped", 0)),
                start=cls.load(folder / "start") if record.get("has_start") else None,
                settings=record["settings"] | {"w0": model["w0"]},
                centre=model.get("centre"),
                trace=Trace.read(folder / WORKERS) if (folder / WORKERS).is_file() else None,
            )
        except InputError:
            raise  # of one file, which it names
        except (OSError, LookupError, TypeError, ValueError) as error:
            raise InputError(
                f"{folder}: holds no result of a run ({type(error).__name__}: {error}); give a folder that "
                "danl fit --out or Result.save wrote"
            ) from None

    def __repr__(self) -> str:
        return f"Result({self.method}: {self.status} after {len(self.history)} exchanges, {self.history!r})"


def files_of(
    result: Result, classes: tuple[Any, ...] | None = None, more: Mapping[str, Any] | None = None
) -> dict[str, Callable[[Path], object]]:
    """The files of a result, by their names in its folder, and what writes each; what cannot be had again comes first.

    `classes` are the labels that the targets stand for, where they are known, `more` goes into result.json.
    """
    record = record_of(result) | {
        "method": result.method,
        "summary": result.summary(),
        "dropped": result.dropped,
        "has_start": result.start is not None,
        **(more or {}),
    }
    files: dict[str, Callable[[Path], object]] = {
        "model.npz": lambda path: _write_model(path, result, classes),
        "history.csv": result.history.to_csv,
        # without a trace there is none of the run that was there before either
        WORKERS: result.trace.save if result.trace is not None else lambda path: path.unlink(missing_ok=True),
    }
    if result.start is not None:
        files |= {f"start/{name}": write for name, write in files_of(result.start, classes).items()}
    return files | {RESULT: lambda path: write_text(path, json.dumps(record, indent=2, default=str) + "\n")}


def write_files(folder: str | Path, files: Mapping[str, Callable[[Path], object]]) -> None:
    """Write files into a folder, which is made if need be."""
    for name, write in files.items():
        path = Path(folder) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write(path)


def record_of(result: Result) -> dict[str, Any]:
    """How a run ended, in words and numbers; every failure with its exchange, as a row says how many it had."""
    exchanges = chain((row.exchange for row in result.history for _ in range(row.failed)), repeat(None))
    return {
        "status": result.status,
        "settings": {name: value for name, value in result.settings.items() if name != "w0"},
        "notes": list(result.notes),
        "failures": [{"exchange": next(exchanges)} | asdict(failure) for failure in result.failures],
    }


def _write_model(path: Path, result: Result, classes: tuple[Any, ...] | None) -> None:
    """The coefficients and what they belong to, as an npz without pickled objects."""
    arrays: dict[str, Any] = {"w": result.w, "w0": result.w0, "coef": result.coef, "intercept": result.intercept}
    if classes is not None:
        arrays["classes"] = np.array([str(label) for label in classes])
    if result.feature_names is not None:
        arrays["feature_names"] = np.array(result.feature_names)
    if result.centre is not None:
        arrays["centre"] = result.centre
    write_bytes(path, to_npz(arrays))
