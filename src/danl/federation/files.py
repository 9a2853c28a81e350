"""A result in a folder, so that a run at the server can be read by whoever asked for it.

The files are those of `danl.Result.save`. history.csv is written anew after every exchange, so that a run can be
watched; result.json comes last: when it is there, the run is over. error.txt is there instead of a result where the run
could not be made: what is wrong.
"""

from __future__ import annotations

from pathlib import Path

from danl.run.result import RESULT as RESULT
from danl.run.result import Result, files_of, write_files

ERROR = "error.txt"


def write_result(folder: str | Path, result: Result, *, sites: tuple[str, ...] = ()) -> None:
    """Write a result, with the names of its sites; the file that says it is there comes last."""
    write_files(folder, files_of(result, more={"sites": list(sites)}))


def read_result(folder: str | Path) -> Result:
    """Read what `write_result` wrote: `danl.Result.load`."""
    return Result.load(folder)
