"""`danl reproduce`: the paper's figures and a verdict on each of its claims, from rows that are kept.

What is there is not computed again: a command that was interrupted goes on where it was.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from danl.checks import check_installed, check_whole
from danl.cli.display import console, plain_table
from danl.cli.imports import quick_imports
from danl.cli.options import DATA, OUTPUT, RUN, Json, option
from danl.errors import InputError, bad_argument
from danl.reproduce.runs import QUICK, TARGETS, Plan

if TYPE_CHECKING:
    from danl.reproduce.claims.base import Verdict

ALL = (*TARGETS, "claims")
PLAIN_SECONDS = 20.0
"""Where there is no terminal, a line of progress every so often."""
STYLES = {"holds": "green", "holds for some readings": "yellow", "does not hold": "bold red"}


def reproduce(
    targets: Annotated[
        list[str] | None, typer.Argument(metavar="[fig1|fig2|claims|all]...", help="What to make; default: all.")
    ] = None,
    data: Annotated[str | None, option(DATA, "Data sets, separated by commas; default: the paper's four.")] = None,
    data_dir: Annotated[Path | None, option(DATA, "Folder with the data sets' files; default: DANL_DATA_DIR.")] = None,
    seeds: Annotated[int | None, option(RUN, "Runs of each setting; default 5.")] = None,
    quick: Annotated[bool, option(RUN, "a1a alone, 2 seeds, 2 penalties: under a minute.", "--quick")] = False,
    processes: Annotated[int | None, option(RUN, "Runs at the same time; default: one a core.")] = None,
    out: Annotated[
        Path | None,
        option(OUTPUT, "Folder for rows, figures and verdicts; default: reproduction, or reproduction-quick."),
    ] = None,
    quiet: Annotated[bool, option(OUTPUT, "No progress bar.", "--quiet")] = False,
    as_json: Json = False,
) -> int:
    """Make the paper's figures and judge its claims.

    What was run before is kept in the folder and not computed again.

    Example: danl reproduce all --quick
    """
    begun = time.perf_counter()
    with quick_imports():  # here: --help should not wait for them
        from danl.cli.output import out_folder
        from danl.data.fetch import locate
        from danl.data.registry import lookup

    screen = console()
    chosen = chosen_targets(targets)
    if set(chosen) & set(TARGETS):  # claims alone draw nothing
        check_installed("reproduce", "matplotlib", "plots")
    plan = make_plan(data, seeds, quick)
    if processes is not None:
        check_whole("processes", processes, next_step="leave it out for one a core")
    out = out or Path("reproduction-quick" if quick else "reproduction")
    check_folder(out)
    if data_dir is not None:
        if not data_dir.is_dir():
            raise bad_argument("data-dir", str(data_dir), "a folder that exists", "or leave it out")
        os.environ["DANL_DATA_DIR"] = str(data_dir)
    for name in plan.data:  # before anything is computed: all the data are here, or are fetched now
        locate(lookup(name), progress=not quiet)

    from danl.reproduce.make import make, needed  # here: it takes a while, and --help should not wait for it

    runs = needed(plan, chosen, out)
    count, missing = len(runs.runs), len(runs.missing)
    screen.print(f"{count} runs, {count - missing} of them there already, in {out}", soft_wrap=True)
    with out_folder(out, force=True), progress_bar(screen, runs.rounds, quiet=quiet) as progress:
        wait = waiting(screen, quiet=quiet)
        made = make(plan, chosen, out, runs, processes=processes, progress=progress, waiting=wait)
    if made is None:
        print(f"interrupted: what is done is kept in {out}; the same command goes on from there", file=sys.stderr)
        return 130
    seconds = time.perf_counter() - begun
    if as_json:
        summary = {
            "out": str(out),
            "runs": count,
            "computed": missing,
            "figures": [str(path) for path in made.figures],
            "claims": [
                {"claim": each.claim, "verdict": each.word, "readings": each.readings} for each in made.verdicts or ()
            ],
            "seconds": seconds,
        }
        print(json.dumps(summary, allow_nan=False))
    if made.verdicts is not None:
        screen.print(verdicts_table(made.verdicts))
    screen.print(f"written to {out} in {seconds:.0f} s; begin with {out / 'index.md'}", soft_wrap=True)
    return 0


def chosen_targets(words: list[str] | None) -> tuple[str, ...]:
    """The targets asked for, in the order they are made."""
    asked = words or ["all"]
    for word in asked:
        if word not in (*ALL, "all"):
            raise bad_argument("target", word, f"one of {', '.join((*ALL, 'all'))}")
    return tuple(target for target in ALL if target in asked or "all" in asked)


def make_plan(data: str | None, seeds: int | None, quick: bool) -> Plan:
    from danl.data.registry import lookup

    plan = QUICK if quick else Plan()
    if data is not None:
        names = tuple(dict.fromkeys(part.strip() for part in data.split(",") if part.strip()))
        if not names:
            raise bad_argument("data", data, "data sets separated by commas", "for example --data a1a,phishing")
        for name in names:
            lookup(name)
        if len(names) > 4:
            raise bad_argument("data", data, "at most four data sets: a figure has four panels")
        plan = replace(plan, data=names)
    if seeds is not None:
        plan = replace(plan, n_seeds=check_whole("seeds", seeds, next_step="the default is 5"))
    return plan


def check_folder(out: Path) -> None:
    """Refuse a folder that cannot be written to, or that holds other things."""
    from danl.cli.output import out_folder

    with out_folder(out, force=True):
        pass
    if out.is_dir() and any(out.iterdir()) and not (out / "environment.json").exists():
        raise InputError(
            f"--out={str(out)!r}: is not empty and holds no reproduction; choose a new folder, so that nothing of "
            "yours is overwritten"
        )


@contextmanager
def progress_bar(screen: Console, total: int, *, quiet: bool) -> Iterator[Callable[[int], object]]:
    """A bar with the time left; plain lines where nobody watches a terminal."""
    if quiet or not total:
        yield lambda done: None
    elif not screen.is_terminal:
        begun = said = time.perf_counter()

        def say(done: int) -> None:
            nonlocal said
            now = time.perf_counter()
            if now - said >= PLAIN_SECONDS and done:
                said = now
                screen.print(f"{done} of {total} rounds, about {(now - begun) / done * (total - done):.0f} s left")

        yield say
    else:
        from rich.progress import (  # here: only where there is one
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn())
        with Progress(TextColumn("rounds"), *columns, console=screen, transient=True) as bar:
            task = bar.add_task("rounds", total=total)

            def show(done: int) -> None:
                bar.update(task, completed=done)
                if done == total:
                    bar.stop()  # what comes next has a line of its own

            yield show


def waiting(screen: Console, *, quiet: bool) -> Callable[[str], AbstractContextManager[object]]:
    """Say what takes a moment, where somebody watches."""
    return lambda what: nullcontext() if quiet or not screen.is_terminal else screen.status(what)


def verdicts_table(verdicts: Sequence[Verdict]) -> Table:
    table = plain_table(Column("claim", no_wrap=True), Column("verdict", overflow="fold"))
    for verdict in verdicts:
        some = verdict.word == "holds for some readings"
        words = f"holds for {'; '.join(verdict.readings)}" if some else verdict.word
        table.add_row(verdict.claim, Text(words, style=STYLES[verdict.word]))
    return table
