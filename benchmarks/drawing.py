"""The figures of docs/benchmarks.md: bars and log-log lines, in the colours of the library's own figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from danl.plots.figures import COLOURS, MARKERS, STYLES

DPI = 110


@dataclass(frozen=True)
class Panel:
    """One pair of axes: lines by label, each with its points."""

    title: str
    x: str
    y: str
    lines: Mapping[str, tuple[Sequence[float], Sequence[float]]]
    log_x: bool = True
    beside: bool = False  # whether the legend stands beside the axes, where lines fill them


def bars(path: Path, groups: Sequence[str], series: Mapping[str, Sequence[float | None]], y: str, title: str) -> Path:
    """Bars side by side for every group, on a logarithmic scale; a series that has no value there has no bar."""
    figure, axes = _figure(1, (9.0, 4.0))
    series = {label: values for label, values in series.items() if any(value is not None for value in values)}
    least = min((value for values in series.values() for value in values if value is not None), default=1.0)
    width = 0.8 / max(len(series), 1)
    for number, (label, values) in enumerate(series.items()):
        places = np.arange(len(groups)) + (number - (len(series) - 1) / 2) * width
        heights = [np.nan if value is None else value for value in values]
        axes[0].bar(places, heights, width, label=label, color=COLOURS[number % len(COLOURS)])
    axes[0].set_xticks(np.arange(len(groups)), groups)
    axes[0].set_yscale("log")
    axes[0].set_ylim(bottom=10.0 ** np.floor(np.log10(least)))
    axes[0].set_ylabel(y)
    axes[0].set_title(title)
    bottom, top = axes[0].get_ylim()
    axes[0].set_ylim(bottom, top * 4)  # room for the legend above the bars
    axes[0].legend(fontsize=8, ncols=3, loc="upper center")
    return _written(figure, path)


def lines(path: Path, panels: Sequence[Panel]) -> Path:
    """Log-log panels side by side."""
    figure, axes = _figure(len(panels), (4.2 * len(panels) + 2.2 * any(panel.beside for panel in panels), 3.8))
    for own, panel in zip(axes, panels, strict=True):
        for number, (label, (xs, ys)) in enumerate(panel.lines.items()):
            own.plot(
                xs,
                ys,
                label=label,
                color=COLOURS[number % len(COLOURS)],
                linestyle=STYLES[number % len(STYLES)],
                marker=MARKERS[number % len(MARKERS)],
                markersize=4,
                markevery=max(1, len(xs) // 12),
                linewidth=1.5,
            )
        if panel.log_x:
            own.set_xscale("log")
        own.set_yscale("log")
        own.set_xlabel(panel.x)
        own.set_ylabel(panel.y)
        own.set_title(panel.title, fontsize=10)
        own.grid(True, which="major", color="#dddddd", linewidth=0.7)
        own.legend(fontsize=8, **({"loc": "upper left", "bbox_to_anchor": (1.02, 1.0)} if panel.beside else {}))
    return _written(figure, path)


def _figure(panels: int, size: tuple[float, float]) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained")
    return figure, figure.subplots(1, panels, squeeze=False)[0]


def _written(figure: Any, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=DPI, metadata={"Software": None})
    return path
