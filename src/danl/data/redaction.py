"""What of an error may leave a site: its place, never a value of a row.

A reader's error has a text for others, `InputError.redacted`, with file, line and column. Of any other exception at a
site only its type and where it was raised are sent, since its text may show a row: an identifier that is not a number,
for example.
"""

from __future__ import annotations

import traceback

from danl.errors import InputError

SEE_ROWS = (
    "danl.data.files",
    "danl.data.libsvm",
    "danl.data.table",
    "danl.data.records",
    "danl.data.partition",
    "danl.data.shard",
    "danl.objective.losses",
    "danl.objective.log_link",
)
"""Modules whose errors can quote a row. If such an error has no redacted text, only its type is sent."""


def redacted(error: BaseException) -> str:
    """What a site sends of an error."""
    walked = traceback.walk_tb(error.__traceback__)  # the innermost call last
    frames = [(str(frame.f_globals.get("__name__", "?")), line) for frame, line in walked] or [("?", 0)]
    if isinstance(error, InputError):
        if error.redacted is not None:
            return error.redacted
        raised_in = frames[-1][0]
        if _of_danl(raised_in) and raised_in not in SEE_ROWS:
            return str(error)  # of settings, tasks and names: danl's own words, none of them a row's
    called = next((name for name, _ in frames if not _of_danl(name)), "")  # a loader, not a library below it
    module, line = [frame for frame in frames if _of_danl(frame[0]) or frame[0] == called][-1]
    return f"{type(error).__name__} at {module}:{line}; its text stays at the site"


def unreadable(worker: int, reported: str) -> str:
    """The error of a run whose worker cannot read its rows."""
    return f"shards: worker {worker} cannot use its rows where it runs: {reported}"


def _of_danl(module: str) -> bool:
    return module == "danl" or module.startswith("danl.")
