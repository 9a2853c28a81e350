"""The figures of a reproduction, drawn from their data files alone.

    draw_figure      one reading at one penalty: a panel a data set
    draw_overview    all readings at one penalty: a row a reading, a column a data set
    draw_penalties   where each reading starts to converge: the final gap of every line at every penalty
    draw_all         the data and the pictures of some figures

All pictures share their axes, so that they can be compared with each other. Margins are fixed in inches: cheaper than
letting matplotlib look for them, and the same for every picture. Drawing the same data again gives the same bytes; each
picture carries the config that made it, so that a picture left over from other settings can be found out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from danl.checks import check_installed
from danl.errors import InputError
from danl.plots.figures import line_style
from danl.protocol.messages import Array
from danl.reproduce.curves import (
    MEASURES,
    PENALTY_FIGURES,
    CurveData,
    PanelData,
    View,
    overviews,
    panels,
    penalties_view,
    read_figure_runs,
    read_panels,
    slug,
    views,
    write_panels,
)
from danl.reproduce.execute import digest
from danl.reproduce.runs import FIGURES, PAPER, Plan
from danl.reproduce.store import Store
from danl.storage.atomic import written_whole
from danl.wording import FLOOR, floored

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CEILING = 1e8
"""The top of the axis; a line that goes above it for good ends there, with a cross."""
ROUNDING = 1e-12
"""A gap below zero by no more than this is rounding, and drawn at the floor; further below it cannot be drawn."""
WIDTH, DPI = 7.6, 150  # at a page width of 760 pixels, 8 points are 11 pixels
TITLE, TEXT, SMALL, GREY = 10.5, 9.0, 8.0, "#444444"
LINE_WIDTHS = (2.6, 1.9, 1.5, 1.1)  # a line below another one shows at its sides
Panels = tuple[PanelData, ...]
GREEK = {name: chr(code) for name, code in (("psi", 0x3C8), ("gamma", 0x3B3), ("lambda", 0x3BB), ("alpha", 0x3B1))}
READS = {
    "danl-paper": "Algorithm 1 as printed, gradients at the pruned model",
    "danl-masked": "gradients at w, only what is sent is masked",
    "danl": "the library's default, memory corrected and steps safeguarded",
}
REFERENCES = {"optimum": "F* is the verified optimum", "newton20": "F* is f after 20 Newton steps, as in the paper"}


def draw_all(store: Store, plan: Plan, figure_names: Sequence[str], out: Path) -> list[Path]:
    """Write data and pictures of the named figures into the folder `out`; return the files written.

    The picture of all penalties is drawn when all its runs are there.
    """
    out.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    made: dict[View, Panels] = {}
    read_last: tuple[str, ...] = ()
    for name in figure_names:
        for view in views(name, plan):
            if (key := (name, *view.penalties, *view.readings)) != read_last:
                runs, read_last = read_figure_runs(store, plan, *key), key  # once for every F*
            written.append(write_panels(panels(runs, view.against), out / f"{view.name}.csv"))
            made[view] = read_panels(written[-1])
            written += draw_figure(view, made[view], plan, out)
        for view in overviews(name, plan):
            rows = {reading: made[View(name, (reading,), view.penalties)] for reading in view.readings}
            written += draw_overview(view, rows, plan, out)
    others = [run for name in PENALTY_FIGURES if name not in figure_names for run in plan.figure_runs(name)]
    if set(figure_names) & set(PENALTY_FIGURES) and all(store.has(run, digest(run.data)) for run in others):
        wanted = [view for name in PENALTY_FIGURES for view in views(name, plan) if view.against == "optimum"]
        for view in (view for view in wanted if view not in made):
            made[view] = panels(read_figure_runs(store, plan, view.figure, *view.penalties, *view.readings))
        written += draw_penalties(made, plan, out)
    return written


def draw_figure(view: View, parts: Panels, plan: Plan, out: Path) -> list[Path]:
    """Draw one reading at one penalty, a panel a data set; return the files, PNG and SVG."""
    columns = min(len(parts), 2)
    with _looks():
        figure, grid = _grid(-(-len(parts) // columns), columns, 2.35, (0.3, 0.66), (0.8, 1.3, 0.15, 1.15))
        for axes, panel in zip(grid.flat, parts, strict=False):
            _draw_panel(axes, panel, markersize=4.5, ticks=20)
            axes.set_title(panel.data, loc="left", pad=18)
            axes.text(0.0, 1.045, _measured(panel.curves), transform=axes.transAxes, color=GREY)
            note = _reference_note(panel.reference)
            axes.text(0.98, 0.5, note, transform=axes.transAxes, color=GREY, ha="right", va="center")
        for axes in grid.flat[len(parts) :]:
            axes.set_visible(False)
        what = "Legend: what the masks promise. Above each panel: what was measured, in its order."
        _labels(figure, view, plan, f"{view.readings[0]}: {READS[view.readings[0]]}", what)
        return _write(figure, view, plan, out)


def draw_overview(view: View, rows: Mapping[str, Panels], plan: Plan, out: Path) -> list[Path]:
    """Draw all readings at one penalty: `rows` has the panels of each; return the files, PNG and SVG."""
    columns = len(plan.data)
    with _looks():
        figure, grid = _grid(len(rows), columns, 1.75, (0.12, 0.16), (0.95, 1.15, 0.15, 1.05))
        for line, (reading, parts) in zip(grid, rows.items(), strict=True):
            for axes, panel in zip(line, parts, strict=True):
                _draw_panel(axes, panel, markersize=3.5, ticks=40)
            line[0].set_ylabel(reading, fontsize=TEXT, fontweight="bold", labelpad=4)
        for axes, panel in zip(grid[0], parts, strict=True):
            axes.set_title(panel.data)
        _labels(figure, view, plan, "rows: three readings of the algorithm")
        return _write(figure, view, plan, out)


def draw_penalties(parts: Mapping[View, Panels], plan: Plan, out: Path) -> list[Path]:
    """Draw log10 of the final gap of every line, reading, data set and penalty as tables with coloured cells.

    `parts` has the panels against the optimum of every one of `PENALTY_FIGURES`, every reading and penalty.
    """
    view = penalties_view(plan)
    with _looks():
        figure, grid = _grid(len(view.readings), 1, 1.85, (0.0, 0.38), (1.2, 0.62, 0.15, 1.05))
        for axes, reading in zip(grid.flat, view.readings, strict=True):
            columns = [
                [c for name in PENALTY_FIGURES for c in parts[View(name, (reading,), (penalty,))][place].curves]
                for penalty in view.penalties
                for place in range(len(plan.data))
            ]
            _draw_table(axes, columns, view, plan)
            axes.set_title(f"{reading}: {READS[reading]}", loc="left", pad=4)
        _penalty_heads(figure, grid.flat[0], view, plan)
        rounds = view.config(plan)["rounds"]
        _title(figure, f"Where each reading starts to converge: log10 of the gap after {rounds} rounds")
        _foot(
            figure,
            f"Median over {plan.n_seeds} seeds of f(w) - F*, F* the verified optimum. Dark is good; "
            f"{np.log10(FLOOR):.0f} is rounding.",
            "x: most seeds diverged; inf: f(w) left every bound. Above the white line: Figure 1; below it: Figure 2.",
        )
        return _write(figure, view, plan, out)


def config_of(png: Path) -> dict[str, Any]:
    """Read the config a picture carries: the text chunk named "danl" of a PNG file."""
    from PIL import Image

    try:
        with Image.open(png, formats=["PNG"]) as picture:
            return dict(json.loads(picture.info["danl"]))
    except KeyError:
        raise InputError(f"{png}: carries no danl config; give a figure of danl reproduce") from None
    except (OSError, ValueError, SyntaxError) as error:
        raise InputError(f"{png}: cannot be read as PNG ({error}); give a figure of danl reproduce") from None


def _draw_panel(axes: Axes, panel: PanelData, *, markersize: float, ticks: int) -> None:
    last = len(panel.curves[0].median) - 1
    for number, curve in enumerate(panel.curves):
        look = line_style(number, linewidth=LINE_WIDTHS[number], markersize=markersize)
        exchanges = np.arange(last + 1)
        low, median, high = map(_drawn, (curve.low, curve.median, curve.high))
        axes.fill_between(exchanges, low, high, color=look["color"], alpha=0.16, linewidth=0)
        stop = _leaves(median)
        step = max(1, last // 8)  # markers of lines that are the same stand side by side
        start = number * step // len(panel.curves)
        axes.plot(exchanges[: stop + 1], median[: stop + 1], markevery=(start, step), **look)
        if curve.diverged or stop < last:
            cross = {"marker": "x", "markersize": 1.7 * markersize, "markeredgewidth": 2, "color": look["color"]}
            axes.plot(stop, median[stop], clip_on=False, zorder=5, **cross)
    axes.set_yscale("log")
    axes.set_ylim(FLOOR / 4, CEILING)
    axes.set_yticks([10.0**power for power in range(-16, 9, 4)])
    axes.set_yticks([], minor=True)
    axes.set_xticks(range(0, last + 1, ticks))
    axes.set_xlim(-1, last + 1)
    axes.grid(True, which="major", color="#dddddd", linewidth=0.6)


def _drawn(values: Sequence[float]) -> Array:
    """What a log axis can show: rounding at the floor, no more than the ceiling, nan where the gap is below zero."""
    gaps = np.array(values)
    return np.where(gaps < -ROUNDING, np.nan, np.minimum(floored(gaps), CEILING))


def _leaves(values: Array) -> int:
    """Where the line ends: at the ceiling, once it stays there; else at its end."""
    inside = np.flatnonzero(~(values >= CEILING))
    return min(int(inside[-1]) + 1, len(values) - 1) if len(inside) else 0


def _draw_table(axes: Axes, cells: Sequence[Sequence[CurveData]], view: View, plan: Plan) -> None:
    power = np.log10(floored([[curve.median[-1] for curve in column] for column in cells])).T
    low, high = np.log10((FLOOR, CEILING))
    axes.imshow(np.minimum(power, high), cmap="cividis", vmin=low, vmax=high, aspect="auto")
    for (row, column), value in np.ndenumerate(power):
        text = f"{value:.0f}".replace("-0", "0") + " x" * cells[column][row].diverged
        axes.text(column, row, text, ha="center", va="center", color="black" if 2 * value > low + high else "white")
    axes.set_yticks(range(len(view.curves)), [_greek(curve.label) for curve in view.curves])
    axes.set_xticks([])
    axes.tick_params(length=0)
    axes.axhline(len(FIGURES[PENALTY_FIGURES[0]].curves) - 0.5, color="white", linewidth=2.5)
    for number in range(1, len(view.penalties)):
        axes.axvline(number * len(plan.data) - 0.5, color="white", linewidth=4)
    axes.spines[:].set_visible(False)


def _penalty_heads(figure: Figure, axes: Axes, view: View, plan: Plan) -> None:
    height = figure.get_figheight()
    box = axes.get_position()
    sets = len(plan.data)
    cell = box.width / (sets * len(view.penalties))
    for number, penalty in enumerate(view.penalties):
        middle = box.x0 + cell * sets * (number + 0.5)
        figure.text(middle, box.y1 + 0.52 / height, _penalty(penalty), ha="center", fontsize=TEXT, fontweight="bold")
        for place, data in enumerate(plan.data):
            figure.text(box.x0 + cell * (sets * number + place + 0.5), box.y1 + 0.3 / height, data, ha="center")


def _measured(curves: Sequence[CurveData]) -> str:
    """Say what the masks measured where it is not what was promised, in the legend's order."""
    differing, kept = [], []
    for name, in_paper, _, _ in MEASURES:
        symbol = _greek(in_paper)
        measured = [getattr(curve.measured, name) for curve in curves]
        if measured == [getattr(curve.promised, name) for curve in curves]:
            kept.append(symbol)
        else:
            differing.append(f"{symbol} = {', '.join(map(str, measured))}")
    promised = [f"{', '.join(kept)} as promised"] if kept else []
    return f"measured {'; '.join([*differing, *promised])}" if differing else "measured as promised"


def _reference_note(reference: tuple[float, float]) -> str:
    low, high = reference
    if np.isinf(low):
        return "no gap: 20 Newton steps\nend nowhere finite"
    if high > ROUNDING:
        height = "infinitely far" if np.isinf(high) else f"{high:.2g}"
        return f"20 Newton steps end up to\n{height} above the optimum;\na gap below zero is not drawn"
    return ""


def _penalty(penalty: str) -> str:
    kind, _, value = slug(penalty).partition("-")
    paper = " (paper)" if penalty == PAPER else ""
    return f"{GREEK[kind]} = {value}{paper}"


def _greek(text: str) -> str:
    for name, letter in GREEK.items():
        text = text.replace(name, letter)
    return text


def _grid(
    rows: int, columns: int, height: float, between: tuple[float, float], margins: tuple[float, ...]
) -> tuple[Figure, Any]:
    """Make a figure of rows x columns panels with shared axes; sizes in inches, margins left, bottom, right and top."""
    from matplotlib.figure import Figure as Canvas

    left, bottom, right, top = margins
    tall = top + bottom + rows * height + (rows - 1) * between[1]
    width = (WIDTH - left - right - (columns - 1) * between[0]) / columns
    figure = Canvas(figsize=(WIDTH, tall))
    grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    edges = (left / WIDTH, bottom / tall, 1 - right / WIDTH, 1 - top / tall)
    figure.subplots_adjust(*edges, wspace=between[0] / width, hspace=between[1] / height)
    return figure, grid


def _title(figure: Figure, title: str, below: str = "") -> None:
    tall = figure.get_figheight()
    place: dict[str, Any] = {"x": 0.12 / WIDTH, "ha": "left", "va": "top"}
    figure.suptitle(title, y=1 - 0.1 / tall, **place)
    figure.text(y=1 - 0.34 / tall, s=below, fontsize=SMALL + 0.5, linespacing=1.35, **place)


def _labels(figure: Figure, view: View, plan: Plan, what: str, *extra: str) -> None:
    """Title, axes, legend and foot of a figure of lines; `extra` lines of the foot come first."""
    from matplotlib.lines import Line2D

    penalty, reference = view.penalties[0], REFERENCES[view.against]
    form = {"lambda": f"{GREEK['lambda']}/(2m) |w|²", "alpha": f"{GREEK['alpha']}/2 |w|²"}[penalty.split("=")[0]]
    subtitle = f"{what}\npenalty {form}, {_penalty(penalty)};  {reference}"
    _title(figure, _greek(FIGURES[view.figure].title), subtitle)
    middle = (figure.subplotpars.top + figure.subplotpars.bottom) / 2
    figure.supylabel("gap  f(w) - F*", x=0.1 / WIDTH, y=middle, ha="left")
    tall, lowest = figure.get_figheight(), 0.4 + 0.15 * len(extra)
    figure.supxlabel("communication rounds (exchanges; 0 is the start)", y=(lowest + 0.3) / tall, va="bottom")
    lines = [
        Line2D([], [], label=_greek(curve.label), **line_style(number, linewidth=LINE_WIDTHS[number], markersize=5))
        for number, curve in enumerate(view.curves)
    ]
    place = {"bbox_to_anchor": (0.5, lowest / tall), "ncols": len(lines), "handlelength": 3.6}
    figure.legend(handles=lines, loc="lower center", **place)
    _foot(
        figure,
        *extra,
        f"Line: median of {plan.n_seeds} seeds; band: all of them. Gaps of {FLOOR:.0e} or less are drawn there.",
        "Cross: most seeds diverged (at the top: left the axis for good). A run that converged keeps its last gap.",
    )


def _foot(figure: Figure, *lines: str) -> None:
    tall = figure.get_figheight()
    figure.text(0.12 / WIDTH, 0.08 / tall, "\n".join(lines), color=GREY, va="bottom", linespacing=1.3)


@contextmanager
def _looks() -> Iterator[None]:
    """Draw the same whatever the reader's own matplotlib settings are, and with the same ids in SVG."""
    check_installed("reproduce", "matplotlib", "plots")
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rc("svg", hashsalt="danl")
        matplotlib.rc("font", size=SMALL)
        matplotlib.rc("axes.spines", top=False, right=False)
        matplotlib.rc("axes", titlesize=TEXT, titleweight="bold")
        matplotlib.rc("figure", titlesize=TITLE, titleweight="bold", labelsize=TEXT)
        matplotlib.rc("legend", fontsize=TEXT, frameon=False)
        yield


def _write(figure: Figure, view: View, plan: Plan, out: Path) -> list[Path]:
    config = json.dumps(view.config(plan), sort_keys=True)
    metadata = {
        ".png": {"Software": None, "danl": config},  # without matplotlib's version
        ".svg": {"Date": None, "Creator": None, "Description": config},
    }
    paths = [out / f"{view.name}{suffix}" for suffix in metadata]
    for path in paths:
        with written_whole(path) as partial:
            figure.savefig(partial, dpi=DPI, metadata=metadata[path.suffix])
    return paths
