"""What there is to say of several runs together: who converged, and with the least of what."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from danl.report.findings import Finding
from danl.report.run import RecordedRun
from danl.words import counted, human_bytes, listed, seconds, small


def comparison(runs: Sequence[RecordedRun]) -> list[Finding]:
    """Sentences on the runs next to each other; none for one run."""
    runs = [run for run in runs if len(run.history)]
    if len(runs) < 2:
        return []
    return [*_same_problem(runs), *_winners(runs)]


def _winners(runs: Sequence[RecordedRun]) -> list[Finding]:
    done = [run for run in runs if run.status == "converged"]
    if not done:
        return _nearest(runs)
    if len(done) == 1:
        return [Finding("good", f"Of {len(runs)} runs only {done[0].name} converged.")]
    few, count = _least(done, lambda run: len(run.history))
    lean, size = _least(done, lambda run: float(run.history.total_bytes()[-1]))
    fast, taken = _least(done, lambda run: float(run.history.column("seconds").sum()))
    text = (
        f"Of the {len(done)} runs that converged {few} took the fewest exchanges ({int(count):,}), {lean} the fewest "
        f"bytes ({human_bytes(size)}), {fast} the least time ({seconds(taken)})."
    )
    left = [run.name for run in runs if run.status != "converged"]
    said = [Finding("good", text)]
    if left:
        said.append(Finding("note", f"Not converged: {listed(left)}."))
    return said


def _nearest(runs: Sequence[RecordedRun]) -> list[Finding]:
    for column, word in (("gap", "gap"), ("grad_norm", "gradient norm")):
        ends = np.array([run.history.column(column)[-1] for run in runs])
        if np.isfinite(ends).all():
            best = int(ends.argmin())
            text = f"None of {counted(len(runs), 'run')} converged; {runs[best].name} came nearest, with a {word} of "
            return [Finding("warn", text + f"{small(float(ends[best]))}.")]
    return [Finding("warn", f"None of {counted(len(runs), 'run')} converged.")]


def _same_problem(runs: Sequence[RecordedRun]) -> list[Finding]:
    """A warning where the runs did not minimise the same thing: their gaps and objectives are then no comparison."""
    for keys, what in ((("data", "sha256"), "data"), (("settings", "loss"), "losses")):
        told = {str(run.told(*keys)) for run in runs if run.told(*keys) is not None}
        if len(told) > 1:
            return [Finding("warn", f"The runs are of different {what}: compare their gaps and objectives with care.")]
    penalties = {(str(run.told("settings", "l2")), str(run.told("settings", "alpha"))) for run in runs}
    if len(penalties) > 1:
        return [Finding("warn", "The runs have different penalties: compare their gaps and objectives with care.")]
    return []


def _least(runs: Sequence[RecordedRun], measure: Callable[[RecordedRun], float]) -> tuple[str, float]:
    values = [measure(run) for run in runs]
    return runs[int(np.argmin(values))].name, min(values)
