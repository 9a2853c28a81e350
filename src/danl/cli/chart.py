"""Characters for a terminal: a falling curve on a log scale, and who trained what. Shapes tell all, colour helps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from rich.text import Text

from danl.protocol.messages import Mask
from danl.run.trace import ANSWERED, NOT_ASKED, Int8Array
from danl.wording import floored

MOST_BINS = 1024
AXIS = 7
"""Columns the numbers of the axis take."""
HESSIAN, REFUSED = 1, 2
MARKS = {
    0: (" ", ""),
    HESSIAN: ("H", "bold cyan"),
    REFUSED: ("x", "bold red"),
    HESSIAN | REFUSED: ("#", "bold magenta"),
}
MARKS_MEAN = "H Hessians, x step refused, # both"
BARS, PLAIN_BARS = " ▁▂▃▄▅▆▇█", " .:-=+*%#"
SHADES, PLAIN_SHADES = "·░▒▓█", ".:-+#"
"""None, less than a third, less than two thirds, less than all, all."""
SILENT_MARK, NOT_ASKED_MARK = "x", " "


@dataclass(frozen=True)
class Bin:
    """Some exchanges side by side: the newest value, and what happened in any of them."""

    value: float
    marks: int


class BinnedSeries:
    """A value an exchange, kept in a bounded number of bins: where they are too many, two become one."""

    def __init__(self) -> None:
        self._bins: list[Bin] = []
        self._each, self._in_last = 1, 0

    def add(self, value: float, marks: int = 0) -> None:
        if not self._bins or self._in_last == self._each:
            if len(self._bins) >= MOST_BINS:
                self._bins = merged(self._bins, 2)
                self._each *= 2
            self._bins = [*self._bins, Bin(value, marks)]  # a new list: another thread may be drawing the old one
            self._in_last = 1
        else:
            self._bins = [*self._bins[:-1], Bin(value, self._bins[-1].marks | marks)]
            self._in_last += 1

    def columns(self, width: int) -> list[Bin]:
        """At most `width` bins."""
        bins = self._bins
        return merged(bins, -(-len(bins) // max(width, 1))) if bins else []


def merged(bins: Sequence[Bin], count: int) -> list[Bin]:
    """Every `count` bins as one."""
    groups = [bins[first : first + count] for first in range(0, len(bins), count)]
    return [Bin(group[-1].value, int(np.bitwise_or.reduce([each.marks for each in group]))) for group in groups]


def curve_lines(series: BinnedSeries, width: int, height: int, *, plain: bool = False) -> list[Text]:
    """The values as bars on a log scale, `height` lines, and a line of marks below."""
    columns = series.columns(width - AXIS - 1)
    logs = np.log10(floored([each.value for each in columns]))
    known = logs[np.isfinite(logs)]
    top, bottom = (math.ceil(known.max()), math.floor(known.min())) if len(known) else (0, -1)
    top = max(top, bottom + 1)
    bars, steps = PLAIN_BARS if plain else BARS, len(BARS) - 1
    levels = np.round(height * steps * np.clip((logs - bottom) / (top - bottom), 0.0, 1.0))
    levels = np.nan_to_num(np.maximum(levels, 1.0))  # the lowest are seen, too, and nothing of what is no number
    lines = []
    for row in range(height):
        label = f"1e{top:+03d}" if row == 0 else f"1e{bottom:+03d}" if row == height - 1 else ""
        here = np.clip(levels - (height - 1 - row) * steps, 0, steps).astype(int)
        cells = "".join(bars[level] for level in here)
        lines.append(Text.assemble((f"{label:>{AXIS}}", "dim"), " ", (cells, "green")))
    return [*lines, Text.assemble(" " * (AXIS + 1), *(MARKS[each.marks] for each in columns))]


def matrix(trained: Mask, asked: Int8Array, width: int, height: int, *, plain: bool = False) -> list[Text]:
    """Regions down, workers across: who trained what, with the number of workers of each region behind it.

    Where there are more workers than columns, or more regions than lines, a cell stands for several.
    """
    regions = np.array_split(np.arange(trained.shape[1]), min(height, trained.shape[1]))
    label = len(f"{trained.shape[1] - 1}-{trained.shape[1] - 1}") if len(regions) < trained.shape[1] else 2
    count = len(str(len(trained)))
    room = max(width - label - count - 2, 1)
    spaced = 2 * len(trained) <= room
    workers = np.array_split(np.arange(len(trained)), min(room, len(trained)))
    lines = []
    for group in regions:
        name = str(group[0]) if len(group) == 1 else f"{group[0]}-{group[-1]}"
        line = Text.assemble((f"{name:>{label}} ", "dim"))  # a style of its own: that of a Text dims what follows
        for each in workers:
            mark, style = _cell(trained[np.ix_(each, group)], asked[each], plain)
            line.append(mark + (" " if spaced else ""), style)
        covered = trained[:, group].sum(axis=0)
        line.append(f" {covered.min():>{count}}", "dim" if covered.min() else "bold yellow")
        lines.append(line)
    return lines


def _cell(trained: Mask, asked: Int8Array, plain: bool) -> tuple[str, str]:
    if (asked == NOT_ASKED).all():
        return NOT_ASKED_MARK, ""
    if not (asked == ANSWERED).any():
        return SILENT_MARK, "bold red"
    shades, share = PLAIN_SHADES if plain else SHADES, float(trained.mean())
    if share in (0.0, 1.0):
        return shades[-1 if share else 0], "green" if share else "dim"
    return shades[1 + min(int(3 * share), 2)], "green"


def matrix_means(n_workers: int, n_regions: int, width: int, height: int, *, plain: bool = False) -> str:
    """What the cells of `matrix` stand for."""
    shades = PLAIN_SHADES if plain else SHADES
    if n_workers > max(width - 2 - len(str(n_workers)) - 2, 1) or n_regions > height:
        return f"{shades[-1]} all, {shades[3]}{shades[2]}{shades[1]} some, {shades[0]} none of several, x no answer"
    return f"{shades[-1]} trained, {shades[0]} not, x no answer, blank not asked"
