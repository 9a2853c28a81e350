"""What there is to say of a run, in sentences.

Each function looks at one thing and yields nothing if there is nothing to say. They are pure
functions of the rows, the trace and the configuration, so that every sentence can be checked against the numbers it is
made of. `advice.py` has what to try next.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from danl.protocol.messages import Mask
from danl.report.recorded import RecordedRun
from danl.report.stragglers import stragglers_of
from danl.report.trend import Trend, trend_of
from danl.run.trace import NOT_ASKED, SILENT
from danl.wording import counted, gap_text, human_bytes, listed, named, number, percent, seconds

Tone = Literal["good", "note", "warn", "try"]
IntArray = np.ndarray[Any, np.dtype[np.int64]]

NAMED_REGIONS = 3
"""Regions with the longest waits that are named one by one."""
ENDING_WORDS: dict[str, tuple[Tone, str]] = {
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


def ending(run: RecordedRun) -> Iterator[Finding]:
    """How it ended and what it cost; of a run that goes on, how far it is."""
    history, last = run.history, run.history[-1]
    reached = f"{counted(len(history), 'exchange')}{{}}, at gradient norm {number(last.grad_norm, unknown='not known')}"
    if not np.isnan(last.gap):
        reached += f", gap {gap_text(last.gap, objective=last.objective)}"
    up, down = (human_bytes(int(history.column(name).sum())) for name in ("bytes_up", "bytes_down"))
    cost = f"cost {up} up, {down} down and {seconds(float(history.column('seconds').sum()))}"
    simulated = history.column("simulated_seconds")
    if not np.isnan(simulated).all():
        cost += f" here; by the machines' profiles {seconds(float(np.nansum(simulated)))}"
    if run.status == "running":
        yield Finding("note", f"Is running: {reached.format(' so far')}. So far it {cost}.")
    else:
        tone, words = ENDING_WORDS.get(run.status, ("note", f"How it ended is not known ({_why_unknown(run)}): it is"))
        yield Finding(tone, f"{words} after {reached.format('')}. It {cost}.")


def _why_unknown(run: RecordedRun) -> str:
    if not run.config:
        return "no config.json"
    return f"config.json has the status {run.status!r}" if run.config_at("status") else "config.json does not say"


def hessian_bytes(run: RecordedRun) -> tuple[int, int, float]:
    """How many exchanges carried Hessians, their bytes, and their share of all bytes."""
    here = run.history.column("kind") == "hessian"
    everything = run.history.column("bytes_up") + run.history.column("bytes_down")
    return int(here.sum()), int(everything[here].sum()), float(everything[here].sum() / max(everything.sum(), 1))


def hessians(run: RecordedRun) -> Iterator[Finding]:
    """How much of the bytes were Hessians."""
    count, size, share = hessian_bytes(run)
    carried = f"{counted(count, 'exchange')} of {len(run.history):,} carried Hessians: {human_bytes(size)}"
    yield Finding("note", f"{carried}, {percent(share)} of all bytes." if count else "No Hessian was exchanged.")


def progress(run: RecordedRun) -> Iterator[Finding]:
    """When it was converging linearly, and since when it is slow, stalled or rose."""
    trend = trend_of(run.history)
    if trend is None:
        return
    if run.status == "diverged":
        yield Finding(
            "warn",
            f"The {trend.name} was smallest after exchange {trend.best_at}, {number(trend.best)}; at the end it was "
            f"{number(trend.end)}.",
        )
        return
    if trend.falling is not None:
        first, last, factor = trend.falling
        fell = f"From exchange {first} to {last} the {trend.name} fell {trend.manner}"
        yield Finding("note", f"{fell}: by {_factor(factor)} an exchange on average.")
    if run.status != "converged" and (trouble := _trouble(trend)):
        yield Finding("warn", trouble)


def _trouble(trend: Trend) -> str:
    """What keeps it from getting nearer, if anything does."""
    if trend.rose:
        return (
            f"The {trend.name} rose: from {number(trend.best)} after exchange {trend.best_at}, the smallest, to "
            f"{number(trend.end)} after exchange {trend.last}."
        )
    slow = None if trend.slow is None else trend.slow[0]
    since = slow if trend.stalled_since is None else trend.stalled_since
    if since is None:
        return ""
    text = f"in the last {counted(trend.last - since, 'exchange')} the {trend.name} did not even halve; it"
    if trend.slow is None:
        return f"Stalled since exchange {since}: {text} is {number(trend.best)} at best."
    return f"Is slow since exchange {since}: {text} still falls, by {_factor(trend.slow[1])} an exchange."


def refusals(run: RecordedRun) -> Iterator[Finding]:
    """Steps that the losses refused, and where."""
    where = run.history.column("exchange")[run.history.column("refused") == 1].tolist()
    if where:
        steps = f"{counted(len(where), 'trial step')} {'was' if len(where) == 1 else 'were'}"
        yield Finding("note", f"{steps} refused, because the objective had risen: in {named('exchange', where)}.")


def absences(run: RecordedRun) -> Iterator[Finding]:
    """Replies that did not come, and whose."""
    failed, active = run.history.column("failed"), run.history.column("active")
    missing, asked = int(failed.sum()), int(failed.sum() + active.sum())
    if not missing:
        yield Finding("good", f"Every worker answered every time it was asked ({counted(asked, 'reply')}).")
        return
    text = (
        f"{missing:,} of {counted(asked, 'reply')} did not come, in {int((failed > 0).sum()):,} of "
        f"{counted(len(failed), 'exchange')}"
    )
    if run.trace is not None and len(run.trace):
        states = run.trace.asked
        silent, times = (states == SILENT).sum(axis=0), (states != NOT_ASKED).sum(axis=0)
        worst = np.flatnonzero(silent == silent.max()).tolist() if silent.max() else []
        often = f"{silent.max()} of {times[worst[0]]}" if len(worst) == 1 else f"{silent.max()} each"
        text += f"; {_since(run)}{named('worker', worst)} missed most, {often}" if worst else ""
    yield Finding("warn", f"{text}.")


def untrained_regions(run: RecordedRun) -> Iterator[Finding]:
    """Regions that nobody trained for two rounds or more in a row."""
    waits = {region: wait for region, wait in enumerate(untrained_spans(run)) if wait[0] >= 2}
    if len(waits) > 1 and len({rounds for rounds, _, _ in waits.values()}) == 1:
        (rounds, *_), *_ = waits.values()
        first, last = min(wait[1] for wait in waits.values()), max(wait[2] for wait in waits.values())
        where = "from" if len(set(waits.values())) == 1 else "at some time from"
        text = f"Regions {listed(waits)} went untrained for {rounds} rounds each, {where} exchange {first} to {last}."
        yield Finding("warn", text)
        return
    longest_first = sorted(waits, key=lambda region: -waits[region][0])
    for region in longest_first[:NAMED_REGIONS]:
        rounds, first, last = waits[region]
        text = f"Region {region} went untrained for {rounds} rounds, from exchange {first} to {last}."
        yield Finding("warn", text)
    if rest := longest_first[NAMED_REGIONS:]:
        more = counted(len(rest), "more region")
        yield Finding("warn", f"{more} went untrained for up to {waits[rest[0]][0]} rounds.")


def untrained_spans(run: RecordedRun) -> list[tuple[int, int, int]]:
    """Of every region the longest run of rounds nobody trained it: how many rounds, and the first and last exchange."""
    coverage, numbers = run.history.column("coverage")[run.rounds], run.history.column("exchange")[run.rounds]
    if coverage.ndim != 2 or not len(coverage):
        return [(0, -1, -1)] * (coverage.shape[1] if coverage.ndim == 2 else 0)
    lengths, ends = longest_waits(coverage > 0)
    return [
        (length, int(numbers[end - length + 1]), int(numbers[end])) if length else (0, -1, -1)
        for length, end in zip(lengths.tolist(), ends.tolist(), strict=True)
    ]


def longest_waits(trained: Iterable[Mask]) -> tuple[IntArray, IntArray]:
    """For each mask entry: the longest run of rounds in which it was False, and the index of that run's last round."""
    waiting: Any = 0
    longest: Any = 0
    ended: Any = -1
    for place, mask in enumerate(trained):
        waiting = np.where(mask, 0, waiting + 1)
        ended = np.where(waiting > longest, place, ended)
        longest = np.maximum(longest, waiting)
    return longest, ended


def longest_wait(run: RecordedRun) -> Iterator[Finding]:
    """The (worker, region) pair that waited longest, where not everyone trains everything."""
    if run.trace is None or not len(run.trace):
        return
    known = dict(zip(run.history.column("exchange").tolist(), run.rounds.tolist(), strict=True))
    rounds = [index for index, number in enumerate(run.trace.exchanges.tolist()) if known.get(number, False)]
    if not rounds:
        return
    longest, ended = longest_waits(run.trace.trained_in(index) for index in rounds)
    most, numbers = int(longest.max()), run.trace.exchanges[rounds]
    if most < 2:
        return
    worker, region = (int(value) for value in np.unravel_index(int(longest.argmax()), longest.shape))
    last, pairs = int(ended[worker, region]), int((longest == most).sum())
    others = f"; {counted(pairs - 1, 'other pair')} waited as long" if pairs > 1 else ""
    gamma = f"gamma = {run.history[-1].max_staleness}{' over the whole run' if run.known_since else ''}"
    text = (
        f"{_since(run)}worker {worker} sent nothing on region {region} for {most} rounds, from exchange "
        f"{numbers[last - most + 1]} to {numbers[last]}: the longest wait of a worker and a region ({gamma}){others}."
    )
    yield Finding("note", _sentence(text))


def pace(run: RecordedRun) -> Iterator[Finding]:
    """Workers whom the others wait for, by simulated seconds."""
    found = stragglers_of(run)
    if found is None:
        return
    one = len(found.workers) == 1
    spent = f"the run since exchange {run.known_since}" if run.known_since else "the run"
    text = (
        f"{named('worker', found.workers)} set{'s' if one else ''} the pace: "
        f"{'it is' if one else 'one of them is'} the slowest in {percent(found.share)} of the exchanges. "
        f"If the others had not waited for {'it' if one else 'them'}, {spent} would have taken "
        f"{seconds(found.without)} instead of {seconds(found.total)} by the profiles."
    )
    nobody = "no few workers set the pace: the slowest one changes from exchange to exchange."
    yield Finding("note", _sentence(f"{_since(run)}{text if found.workers else nobody}"))


def _since(run: RecordedRun) -> str:
    """What a sentence on workers begins with where nothing is known of them before an exchange."""
    return f"since exchange {run.known_since} " if run.known_since else ""


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]


def _factor(value: float) -> str:
    """How a quantity falls that is divided by this every time."""
    if value < 1.1:
        return f"{100 * (1 - 1 / value):.2g} %"
    return f"a factor of {value:.2f}" if value < 10 else f"a factor of {value:,.0f}"
