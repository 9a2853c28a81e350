"""A comparison in one picture: how far, at what cost, who trained what, and what the bytes were spent on."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from danl.plots.figures import check_histories, draw_progress, write_figure
from danl.run.history import KINDS, History

MOST_EXCHANGES = 40
"""Exchanges of each run whose coverage is shown: beyond that the cells are too narrow to see."""
MOST_NAMES = 4
"""Runs whose names find room between the curves; with more runs the names stand beside the panel."""
COLOURS = {
    "hessian": "#332288",
    "gradient": "#88CCEE",
    "loss": "#DDCC77",
    "local-steps": "#AA4499",
    "check": "#44AA99",
    "smoothness": "#BBBBBB",
    "moments": "#999933",
    "scores": "#882255",
}
"""The colour of each kind that is not a field method's: Tol's muted ones, so that none is taken for a method's."""
OTHERS = ("#117733", "#CC6677", "#666666", "#661100", "#6699CC")
"""What other kinds have, in turn: a run has few of them."""


def plot_gallery(histories: Mapping[str, History], path: str | Path, *, title: str = "") -> Path:
    """Draw several runs on the same workers and regions as four panels (PNG, SVG or PDF by suffix).

    Gap against exchanges and against megabytes; how many workers trained each region in each exchange; and the bytes of
    each run by kind of exchange. The arguments are those of `danl.plot_histories`.
    """
    check_histories("plot_gallery", histories)
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    figure: Any = Figure(figsize=(10.0, 7.4), layout=ConstrainedLayoutEngine(h_pad=0.08, w_pad=0.08))
    grid = figure.add_gridspec(2, 2, height_ratios=(1.15, 1.0))
    by_rounds = figure.add_subplot(grid[0, 0])
    by_bytes = figure.add_subplot(grid[0, 1], sharey=by_rounds)
    draw_progress(by_rounds, by_bytes, histories)
    by_bytes.tick_params(labelleft=False)
    by_rounds.set_title("How far in how many exchanges", **HEADING)
    by_bytes.set_title("How far for how many bytes", **HEADING)
    if len(histories) > MOST_NAMES:
        by_rounds.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    elif len(histories) > 1:
        by_rounds.legend(frameon=False, loc="best")
    _draw_coverage(figure, grid[1, 0], histories)
    _draw_bytes(figure.add_subplot(grid[1, 1]), histories)
    return write_figure(figure, path, title)


HEADING: dict[str, Any] = {"fontsize": 10.5, "loc": "left", "fontweight": "bold"}


def coverage_of(history: History) -> NDArray[np.float64]:
    """Workers on each region in the first exchanges, (regions, MOST_EXCHANGES); nan after the end of the run."""
    shown = np.asarray(history.column("coverage"), dtype=float)[:MOST_EXCHANGES].T
    return np.pad(shown, ((0, 0), (0, MOST_EXCHANGES - shown.shape[1])), constant_values=np.nan)


def bytes_by_kind(history: History) -> dict[str, int]:
    """Bytes up and down of a run, by kind of exchange."""
    kinds, sent = history.column("kind"), history.column("bytes_up") + history.column("bytes_down")
    return {str(kind): int(sent[kinds == kind].sum()) for kind in dict.fromkeys(kinds)}


def _draw_coverage(figure: Any, place: Any, histories: Mapping[str, History]) -> None:
    """A strip for every run, a row for every region, a cell for every exchange."""
    from matplotlib.ticker import MaxNLocator

    strips = place.subgridspec(len(histories), 1, hspace=0.0)
    coverage = [coverage_of(history) for history in histories.values()]
    most = max(float(np.nanmax(each)) for each in coverage)
    look = {"cmap": "Blues", "vmin": 0.0, "vmax": max(most, 1.0), "edgecolors": "white", "linewidth": 0.6}
    exchanges = np.arange(MOST_EXCHANGES + 1) - 0.5
    axes = None
    every = []
    for number, (label, history) in enumerate(histories.items()):
        axes = figure.add_subplot(strips[number, 0], sharex=axes)
        picture = axes.pcolormesh(exchanges, np.arange(len(coverage[number]) + 1), coverage[number], **look)
        axes.invert_yaxis()
        axes.set_yticks([])
        axes.set_ylabel(label, rotation=0, ha="right", va="center")
        axes.spines[:].set_visible(False)
        axes.tick_params(labelbottom=number == len(histories) - 1, length=0)
        if len(history) < MOST_EXCHANGES:
            axes.text(len(history), 0.5, "ended", transform=axes.get_xaxis_transform(), va="center", color="#555555")
        every.append(axes)
    every[0].set_title("Workers on each region", **HEADING)
    every[-1].set_xlabel(f"exchange, the first {MOST_EXCHANGES}; a row for each region")
    bar = figure.colorbar(picture, ax=every, pad=0.02, aspect=16, label="workers")
    bar.ax.yaxis.set_major_locator(MaxNLocator(integer=True, nbins=5))
    bar.outline.set_visible(False)


def _draw_bytes(axes: Any, histories: Mapping[str, History]) -> None:
    """A bar for every run, cut by kind of exchange."""
    by_run = [bytes_by_kind(history) for history in histories.values()]
    kinds = dict.fromkeys([*KINDS, *(kind for run in by_run for kind in run)])
    places = np.arange(len(histories))
    before = np.zeros(len(histories))
    others = cycle(OTHERS)
    for kind in kinds:
        part = np.array([run.get(kind, 0) for run in by_run]) / 1e6
        if part.any():
            colour = COLOURS.get(kind) or next(others)
            axes.barh(places, part, left=before, height=0.55, color=colour, label=kind)
            before += part
    for place, total, history in zip(places, before, histories.values(), strict=True):
        axes.text(total, place, f"  {len(history)} exchanges", va="center", color="#555555", fontsize=9)
    axes.set_yticks(places, list(histories))
    axes.invert_yaxis()
    axes.set_xlim(0.0, 1.32 * before.max())
    axes.set_xlabel("megabytes, up and down")
    axes.set_title("What the bytes were spent on", **HEADING)
    entries = len(axes.get_legend_handles_labels()[0])
    look = {"frameon": False, "title": "kind of exchange", "ncols": min(entries, 4), "columnspacing": 1.2}
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.17), **look)  # below: a bar may be anywhere inside
    axes.grid(True, axis="x", color="#dddddd", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
