"""What a claim is, and what a verdict on it is.

A claim knows which runs it needs and how to judge them. Judging reads stored rows and nothing else, by a rule with
thresholds that the verdict repeats: other rows, another verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from danl.reproduce.runs import Plan, Run
from danl.reproduce.store import Stored

Word = Literal["holds", "holds for some readings", "does not hold"]
Reader = Callable[[Run], Stored]


@dataclass(frozen=True)
class Table:
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
    numbers: Table
    values: dict[str, Any] = field(default_factory=dict)
    """The numbers the rule was applied to, for machines."""


class Claim(Protocol):
    """A claim of the paper."""

    @property
    def name(self) -> str:
        """A short name; its verdict has the same."""

    def runs(self, plan: Plan) -> Iterable[Run]:
        """The runs it is judged by."""

    def judge(self, plan: Plan, read: Reader) -> Verdict:
        """The verdict, from stored rows alone."""
