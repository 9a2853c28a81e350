"""Arrays as text for the page: base64 of little-endian numbers, bits packed, long runs thinned.

The page (page.js) decodes what is encoded here; the two change together.
"""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

from danl.report.recorded import RecordedRun
from danl.run.history import TRAINING, History
from danl.run.trace import Trace

KINDS = ("hessian", "gradient", "loss", "local-steps", "smoothness", "scores", "check")
MOST_POINTS = 6000
"""Exchanges on a curve; more than a screen has pixels."""
MARKED_POINTS = MOST_POINTS // 6
"""Of them, at most so many of each kind that is marked."""
MASK_BYTES = 4_000_000
"""Of who trained what; more, and only some exchanges are kept."""


def text_of(values: Any, kind: str) -> str:
    """Numbers of a numpy kind, such as "<f8", as base64."""
    return base64.b64encode(np.ascontiguousarray(values, dtype=kind).tobytes()).decode("ascii")


def row_columns(run: RecordedRun, chosen: np.ndarray[Any, Any]) -> dict[str, Any]:
    """The columns of the curves at the chosen rows; bytes and seconds are summed up to each of them."""
    history = run.history
    simulated = history.column("simulated_seconds")
    total = np.full(len(simulated), np.nan) if np.isnan(simulated).all() else np.nancumsum(simulated)
    sums = (history.total_bytes(), np.cumsum(history.column("seconds")), total)
    part = history if len(chosen) == len(history) else History(history[int(place)] for place in chosen)
    return columns_of(part, *(np.asarray(column)[chosen] for column in sums))


def columns_of(history: History, moved: Any, seconds: Any, simulated: Any) -> dict[str, Any]:
    """The columns of all of these rows, with the bytes and seconds of the run up to each of them."""
    columns = {
        "exchange": (history.column("exchange"), "<i4"),
        "kind": ([kind_number(kind) for kind in history.column("kind").tolist()], "<u1"),
        "gap": (history.column("gap"), "<f8"),
        "grad_norm": (history.column("grad_norm"), "<f8"),
        "objective": (history.column("objective"), "<f8"),
        "bytes": (moved, "<f8"),
        "seconds": (seconds, "<f8"),
        "simulated": (simulated, "<f8"),
        "active": (history.column("active"), "<i4"),
        "failed": (history.column("failed"), "<i4"),
        "refused": (history.column("refused"), "<u1"),
        "coverage": (history.column("coverage"), "<i4"),
    }
    return {name: text_of(values, kind) for name, (values, kind) in columns.items()}


def kind_number(kind: str) -> int:
    """The place of a kind in KINDS; one past the end for one that is not known."""
    return KINDS.index(kind) if kind in KINDS else len(KINDS)


def chosen_rows(run: RecordedRun) -> np.ndarray[Any, Any]:
    """The rows that are drawn: all, or evenly spaced ones and some of each kind that is marked on the curves."""
    history, count = run.history, len(run.history)
    if count <= MOST_POINTS:
        return np.arange(count)
    marked = (history.column("kind") == "hessian", history.column("refused") == 1, history.column("failed") > 0)
    groups = [spaced(np.flatnonzero(flags), MARKED_POINTS) for flags in marked]
    chosen: np.ndarray[Any, Any] = np.unique(np.concatenate([spaced(np.arange(count), MOST_POINTS // 2), *groups]))
    return chosen


def spaced(places: np.ndarray[Any, Any], most: int) -> np.ndarray[Any, Any]:
    """At most so many of them, evenly spaced, the first and the last among them."""
    if len(places) <= most:
        return places
    chosen: np.ndarray[Any, Any] = places[np.linspace(0, len(places) - 1, most).round().astype(int)]
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
    stale = text_of(_staleness_at(run, trace, kept), "<u2")
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
    return _frames(history, trace, kept) | {"trained": _bits(trace, kept)}


def _bits(trace: Trace, kept: list[int]) -> str:
    packed = b"".join(np.packbits(trace.trained_in(index)).tobytes() for index in kept)
    return base64.b64encode(packed).decode("ascii")


def _frames(history: History, trace: Trace, kept: list[int]) -> dict[str, Any]:
    numbers = trace.exchanges[kept]
    kinds = dict(zip(history.column("exchange").tolist(), history.column("kind").tolist(), strict=True))
    return {
        "workers": trace.n_workers,
        "regions": trace.n_regions,
        "exchange": text_of(numbers, "<i4"),
        "kind": text_of([kind_number(kinds.get(number, "")) for number in numbers.tolist()], "<u1"),
        "asked": base64.b64encode(b"".join(four_in_a_byte(trace.asked_in(index)) for index in kept)).decode("ascii"),
    }


def four_in_a_byte(codes: np.ndarray[Any, Any]) -> bytes:
    """Numbers from 0 to 3, two bits each, the first one in the lowest bits; the last byte filled with zeros."""
    padded = np.zeros(-(-len(codes) // 4) * 4, dtype=np.uint8)
    padded[: len(codes)] = codes
    quads = padded.reshape(-1, 4)
    return (quads[:, 0] | quads[:, 1] << 2 | quads[:, 2] << 4 | quads[:, 3] << 6).astype(np.uint8).tobytes()


def _staleness_at(run: RecordedRun, trace: Trace, kept: list[int]) -> np.ndarray[Any, Any]:
    """Rounds that every pair went untrained, after each of the exchanges kept: (frames, N, Q)."""
    kinds = dict(zip(run.history.column("exchange").tolist(), run.history.column("kind").tolist(), strict=True))
    wanted = {index: place for place, index in enumerate(kept)}
    stale = np.zeros((trace.n_workers, trace.n_regions), dtype=np.int64)
    frames = np.zeros((len(kept), *stale.shape), dtype="<u2")
    for index, number in enumerate(trace.exchanges.tolist()):
        if kinds.get(number) in TRAINING:
            stale = np.where(trace.trained_in(index), 0, stale + 1)
        if index in wanted:
            frames[wanted[index]] = np.minimum(stale, 65535)
    return frames
