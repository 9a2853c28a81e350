"""Claims that one mask setting is faster than another: psi* = 3 than 1, gamma = 2 than 4, one region a round slowest.

The paper does not say how masks of a given psi* and gamma were drawn, and the two ways of drawing them behave
differently (waits spread over 0, ..., gamma, or everyone waiting gamma rounds), so each is a setting of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any, Literal

import numpy as np

from danl.reproduce.claims.base import Reader, Table, Verdict
from danl.reproduce.claims.cases import Finding, enumerated, finite, readings_of, share_rule, small, summary, word_of
from danl.reproduce.claims.measures import AHEAD, SCORE_RULE, Repeated
from danl.reproduce.runs import FIGURES, Curve, Figure, Plan, Run

Outcome = Literal["faster", "tie", "slower", "ahead, but leads away"]
DRAWING = {"fig1": "", "fig2": "waits spread", "fig2-longest": "longest waits"}
"""How the masks of a figure are drawn, where there are two ways."""


@dataclass(frozen=True)
class Pair:
    """Two mask settings: by the claim `fast` is faster than `slow`."""

    figure: Figure
    setting: str
    fast: Curve
    slow: Curve


def curve(figure: str, psi: int, S: int = 4, gamma: int | None = None) -> Curve:
    """The curve of a figure with these numbers."""
    return next(each for each in FIGURES[figure].curves if (each.psi, each.S, each.gamma) == (psi, S, gamma))


def outcome(fast: Repeated, slow: Repeated) -> Outcome:
    """What became of `fast` beside `slow`."""
    ahead = slow.score - fast.score
    if abs(ahead) < AHEAD:
        return "tie"
    if ahead < 0:
        return "slower"
    return "faster" if fast.improves else "ahead, but leads away"


@dataclass(frozen=True)
class Ordering:
    """One mask setting is faster than another."""

    name: str
    statement: str
    where: str
    pairs: tuple[Pair, ...]
    remark: Callable[[list[dict[str, Any]]], str] = lambda cases: ""
    """What else the cases tell, for the verdict's reason."""

    def runs(self, plan: Plan) -> Iterator[Run]:
        for pair in self.pairs:
            for data, penalty, reading in product(plan.data, plan.penalties, pair.figure.readings):
                yield from plan.curve_runs(data, penalty, reading, pair.fast)
                yield from plan.curve_runs(data, penalty, reading, pair.slow)

    def judge(self, plan: Plan, read: Reader) -> Verdict:
        findings, rows, values, outcomes = [], [], [], Counter[tuple[str, str]]()
        for pair in self.pairs:
            for reading, penalty in product(pair.figure.readings, plan.penalties):
                compared = {
                    data: tuple(
                        Repeated.of(plan.curve_runs(data, penalty, reading, line), read)
                        for line in (pair.fast, pair.slow)
                    )
                    for data in plan.data
                }
                became = {data: outcome(fast, slow) for data, (fast, slow) in compared.items()}
                outcomes.update((reading, each) for each in became.values())
                case = Finding(
                    reading, pair.setting, penalty, {data: each == "faster" for data, each in became.items()}
                )
                findings.append(case)
                ahead = {data: slow.score - fast.score for data, (fast, slow) in compared.items()}
                ends = [float(np.median([both[i].end for both in compared.values()])) for i in (0, 1)]
                told = f"{np.median(list(ahead.values())):+.2f}"
                rows.append((reading, pair.setting, penalty, case.count, told, *map(small, ends)))
                values.append(
                    case.values()
                    | {
                        "outcomes": became,
                        "decades_ahead": {data: finite(each) for data, each in ahead.items()},
                        "fast_end": {data: finite(both[0].end) for data, both in compared.items()},
                        "slow_end": {data: finite(both[1].end) for data, both in compared.items()},
                        "slow_improves": {data: both[1].improves for data, both in compared.items()},
                    }
                )
        alone = len(self.pairs) == 1
        ends_at = [f"{each.label} ends at" for each in (self.pairs[0].fast, self.pairs[0].slow)]
        return Verdict(
            claim=self.name,
            statement=self.statement,
            where=self.where,
            run=f"{enumerated(dict.fromkeys(pair.figure.name for pair in self.pairs))}: the figures' runs on "
            f"{enumerated(plan.data)}, seeds 0 to {plan.n_seeds - 1}, at {enumerated(plan.penalties)}.",
            rule=f"{SCORE_RULE} {share_rule('' if alone else 'what is fixed and how masks are drawn')}",
            word=word_of(findings),
            readings=readings_of(findings),
            why=f"{summary(findings)} {told_outcomes(outcomes)} {self.remark(values)}".strip(),
            numbers=Table(
                (
                    *("reading", "setting", "penalty", "faster on", "decades ahead"),
                    *(ends_at if alone else ("it ends at", "the other ends at")),
                ),
                tuple(rows),
            ),
            values={"cases": values},
        )


def told_outcomes(outcomes: Counter[tuple[str, str]]) -> str:
    """How often each outcome was met, by reading."""
    parts = []
    for reading in dict.fromkeys(reading for reading, _ in outcomes):
        own = {what: number for (name, what), number in outcomes.items() if name == reading}
        listed = ", ".join(f"{what} {number}" for what, number in sorted(own.items(), key=lambda item: -item[1]))
        parts.append(f"{reading}: {listed}")
    return f"Comparisons (a data set at a penalty), {'; '.join(parts)}."


def slow_or_diverging(cases: list[dict[str, Any]]) -> str:
    """Whether one region a round is slow, as the paper has it, or leads away."""
    parts = []
    for reading in dict.fromkeys(case["reading"] for case in cases):
        improves = [each for case in cases if case["reading"] == reading for each in case["slow_improves"].values()]
        parts.append(f"{reading} {len(improves) - sum(improves)} of {len(improves)}")
    return (
        "The paper reports slow convergence; here psi*=10, S*=1 ends above its start, so does not converge, "
        f"in (data set, penalty): {', '.join(parts)}."
    )


def _fixed_psi() -> Iterator[Pair]:
    for name, psi in product(("fig2", "fig2-longest"), (1, 2)):
        setting = f"psi*={psi}, {DRAWING[name]}"
        yield Pair(FIGURES[name], setting, curve(name, psi, gamma=2), curve(name, psi, gamma=4))


def _fixed_gamma() -> Iterator[Pair]:
    for name, gamma in product(("fig2", "fig2-longest"), (2, 4)):
        setting = f"gamma={gamma}, {DRAWING[name]}"
        yield Pair(FIGURES[name], setting, curve(name, 2, gamma=gamma), curve(name, 1, gamma=gamma))


ORDERINGS = (
    Ordering(
        "larger-psi-is-faster",
        "With every region trained in every round (S*=4), psi*=3 converges faster than psi*=1.",
        "section 6.2, Fig. 1",
        (Pair(FIGURES["fig1"], "", curve("fig1", 3), curve("fig1", 1)),),
    ),
    Ordering(
        "one-region-is-slow",
        "With psi*=10 but one region a round (S*=1) convergence is very slow; here: slower than psi*=3, S*=4.",
        "section 6.2, Fig. 1",
        (Pair(FIGURES["fig1"], "", curve("fig1", 3), curve("fig1", 10, S=1)),),
        slow_or_diverging,
    ),
    Ordering(
        "smaller-gamma-is-faster",
        "At fixed psi*, gamma=2 converges faster than gamma=4.",
        "section 6.2, Fig. 2",
        tuple(_fixed_psi()),
    ),
    Ordering(
        "larger-psi-is-faster-at-fixed-gamma",
        "At fixed gamma, psi*=2 converges faster than psi*=1.",
        "section 6.2, Fig. 2",
        tuple(_fixed_gamma()),
    ),
)
