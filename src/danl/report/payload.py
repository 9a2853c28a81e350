"""The page's data: one plain object with the runs, their curves, masks, workers, sentences and settings."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from danl._version import __version__
from danl.report.comparison import comparison
from danl.report.encode import MARKED_POINTS, chosen_rows, masks_of, row_columns
from danl.report.findings import findings
from danl.report.model import model_of
from danl.report.recorded import NO_TRACE, RecordedRun
from danl.report.stragglers import among_slowest
from danl.run.history import KINDS, TRAINING
from danl.run.trace import NOT_ASKED, SILENT, Trace
from danl.wording import FLOOR, counted, is_rounding, known

MOST_TEXT = 2000
"""Characters of one value in the table of settings; of a longer one the beginning is shown."""
SECTIONS = {
    "data": "Data",
    "options": "Options of the command",
    "settings": "Settings of the run",
    "promised": "Promised by the policy",
    "start": "Start",
    "versions": "Versions",
    "machine": "Machine",
    "failures": "Replies that did not come",
}
"""What of config.json has a table of its own, and its title."""


def payload_of(runs: Sequence[RecordedRun], *, live: bool = False) -> dict[str, Any]:
    """Everything the page shows."""
    return {
        "danl": __version__,
        "live": live,
        "floor": FLOOR,
        "title": title_of(runs),
        "kinds": list(KINDS),
        "training": [KINDS.index(kind) for kind in TRAINING],
        "findings": [asdict(found) for found in comparison(runs)],
        "runs": [run_payload(run) for run in runs],
    }


def title_of(runs: Sequence[RecordedRun]) -> str:
    """One line: the model of a formula, or the data set and the method, or how many runs are compared."""
    data = list(dict.fromkeys(str(run.config_at("data", "name") or "") for run in runs))
    named = ", ".join(name for name in data if name)
    if len(runs) == 1 and isinstance(runs[0].tables.get("title"), str):
        return str(runs[0].tables["title"])
    if len(runs) == 1:
        what = ", ".join(part for part in (named, runs[0].method) if part)
        return what or runs[0].name
    return f"{named + ': ' if named else ''}{len(runs)} runs compared"


def run_payload(run: RecordedRun) -> dict[str, Any]:
    chosen = chosen_rows(run)
    masks, said = masks_of(run)
    notes = [said] if said else []
    if len(chosen) < len(run.history):
        notes.insert(
            0,
            f"Curves have {len(chosen):,} of {counted(len(run.history), 'exchange')}: evenly spaced ones, and up to "
            f"{MARKED_POINTS:,} of each kind that is marked. Sums run over all.",
        )
    if run.known_since:
        notes.append(f"Who trained what is known from exchange {run.known_since} on; waits are counted from there.")
    return {
        "name": run.name,
        "status": run.status,
        "summary": summary_of(run),
        "findings": [asdict(found) for found in findings(run)],
        "regions": len(run.history[0].coverage) if len(run.history) else 0,
        "rows": row_columns(run, chosen),
        "masks": masks,
        "no_masks": (NO_TRACE if run.trace is None else said) if masks is None else "",
        "since": run.known_since,
        "workers": None if run.trace is None else workers_of(run.trace),
        "model": model_of(run.tables),
        "sections": sections_of(run),
        "notes": notes,
    }


def summary_of(run: RecordedRun) -> dict[str, Any]:
    """The numbers of the table of runs; None where one is not known."""
    history = run.history
    last = history[-1] if len(history) else None
    simulated = history.column("simulated_seconds")
    timed = len(simulated) > 0 and not np.isnan(simulated).all()
    return {
        "method": run.method,
        "exchanges": len(history),
        "hessians": int(np.sum(history.column("kind") == "hessian")),
        **{name: int(history.column(name).sum()) for name in ("refused", "failed", "bytes_up", "bytes_down")},
        **{name: known(getattr(last, name)) if last else None for name in ("objective", "gap", "grad_norm")},
        "max_staleness": last.max_staleness if last else 0,
        "rounding": last is not None and is_rounding(last.gap, last.objective),
        "seconds": known(float(history.column("seconds").sum())),
        "simulated": known(float(np.nansum(simulated))) if timed else None,
    }


def workers_of(trace: Trace) -> dict[str, Any]:
    """What the run cost each worker, and how often each was asked, did not answer and was among the slowest."""
    asked, taken = trace.asked, trace.simulated_seconds
    timed = ~np.isnan(taken)
    return {
        "up": trace.bytes_up.sum(axis=0).tolist(),
        "down": trace.bytes_down.sum(axis=0).tolist(),
        "seconds": [known(value) for value in np.nansum(taken, axis=0).tolist()] if timed.any() else None,
        "slowest": among_slowest(taken).sum(axis=0).tolist() if timed.any() else None,
        "asked": (asked != NOT_ASKED).sum(axis=0).tolist(),
        "silent": (asked == SILENT).sum(axis=0).tolist(),
    }


def sections_of(run: RecordedRun) -> list[dict[str, Any]]:
    """config.json as tables of names and values; what is not in a table of its own comes last."""
    config = {name: value for name, value in run.config.items() if name not in ("notes", "status")}  # among findings
    danl, versions, failures = config.pop("danl", None), config.get("versions"), config.get("failures")
    config["versions"] = ({"danl": danl} if danl else {}) | (dict(versions) if isinstance(versions, Mapping) else {})
    config["failures"] = [
        f"exchange {one.get('exchange')}, worker {one.get('worker')}: {one.get('kind')}, {one.get('detail')}"
        for one in (failures if isinstance(failures, list) else ())
        if isinstance(one, Mapping)
    ]
    named = [(title, config.pop(name, None)) for name, title in SECTIONS.items()]
    return [{"title": title, "lines": _lines(value)} for title, value in (*named, ("More", config)) if value]


def _lines(value: Any) -> list[list[str]]:
    if isinstance(value, Mapping):
        return [[str(name), _text(one)] for name, one in value.items()]
    return [["", _text(one)] for one in (value if isinstance(value, list) else [value])]


def _text(value: Any) -> str:
    if value is None:
        return "-"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= MOST_TEXT else f"{text[:MOST_TEXT]} ... ({len(text):,} characters)"
