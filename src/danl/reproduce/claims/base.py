"""What a claim is, what a verdict on it is, and the one judge: the same steps for every claim.

    1  cases      the runs of each case, on each data set
    2  measure    what is found in the runs of a case on one data set
    3  shows      whether that shows the claim
    4  rule       the word that follows, and the readings it holds for
    5  words      a reason, a table and values for machines, all of them from what was found

Judging reads stored rows and nothing else, by a rule with thresholds that the verdict repeats: other rows, another
verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from danl.reproduce.runs import Plan, RunSpec
from danl.reproduce.store import StoredRun
from danl.wording import rounded

Word = Literal["holds", "holds for some readings", "does not hold"]
Reader = Callable[[RunSpec], StoredRun]
Groups = Mapping[str, list[StoredRun]]
"""The runs of a case on one data set, by what tells them apart within the case."""
Found = dict[str, Any]
"""What was found in the runs of a case on one data set, by name."""
SHARE = 0.75
"""Share of the data sets on which a case has to show the claim."""


@dataclass(frozen=True)
class NumbersTable:
    """Numbers of a verdict, as they are shown."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]


@dataclass(frozen=True)
class Verdict:
    """What became of a claim."""

    claim: str
    """A short name, for example ``larger-psi-is-faster``."""
    statement: str
    """The claim, in our own words."""
    where: str
    """Where the paper makes it."""
    run: str
    """What was run."""
    rule: str
    """How the verdict follows from the rows, thresholds included."""
    word: Word
    readings: tuple[str, ...]
    """Readings it holds for."""
    why: str
    """What the numbers say, in a sentence or two that are computed from them."""
    numbers: NumbersTable
    values: dict[str, Any] = field(default_factory=dict)
    """The numbers the rule was applied to, for machines."""


@dataclass(frozen=True)
class Case:
    """What is tested on every data set: a reading of the algorithm in a setting at a penalty.

    `setting` is empty where the reading alone tells cases apart, `penalty` where a case has runs at several. The claim
    names the runs; the judge fills in what was found in them and whether it shows the claim.
    """

    reading: str
    setting: str
    penalty: str
    runs: dict[str, dict[str, list[RunSpec]]] = field(default_factory=dict)
    """By data set, by group: the runs, usually one a seed."""
    found: dict[str, Found] = field(default_factory=dict)
    shown_on: dict[str, bool] = field(default_factory=dict)

    @property
    def holds(self) -> bool:
        """Whether the case shows the claim at its penalty."""
        return sum(self.shown_on.values()) >= SHARE * len(self.shown_on)

    @property
    def count(self) -> str:
        """On how many data sets it is shown, for example ``3 of 4``."""
        return f"{sum(self.shown_on.values())} of {len(self.shown_on)}"

    def values(self, *names: str) -> dict[str, Any]:
        """For machines: the case, and what was found under these names, by data set."""
        case = {name: getattr(self, name) for name in ("reading", "setting", "penalty")}
        by_data = {name: {data: found[name] for data, found in self.found.items()} for name in names}
        return case | {"data": self.shown_on, "shown": self.holds} | by_data


@dataclass(frozen=True)
class Judged:
    """What the words of a verdict are made of: the plan and the judged cases."""

    plan: Plan
    cases: tuple[Case, ...]

    def __iter__(self) -> Iterator[Case]:
        return iter(self.cases)


def grouped(cases: Iterable[Case], *names: str) -> dict[tuple[str, ...], list[Case]]:
    """Cases that agree in these of ``reading``, ``setting`` and ``penalty``, by their values."""
    groups: dict[tuple[str, ...], list[Case]] = {}
    for case in cases:
        groups.setdefault(tuple(getattr(case, name) for name in names), []).append(case)
    return groups


def found_values(cases: Iterable[Case], name: str) -> list[Any]:
    """What was found under a name in all of the cases, on all data sets; lists, an item a run, are joined."""
    values = [found[name] for case in cases for found in case.found.values()]
    return [item for value in values for item in (value if isinstance(value, list) else [value])]


Decision = tuple[Word, tuple[str, ...], str]
"""The word, the readings the claim holds for, and who shows it in a sentence."""


@dataclass(frozen=True)
class Rule:
    """How a verdict follows from the judged cases: in words, and as a function."""

    text: str
    decide: Callable[[Judged], Decision]


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, as data and small functions; `Verdict` says what the words are."""

    name: str
    statement: str
    where: str
    run: Callable[[Judged], str]
    condition: str
    cases: Callable[[Plan], Iterable[Case]]
    measure: Callable[[Case, Groups], Found]
    rule: Rule
    reason: Callable[[Judged], str]
    """Follows the sentence of the decision."""
    table: Callable[[Judged], NumbersTable]
    values: Callable[[Judged], dict[str, Any]]
    shows: Callable[[Found], bool] | None = None
    """Whether what was found on a data set shows the claim; None where the rule looks at what was found itself."""

    def runs(self, plan: Plan) -> Iterator[RunSpec]:
        """The runs it is judged by."""
        groups = (group for case in self.cases(plan) for data in case.runs.values() for group in data.values())
        return (run for group in groups for run in group)

    def judge(self, plan: Plan, read: Reader) -> Verdict:
        """The verdict, from stored rows alone."""
        judged = Judged(plan, tuple(self._judged(case, read) for case in self.cases(plan)))
        word, readings, summary = self.rule.decide(judged)
        return Verdict(
            claim=self.name,
            statement=self.statement,
            where=self.where,
            run=self.run(judged),
            rule=f"{self.condition} {self.rule.text}".strip(),
            word=word,
            readings=readings,
            why=f"{summary} {self.reason(judged)}".strip(),
            numbers=self.table(judged),
            values=rounded(self.values(judged)),
        )

    def _judged(self, case: Case, read: Reader) -> Case:
        found = {
            data: self.measure(case, {name: [read(run) for run in runs] for name, runs in groups.items()})
            for data, groups in case.runs.items()
        }
        shows = self.shows
        shown_on = {} if shows is None else {data: bool(shows(each)) for data, each in found.items()}
        return replace(case, found=found, shown_on=shown_on)
