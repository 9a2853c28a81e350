"""What a person sees: the live line of a run, and the tables at its end. Everything goes to standard error."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from danl.wording import gap_text, human_bytes, number

if TYPE_CHECKING:
    from rich.live import Live

    from danl.run.history import History, Row

STATUS_STYLES = {
    "converged": "green",
    "max_rounds": "yellow",
    "diverged": "bold red",
    "quorum_lost": "bold red",
    "interrupted": "yellow",
    "stopped": "green",
}


def console() -> Console:
    """The console for people; standard output is for results."""
    # Names of files and methods are shown as they are: [x] is no markup and :x: no emoji.
    return Console(stderr=True, highlight=False, markup=False, emoji=False)


def plain_table(*columns: str | Column, header: bool = True) -> Table:
    """A table without lines."""
    return Table(*columns, show_header=header, box=None, padding=(0, 2, 0, 0))


def right(name: str) -> Column:
    return Column(name, justify="right", no_wrap=True)


class ProgressLine:
    """One line that follows a run: round, gap or gradient norm, coverage, bytes. Silent where nobody watches."""

    def __init__(self, target: Console, label: str, max_rounds: int, *, quiet: bool = False) -> None:
        self._console, self._label, self._max_rounds = target, label, max_rounds
        self._bytes, self._begun = 0, time.perf_counter()
        self._live: Live | None = None
        if not quiet and target.is_terminal:
            from rich.live import Live  # here: only where somebody watches

            self._live = Live(console=target, transient=True, refresh_per_second=12)

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._live is not None:
            self._live.stop()

    def resumed(self, earlier: History) -> None:
        """Count what the run that goes on has cost already."""
        self._bytes += int(earlier.column("bytes_up").sum() + earlier.column("bytes_down").sum())

    def __call__(self, row: Row) -> None:
        """Show the newest row."""
        self._bytes += row.bytes_up + row.bytes_down
        if self._live is None:
            return
        width = self._console.width - 3  # room for the ^C a terminal shows, or the line wraps and cannot be erased
        self._live.update(Text(self.line(row, width), overflow="ellipsis", no_wrap=True))

    def line(self, row: Row, width: int) -> str:
        """The line for a terminal of this width: the exchange's kind is left out and the method cut before the rest."""
        fewest, most = min(row.coverage), max(row.coverage)
        parts = [
            f"round {row.exchange:>{len(str(self._max_rounds))}}/{self._max_rounds}",
            gap_or_gradient(row, 9),
            f"coverage {most}" if fewest == most else f"coverage {fewest}-{most}",
            f"{human_bytes(self._bytes):>8}",
            f"{time.perf_counter() - self._begun:.1f} s",
        ]
        left = width - sum(len(part) + 2 for part in parts)
        if left >= len(self._label) + 13:
            parts.insert(1, f"{row.kind:<11}")
        label = self._label if len(self._label) <= left else self._label[: max(left - 3, 3)] + "..."
        return "  ".join([label, *parts])


def gap_or_gradient(row: Row, width: int = 0) -> str:
    """The gap, or the gradient norm where there is no reference to measure against."""
    if math.isnan(row.gap):
        return f"|grad| {row.grad_norm:.2e}"
    return f"gap {gap_text(row.gap, '.2e', row.objective):>{width}}"


def summary_table(summary: Mapping[str, Any], reference: bool) -> Table:
    table = plain_table(Column(style="dim", no_wrap=True), Column(), header=False)
    status = summary["status"]
    table.add_row("status", Text(status, style=STATUS_STYLES[status]))
    table.add_row("method", summary["method"])
    table.add_row("exchanges", f"{summary['exchanges']}, {summary['hessian_exchanges']} of them with Hessians")
    table.add_row("objective", number(summary["objective"], ".12g"))
    if reference:
        table.add_row("gap", _gap(summary, ".3e"))
    table.add_row("gradient norm", number(summary["grad_norm"], ".3e"))
    table.add_row("decrement", number(summary["decrement"], ".1e"))
    table.add_row("bytes", f"{human_bytes(summary['bytes_up'])} up, {human_bytes(summary['bytes_down'])} down")
    table.add_row(
        "masks",
        f"min coverage {summary['min_coverage']}, max staleness {summary['max_staleness']}, "
        f"min trained regions {summary['min_trained']}",
    )
    table.add_row("seconds", number(summary["seconds"], ".3f"))
    if summary["simulated_seconds"] is not None:
        table.add_row("simulated seconds", number(summary["simulated_seconds"], ".3f"))
    return table


def comparison_table(summaries: Sequence[Mapping[str, Any]]) -> Table:
    simulated = any(summary["simulated_seconds"] is not None for summary in summaries)
    names = ("exch.", "Hess.", "gap", "|grad|", "bytes", "s", *(("sim. s",) if simulated else ()))  # for 80 columns
    words = (Column("method", overflow="fold", min_width=12), Column("status", no_wrap=True))
    table = plain_table(*words, *map(right, names))
    for summary in summaries:
        table.add_row(
            summary["label"],
            Text(summary["status"], style=STATUS_STYLES[summary["status"]]),
            str(summary["exchanges"]),
            str(summary["hessian_exchanges"]),
            _gap(summary, ".1e"),
            number(summary["grad_norm"], ".1e"),
            human_bytes(summary["bytes_up"] + summary["bytes_down"]),
            number(summary["seconds"], ".2f"),
            *((number(summary["simulated_seconds"], ".2f"),) if simulated else ()),
        )
    return table


def _gap(summary: Mapping[str, Any], form: str) -> str:
    gap, objective = summary["gap"], summary["objective"]
    return "-" if gap is None else gap_text(gap, form, 0.0 if objective is None else objective)
