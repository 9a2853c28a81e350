"""From data sets to a word: the one rule all claims share.

A claim is tested case by case. A case is a reading of the algorithm and, where the paper varies something or leaves it
open, a setting (the masks, how they are drawn, the accuracy asked for). It is tested at several penalties, on every
data set of the plan:

    a case shows the claim at a penalty    on at least three quarters of the data sets
    it shows the claim                     at some one penalty, which is then named
    the claim holds                        if every case shows it; for some readings, if at least one does
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from danl.reproduce.claims.base import Table, Word
from danl.reproduce.claims.measures import CEILING, FLOOR
from danl.reproduce.runs import PAPER

SHARE = 0.75
"""Share of the data sets on which a case has to show the claim."""
RULE = (
    f"A case (a reading{{setting}}) shows it if that is so on at least {SHARE:.0%} of the data sets at some one "
    "penalty. The claim holds if all cases show it, and for some readings if at least one does."
)


def share_rule(setting: str = "") -> str:
    """The shared part of a rule; `setting` says what else than the reading tells cases apart."""
    return RULE.format(setting=f" with {setting}" if setting else "")


@dataclass(frozen=True)
class Finding:
    """One case at one penalty: on which data sets it shows what is claimed."""

    reading: str
    setting: str
    penalty: str
    data: dict[str, bool]

    @property
    def case(self) -> tuple[str, str]:
        return self.reading, self.setting

    @property
    def shown(self) -> bool:
        return sum(self.data.values()) >= SHARE * len(self.data)

    @property
    def count(self) -> str:
        """For example ``3 of 4``."""
        return f"{sum(self.data.values())} of {len(self.data)}"

    def values(self) -> dict[str, Any]:
        """For machines."""
        return {
            "reading": self.reading,
            "setting": self.setting,
            "penalty": self.penalty,
            "data": self.data,
            "shown": self.shown,
        }


def word_for(shown: Iterable[bool]) -> Word:
    """The word for cases that show the claim or do not."""
    listed = list(shown)
    if not any(listed):
        return "does not hold"
    return "holds" if all(listed) else "holds for some readings"


def word_of(findings: Sequence[Finding]) -> Word:
    """The word the shared rule gives: a case shows the claim if it does at some penalty."""
    cases = dict.fromkeys((each.case for each in findings), False)
    for each in findings:
        cases[each.case] |= each.shown
    return word_for(cases.values())


def readings_of(findings: Sequence[Finding]) -> tuple[str, ...]:
    """The readings that show the claim, each with its settings and penalties, in one line."""
    lines = []
    for reading in dict.fromkeys(each.reading for each in findings):
        by_penalties: dict[tuple[str, ...], list[str]] = {}
        own = [each for each in findings if each.reading == reading]
        settings = list(dict.fromkeys(each.setting for each in own))
        for setting in settings:
            penalties = tuple(each.penalty for each in own if each.setting == setting and each.shown)
            if penalties:
                by_penalties.setdefault(penalties, []).append(setting)
        parts = [
            ("" if names == [""] else "every setting " if names == settings else f"{' or '.join(names)} ")
            + f"at {enumerated(penalties)}"
            for penalties, names in by_penalties.items()
        ]
        if parts:
            lines.append(f"{reading}: {'; '.join(parts)}")
    return tuple(lines)


def summary(findings: Sequence[Finding]) -> str:
    """Who shows it, who does not, and whether anyone does at the paper's own penalty."""
    names = list(dict.fromkeys(each.reading for each in findings))
    parts = []
    for name in names:
        cases = {each.case for each in findings if each.reading == name}
        showing = {each.case for each in findings if each.reading == name and each.shown}
        share = f"in {len(showing)} of {len(cases)} settings" if len(cases) > 1 else "yes" if showing else "no"
        parts.append(f"{name} {share}")
    text = f"Shown at some penalty: {', '.join(parts)}."
    at_paper = [each for each in findings if each.penalty == PAPER]
    if at_paper:
        text += f" At the paper's own penalty: in {sum(each.shown for each in at_paper)} of {len(at_paper)} cases."
    return text


def by_penalty(findings: Sequence[Finding], cells: Sequence[str]) -> Table:
    """One row a case, one column a penalty: how many data sets show it, and a word more."""
    penalties = list(dict.fromkeys(each.penalty for each in findings))
    told = {(each.case, each.penalty): f"{each.count}, {cell}" for each, cell in zip(findings, cells, strict=True)}
    cases = dict.fromkeys(each.case for each in findings)
    return Table(
        ("reading", "setting", *penalties),
        tuple((*case, *(told[case, penalty] for penalty in penalties)) for case in cases),
    )


def enumerated(words: Iterable[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``; ``nowhere`` if there is none."""
    listed = list(words)
    if len(listed) < 2:
        return listed[0] if listed else "nowhere"
    return f"{', '.join(listed[:-1])} and {listed[-1]}"


def finite(value: float | None, digits: int = 4) -> float | None:
    """For machines: a few digits, and None for what is no finite number."""
    if value is None or not math.isfinite(value):
        return None
    return float(f"{value:.{digits}g}")


def small(value: float | None) -> str:
    """A gap, as people read it."""
    if value is None or math.isnan(value):
        return "-"
    return (
        f"{FLOOR:.0e} or less" if value <= FLOOR else f"{CEILING:.0e} or more" if value >= CEILING else f"{value:.1e}"
    )


def count(value: float | None, none: str = "not reached") -> str:
    """A number of exchanges."""
    return none if value is None or not math.isfinite(value) else f"{value:g}"
