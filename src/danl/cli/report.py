"""`danl report`: one page from the files that runs wrote."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from danl.checks import check_installed
from danl.cli.display import console
from danl.cli.options import OUTPUT, option
from danl.errors import InputError
from danl.wording import counted, human_bytes

NAME = "report.html"


def report(
    folders: Annotated[
        list[Path], typer.Argument(metavar="DIR...", help="Folders that danl fit --out or danl compare --out wrote.")
    ],
    out: Annotated[
        Path | None, option(OUTPUT, "The page; default: report.html in DIR, or here for several folders.")
    ] = None,
    browser: Annotated[bool, option(OUTPUT, "Show the page in a browser.", "--open/--no-open")] = False,
    force: Annotated[bool, option(OUTPUT, "Overwrite a page that is there already.", "--force")] = False,
) -> int:
    """Make one HTML page of one or several runs: curves, who trained what, findings; it needs no network.

    Example: danl report run --open
    """
    from danl.report.page import write_report  # here: --help should not wait for it
    from danl.report.recorded import read_runs

    screen = console()
    check_installed("report", "plotly", "report")
    path = out or (folders[0] / NAME if len(folders) == 1 else Path(NAME))
    runs = read_runs(folders)
    check_page(path, force=force)
    write_report(runs, path)
    screen.print(f"{counted(len(runs), 'run')}, {human_bytes(path.stat().st_size)}, written to {path}", soft_wrap=True)
    if browser and not webbrowser.open(path.resolve().as_uri()):
        screen.print("no browser was found; open the file in one", soft_wrap=True)
    return 0


def check_page(path: Path, *, force: bool) -> None:
    """Refuse a page that is there already, a folder, and a place that is not there."""
    if path.is_dir():
        raise InputError(f"--out={str(path)!r}: is a folder; name a file in it, such as {str(path / NAME)!r}")
    if not path.parent.is_dir():
        raise InputError(f"--out={str(path)!r}: the folder {str(path.parent)!r} does not exist; make it first")
    if path.exists() and not force:
        raise InputError(f"--out={str(path)!r}: is there already; choose another file or add --force")
