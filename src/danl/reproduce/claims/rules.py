"""From judged cases to a word: the two rules of the claims, and the cases, sentences and tables that they share.

A claim is tested case by case. A case is a reading of the algorithm and, where the paper varies something or leaves it
open, a setting (the masks, how they are drawn, the accuracy asked for). Most claims are tested at several penalties, on
every data set of the plan, by the rule `on_most_data`:

    a case shows the claim at a penalty    on at least three quarters of the data sets
    it shows the claim                     at some one penalty, which is then named
    the claim holds                        if every case shows it; for some readings, if at least one does

The others look at everything found for a reading at once, by the rule `pooled`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any

from danl.reproduce.claims.base import SHARE, Case, Decision, Judged, NumbersTable, Rule, Word, found_values, grouped
from danl.reproduce.claims.measures import median
from danl.reproduce.runs import PAPER, READINGS, Curve, Plan
from danl.wording import listed


def most_data(setting: str = "", only: str = "") -> Rule:
    """The rule `on_most_data`; `setting` says what else than the reading tells cases apart."""
    text = (
        f"A case (a reading{f' with {setting}' if setting else ''}) shows it if that is so on at least {SHARE:.0%} of "
        "the data sets at some one penalty. The claim holds if all cases show it, and for some readings if at least "
        "one does."
    )
    if only:
        text += f" Judged is {only}, Algorithm 1 as printed; the other readings are shown beside it."
    return Rule(text, partial(on_most_data, only=only))


def word_for(shown: Iterable[object]) -> Word:
    """The word for cases that show the claim or do not."""
    flags = [bool(each) for each in shown]
    if not any(flags):
        return "does not hold"
    return "holds" if all(flags) else "holds for some readings"


def on_most_data(judged: Iterable[Case], only: str = "") -> Decision:
    """A case shows the claim where most data sets do, at some one penalty; `only` names the one reading judged."""
    cases = [each for each in judged if only in ("", each.reading)]
    penalties: dict[str, dict[str, tuple[str, ...]]] = {}  # by reading and setting: where the case shows the claim
    for each in cases:
        own = penalties.setdefault(each.reading, {})
        own[each.setting] = own.get(each.setting, ()) + ((each.penalty,) if each.holds else ())
    readings, shares = [], []
    for reading, own in penalties.items():
        together: dict[tuple[str, ...], list[str]] = {}
        for setting, at in own.items():
            together.setdefault(at, []).append(setting)
        where = [
            ("" if names == [""] else "every setting " if names == list(own) else f"{' or '.join(names)} ")
            + f"at {listed(at)}"
            for at, names in together.items()
            if at
        ]
        readings += [f"{reading}: {'; '.join(where)}"] if where else []
        share = f"in {sum(map(bool, own.values()))} of {len(own)} settings"
        shares.append(f"{reading} {share if len(own) > 1 else 'yes' if where else 'no'}")
    summary = f"Shown at some penalty: {', '.join(shares)}."
    if at_paper := [each.holds for each in cases if each.penalty == PAPER]:
        summary += f" At the paper's own penalty: in {sum(at_paper)} of {len(at_paper)} cases."
    return word_for(at for own in penalties.values() for at in own.values()), tuple(readings), summary


def pooled(text: str, shows: Callable[[list[Case]], bool], *names: str) -> Rule:
    """The rule that looks at all cases of a reading, or of other `names`, together."""

    def decide(judged: Judged) -> Decision:
        shown = {": ".join(key): shows(own) for key, own in grouped(judged, *(names or ("reading",))).items()}
        return word_for(shown.values()), tuple(label for label, each in shown.items() if each), ""

    return Rule(text, decide)


def curve_cases(
    plan: Plan, settings: Mapping[str, Mapping[str, Curve]], readings: Sequence[str] = READINGS
) -> list[Case]:
    """A case for every reading, setting and penalty: the runs of the setting's curves, by name."""
    cases = []
    for reading, (setting, curves), penalty in product(readings, settings.items(), plan.penalties):
        case = Case(reading, setting, penalty)
        for data, (name, curve) in product(plan.data, curves.items()):
            case.runs.setdefault(data, {})[name] = list(plan.curve_runs(data, penalty, reading, curve))
        cases.append(case)
    return cases


def figures_run(what: str, end: str = "") -> Callable[[Judged], str]:
    """What was run, where it is runs of the figures."""
    return lambda judged: (
        f"{what} on {listed(judged.plan.data)}, seeds 0 to {judged.plan.n_seeds - 1}, at "
        f"{listed(judged.plan.penalties)}{end}."
    )


def sentence(
    text: str, part: Callable[[str, list[Case]], str], *names: str, joined: str = "; "
) -> Callable[[Judged], str]:
    """A sentence with a part for every reading, or other `names`, at its {}; nothing where no part has words."""

    def say(judged: Judged) -> str:
        groups = grouped(judged, *(names or ("reading",)))
        parts = [part(", ".join(key), own) for key, own in groups.items()]
        return text.format(joined.join(filter(None, parts))) if any(parts) else ""

    return say


def median_of(name: str, words: Callable[[float], str]) -> Callable[[Case], str]:
    """A cell: the median of what was found under a name, in words."""
    return lambda case: words(median(found_values([case], name)))


def by_case(count: str, **cells: Callable[[Case], str]) -> Callable[[Judged], NumbersTable]:
    """A table with a row a case: how many data sets show it, in the column `count`, and more cells by column."""
    return lambda judged: NumbersTable(
        ("reading", "setting", "penalty", count, *cells),
        tuple(
            (each.reading, each.setting, each.penalty, each.count, *(cell(each) for cell in cells.values()))
            for each in judged
        ),
    )


def by_penalty(cell: Callable[[Case], str]) -> Callable[[Judged], NumbersTable]:
    """A table with a row a case and a column a penalty: how many data sets show it, and a word more."""
    return lambda judged: NumbersTable(
        ("reading", "setting", *dict.fromkeys(each.penalty for each in judged)),
        tuple(
            (*key, *(f"{each.count}, {cell(each)}" for each in own))
            for key, own in grouped(judged, "reading", "setting").items()
        ),
    )


def case_values(*names: str) -> Callable[[Judged], dict[str, Any]]:
    """Values for machines: an entry a case, with what was found under these names."""
    return lambda judged: {"cases": [each.values(*names) for each in judged]}
