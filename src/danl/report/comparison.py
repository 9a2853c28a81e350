"""What there is to say of several runs together: who converged, and with the least of what."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from danl.methods.base import LOST
from danl.report.findings import Finding
from danl.report.recorded import RecordedRun
from danl.wording import counted, gap_text, human_bytes, listed, number, seconds

PARTS = (
    (("data", "sha256"), "are of different data"),
    (("settings", "loss"), "have different losses"),
    (("settings", "outputs"), "have different numbers of outputs"),
    (("settings", "intercept"), "differ in whether they have an intercept"),
    (("settings", "weighting"), "weight their workers differently"),
)
"""What makes an objective, and what is said where it differs."""


def comparison(runs: Sequence[RecordedRun]) -> list[Finding]:
    """Sentences on the runs next to each other; none for one run."""
    runs = [run for run in runs if len(run.history)]
    if len(runs) < 2:
        return []
    differ = difference(runs)
    warned = [Finding("warn", f"The runs {differ}: compare their gaps and objectives with care.")] if differ else []
    return [*warned, *_winners(runs, same=not differ)]


def difference(runs: Sequence[RecordedRun]) -> str:
    """In what the runs did not minimise the same thing; empty where they did, as far as is known."""
    for keys, words in PARTS:
        values = {str(run.config_at(*keys)) for run in runs if run.config_at(*keys) is not None}
        if len(values) > 1:
            return words
    if len({(str(run.config_at("settings", "l2")), str(run.config_at("settings", "alpha"))) for run in runs}) > 1:
        return "have different penalties"
    dealt = {text for run in runs if (text := _dealt(run)) is not None}
    return "have their rows dealt out differently, on which this objective depends" if len(dealt) > 1 else ""


def _dealt(run: RecordedRun) -> str | None:
    """How the rows were dealt out, as far as the objective depends on it; None where it does not, or is not known.

    With l2 the penalty depends on how many rows each worker has. With uniform weights, and not as many for each, it
    matters, too, which ones.
    """
    rows, uniform = run.config_at("settings", "rows"), run.config_at("settings", "weighting") == "uniform"
    if not isinstance(rows, list) or not (uniform or run.config_at("settings", "l2")):
        return None
    which = [run.config_at("data", "partition"), run.config_at("settings", "seed")]
    return str((sorted(rows), which if uniform and len(set(rows)) > 1 else []))


def _winners(runs: Sequence[RecordedRun], *, same: bool) -> list[Finding]:
    done = [run for run in runs if run.status == "converged"]
    if not done:
        return _nearest(runs, same=same)
    if len(done) == 1:
        return [Finding("good", f"Of {len(runs)} runs only {done[0].name} converged.")]
    few, count = _least(done, lambda run: len(run.history))
    lean, size = _least(done, lambda run: float(run.history.total_bytes()[-1]))
    fast, taken = _least(done, lambda run: float(run.history.column("seconds").sum()))
    text = (
        f"Of the {len(done)} runs that converged {listed(few)} took the fewest exchanges ({int(count):,}{_each(few)}), "
        f"{listed(lean)} the fewest bytes ({human_bytes(size)}{_each(lean)}), {listed(fast)} the least time "
        f"({seconds(taken)}{_each(fast)})."
    )
    left = [run.name for run in runs if run.status != "converged"]
    return [Finding("good", text), *([Finding("note", f"Not converged: {listed(left)}.")] if left else [])]


def _nearest(runs: Sequence[RecordedRun], *, same: bool) -> list[Finding]:
    """Which came nearest: only among runs of one objective, by what is known of all that did not get lost."""
    none = f"None of {counted(len(runs), 'run')} converged"
    near = [run for run in runs if run.status not in LOST]
    ends = np.array([[run.history[-1].gap, run.history[-1].grad_norm] for run in near]).reshape(-1, 2)
    gaps, norms = np.isfinite(ends).T
    by_gap = bool(gaps.all())
    if not same or not near or not (by_gap or (norms.all() and not gaps.any())):
        return [Finding("warn", f"{none}.")]
    best = near[int(ends[:, 0 if by_gap else 1].argmin())]
    last = best.history[-1]
    gap = f"a gap of {gap_text(last.gap, objective=last.objective)}"
    end = gap if by_gap else f"a gradient norm of {number(last.grad_norm)}"
    return [Finding("warn", f"{none}; {best.name} came nearest, with {end}.")]


def _least(runs: Sequence[RecordedRun], measure: Callable[[RecordedRun], float]) -> tuple[list[str], float]:
    """The least there is, and all that have it."""
    values = [measure(run) for run in runs]
    return [run.name for run, value in zip(runs, values, strict=True) if value == min(values)], min(values)


def _each(names: Sequence[str]) -> str:
    return " each" if len(names) > 1 else ""
