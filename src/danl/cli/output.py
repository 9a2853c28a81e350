"""What a command puts out: the report of a run, for people and as JSON, and its files (docs/files.md).

The folder is tried before the run starts, so that nothing is computed that cannot be kept, and every file is written
beside its place and renamed, so that a reader never sees half of one. What cannot be written at the end all the same is
said after the result.
"""

from __future__ import annotations

import json
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
from danl.checks import is_installed
from danl.cli.display import summary_table
from danl.cli.job import Job
from danl.cli.options import RunOptions
from danl.cli.report import NAME
from danl.data import Dataset
from danl.errors import InputError
from danl.plots.figures import plot_histories
from danl.policies.profile_file import as_plain_data
from danl.run.result import CONFIG, RESULT, WORKERS, Reference, Result, files_of, record_of, write_files
from danl.run.solver import setting_of
from danl.storage.atomic import write_json
from danl.storage.folder import claimed
from danl.wording import human_bytes, number

RUN_FILES = ("history.csv", CONFIG, "model.npz", WORKERS, RESULT, "figure.png")
TABLES = ("coefficients.csv", "summary.txt", "summary.json", "model.json")
"""Those of `danl fit --summary` (`danl.statistics.fit_summary`)."""
NO_FIGURES = ", without a figure: that needs matplotlib; install it with pip install 'danl[plots]'"
MOST_FAILURES = 100
"""config.json names so many replies that did not come, one by one."""


@contextmanager
def out_folder(
    out: Path | None, *, force: bool, files: tuple[str, ...] = RUN_FILES, holds: str = "a run"
) -> Iterator[None]:
    """Have --out for this process alone; refuse one that cannot be written to, or that `holds` these files already."""
    if out is None:
        yield
        return
    with claimed(out, "--out", lock=".out.lock"):
        there = [name for name in files if (out / name).exists()]
        if there and not force:
            raise InputError(
                f"--out={str(out)!r}: holds {holds} already ({there[0]}); choose another folder or add --force"
            )
        yield


def write_run(
    out: Path | None,
    result: Result,
    title: str,
    config: Mapping[str, Any],
    screen: Console,
    data: Dataset | None = None,
    more: Mapping[str, Callable[[Path], object]] | None = None,
) -> list[str]:
    """Write the files of a run into --out and return those that could not be written; `data` if the rows are here.

    `more` are those of its tables; of a run without them there are none, whatever was there before.
    """
    if out is None:
        return []

    def draw(path: Path) -> None:
        if len(result.history) and is_installed("matplotlib"):
            plot_histories({result.method: result.history}, path, title=title)
        else:
            path.unlink(missing_ok=True)  # of the run that --force replaces

    files = dict(files_of(result, None if data is None else data.classes))
    files |= dict.fromkeys(TABLES, lambda path: path.unlink(missing_ok=True)) | dict(more or {})
    missing = written(out, files | {CONFIG: lambda path: write_json(path, config), "figure.png": draw})
    remove_page(out, screen)
    return missing


def written(out: Path, files: Mapping[str, Callable[[Path], object]]) -> list[str]:
    """Write files into a folder; those that could not be written, each with the reason."""
    missing: list[str] = []
    for name, write in files.items():
        try:
            write_files(out, {name: write})
        except OSError as error:
            missing.append(f"{out / name} ({error.strerror or error})")
    return missing


def say_written(out: Path | None, missing: Sequence[str], screen: Console, figures: str = "") -> bool:
    """Print where the files are, or which are missing; return whether all are there."""
    if missing:
        screen.print(
            f"error: --out={str(out)!r}: not written: {', '.join(missing)}; the result above is whole: make room, or "
            "choose another folder, and run it again for its files",
            soft_wrap=True,
        )
    elif out is not None:
        figures = figures if is_installed("matplotlib") else NO_FIGURES
        screen.print(f"written to {out}/{figures}", soft_wrap=True)
    return not missing


def remove_page(folder: Path, screen: Console) -> None:
    """Remove the page of `danl report` that was made of what this folder held before, and say so."""
    page = folder / NAME
    with suppress(OSError):  # there is none, or the folder cannot be written to and has said so already
        with page.open("rb") as file:
            if b"danl report</title>" not in file.read(4096):
                return  # one of the user's of that name
        page.unlink()
        screen.print(f"removed {page}, made of the run that was there; danl report makes a new one", soft_wrap=True)


def requested(options: RunOptions, method: str, job: Job, **own: Any) -> dict[str, Any]:
    """What is to be run, as far as it is known before; `own` has the options of one command alone."""
    given = {name: value for name, value in asdict(options).items() if name != "quiet"}
    setting = setting_of(job.problem, job.regions, job.methods[method], options.rounds)
    job.policy.check(setting)  # a promise may rely on it
    return {
        "danl": __version__,
        "options": {"method": method} | given | own,
        "data": {"name": job.data.name, "source": job.data.source, "partition": job.partition},
        "profiles": None if job.profiles is None else as_plain_data(job.profiles),
        "promised": asdict(job.policy.promise(setting)),
    }


def described(request: Mapping[str, Any], job: Job, result: Result) -> dict[str, Any]:
    """What was run, on which data, with which versions: enough to run it again."""
    start = result.start
    return {
        **request,
        "data": request["data"] | {"sha256": job.digest},
        "start": None if start is None else start.settings["method_options"] | {"method": start.method},
        **ending_of(result),
        "machine": {"platform": platform.platform(), "cores": os.cpu_count()},
    }


def ending_of(result: Result) -> dict[str, Any]:
    """How the run ended, with the first replies that did not come (all of them are in result.json), and versions."""
    import scipy

    record = record_of(result)
    versions = {"python": platform.python_version(), "numpy": np.__version__, "scipy": scipy.__version__}
    return record | {"failures": record["failures"][:MOST_FAILURES], "versions": versions}


def run_report(
    options: RunOptions, data: Mapping[str, Any], result: Result, out: Path | None, reference: Reference | None = None
) -> dict[str, Any]:
    """The object --json prints: the summary of a run, what was run, and the summary `data` of its rows."""
    settings = result.settings
    same = ("features", "workers", "loss", "l2", "alpha", "weighting", "intercept", "seed")
    known = None if reference is None else asdict(reference)
    return {
        **result.summary(),
        **data,
        **{name: settings[name] for name in same},
        "regions": len(settings["regions"]),
        "policy": options.policy,
        "graph": settings["graph"],
        "profiles": options.profiles,
        "init": {"method": options.init} if result.start is None else result.start.summary(),
        "reference": known and {name: known[name] for name in ("objective", "grad_norm", "exchanges")},
        "out": None if out is None else str(out),
    }


def show_result(screen: Console, title: str, report: Mapping[str, Any], result: Result, *, as_json: bool) -> None:
    """Print the report: as one object on standard output if asked to, and as a table for people."""
    if as_json:
        print(json.dumps(report, allow_nan=False))
    screen.print(title, style="bold")
    screen.print(summary_table(report, report["reference"] is not None))
    if result.start is not None:
        start = report["init"]
        screen.print(
            f"start: {start['method']}, {start['exchanges']} exchanges, {human_bytes(start['bytes_up'])} up, "
            f"{human_bytes(start['bytes_down'])} down, not counted above",
            style="dim",
        )
    if report["reference"] is not None:
        reached = number(report["reference"]["grad_norm"], ".1e")
        screen.print(f"reference optimum: gradient norm {reached}", style="dim")
    if result.failures:
        count, first = len(result.failures), result.failures[0]
        screen.print(
            f"{count} replies did not come; the first: worker {first.worker}, {first.kind}, {first.detail}",
            style="yellow",
        )
    if _masks_unused(result, report["policy"]):
        masks = f"masks of {report['policy']} not used: whole gradients pay more here"
        screen.print(f"{masks} (danl:masks=always uses them)", style="dim", soft_wrap=True)
    for note in result.notes:
        screen.print(note, style="yellow")


def _masks_unused(result: Result, policy: str) -> bool:
    """Whether the default method was given masks and asked for whole gradients alone."""
    rounds = [row for row in result.history if row.kind == "gradient"]
    whole = all(min(row.coverage) == row.active for row in rounds)
    auto = result.settings["method_options"].get("masks") == "auto"
    return result.method == "danl" and auto and policy != "full" and bool(rounds) and whole
