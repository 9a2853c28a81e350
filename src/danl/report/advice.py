"""What to try next, as options of the command: each piece of advice follows from something the rows show."""

from __future__ import annotations

import math
import shlex

import numpy as np

from danl.checks import is_finite
from danl.report.findings import Finding, hessian_bytes, untrained_spans
from danl.report.recorded import RecordedRun
from danl.report.trend import trend_of
from danl.wording import percent

FIRST_ORDER = ("gd", "fedavg")
WITHOUT_SAFEGUARD = ("danl-masked", "danl-paper", "newton-zero", "newton-undamped")
STALE_PARTS = ("danl-masked", "danl-paper")
"""Methods that average what is stale as if it were new."""
SEPARABLE = "separable"
MOST_ROUNDS = 100_000
"""Where the rate so far would take longer than this, more rounds are no advice."""
HESSIAN_SHARE = 0.8
"""Above this share of the bytes, Hessians in float32 are worth a word."""


def advice(run: RecordedRun) -> list[Finding]:
    """At most a handful, the most useful first."""
    looks = (after_divergence, after_break, more_rounds, larger_batches, another_method, cover, fewer_bytes)
    return [Finding("try", text) for look in looks if (text := look(run))]


def family(run: RecordedRun) -> str:
    """The method without its options."""
    return run.method.partition(":")[0]


def after_divergence(run: RecordedRun) -> str:
    """A penalty where there is no optimum, a tenth of the step that was given, a safeguard where there was none."""
    if run.status != "diverged":
        return ""
    if any(SEPARABLE in note for note in run.notes):
        return "Try --alpha 1e-3: without a penalty, separable data has no optimum to converge to."
    name, rate = family(run), run.config_at("settings", "method_options", "learning_rate")
    if name in FIRST_ORDER and is_finite(rate):  # else it was worked out, and is not to blame
        return (
            f"Try a smaller step, as in --method {name}:learning_rate={rate / 10:.3g}, or leave learning_rate out "
            "for one that is worked out; or --method danl."
        )
    if name in (*WITHOUT_SAFEGUARD, *FIRST_ORDER):
        return f"Try --method danl: it goes back where the objective rises, which {name} does not."
    return "Try a larger penalty, for example --alpha 1e-3."


def after_break(run: RecordedRun) -> str:
    """How to go on where the workers were lost or the run was interrupted, or how not to begin again next time."""
    if run.status not in ("quorum_lost", "interrupted"):
        return ""
    lost = run.status == "quorum_lost"
    first = resumption(run, " when the workers are back" if lost else "")
    if lost and "patience=" not in run.method:
        longer = "--method danl:patience=30 waits longer for absent workers before it goes on without them"
        return f"{first}; {longer}." if first else f"Try more patience: {longer}."
    return f"{first}." if first else ""


def resumption(run: RecordedRun, when: str) -> str:
    """How to go on: from the checkpoints there are, or from those of the next time; nothing where there can be none."""
    folder = run.config_at("options", "checkpoint") or run.config_at("options", "resume")
    if isinstance(folder, str):
        return f"Go on with --resume {shlex.quote(folder)}{when}: the same command, from the newest checkpoint"
    if str(run.config_at("options", "engine") or "").partition(":")[0] == "flower":
        return ""
    return f"Try --checkpoint DIR: such a run then goes on with --resume DIR{when}"


def more_rounds(run: RecordedRun) -> str:
    """As many rounds as the tolerance needs at the rate so far."""
    needed = rounds_needed(run)
    return "" if needed is None else f"Try --rounds {needed}: at the rate so far that reaches the tolerance."


def rounds_needed(run: RecordedRun) -> int | None:
    """Rounds to the tolerance at the mean rate of the decrement over the last half; None where it does not fall."""
    tol = run.config_at("settings", "tol")
    if run.status != "max_rounds" or not isinstance(tol, float) or tol <= 0:
        return None
    values = run.history.column("decrement")
    values = values[np.isfinite(values) & (values > 0)]
    trend = trend_of(run.history)
    if len(values) < 8 or trend is None or trend.rose or trend.stalled_since is not None:
        return None
    best = np.log10(np.minimum.accumulate(values))
    half = len(best) // 2
    rate = (best[half] - best[-1]) / (len(best) - 1 - half)
    if rate <= 0 or best[-1] <= math.log10(tol):
        return None
    needed = len(run.history) + (best[-1] - math.log10(tol)) / rate
    rounded = int(math.ceil(1.1 * needed / 10) * 10)
    return rounded if rounded <= MOST_ROUNDS else None


def larger_batches(run: RecordedRun) -> str:
    """More rows for a gradient, where those of few have the losses refuse steps and it gets no nearer."""
    size, trend = run.config_at("settings", "method_options", "batch_size"), trend_of(run.history)
    refused = int(run.history.column("refused").sum())
    if run.status != "max_rounds" or not isinstance(size, int) or trend is None or not refused:
        return ""
    if trend.stalled_since is None and not trend.rose:
        return ""
    return (
        f"Try a larger --batch-size than {size}, or leave it out: gradients of few rows are too rough to get nearer, "
        "and the losses refuse their steps."
    )


def another_method(run: RecordedRun) -> str:
    """Another method, where this one is slow or cannot get there."""
    name = family(run)
    if run.status == "max_rounds" and name in FIRST_ORDER:
        return f"Try --method danl: curvature, where {name} has none."
    if run.status == "max_rounds" and name in STALE_PARTS and rounds_needed(run) is None:
        return (
            f"Try --method danl: with its corrected memory stale parts do not keep it from the optimum, as {name}'s do."
        )
    return ""


def cover(run: RecordedRun) -> str:
    """A policy that leaves no region out for long, where it was the policy that did: not replies that did not come."""
    regions = len(run.history[0].coverage)
    if run.config_at("promised", "min_trained") == regions:
        return ""
    numbers, failed = run.history.column("exchange"), run.history.column("failed")
    lost = {int(number) for number in numbers[failed > 0]}
    planned = [length for length, first, last in untrained_spans(run) if not lost.intersection(range(first, last + 1))]
    longest = max(planned, default=0)
    if longest < 5:
        return ""
    return f"Try --policy coverage:psi=1: it trains every region in every round; here one went without for {longest}."


def fewer_bytes(run: RecordedRun) -> str:
    """Hessians of half the size, where they are most of the bytes."""
    _, _, share = hessian_bytes(run)
    if run.status != "converged" or len(run.history) < 3 or share < HESSIAN_SHARE:
        return ""
    if family(run) not in ("danl", "danl-secant") or "hessian_dtype" in run.method:
        return ""
    if "hessian_compressor" in run.method:
        return ""
    joined = f"{run.method}{',' if ':' in run.method else ':'}hessian_dtype=float32"
    return f"Try --method {joined}: Hessians are {percent(share)} of the bytes, and half as large in float32."
