"""A run that goes on, added up as it goes: an answer to a page looks at the newest rows, not at all of them again."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from typing import Any

from danl.report.encode import all_masks, columns_of, frames_that_fit, left_out
from danl.report.payload import summary_of, workers_of
from danl.report.recorded import RecordedRun
from danl.run.history import History, Row
from danl.run.trace import Trace

SUMMED = ("exchanges", "hessians", "refused", "failed", "bytes_up", "bytes_down", "seconds", "simulated")
"""What of a summary adds up from row to row; the rest is that of the newest one."""


class RunningTotals:
    """The rows so far, and the sums over them; the run only appends, the server's threads add up."""

    def __init__(self, trace: Trace, name: str) -> None:
        self._trace, self._name = trace, name
        self._rows: list[Row] = []
        self._adding = threading.Lock()
        self._sums: list[tuple[float, float, float]] = []  # bytes, seconds and simulated seconds up to each row
        self._summary = summary_of(RecordedRun(name, History()))
        self._workers: dict[str, Any] | None = None

    def append(self, row: Row) -> None:
        """Take the newest row; nobody is waited for."""
        self._rows.append(row)

    def counted(self) -> int:
        """Add up what came since, and say how many rows there are."""
        with self._adding:
            first, end = len(self._sums), len(self._rows)
            if end > first:
                self._add(first, end)
            return end

    def update(self, first: int, end: int, count: int) -> dict[str, Any]:
        """What a page needs of these rows, of `count` that there are, and the sums over all."""
        most = frames_that_fit(self._trace)
        fits = self._trace.n_workers == 0 or most > 0
        shown = self._part(min(max(first, count - most), end), end)
        rows = History(self._rows[first:end])
        notes = [f"The map of workers and regions has the newest {most:,} exchanges; waits are counted from there."]
        return {
            "summary": self._summary,
            "regions": len(self._rows[0].coverage) if count else 0,
            "rows": columns_of(rows, *self._sums_of(first, end)),
            "masks": all_masks(rows, shown) | {"most": most} if fits and len(shown) else None,
            "no_masks": "" if fits else left_out(self._trace),
            "workers": self._workers,
            "since": self._since(),
            "notes": notes if fits and count > most else [],
        }

    def run(self, config: Mapping[str, Any]) -> RecordedRun:
        """A copy of all of it that stays as it is while the run goes on."""
        rows = self._rows.copy()
        return RecordedRun(self._name, History(rows), self._part(0, len(rows)), config)

    def _add(self, first: int, end: int) -> None:
        rows, trace = self._rows[first:end], self._part(first, end)
        moved, taken, simulated = self._sums[-1] if self._sums else (0.0, 0.0, math.nan)
        for row in rows:
            moved, taken = moved + row.bytes_up + row.bytes_down, taken + row.seconds
            if not math.isnan(row.simulated_seconds):
                simulated = row.simulated_seconds + (0.0 if math.isnan(simulated) else simulated)
            self._sums.append((moved, taken, simulated))
        summary = summary_of(RecordedRun(self._name, History(rows)))
        self._summary = summary | {name: _sum(self._summary[name], summary[name]) for name in SUMMED}
        if len(trace):
            workers = workers_of(trace)
            before = self._workers or dict.fromkeys(workers)
            self._workers = {name: _sums(before[name], workers[name]) for name in workers}

    def _sums_of(self, first: int, end: int) -> tuple[list[float], list[float], list[float]]:
        part = self._sums[first:end]
        return [one[0] for one in part], [one[1] for one in part], [one[2] for one in part]

    def _part(self, first: int, end: int) -> Trace:
        """What the trace has of these rows: a run that was taken up again may have rows before it."""
        if end <= first:
            return self._trace.part(0, 0)
        lead = self._rows[0].exchange - self._since()
        return self._trace.part(max(first + lead, 0), max(end + lead, 0))

    def _since(self) -> int:
        """The exchange from which on it is known who did what."""
        known = self._trace.part(0, 1)
        return int(known.exchanges[0]) if len(known) else 0


def _sum(before: float | None, new: float | None) -> float | None:
    return new if before is None else before if new is None else before + new


def _sums(before: list[Any] | None, new: list[Any] | None) -> list[Any] | None:
    if before is None or new is None:
        return new if before is None else before
    return [_sum(one, other) for one, other in zip(before, new, strict=True)]
