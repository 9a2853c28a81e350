"""Claims about the condition number: that the rate does not depend on it, and that first-order methods depend more.

The same data with penalties from 1e-1 to 1e-6, and with badly scaled features, make condition numbers that differ by
orders of magnitude. Counted is what a person waits for: exchanges until the gap is 1e-6 for good, starting from zero
(FedAvg's tenth iterate is nearly the optimum where the penalty is large).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from danl.reproduce.claims.base import Reader, Table, Verdict
from danl.reproduce.claims.cases import count, enumerated, finite, word_for
from danl.reproduce.claims.measures import CONVERGED, exchanges_to
from danl.reproduce.runs import MILD, READINGS, Plan, Run

ALPHAS = ("alpha=0.1", "alpha=0.01", MILD, "alpha=0.0001", "alpha=1e-05", "alpha=1e-06")
DECADES = 3.0
MASKS = {"full masks": "full", "psi*=3": "coverage:psi=3"}
GROWTH = 2.0
"""Times the exchanges of the best conditioned problem that still count as independent."""
MARGIN = 0.5
"""Share of gradient descent's growth that counts as less sensitive."""
ROUNDS = 100
GRADIENT_DESCENT = "gd"


@dataclass(frozen=True)
class Conditioned:
    """One problem of the series."""

    data: str
    penalty: str
    decades: float = 0.0

    @property
    def label(self) -> str:
        return f"{self.penalty}, features over {self.decades:g} decades" if self.decades else self.penalty

    def run(self, method: str, policy: str = "full", rounds: int = ROUNDS) -> Run:
        return Run(self.data, self.penalty, method, policy, start="zero", decades=self.decades, rounds=rounds)


def series(plan: Plan) -> dict[str, list[Conditioned]]:
    """Problems by data set: the first and the last of the plan's; every other penalty where the plan has few seeds."""
    sets = dict.fromkeys((plan.data[0], plan.data[-1]))
    alphas = ALPHAS if plan.n_seeds > 2 else (ALPHAS[0], MILD, ALPHAS[-1])
    return {data: [*(Conditioned(data, alpha) for alpha in alphas), Conditioned(data, MILD, DECADES)] for data in sets}


def descent_rounds(plan: Plan) -> int:
    """Rounds of gradient descent: 200 a seed of the plan."""
    return 200 * plan.n_seeds


@dataclass(frozen=True)
class Growth:
    """Exchanges along the series for one method, and by what factor they grow."""

    data: str
    exchanges: dict[str, float]

    @property
    def reached(self) -> bool:
        return all(each < float("inf") for each in self.exchanges.values())

    def factor(self, limit: float) -> float:
        """The most by the fewest exchanges; where a run did not get there, `limit` stands for it: at least so much."""
        counts = [max(min(each, limit), 1.0) for each in self.exchanges.values()]
        return max(counts) / min(counts)

    def told(self, limit: float) -> str:
        if not any(each < float("inf") for each in self.exchanges.values()):
            return "-"
        return f"{'' if self.reached else 'over '}{self.factor(limit):.1f}"


class _Series:
    """What both claims read."""

    def runs(self, plan: Plan) -> Iterator[Run]:
        for problem in (each for problems in series(plan).values() for each in problems):
            for reading, policy in product(READINGS, MASKS.values()):
                yield problem.run(reading, policy)
            yield problem.run(GRADIENT_DESCENT, rounds=descent_rounds(plan))

    @staticmethod
    def growths(plan: Plan, read: Reader) -> tuple[dict[tuple[str, str], list[Growth]], list[Growth]]:
        """For each reading and masks, and for gradient descent: one a data set."""

        def along(problems: list[Conditioned], method: str, policy: str = "full", rounds: int = ROUNDS) -> Growth:
            needed = {each.label: exchanges_to(read(each.run(method, policy, rounds)), CONVERGED) for each in problems}
            return Growth(problems[0].data, needed)

        problems = list(series(plan).values())
        readings = {
            (reading, masks): [along(each, reading, policy) for each in problems]
            for reading, (masks, policy) in product(READINGS, MASKS.items())
        }
        return readings, [along(each, GRADIENT_DESCENT, rounds=descent_rounds(plan)) for each in problems]

    @staticmethod
    def condition_numbers(plan: Plan, read: Reader) -> list[float]:
        records = [read(each.run(READINGS[0])).record for problems in series(plan).values() for each in problems]
        return [each["smoothness"] / each["strong_convexity"] for each in records]

    def verdict(
        self, plan: Plan, read: Reader, *, name: str, statement: str, where: str, rule: str, compared: bool
    ) -> Verdict:
        readings, descents = self.growths(plan, read)
        limit, numbers = descent_rounds(plan) + 1, self.condition_numbers(plan, read)
        worst = {data: descent.factor(limit) for data, descent in zip(series(plan), descents, strict=True)}
        shown = {
            case: all(
                each.reached
                and (each.factor(limit) <= MARGIN * worst[each.data] if compared else each.factor(limit) <= GROWTH)
                for each in growths
            )
            for case, growths in readings.items()
        }
        labels = list(descents[0].exchanges)
        rows = [
            (
                *(growth.data, *case),
                *(count(growth.exchanges[label], f"not in {most}") for label in labels),
                growth.told(most),
            )
            for case, growths, most in [
                *((case, growths, ROUNDS + 1) for case, growths in readings.items()),
                ((GRADIENT_DESCENT, "full masks"), descents, limit),
            ]
            for growth in growths
        ]
        return Verdict(
            claim=name,
            statement=statement,
            where=where,
            run=f"{enumerated(series(plan))}, seed 0, from zero, at {enumerated(labels)}: condition numbers L / mu "
            f"from {min(numbers):.0e} to {max(numbers):.0e}. The readings with full masks and with psi*=3, at most 100 "
            f"rounds; gradient descent with steps of 1/L, at most {descent_rounds(plan)}.",
            rule=rule,
            word=word_for(shown.values()),
            readings=tuple(f"{reading}: {masks}" for (reading, masks), each in shown.items() if each),
            why=told(readings, descents, limit, numbers),
            numbers=Table(("data", "method", "masks", *labels, "growth"), tuple(rows)),
            values={
                "condition_numbers": [finite(each) for each in numbers],
                "cases": [
                    {
                        "reading": reading,
                        "setting": masks,
                        "shown": shown[reading, masks],
                        "exchanges": {each.data: {k: finite(v) for k, v in each.exchanges.items()} for each in growths},
                        "growth": {
                            each.data: finite(each.factor(ROUNDS + 1)) if each.reached else None for each in growths
                        },
                    }
                    for (reading, masks), growths in readings.items()
                ],
                "gd_growth_at_least": {data: finite(each) for data, each in worst.items()},
            },
        )


def told(
    readings: dict[tuple[str, str], list[Growth]], descents: list[Growth], limit: float, numbers: list[float]
) -> str:
    """The growth of each case in one line."""
    parts = []
    for (reading, masks), growths in readings.items():
        missed = sum(each == float("inf") for growth in growths for each in growth.exchanges.values())
        total = sum(len(growth.exchanges) for growth in growths)
        factor = max(growth.factor(ROUNDS + 1) for growth in growths)
        parts.append(
            f"{reading}, {masks}: " + (f"{missed} of {total} do not get there" if missed else f"{factor:.1f} x")
        )
    descent = " and ".join(
        f"{'' if each.reached else 'more than '}{each.factor(limit):.1f} x on {each.data}" for each in descents
    )
    return (
        f"While the condition number grows {max(numbers) / min(numbers):.0e} times, exchanges to {CONVERGED:.0e} grow "
        f"at most: {'; '.join(parts)}. Gradient descent: {descent}."
    )


class IndependentOfCondition(_Series):
    """The rate is independent of the condition number."""

    name = "independent-of-condition-number"

    def judge(self, plan: Plan, read: Reader) -> Verdict:
        return self.verdict(
            plan,
            read,
            name=self.name,
            statement="The rate is independent of the condition number (Theorem 1: near w*; here: over a whole run).",
            where="abstract, Theorem 1",
            rule=f"A reading with given masks shows it if it gets to a gap of {CONVERGED:.0e} for good on every "
            f"problem of the series within {ROUNDS} rounds, with at most {GROWTH:g} times the exchanges of the problem "
            "that needs fewest, on every data set. The claim holds if every reading does with both "
            "masks, and for some if at least one does.",
            compared=False,
        )


class LessSensitive(_Series):
    """Less sensitive to the condition number than first-order methods."""

    name = "less-sensitive-than-first-order"

    def judge(self, plan: Plan, read: Reader) -> Verdict:
        return self.verdict(
            plan,
            read,
            name=self.name,
            statement="DANL is less sensitive to the condition number than first-order methods.",
            where="section 1",
            rule=f"Growth: the most exchanges to a gap of {CONVERGED:.0e} for good on a problem of the series by the "
            f"fewest. A reading with given masks shows it if it gets there on every problem within {ROUNDS} rounds, "
            f"and its growth is at most {MARGIN:g} times gradient descent's (whose growth counts as what its rounds "
            "allow where it does not get there), on every data set. The claim holds if every reading does with both "
            "masks, and for some if at least one does.",
            compared=True,
        )
