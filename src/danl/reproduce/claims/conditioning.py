"""Claims about the condition number: that the rate does not depend on it, and that first-order methods depend more.

The same data with penalties from 1e-1 to 1e-6, and with badly scaled features, make condition numbers that differ by
orders of magnitude. Counted is what a person waits for: exchanges until the gap is 1e-6 for good, starting from zero
(FedAvg's tenth iterate is nearly the optimum where the penalty is large).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import product
from typing import Any

import numpy as np

from danl.reproduce.claims.base import Case, Claim, Found, Groups, Judged, NumbersTable, found_values
from danl.reproduce.claims.measures import CONVERGED, exchanges_to
from danl.reproduce.claims.rules import pooled, sentence
from danl.reproduce.runs import MILD, READINGS, ROUNDS, Plan, RunSpec
from danl.reproduce.store import StoredRun
from danl.wording import listed

ALPHAS = ("alpha=0.1", "alpha=0.01", MILD, "alpha=0.0001", "alpha=1e-05", "alpha=1e-06")
DECADES = 3.0
MASKS = {"full masks": "full", "psi*=3": "coverage:psi=3"}
GROWTH = 2.0
"""Times the exchanges of the best conditioned problem that still count as independent."""
MARGIN = 0.5
"""Share of gradient descent's growth that counts as less sensitive."""
GRADIENT_DESCENT = "gd"


def problems(plan: Plan) -> dict[str, tuple[str, float]]:
    """The series, by label: penalty and decades of the features; every other penalty where the plan has few seeds."""
    alphas = ALPHAS if plan.n_seeds > 2 else (ALPHAS[0], MILD, ALPHAS[-1])
    return {alpha: (alpha, 0.0) for alpha in alphas} | {f"{MILD}, features over {DECADES:g} decades": (MILD, DECADES)}


def descent_rounds(plan: Plan) -> int:
    """Rounds of gradient descent: 200 a seed of the plan."""
    return 200 * plan.n_seeds


def series_cases(plan: Plan) -> list[Case]:
    """A case a reading and masks, on the first and the last data set of the plan.

    A group is one problem, with two runs: the reading's and gradient descent's.
    """

    def runs(data: str, reading: str, policy: str) -> dict[str, list[RunSpec]]:
        methods = ((reading, policy, ROUNDS), (GRADIENT_DESCENT, "full", descent_rounds(plan)))
        return {
            label: [
                RunSpec(data, penalty, method, masks, start="zero", decades=decades, rounds=rounds)
                for method, masks, rounds in methods
            ]
            for label, (penalty, decades) in problems(plan).items()
        }

    return [
        Case(reading, masks, "", {data: runs(data, reading, policy) for data in plan.first_and_last})
        for reading, (masks, policy) in product(READINGS, MASKS.items())
    ]


def growth_along(runs: dict[str, StoredRun]) -> Found:
    """Exchanges along the series for one method, how many do not get there, and the most by the fewest.

    A run that does not get there counts as one exchange more than it had rounds: at least so many.
    """
    exchanges = {label: exchanges_to(each, CONVERGED) for label, each in runs.items()}
    limit = max(each.run.rounds for each in runs.values()) + 1
    counts = [max(min(each, limit), 1.0) for each in exchanges.values()]
    missed, factor = sum(each == np.inf for each in exchanges.values()), max(counts) / min(counts)
    cells = [f"{each:g}" if each < np.inf else f"not in {limit}" for each in exchanges.values()]
    cells.append("-" if missed == len(counts) else f"{'over ' if missed else ''}{factor:.1f}")
    return {"exchanges": exchanges, "missed": missed, "factor": factor, "cells": tuple(cells)}


def sensitivity(case: Case, runs: Groups) -> Found:
    """A reading and gradient descent along the series."""
    own, descent = (growth_along({label: pair[place] for label, pair in runs.items()}) for place in (0, 1))
    records = [reading.record for reading, _ in runs.values()]
    return {
        "own": own,
        "descent": descent,
        "condition_numbers": [each["smoothness"] / each["strong_convexity"] for each in records],
        "exchanges": own["exchanges"],
        "growth": None if own["missed"] else own["factor"],
    }


def condition_numbers(judged: Judged) -> list[float]:
    return found_values(judged.cases[:1], "condition_numbers")


def series_run(judged: Judged) -> str:
    numbers, plan = condition_numbers(judged), judged.plan
    return (
        f"{listed(judged.cases[0].found)}, seed 0, from zero, at {listed(problems(plan))}: condition numbers L / mu "
        f"from {min(numbers):.0e} to {max(numbers):.0e}. The readings with full masks and with psi*=3, at most "
        f"{ROUNDS} rounds; gradient descent with steps of 1/L, at most {descent_rounds(plan)}."
    )


def growth(case: str, cases: Iterable[Case]) -> str:
    growths = found_values(cases, "own")
    missed, total = sum(each["missed"] for each in growths), sum(len(each["exchanges"]) for each in growths)
    worst = max(each["factor"] for each in growths)
    return f"{case}: " + (f"{missed} of {total} do not get there" if missed else f"{worst:.1f} x")


def growth_reason(judged: Judged) -> str:
    """The growth of each case in one line."""
    numbers = condition_numbers(judged)
    descent = " and ".join(
        f"{'more than ' if found['descent']['missed'] else ''}{found['descent']['factor']:.1f} x on {data}"
        for data, found in judged.cases[0].found.items()
    )
    return sentence(
        f"While the condition number grows {max(numbers) / min(numbers):.0e} times, exchanges to {CONVERGED:.0e} grow "
        f"at most: {{}}. Gradient descent: {descent}.",
        growth,
        "reading",
        "setting",
    )(judged)


def growth_rows(judged: Judged) -> NumbersTable:
    lines = [("own", each.reading, each.setting, each) for each in judged]
    lines.append(("descent", GRADIENT_DESCENT, "full masks", judged.cases[0]))
    rows = [
        (data, method, masks, *found[which]["cells"])
        for which, method, masks, case in lines
        for data, found in case.found.items()
    ]
    return NumbersTable(("data", "method", "masks", *problems(judged.plan), "growth"), tuple(rows))


def growth_values(judged: Judged) -> dict[str, Any]:
    cases = [each.values("exchanges", "growth") | {"shown": all(each.shown_on.values())} for each in judged]
    shown = ("reading", "setting", "shown", "exchanges", "growth")
    return {
        "condition_numbers": condition_numbers(judged),
        "cases": [{name: case[name] for name in shown} for case in cases],
        "gd_growth_at_least": {data: each["descent"]["factor"] for data, each in judged.cases[0].found.items()},
    }


def about_condition(
    name: str, statement: str, where: str, condition: str, shows: Callable[[float, float], bool]
) -> Claim:
    """A claim on the series; `shows` compares a reading's growth, where all runs get there, with gradient descent's."""
    return Claim(
        name=name,
        statement=statement,
        where=where,
        run=series_run,
        condition=f"{condition}, on every data set.",
        cases=series_cases,
        measure=sensitivity,
        shows=lambda found: not found["own"]["missed"] and shows(found["own"]["factor"], found["descent"]["factor"]),
        rule=pooled(
            "The claim holds if every reading does with both masks, and for some if at least one does.",
            lambda cases: all(all(each.shown_on.values()) for each in cases),
            *("reading", "setting"),
        ),
        reason=growth_reason,
        table=growth_rows,
        values=growth_values,
    )


INDEPENDENT = about_condition(
    "independent-of-condition-number",
    "The rate is independent of the condition number (Theorem 1: near w*; here: over a whole run).",
    "abstract, Theorem 1",
    f"A reading with given masks shows it if it gets to a gap of {CONVERGED:.0e} for good on every problem of the "
    f"series within {ROUNDS} rounds, with at most {GROWTH:g} times the exchanges of the problem that needs fewest",
    lambda own, descent: own <= GROWTH,
)
LESS_SENSITIVE = about_condition(
    "less-sensitive-than-first-order",
    "DANL is less sensitive to the condition number than first-order methods.",
    "section 1",
    f"Growth: the most exchanges to a gap of {CONVERGED:.0e} for good on a problem of the series by the fewest. A "
    f"reading with given masks shows it if it gets there on every problem within {ROUNDS} rounds, and its growth is at "
    f"most {MARGIN:g} times gradient descent's (whose growth counts as what its rounds allow where it does not get "
    "there)",
    lambda own, descent: own <= MARGIN * descent,
)
