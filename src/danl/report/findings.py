"""What there is to say of a run, in sentences: each function looks at one thing, and is silent where there is nothing.

They are pure functions of the rows, the trace and the configuration, so that every sentence can be checked against the
numbers it is made of. `advice.py` has what to try next.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from danl.report.pace import pace_of
from danl.report.run import RecordedRun
from danl.report.trend import Trend, trend_of
from danl.run.trace import NOT_ASKED, SILENT
from danl.wording import counted, gap_text, human_bytes, listed, number, percent, seconds

Tone = Literal["good", "note", "warn", "try"]
IntArray = np.ndarray[Any, np.dtype[np.int64]]

NAMED_REGIONS = 3
"""Regions with the longest waits that are named one by one."""
ENDINGS = {
    "converged": ("good", "Converged"),
    "max_rounds": ("warn", "Used up its rounds without reaching the tolerance: ended"),
    "diverged": ("warn", "Diverged: ended"),
    "quorum_lost": ("warn", "Lost its quorum, too few workers answered: ended"),
    "interrupted": ("note", "Was interrupted: ended"),
    "stopped": ("note", "Was stopped by its callback: ended"),
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
    """How it ended and what it cost; of a run that goes on, how far it is."""
    history, last = run.history, run.history[-1]
    told = f"gradient norm {number(last.grad_norm, unknown='not known')}"
    if not np.isnan(last.gap):
        told += f", gap {gap_text(last.gap, objective=last.objective)}"
    up, down = (human_bytes(int(history.column(name).sum())) for name in ("bytes_up", "bytes_down"))
    cost = f"cost {up} up, {down} down and {seconds(float(history.column('seconds').sum()))}"
    simulated = np.nansum(history.column("simulated_seconds"))
    if not np.isnan(history.column("simulated_seconds")).all():
        cost += f" here; by the machines' profiles {seconds(float(simulated))}"
    if run.status == "running":
        return [
            Finding("note", f"Is running: {counted(len(history), 'exchange')} so far, at {told}. So far it {cost}.")
        ]
    tone, words = ENDINGS.get(run.status, ("note", f"How it ended is not known ({_why_unknown(run)}): it is"))
    return [Finding(tone, f"{words} after {counted(len(history), 'exchange')}, at {told}. It {cost}.")]  # type: ignore[arg-type]


def _why_unknown(run: RecordedRun) -> str:
    if not run.config:
        return "no config.json"
    return f"config.json has the status {run.status!r}" if run.told("status") else "config.json does not say"


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
    """When it was converging linearly, and since when it is slow, stalled or rose."""
    trend = trend_of(run.history)
    if trend is None:
        return []
    if run.status == "diverged":
        text = f"The {trend.name} was smallest after exchange {trend.best_at}, {number(trend.best)}; at the end it was "
        return [Finding("warn", f"{text}{number(trend.end)}.")]
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
    return said if run.status == "converged" else [*said, *_trouble(trend)]


def _trouble(trend: Trend) -> list[Finding]:
    """What keeps it from getting nearer, if anything does."""
    if trend.rose:
        text = (
            f"The {trend.name} rose: from {number(trend.best)} after exchange {trend.best_at}, the smallest, to "
            f"{number(trend.end)} after exchange {trend.last}."
        )
    elif trend.stalled_since is not None:
        text = (
            f"Stalled since exchange {trend.stalled_since}: in the last "
            f"{counted(trend.last - trend.stalled_since, 'exchange')} the {trend.name} did not even halve; it is "
            f"{number(trend.best)} at best."
        )
    elif trend.slow is not None:
        since, factor = trend.slow
        text = (
            f"Is slow since exchange {since}: in the last {counted(trend.last - since, 'exchange')} the {trend.name} "
            f"did not even halve; it still falls, by {_factor(factor)} an exchange."
        )
    else:
        return []
    return [Finding("warn", text)]


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
            text += f"; {_since(run)}worker {who} missed most, {silent[who]} of {times[who]}"
        elif len(worst):
            text += f"; {_since(run)}workers {listed(worst.tolist())} missed most, {silent.max()} each"
    return [Finding("warn", f"{text}.")]


def untrained_regions(run: RecordedRun) -> list[Finding]:
    """Regions that nobody trained for two rounds or more in a row."""
    waits = region_waits(run)
    longest = np.array([length for length, _, _ in waits], dtype=int)
    long = [int(region) for region in np.argsort(-longest, kind="stable") if longest[region] >= 2]
    if not long:
        return []
    if len(long) > 1 and len({int(longest[region]) for region in long}) == 1:
        first, last = min(waits[region][1] for region in long), max(waits[region][2] for region in long)
        where = "from" if len({waits[region] for region in long}) == 1 else "at some time from"
        text = f"Regions {listed(sorted(long))} went untrained for {longest[long[0]]} rounds each, {where} exchange"
        return [Finding("warn", f"{text} {first} to {last}.")]
    said = []
    for region in long[:NAMED_REGIONS]:
        length, first, last = waits[region]
        said.append(
            Finding("warn", f"Region {region} went untrained for {length} rounds, from exchange {first} to {last}.")
        )
    if len(long) > NAMED_REGIONS:
        most = longest[long[NAMED_REGIONS]]
        more = counted(len(long) - NAMED_REGIONS, "more region")
        said.append(Finding("warn", f"{more} went untrained for up to {most} rounds."))
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
    gamma = f"gamma = {run.history[-1].max_staleness}{' over the whole run' if run.known_since else ''}"
    text = (
        f"{_since(run)}worker {worker} sent nothing on region {region} for {most} rounds, from exchange "
        f"{numbers[last - most + 1]} to {numbers[last]}: the longest wait of a worker and a region ({gamma}){others}."
    )
    return [Finding("note", _sentence(text))]


def pace(run: RecordedRun) -> list[Finding]:
    """Workers whom the others wait for, by simulated seconds."""
    found = pace_of(run)
    if found is None:
        return []
    if not found.workers:
        text = f"{_since(run)}no few workers set the pace: the slowest one changes from exchange to exchange."
        return [Finding("note", _sentence(text))]
    one = len(found.workers) == 1
    spent = f"the run since exchange {run.known_since}" if run.known_since else "the run"
    text = (
        f"{_since(run)}{'worker' if one else 'workers'} {listed(found.workers)} set{'s' if one else ''} the pace: "
        f"{'it is' if one else 'one of them is'} the slowest in {percent(found.share)} of the exchanges. "
        f"If the others had not waited for {'it' if one else 'them'}, {spent} would have taken "
        f"{seconds(found.without)} instead of {seconds(found.total)} by the profiles."
    )
    return [Finding("note", _sentence(text))]


def _since(run: RecordedRun) -> str:
    """What a sentence on workers begins with where nothing is known of them before an exchange."""
    return f"since exchange {run.known_since} " if run.known_since else ""


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]


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
