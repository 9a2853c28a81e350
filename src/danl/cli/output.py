"""Files a run writes: those of its result, config.json and figure.png; docs/files.md describes them.

The folder is tried before the run starts, so that nothing is computed that cannot be kept, and every file is written
beside its place and renamed, so that a reader never sees half of one. What cannot be written at the end all the same is
said after the result.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from danl._version import __version__
from danl.cli.options import Job, RunOptions
from danl.cli.report import NAME
from danl.data import Dataset
from danl.errors import InputError
from danl.methods import make_method
from danl.plots.figures import plot_histories
from danl.policies import make_policy
from danl.policies.profile_file import told as profiles_told
from danl.run.result import CONFIG, RESULT, WORKERS, Result, files_of, record_of, write_files
from danl.run.solver import setting_of
from danl.storage.atomic import write_json
from danl.storage.folder import claimed

RUN_FILES = ("history.csv", CONFIG, "model.npz", WORKERS, RESULT, "figure.png")
MOST_FAILURES = 100
"""Replies that did not come are told one by one up to so many."""


@contextmanager
def out_folder(out: Path | None, *, force: bool, files: tuple[str, ...] = RUN_FILES) -> Iterator[None]:
    """Have --out for this process alone; refuse one that cannot be written to, or that holds a run already."""
    if out is None:
        yield
        return
    with claimed(out, "--out", lock=".out.lock"):
        there = [name for name in files if (out / name).exists()]
        if there and not force:
            raise InputError(
                f"--out={str(out)!r}: holds a run already ({there[0]}); choose another folder or add --force"
            )
        yield


def write_run(out: Path, result: Result, title: str, config: dict[str, Any], data: Dataset | None = None) -> list[str]:
    """Write the files of a run, and say which could not be; `data` where the rows are here."""

    def draw(path: Path) -> None:
        if len(result.history):
            plot_histories({result.method: result.history}, path, title=title)
        else:
            path.unlink(missing_ok=True)  # of the run that --force replaces

    files = files_of(result, None if data is None else data.classes)
    return written(out, files | {CONFIG: lambda path: write_json(path, config), "figure.png": draw})


def written(out: Path, files: Mapping[str, Callable[[Path], object]]) -> list[str]:
    """Write files into a folder; those that could not be written, each with the reason."""
    missing: list[str] = []
    for name, write in files.items():
        try:
            write_files(out, {name: write})
        except OSError as error:
            missing.append(f"{out / name} ({error.strerror or error})")
    return missing


def say_written(out: Path | None, missing: Sequence[str], screen: Console, more: str = "") -> bool:
    """The line of a command with --out that says where its files are, or which are not; whether all of them are."""
    if missing:
        screen.print(
            f"error: --out={str(out)!r}: not written: {', '.join(missing)}; the result above is whole: make room, or "
            "choose another folder, and run it again for its files",
            soft_wrap=True,
            markup=False,
            highlight=False,
        )
    elif out is not None:
        screen.print(f"written to {out}/{more}", soft_wrap=True)
    return not missing


def remove_page(folder: Path, screen: Console) -> None:
    """Remove the page of `danl report` that was made of what this folder held before, and say so."""
    page = folder / NAME
    with suppress(OSError):  # a folder that cannot be written to has said so already
        if not page.is_file() or not is_report(page):
            return
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
        "start": None
        if result.start is None
        else result.start.settings["method_options"] | {"method": result.start.method},
        **record_of(result),
        "failures": failures_of(result),
        "promised": promised(told["options"], job),
        "versions": versions(),
        "machine": {"platform": platform.platform(), "cores": os.cpu_count()},
    }


def failures_of(result: Result) -> list[dict[str, Any]]:
    """The first replies that did not come; all of them are in result.json."""
    failures: list[dict[str, Any]] = record_of(result)["failures"]
    return failures[:MOST_FAILURES]


def promised(options: Mapping[str, Any], job: Job) -> dict[str, int | None]:
    """What the masks are sure to satisfy; null where nothing is promised."""
    setting = setting_of(job.problem, job.regions, make_method(options["method"]), options["rounds"])
    return asdict(make_policy(options["policy"], job.profiles).promise(setting))


def versions() -> dict[str, str]:
    """Versions of what the numbers depend on."""
    import scipy

    return {"python": platform.python_version(), "numpy": np.__version__, "scipy": scipy.__version__}
