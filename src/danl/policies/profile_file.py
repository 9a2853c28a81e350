"""Profiles from a file: a CSV with a header, a line a worker.

    workers,rows_per_second,uplink,downlink,memory
    3,1000,2e4,1e5,
    7,20000,1e6,1e6,

Every column may be left out, and every cell: what is not said is unlimited. A column `workers` says for how many
workers a line stands; without it each stands for one.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import asdict, fields
from itertools import groupby
from math import isfinite
from pathlib import Path
from typing import Any

from danl.data.table import is_number
from danl.errors import InputError
from danl.policies.profiles import Profile
from danl.spec import closest_first

COUNT = "workers"
NUMBERS = tuple(field.name for field in fields(Profile))
COLUMNS = (*NUMBERS, COUNT)
MOST_WORKERS = 10_000_000
"""A file that stands for more is a slip."""
NEXT_STEP = f"write a header of {', '.join(COLUMNS)} and a line a worker"

Line = tuple[int, list[str]]
"""The number of a line in the file, and its cells."""


def read_profiles(path: str | Path) -> list[Profile]:
    """Read the profile of every worker from a CSV file: columns rows_per_second, uplink, downlink, memory, workers."""
    path = Path(path)
    lines = _lines(path)
    if not lines:
        raise InputError(f"profiles={str(path)!r}: is empty; {NEXT_STEP}")
    (number, names), *rest = lines
    header = [name.strip() for name in names]
    _check_header(path, number, header)
    if not rest:
        raise InputError(f"profiles={str(path)!r}: has a header and no line after it; {NEXT_STEP}")
    profiles: list[Profile] = []
    for number, cells in rest:
        where = f"profiles={str(path)!r}, line {number}"
        if len(cells) != len(header):
            raise InputError(f"{where}: must have {len(header)} cells, as the header, not {len(cells)}; leave none out")
        values = {name: cell.strip() for name, cell in zip(header, cells, strict=True)}
        count = _count(where, values.pop(COUNT, "1"), MOST_WORKERS - len(profiles))
        numbers = {name: _number(where, name, value) for name, value in values.items() if value}
        profiles += [Profile(**numbers)] * count
    return profiles


def check_count(path: str | Path, profiles: Sequence[Profile], n_workers: int) -> None:
    """Refuse profiles of more or fewer workers than there are."""
    if len(profiles) != n_workers:
        raise InputError(
            f"profiles={str(path)!r}: must have a profile for each of the {n_workers} workers, and has "
            f"{len(profiles)}; add or remove lines, change the column {COUNT!r}, or set the number of workers"
        )


def as_plain_data(profiles: Sequence[Profile]) -> list[dict[str, Any]]:
    """Profiles as numbers and words, neighbours that are alike together; None is unlimited."""
    return [
        {COUNT: len(list(alike))}
        | {name: value if isfinite(value) else None for name, value in asdict(profile).items()}
        for profile, alike in groupby(profiles)
    ]


def _lines(path: Path) -> list[Line]:
    """The lines that are not blank, with their numbers; one of commas alone is a worker without limits."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file)
            return [(reader.line_num, cells) for cells in reader if len(cells) > 1 or "".join(cells).strip()]
    except OSError as error:
        raise InputError(f"profiles={str(path)!r}: cannot be read ({error.strerror}); {NEXT_STEP}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"profiles={str(path)!r}: is no CSV text ({error}); {NEXT_STEP}") from None


def _check_header(path: Path, number: int, header: list[str]) -> None:
    where = f"profiles={str(path)!r}, line {number}"
    for place, name in enumerate(header):
        if name not in COLUMNS:
            listed = ", ".join(closest_first(name, COLUMNS))
            raise InputError(f"{where}: {name!r} is no column; the first line must name some of {listed}")
        if name in header[:place]:
            raise InputError(f"{where}: the column {name!r} is there twice; leave one of them out")


def _count(where: str, text: str, most: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10 and 1 <= int(text) <= most):
        raise InputError(
            f"{where}: {COUNT}={text!r}: must be a whole number from 1 on, {MOST_WORKERS:,} in all at most; "
            "write for how many workers the line stands"
        )
    return int(text)


def _number(where: str, name: str, text: str) -> float:
    if not (is_number(text) and float(text) > 0):
        raise InputError(f"{where}: {name}={text!r}: must be a number above 0; leave the cell empty for no limit")
    return float(text)
