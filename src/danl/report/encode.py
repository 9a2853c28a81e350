"""Arrays as text for the page: base64 of little-endian numbers, bits packed, long runs thinned.

The page (data.js) decodes what is encoded here; the two change together.
"""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

from danl.objective.regions import IntArray
from danl.report.recorded import RecordedRun
from danl.run.history import KINDS, TRAINING, History
from danl.run.trace import Bits, Int8Array, Trace

MOST_POINTS = 6000
"""Exchanges on a curve; more than a screen has pixels."""
MARKED_POINTS = MOST_POINTS // 6
"""Of them, at most so many of each kind that is marked."""
MASK_BYTES = 4_000_000
"""Of who trained what; more, and only some exchanges are kept."""
COLUMNS = {
    **dict.fromkeys(("gap", "grad_norm", "objective", "bytes", "seconds", "simulated"), "<f8"),
    **dict.fromkeys(("exchange", "active", "failed", "senders", "coverage"), "<i4"),
    **dict.fromkeys(("kind", "refused"), "<u1"),
}
"""Columns of the curves and their numpy kinds."""


def base64_of(values: Any, kind: str) -> str:
    """Numbers of a numpy kind, such as "<f8", as base64."""
    return base64.b64encode(np.ascontiguousarray(values, dtype=kind).tobytes()).decode("ascii")


def row_columns(run: RecordedRun, chosen: IntArray) -> dict[str, Any]:
    """The columns of the curves at the chosen rows; bytes and seconds are summed up to each of them."""
    history = run.history
    simulated = history.column("simulated_seconds")
    total = np.full(len(simulated), np.nan) if np.isnan(simulated).all() else np.nancumsum(simulated)
    sums = (history.total_bytes(), np.cumsum(history.column("seconds")), total)
    return columns_of(History(history[int(place)] for place in chosen), *(column[chosen] for column in sums))


def columns_of(history: History, moved: Any, seconds: Any, simulated: Any) -> dict[str, Any]:
    """The columns of all of these rows, with the bytes and seconds of the run up to each of them."""
    kinds = [kind_number(row.kind) for row in history]
    own = {"kind": kinds, "bytes": moved, "seconds": seconds, "simulated": simulated}
    numbers = {name: own[name] if name in own else history.column(name) for name in COLUMNS}
    return {name: base64_of(numbers[name], kind) for name, kind in COLUMNS.items()} | {"why": reasons_of(history)}


def reasons_of(history: History) -> dict[str, Any]:
    """Why each exchange was asked for: the reasons there are, and which of them it was."""
    places: dict[str, int] = {}
    which = [places.setdefault(row.why, len(places)) for row in history]
    return {"texts": list(places), "which": base64_of(which, "<u2")}


def kind_number(kind: str) -> int:
    """The place of a kind in KINDS; one past the end for one that is not known."""
    return KINDS.index(kind) if kind in KINDS else len(KINDS)


def chosen_rows(run: RecordedRun) -> IntArray:
    """The rows that are drawn: all, or evenly spaced ones and some of each kind that is marked on the curves."""
    history, count = run.history, len(run.history)
    if count <= MOST_POINTS:
        return np.arange(count)
    marked = (history.column("kind") == "hessian", history.column("refused") == 1, history.column("failed") > 0)
    groups = [spaced(np.flatnonzero(flags), MARKED_POINTS) for flags in marked]
    return np.unique(np.concatenate([spaced(np.arange(count), MOST_POINTS // 2), *groups]))


def spaced(places: IntArray, most: int) -> IntArray:
    """At most so many of them, evenly spaced, the first and the last among them."""
    chosen: IntArray = places[np.linspace(0, len(places) - 1, min(len(places), most)).round().astype(int)]
    return chosen


def masks_of(run: RecordedRun, budget: int = MASK_BYTES) -> tuple[dict[str, Any] | None, str]:
    """Who trained what, exchange by exchange, and a sentence where not all of it is there.

    All exchanges as bits where they fit: the page counts the staleness itself. Else some exchanges, evenly spaced, with
    the staleness of every pair, counted here over all of them.
    """
    trace = run.trace
    if trace is None or not len(trace):
        return None, ""
    if len(trace) <= frames_that_fit(trace, budget):
        return all_masks(run.history, trace), ""
    pairs = trace.n_workers * trace.n_regions
    most = budget // (2 * pairs + -(-trace.n_workers // 4))
    if most < 2:
        return None, left_out(trace)
    kept = spaced(np.arange(len(trace)), most).tolist()
    stale = base64_of(_staleness_at(run, trace, kept), "<u2")
    said = f"The map of workers and regions has {len(kept):,} of {len(trace):,} exchanges, evenly spaced."
    return _frames(run.history, trace, kept) | {"staleness": stale}, said


def frames_that_fit(trace: Trace, budget: int = MASK_BYTES) -> int:
    """Exchanges whose masks, as bits, take no more than so many bytes."""
    each = -(-trace.n_workers * trace.n_regions // 8) + -(-trace.n_workers // 4)
    return budget // max(each, 1)


def left_out(trace: Trace) -> str:
    """What is said where there are too many workers and regions to show who trained what."""
    pairs = trace.n_workers * trace.n_regions
    return f"Who trained what is left out: {pairs:,} pairs of worker and region do not fit on a page."


def all_masks(history: History, trace: Trace) -> dict[str, Any]:
    """Who trained what in all exchanges of a trace, as bits; these rows have their kinds."""
    kept = list(range(len(trace)))
    bits = [np.packbits(trace.trained_in(index)) for index in kept]
    return _frames(history, trace, kept) | {"trained": base64_of(bits, "<u1")}


def _frames(history: History, trace: Trace, kept: list[int]) -> dict[str, Any]:
    numbers = trace.exchanges[kept]
    kinds = {row.exchange: row.kind for row in history}
    return {
        "workers": trace.n_workers,
        "regions": trace.n_regions,
        "exchange": base64_of(numbers, "<i4"),
        "kind": base64_of([kind_number(kinds.get(number, "")) for number in numbers.tolist()], "<u1"),
        "asked": base64_of([four_in_a_byte(trace.asked_in(index)) for index in kept], "<u1"),
    }


def four_in_a_byte(codes: Int8Array) -> Bits:
    """Numbers from 0 to 3, two bits each, the first one in the lowest bits; the last byte filled with zeros."""
    return np.packbits(codes[:, None] >> np.arange(2) & 1, bitorder="little")


def _staleness_at(run: RecordedRun, trace: Trace, kept: list[int]) -> np.ndarray[Any, Any]:
    """Rounds that every pair went untrained, after each of the exchanges kept: (frames, N, Q)."""
    kinds = {row.exchange: row.kind for row in run.history}
    wanted = {index: place for place, index in enumerate(kept)}
    stale = np.zeros((trace.n_workers, trace.n_regions), dtype=np.int64)
    frames = np.zeros((len(kept), *stale.shape), dtype="<u2")
    for index, number in enumerate(trace.exchanges.tolist()):
        if kinds.get(number) in TRAINING:
            stale = np.where(trace.trained_in(index), 0, stale + 1)
        if index in wanted:
            frames[wanted[index]] = np.minimum(stale, 65535)
    return frames
