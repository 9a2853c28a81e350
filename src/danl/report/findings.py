"""What there is to say of a run, in sentences: each function looks at one thing, and is silent where there is nothing.

They are pure functions of the rows, the trace and the configuration, so that every sentence can be checked against the
numbers it is made of. `advice.py` has what to try next.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from danl.report.run import RecordedRun
from danl.report.trend import trend_of
from danl.trace import NOT_ASKED, SILENT
from danl.words import counted, human_bytes, listed, percent, seconds, small

Tone = Literal["good", "note", "warn", "try"]
IntArray = np.ndarray[Any, np.dtype[np.int64]]

NAMED_REGIONS = 3
"""Regions with the longest waits that are named one by one."""
PACE_SHARE = 0.8
"""Workers set the pace when, together, they are the slowest in this share of the exchanges."""
ENDINGS = {
    "converged": ("good", "Converged"),
    "max_rounds": ("warn", "Used up its rounds without reaching the tolerance: ended"),
    "diverged": ("warn", "Diverged: ended"),
    "quorum_lost": ("warn", "Lost its quorum, too few workers answered: ended"),
    "interrupted": ("note", "Was interrupted: ended"),
    "stopped": ("note", "Was stopped by its callback: ended"),
    "running": ("note", "Is running: is"),
}


@dataclass(frozen=True)
class Finding:
    """One sentence or two, and how it is meant: good news, a fact, a warning, or something to try."""

    tone: Tone
    text: str


def findings(run: RecordedRun) -> list[Finding]:
    """Everything there is to say, the end of the run first."""
    from danl.report.advice import advice  # it stands on what is here

    if not len(run.history):
        return [Finding("warn", "No exchange was made: there are no rows.")]
    looks = (ending, hessians, progress, refusals, absences, untrained_regions, longest_wait, pace)
    said = [finding for look in looks for finding in look(run)]
    return [*said, *(Finding("note", note) for note in run.notes), *advice(run)]


def ending(run: RecordedRun) -> list[Finding]:
    """How it ended and what it cost."""
    history, last = run.history, run.history[-1]
    tone, words = ENDINGS.get(run.status, ("note", "How it ended is not known (no config.json): it is"))
    told = f"gradient norm {small(last.grad_norm)}"
    if not np.isnan(last.gap):
        told += f", gap {small(last.gap)}"
    up, down = (human_bytes(int(history.column(name).sum())) for name in ("bytes_up", "bytes_down"))
    cost = f"It cost {up} up, {down} down and {seconds(float(history.column('seconds').sum()))}"
    simulated = np.nansum(history.column("simulated_seconds"))
    if not np.isnan(history.column("simulated_seconds")).all():
        cost += f" here; by the machines' profiles {seconds(float(simulated))}"
    text = f"{words} after {counted(len(history), 'exchange')}, at {told}. {cost}."
    return [Finding(tone, text)]  # type: ignore[arg-type]


def hessians(run: RecordedRun) -> list[Finding]:
    """How much of the bytes were Hessians."""
    history = run.history
    here = history.column("kind") == "hessian"
    count, everything = int(here.sum()), history.column("bytes_up") + history.column("bytes_down")
    if not count:
        return [Finding("note", "No Hessian was exchanged.")]
    spent, total = int(everything[here].sum()), int(everything.sum())
    return [
        Finding(
            "note",
            f"{counted(count, 'exchange')} of {len(history):,} carried Hessians: {human_bytes(spent)}, "
            f"{percent(spent / max(total, 1))} of all bytes.",
        )
    ]


def progress(run: RecordedRun) -> list[Finding]:
    """When it was converging linearly, and since when it stalled."""
    trend = trend_of(run.history)
    if trend is None:
        return []
    said = []
    if trend.falling is not None:
        first, last, factor = trend.falling
        said.append(
            Finding(
                "note",
                f"From exchange {first} to {last} the {trend.name} fell {trend.manner}: by "
                f"{_factor(factor)} an exchange on average.",
            )
        )
    if run.status == "diverged":
        text = f"The {trend.name} was smallest after exchange {trend.best_at}, {small(trend.best)}; at the end it was "
        return [Finding("warn", f"{text}{small(trend.end)}.")]
    if trend.stalled_since is not None and run.status != "converged":
        said.append(
            Finding(
                "warn",
                f"Stalled since exchange {trend.stalled_since}: in the last "
                f"{counted(trend.last - trend.stalled_since, 'exchange')} the {trend.name} did not even halve; it is "
                f"{small(trend.best)} at best.",
            )
        )
    return said


def refusals(run: RecordedRun) -> list[Finding]:
    """Steps that the losses refused, and where."""
    history = run.history
    where = history.column("exchange")[history.column("refused") == 1]
    if not len(where):
        return []
    steps = "1 trial step was" if len(where) == 1 else f"{len(where):,} trial steps were"
    exchanges = "exchange" if len(where) == 1 else "exchanges"
    return [
        Finding("note", f"{steps} refused, because the objective had risen: in {exchanges} {listed(where.tolist())}.")
    ]


def absences(run: RecordedRun) -> list[Finding]:
    """Replies that did not come, and whose."""
    failed, active = run.history.column("failed"), run.history.column("active")
    missing, asked = int(failed.sum()), int(failed.sum() + active.sum())
    if not missing:
        return [Finding("good", f"Every worker answered every time it was asked ({counted(asked, 'reply')}).")]
    text = (
        f"{missing:,} of {counted(asked, 'reply')} did not come, in {int((failed > 0).sum()):,} of "
        f"{counted(len(failed), 'exchange')}"
    )
    if run.trace is not None and len(run.trace):
        states = run.trace.asked
        silent, times = (states == SILENT).sum(axis=0), (states != NOT_ASKED).sum(axis=0)
        worst = np.flatnonzero(silent == silent.max()) if silent.max() else np.zeros(0, dtype=int)
        if len(worst) == 1:
            who = int(worst[0])
            text += f"; worker {who} missed most, {silent[who]} of {times[who]}"
        elif len(worst):
            text += f"; workers {listed(worst.tolist())} missed most, {silent.max()} each"
    return [Finding("warn", f"{text}.")]


def untrained_regions(run: RecordedRun) -> list[Finding]:
    """Regions that nobody trained for two rounds or more in a row."""
    waits = region_waits(run)
    longest = np.array([length for length, _, _ in waits], dtype=int)
    long = [int(region) for region in np.argsort(-longest, kind="stable") if longest[region] >= 2]
    if not long:
        return []
    if len(long) > 1 and len({int(longest[region]) for region in long}) == 1:
        return [Finding("warn", f"Regions {listed(sorted(long))} went untrained for {longest[long[0]]} rounds each.")]
    said = []
    for region in long[:NAMED_REGIONS]:
        length, first, last = waits[region]
        said.append(
            Finding("warn", f"Region {region} went untrained for {length} rounds, from exchange {first} to {last}.")
        )
    if len(long) > NAMED_REGIONS:
        most = longest[long[NAMED_REGIONS]]
        said.append(Finding("warn", f"{len(long) - NAMED_REGIONS} more went untrained for up to {most} rounds."))
    return said


def region_waits(run: RecordedRun) -> list[tuple[int, int, int]]:
    """Of every region the longest run of rounds nobody trained it: how many rounds, and the first and last exchange."""
    rounds = run.rounds
    coverage = run.history.column("coverage")[rounds]
    numbers = run.history.column("exchange")[rounds]
    if coverage.ndim != 2:
        return []
    return [_longest_run(column == 0, numbers) for column in coverage.T]


def longest_wait(run: RecordedRun) -> list[Finding]:
    """The (worker, region) pair that waited longest, where not everyone trains everything."""
    if run.trace is None or not len(run.trace):
        return []
    known = dict(zip(run.history.column("exchange").tolist(), run.rounds.tolist(), strict=True))
    rounds = [index for index, number in enumerate(run.trace.exchanges.tolist()) if known.get(number, False)]
    if not rounds:
        return []
    shape = (run.trace.n_workers, run.trace.n_regions)
    since, longest = np.full(shape, -1), np.zeros(shape, dtype=np.int64)
    ended = np.zeros(shape, dtype=np.int64)
    for turn, index in enumerate(rounds):
        since = np.where(run.trace.trained_in(index), turn, since)
        wait = turn - since
        ended = np.where(wait > longest, turn, ended)
        longest = np.maximum(longest, wait)
    most = int(longest.max())
    if most < 2:
        return []
    worker, region = (int(value) for value in np.unravel_index(int(longest.argmax()), shape))
    last = int(ended[worker, region])
    numbers = run.trace.exchanges[rounds]
    pairs = int((longest == most).sum())
    others = f"; {counted(pairs - 1, 'other pair')} waited as long" if pairs > 1 else ""
    text = (
        f"Worker {worker} sent nothing on region {region} for {most} rounds, from exchange {numbers[last - most + 1]} "
        f"to {numbers[last]}: the longest wait of a worker and a region (gamma = {most}){others}."
    )
    return [Finding("note", text)]


def pace(run: RecordedRun) -> list[Finding]:
    """Workers whom the others wait for, by simulated seconds."""
    found = pace_setters(run)
    if found is None:
        return []
    workers, share, total, without = found
    if not workers:
        return [Finding("note", "No few workers set the pace: the slowest one changes from exchange to exchange.")]
    one = len(workers) == 1
    text = (
        f"{'Worker' if one else 'Workers'} {listed(workers)} set{'s' if one else ''} the pace: "
        f"{'it is' if one else 'one of them is'} the slowest in {percent(share)} of the exchanges. "
        f"If the others had not waited for {'it' if one else 'them'}, the run would have taken {seconds(without)} "
        f"instead of {seconds(total)} by the profiles."
    )
    return [Finding("note", text)]


def pace_setters(run: RecordedRun) -> tuple[list[int], float, float, float] | None:
    """The fewest workers that are the slowest in most exchanges, their share of these, and seconds with and without.

    None without profiles or with one worker; no workers where more than a quarter of all would have to be named.
    """
    if run.trace is None or not len(run.trace):
        return None
    taken = run.trace.simulated_seconds
    answered = ~np.isnan(taken)
    taken, answered = taken[answered.any(axis=1)], answered[answered.any(axis=1)]
    n_workers = taken.shape[1]
    if not len(taken) or n_workers < 2:
        return None
    filled = np.where(answered, taken, -np.inf)
    slowest = np.bincount(filled.argmax(axis=1), minlength=n_workers)
    order = np.argsort(-slowest, kind="stable")
    count = int(np.searchsorted(np.cumsum(slowest[order]), PACE_SHARE * len(taken))) + 1
    total = float(filled.max(axis=1).sum())
    if count > max(1, n_workers // 4):
        return [], 0.0, total, total
    chosen = order[:count]
    rest = np.delete(filled, chosen, axis=1).max(axis=1)
    without = float(np.where(np.isfinite(rest), rest, 0.0).sum())
    return sorted(int(who) for who in chosen), float(slowest[chosen].sum() / len(taken)), total, without


def _longest_run(flags: np.ndarray[Any, Any], numbers: IntArray) -> tuple[int, int, int]:
    """The longest run of True: its length, and the numbers at its first and its last place."""
    best, length, end = 0, 0, -1
    for place, flag in enumerate(flags.tolist()):
        length = length + 1 if flag else 0
        if length > best:
            best, end = length, place
    if not best:
        return 0, -1, -1
    return best, int(numbers[end - best + 1]), int(numbers[end])


def _factor(value: float) -> str:
    """How a quantity falls that is divided by this every time."""
    if value < 1.1:
        return f"{100 * (1 - 1 / value):.2g} %"
    return f"a factor of {value:.2f}" if value < 10 else f"a factor of {value:,.0f}"


def sentences(said: Sequence[Finding]) -> list[str]:
    """The texts alone."""
    return [finding.text for finding in said]
