"""Files a run writes: history.csv, config.json, model.npz, workers.npz, figure.png; docs/files.md describes them.

The folder is checked before the run starts, so that nothing is computed that cannot be kept, and every file is written
beside its place and renamed, so that a reader never sees half of one.
"""

from __future__ import annotations

import os
import platform
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from danl._version import __version__
from danl.atomic import write_json, written_whole
from danl.cli.options import Job, RunOptions
from danl.cli.report import NAME
from danl.data import Dataset
from danl.errors import InputError
from danl.figures import plot_histories
from danl.policies import Setting, make_policy
from danl.policies.profile_file import told as profiles_told
from danl.result import Result
from danl.trace import Trace

RUN_FILES = ("history.csv", "config.json", "model.npz", "workers.npz", "figure.png")
MOST_FAILURES = 100
"""Replies that did not come are told one by one up to so many."""


def check_out(out: Path | None, *, force: bool, files: tuple[str, ...] = RUN_FILES) -> None:
    """Refuse a folder that cannot be written to, or that holds a run already."""
    if out is None:
        return
    try:  # asking the file system is the only sure way, and it leaves nothing behind
        there = [name for name in files if (out / name).exists()]
        if there and not force:
            raise InputError(
                f"--out={str(out)!r}: holds a run already ({there[0]}); choose another folder or add --force"
            )
        nearest = out
        while not nearest.exists() and nearest != nearest.parent:
            nearest = nearest.parent
        if not nearest.is_dir():
            raise InputError(
                f"--out={str(out)!r}: must be a folder, and {str(nearest)!r} is a file; choose another folder"
            )
        with tempfile.TemporaryFile(dir=nearest):
            pass
    except OSError as error:
        raise InputError(
            f"--out={str(out)!r}: cannot be written ({error.strerror}); choose another folder or change its permissions"
        ) from None


def write_run(
    out: Path, result: Result, title: str, config: dict[str, Any], trace: Trace, data: Dataset | None = None
) -> None:
    """Write the five files of a run; `data` where the rows are here."""
    out.mkdir(parents=True, exist_ok=True)
    result.history.to_csv(out / "history.csv")
    write_json(out / "config.json", config)
    write_model(out / "model.npz", result, data)
    trace.save(out / "workers.npz")
    if len(result.history):
        plot_histories({result.method: result.history}, out / "figure.png", title=title)
    else:
        (out / "figure.png").unlink(missing_ok=True)  # of the run that --force replaces


def write_model(path: Path, result: Result, data: Dataset | None) -> None:
    """The coefficients and what they belong to, as an npz without pickled objects."""
    coefficients, intercepts = result.layout.split(result.w)
    arrays: dict[str, Any] = {"w": result.w, "w0": result.w0, "coef": coefficients, "intercept": intercepts}
    if data is not None and data.classes is not None:
        arrays["classes"] = np.array([str(label) for label in data.classes])
    if result.feature_names is not None:
        arrays["feature_names"] = np.array(result.feature_names)
    with written_whole(path) as partial:
        np.savez(partial, **arrays)


def remove_page(folder: Path, screen: Console) -> None:
    """Remove the page of `danl report` that was made of what this folder held before, and say so."""
    page = folder / NAME
    if page.is_file() and is_report(page):
        page.unlink()
        screen.print(f"removed {page}, made of the run that was there; danl report makes a new one", soft_wrap=True)


def is_report(page: Path) -> bool:
    """Whether a file is a page of `danl report`, and not one of the user's of that name."""
    with page.open("rb") as file:
        return b"danl report</title>" in file.read(4096)


def asked(options: RunOptions, method: str, job: Job, **own: Any) -> dict[str, Any]:
    """What is to be run, as far as it is known before; `own` has the options of one command alone."""
    told = {name: value for name, value in asdict(options).items() if name != "quiet"}
    return {
        "danl": __version__,
        "options": {"method": method} | told | own,
        "data": {"name": job.data.name, "source": job.data.source, "partition": job.partition},
        "profiles": None if job.profiles is None else profiles_told(job.profiles),
    }


def describe(told: dict[str, Any], job: Job, result: Result) -> dict[str, Any]:
    """What was run, on which data, with which versions: enough to run it again."""
    return told | {
        "data": told["data"] | {"sha256": job.digest},
        "settings": {name: value for name, value in result.settings.items() if name != "w0"},
        "start": None
        if result.start is None
        else result.start.settings["method_options"] | {"method": result.start.method},
        "status": result.status,
        "notes": list(result.notes),
        "failures": failures_of(result),
        "promised": promised(told["options"], job),
        "versions": versions(),
        "machine": {"platform": platform.platform(), "cores": os.cpu_count()},
    }


def failures_of(result: Result) -> list[dict[str, Any]]:
    """The first replies that did not come, each with its exchange: a row tells how many there were in it."""
    exchanges = (row.exchange for row in result.history for _ in range(row.failed))
    told = [
        {"exchange": exchange} | asdict(failure) for exchange, failure in zip(exchanges, result.failures, strict=False)
    ]
    return told[:MOST_FAILURES]


def promised(options: Mapping[str, Any], job: Job) -> dict[str, int | None]:
    """What the masks are sure to satisfy; null where nothing is promised."""
    problem = job.problem
    memory = np.array([facts.nbytes for facts in problem.facts])
    setting = Setting(problem.n_workers, job.regions.sizes, problem.rows, memory, options["rounds"])
    return asdict(make_policy(options["policy"], job.profiles).promise(setting))


def versions() -> dict[str, str]:
    """Versions of what the numbers depend on."""
    import scipy

    return {"python": platform.python_version(), "numpy": np.__version__, "scipy": scipy.__version__}
