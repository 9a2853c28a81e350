"""A result in a folder, so that a run at the server can be read by whoever asked for it.

history.csv   a row an exchange; written anew after every one, so that a run can be watched
model.npz     w and w0, and the names of the features where they have some
workers.npz   who did what in each exchange (`danl.Trace`)
result.json   status, summary, settings, notes and failures; written last: when it is there, the run is over
error.txt     instead of a result, where the run could not be made: what is wrong
start/        the same of the run that made w0, where there was one
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from danl.errors import InputError
from danl.protocol.messages import Failure
from danl.run.history import History
from danl.run.result import Result
from danl.storage.atomic import written_whole

RESULT, ERROR, WORKERS = "result.json", "error.txt", "workers.npz"


def write_result(folder: str | os.PathLike[str], result: Result, *, sites: tuple[str, ...] = ()) -> None:
    """Write a result; the file that says it is there comes last."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    if result.start is not None and result.start is not result:
        write_result(folder / "start", result.start, sites=sites)
    result.history.to_csv(folder / "history.csv")
    with written_whole(folder / "model.npz") as partial:
        arrays: dict[str, Any] = {"w": result.w, "w0": result.w0}
        if result.feature_names is not None:
            arrays["feature_names"] = np.array(result.feature_names)
        np.savez(partial, **arrays)
    told: dict[str, Any] = {
        "status": result.status,
        "method": result.method,
        "sites": list(sites),
        "summary": result.summary(),
        "notes": list(result.notes),
        "failures": [asdict(failure) for failure in result.failures],
        "dropped": result.dropped,
        "has_start": result.start is not None,
        "settings": {name: value for name, value in result.settings.items() if name != "w0"},
    }
    with written_whole(folder / RESULT) as partial:
        partial.write_text(json.dumps(told, indent=2, default=str) + "\n", encoding="utf-8")


def read_result(folder: str | os.PathLike[str]) -> Result:
    """Read what `write_result` wrote."""
    folder = Path(folder)
    try:
        told = json.loads((folder / RESULT).read_text(encoding="utf-8"))
        with np.load(folder / "model.npz", allow_pickle=False) as arrays:
            w, w0 = np.array(arrays["w"]), np.array(arrays["w0"])
        start = read_result(folder / "start") if told["has_start"] and (folder / "start").is_dir() else None
        return Result(
            w=w,
            status=told["status"],
            history=History.read_csv(folder / "history.csv"),
            method=told["method"],
            failures=tuple(Failure(**failure) for failure in told["failures"]),
            notes=tuple(told["notes"]),
            dropped=int(told["dropped"]),
            start=start,
            settings=told["settings"] | {"w0": w0},
        )
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"{folder}: holds no result of a run ({type(error).__name__}: {error})") from None
