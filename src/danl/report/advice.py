"""What to try next, as options of the command: each piece of advice follows from something the rows show."""

from __future__ import annotations

import math

import numpy as np

from danl.report.findings import Finding, region_waits
from danl.report.run import RecordedRun
from danl.report.trend import trend_of
from danl.words import percent

FIRST_ORDER = ("gd", "fedavg")
WITHOUT_SAFEGUARD = ("danl-masked", "danl-paper", "newton-zero", "newton-undamped")
SEPARABLE = "separable"
MOST_ROUNDS = 100_000
"""Where the rate so far would take longer than this, more rounds are no advice."""
HESSIAN_SHARE = 0.8
"""Above this share of the bytes, Hessians in float32 are worth a word."""


def advice(run: RecordedRun) -> list[Finding]:
    """At most a handful, the most useful first."""
    looks = (after_divergence, after_quorum_lost, after_interruption, more_rounds, another_method, cover, fewer_bytes)
    return [Finding("try", text) for look in looks for text in look(run)]


def family(run: RecordedRun) -> str:
    """The method without its options."""
    return run.method.partition(":")[0]


def after_divergence(run: RecordedRun) -> list[str]:
    """A penalty where there is no optimum, a safeguard where there was none."""
    if run.status != "diverged":
        return []
    if any(SEPARABLE in note for note in run.notes):
        return ["Try --alpha 1e-3: without a penalty, separable data has no optimum to converge to."]
    if family(run) in WITHOUT_SAFEGUARD:
        return [f"Try --method danl: it goes back where the objective rises, which {family(run)} does not."]
    if family(run) in FIRST_ORDER:
        return [f"Try a smaller step, as in --method {family(run)}:learning_rate=0.01, or --method danl."]
    return ["Try a larger penalty, for example --alpha 1e-3."]


def after_quorum_lost(run: RecordedRun) -> list[str]:
    """Keep what there is and go on when the workers are back."""
    if run.status != "quorum_lost":
        return []
    return [
        "Try --checkpoint DIR, and --resume DIR when the workers are back; --method danl:patience=30 waits longer for "
        "absent workers before it goes on without them."
    ]


def after_interruption(run: RecordedRun) -> list[str]:
    """How not to begin again next time."""
    if run.status != "interrupted":
        return []
    return ["Try --checkpoint DIR: a run that is interrupted then goes on with --resume DIR."]


def more_rounds(run: RecordedRun) -> list[str]:
    """As many rounds as the tolerance needs at the rate so far."""
    needed = rounds_needed(run)
    return [] if needed is None else [f"Try --rounds {needed}: at the rate so far that reaches the tolerance."]


def rounds_needed(run: RecordedRun) -> int | None:
    """Rounds to the tolerance at the mean rate of the gradient norm over the last half; None where it does not fall."""
    tol = run.told("settings", "tol")
    if run.status != "max_rounds" or not isinstance(tol, float) or tol <= 0:
        return None
    norms = run.history.column("grad_norm")
    norms = norms[np.isfinite(norms) & (norms > 0)]
    trend = trend_of(run.history)
    if len(norms) < 8 or trend is None or trend.stalled_since is not None:
        return None
    best = np.log10(np.minimum.accumulate(norms))
    half = len(best) // 2
    rate = (best[half] - best[-1]) / (len(best) - 1 - half)
    if rate <= 0 or best[-1] <= math.log10(tol):
        return None
    needed = len(run.history) + (best[-1] - math.log10(tol)) / rate
    rounded = int(math.ceil(1.1 * needed / 10) * 10)
    return rounded if rounded <= MOST_ROUNDS else None


def another_method(run: RecordedRun) -> list[str]:
    """Another method, where this one is slow or cannot get there."""
    name = family(run)
    if run.status == "max_rounds" and name in FIRST_ORDER:
        return [f"Try --method danl: curvature, where {name} has none."]
    if run.status == "max_rounds" and name in WITHOUT_SAFEGUARD:
        return [
            f"Try --method danl: with its corrected memory stale parts do not keep it from the optimum, as {name}'s do."
        ]
    everyone = run.history.column("coverage")[run.rounds]
    whole = everyone.size > 0 and bool((everyone == everyone.max()).all())
    if run.status == "converged" and name == "danl" and whole and len(run.history) > 20:
        return ["Try --method danl-secant: where everyone trains everything it takes fewer exchanges."]
    return []


def cover(run: RecordedRun) -> list[str]:
    """A policy that leaves no region out for long."""
    waits = region_waits(run)
    longest = max((length for length, _, _ in waits), default=0)
    if longest < 5:
        return []
    return [f"Try --policy coverage:psi=1: it trains every region in every round; here one went without for {longest}."]


def fewer_bytes(run: RecordedRun) -> list[str]:
    """Hessians of half the size, where they are most of the bytes."""
    history = run.history
    everything = history.column("bytes_up") + history.column("bytes_down")
    hessian = history.column("kind") == "hessian"
    share = float(everything[hessian].sum() / max(everything.sum(), 1))
    if family(run) not in ("danl", "danl-secant") or share < HESSIAN_SHARE or "hessian_dtype" in run.method:
        return []
    joined = f"{run.method}{',' if ':' in run.method else ':'}hessian_dtype=float32"
    return [f"Try --method {joined}: Hessians are {percent(share)} of the bytes, and half as large in float32."]
