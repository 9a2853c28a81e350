"""Figures from rows: the gap (or the gradient norm) of one or several runs against rounds and against bytes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from danl.checks import check_installed
from danl.errors import InputError
from danl.run.history import History
from danl.storage.atomic import written_whole
from danl.wording import floored

# Okabe and Ito's palette, which colour-blind readers can tell apart; line styles and markers differ in print, too. The
# lengths of the three have no common divisor: two runs that share one of these do not share the others.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
STYLES = ("-", "--", "-.", (0, (1, 1)), (0, (5, 1, 1, 1)), (0, (3, 1)), (0, (7, 2)), (0, (1, 3)), (0, (9, 2, 2, 2)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")


def plot_histories(histories: Mapping[str, History], path: str | Path, *, title: str = "") -> Path:
    """Draw the runs against communication rounds and against bytes, and write the figure (PNG, SVG or PDF by suffix).

    Parameters
    ----------
    histories : mapping of label to History
        The runs; the gap is drawn when all have one, else the gradient norm.
    path : path
        Where to write.
    title : str
        A line above the panels.

    """
    check_histories("plot_histories", histories)
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 4.4), layout="constrained")
    by_rounds, by_bytes = figure.subplots(1, 2, sharey=True)
    draw_progress(by_rounds, by_bytes, histories)
    if len(histories) > 1:
        figure.legend(loc="outside lower center", ncols=min(len(histories), 4), frameon=False)
    return write_figure(figure, path, title)


def check_histories(caller: str, histories: Mapping[str, History]) -> None:
    """Refuse to draw nothing, or without matplotlib."""
    check_installed(caller, "matplotlib", "plots")
    if not histories or not all(len(history) for history in histories.values()):
        raise InputError("histories: must hold at least one run with at least one exchange")


def write_figure(figure: Any, path: str | Path, title: str) -> Path:
    """Write a matplotlib figure, with the title above its panels if there is one."""
    if title:
        figure.suptitle(title, fontsize=11)
    with written_whole(path) as partial:
        figure.savefig(partial, dpi=150)
    return Path(path)


def line_style(number: int, **more: Any) -> dict[str, Any]:
    """How matplotlib draws the line of this number: colour, dashes and marker, and what is given beside."""
    look = {"color": COLOURS[number % len(COLOURS)], "linestyle": STYLES[number % len(STYLES)]}
    return look | {"marker": MARKERS[number % len(MARKERS)]} | more


def draw_progress(by_rounds: Any, by_bytes: Any, histories: Mapping[str, History]) -> None:
    """The gap, or the gradient norm where not all have one, on two matplotlib axes: by exchanges and by bytes."""
    has_gap = all(not np.isnan(history.column("gap")).all() for history in histories.values())
    for number, (label, history) in enumerate(histories.items()):
        look = line_style(number, linewidth=1.6, markersize=5, markevery=max(1, len(history) // 10))
        values = floored(history.column("gap" if has_gap else "grad_norm"))
        by_rounds.plot(history.column("exchange"), values, label=label, **look)
        by_bytes.plot(history.total_bytes() / 1e6, values, **look)
    by_rounds.set_xlabel("exchange (0 is Phase I)")
    by_bytes.set_xlabel("megabytes, up and down")
    by_rounds.set_ylabel("gap  f(w) - f(w*)" if has_gap else "gradient norm  |grad f(w)|")
    by_rounds.set_yscale("log")
    for axes in (by_rounds, by_bytes):
        axes.grid(True, which="major", color="#dddddd", linewidth=0.7)
        axes.spines[["top", "right"]].set_visible(False)
    # Bytes differ by orders of magnitude between methods: a log axis keeps the cheap ones in sight.
    ends = [float(history.total_bytes()[-1]) for history in histories.values()]
    if max(ends) > 20 * max(min(ends), 1.0):
        by_bytes.set_xscale("log")
    else:
        by_bytes.set_xlim(left=0.0)
