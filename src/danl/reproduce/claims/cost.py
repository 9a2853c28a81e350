"""The claim of efficient communication: bytes to a given gap, beside first-order methods with a tuned learning rate."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from danl.reproduce.claims.base import Reader, Table, Verdict
from danl.reproduce.claims.cases import Finding, enumerated, finite, readings_of, share_rule, small, summary, word_of
from danl.reproduce.claims.measures import SOLVED, exchanges_to
from danl.reproduce.runs import MILD, PAPER, READINGS, Plan, Run
from danl.reproduce.store import Stored

GAPS = (1e-4, SOLVED)
ROUNDS = 350
"""Of a first-order method: more bytes than the readings spend in the runs they are compared with."""
POLICY = "coverage:psi=3"


def penalties(plan: Plan) -> list[str]:
    """The paper's and the mild one; those of the plan if it has neither."""
    return [each for each in plan.penalties if each in (PAPER, MILD)] or list(plan.penalties)


def first_order(plan: Plan) -> list[str]:
    """Gradient descent and FedAvg, with the steps and learning rates tried; the first of each where seeds are few."""
    rates, numbers = (("1.9/L", "1/L"), (5, 20)) if plan.n_seeds > 2 else (("1.9/L",), (5,))
    descent = [f"gd:learning_rate={rate}" for rate in rates]
    return descent + [f"fedavg:steps={steps},learning_rate={rate}" for steps, rate in product(numbers, rates)]


@dataclass(frozen=True)
class Spent:
    """What a run spent to get to a gap, or in all where it did not get there; infinity where it diverged."""

    method: str
    bytes: float
    reached: bool
    end: float

    @classmethod
    def of(cls, stored: Stored, gap: float) -> Spent:
        exchanges, total = exchanges_to(stored, gap), stored.history.total_bytes()
        reached = exchanges < float("inf")
        spent = 0.0 if exchanges == 0 else float(total[int(exchanges) - 1 if reached else -1])
        if stored.status == "diverged":
            spent = float("inf")  # it would never get there
        return cls(stored.run.method, spent, reached, float(stored.gaps()[-1]))

    @property
    def told(self) -> str:
        if self.bytes == float("inf"):
            return "diverges"
        megabytes = f"{self.bytes / 1e6:.2f}"
        return megabytes if self.reached else f"not in {megabytes}"


def cheaper(reading: Spent, others: list[Spent]) -> bool:
    """Whether the reading gets there with fewer bytes than every other one has spent on it, in vain or not."""
    return reading.reached and all(reading.bytes < each.bytes for each in others)


def beats(other: Spent, reading: Spent) -> bool:
    """Whether a first-order run gets there, and the reading does not with fewer bytes."""
    return other.reached and not (reading.reached and reading.bytes < other.bytes)


class FewerBytes:
    """Fewer bytes than first-order methods."""

    name = "fewer-bytes-than-first-order"

    def runs(self, plan: Plan) -> Iterator[Run]:
        for data, penalty in product(plan.data, penalties(plan)):
            for reading in READINGS:
                yield self.reading_run(data, penalty, reading)
            yield from self.other_runs(plan, data, penalty)

    @staticmethod
    def reading_run(data: str, penalty: str, reading: str) -> Run:
        return Run(data, penalty, reading, POLICY)

    @staticmethod
    def other_runs(plan: Plan, data: str, penalty: str) -> list[Run]:
        return [Run(data, penalty, method, rounds=ROUNDS) for method in first_order(plan)]

    def judge(self, plan: Plan, read: Reader) -> Verdict:
        findings, rows, values, reasons, beaten = [], [], [], [], []
        for gap, penalty in product(GAPS, penalties(plan)):
            own = {
                reading: {data: Spent.of(read(self.reading_run(data, penalty, reading)), gap) for data in plan.data}
                for reading in READINGS
            }
            others = {
                data: [Spent.of(read(run), gap) for run in self.other_runs(plan, data, penalty)] for data in plan.data
            }
            for reading, spent in own.items():
                case = Finding(
                    reading, f"gap {gap:.0e}", penalty, {data: cheaper(spent[data], others[data]) for data in plan.data}
                )
                findings.append(case)
                values.append(case.values() | {"megabytes": {data: _values(each) for data, each in spent.items()}})
            best = {data: best_of(each) for data, each in others.items()}
            values.append(
                {"reading": "first-order", "setting": f"gap {gap:.0e}", "penalty": penalty}
                | {"megabytes": {data: _values(each) for data, each in best.items()}}
                | {"method": {data: each.method for data, each in best.items()}}
            )
            reached = sum(each.reached for each in best.values())
            reasons.append(f"{reached} of {len(best)} at {penalty} to {gap:.0e}")
            for data in plan.data:
                told = [own[reading][data].told for reading in READINGS]
                if all(beats(best[data], own[reading][data]) for reading in READINGS):
                    beaten.append(f"{data} at {penalty} to {gap:.0e} ({best[data].method}, {best[data].told} MB)")
                rows.append(
                    (data, penalty, f"{gap:.0e}", *told, best[data].told, best[data].method, small(best[data].end))
                )
        return Verdict(
            claim=self.name,
            statement="DANL communicates efficiently; here: fewer bytes than tuned first-order methods.",
            where="abstract, section 1",
            run=f"{enumerated(plan.data)}, seed 0, at {enumerated(penalties(plan))}: the readings with psi*=3, 100 "
            f"rounds; {', '.join(first_order(plan))}, {ROUNDS} rounds. Bytes up and down, Hessians included, the "
            "common FedAvg start not.",
            rule=f"A reading is cheaper on a data set at a penalty if it gets to the gap ({GAPS[0]:.0e} or "
            f"{GAPS[1]:.0e}), for good, with fewer bytes than each first-order run needs for it, or has spent in all "
            f"its {ROUNDS} rounds where it does not get there (a run that diverged never would). "
            f"{share_rule('a gap to reach')}",
            word=word_of(findings),
            readings=readings_of(findings),
            why=f"{summary(findings)} The best first-order run gets there on: {'; '.join(reasons)}.{_beaten(beaten)}",
            numbers=Table(
                (
                    "data",
                    "penalty",
                    "gap",
                    *(f"{each}, MB" for each in READINGS),
                    "first-order, MB",
                    "which",
                    "ends at",
                ),
                tuple(rows),
            ),
            values={"cases": values},
        )


def _beaten(where: list[str]) -> str:
    return f" It beats every reading on {enumerated(where)}." if where else ""


def best_of(spent: list[Spent]) -> Spent:
    """The cheapest that gets there; where none does, the one that ends lowest."""
    reaching = [each for each in spent if each.reached]
    return min(reaching, key=lambda each: each.bytes) if reaching else min(spent, key=lambda each: each.end)


def _values(spent: Spent) -> dict[str, float | bool | None]:
    return {"reached": spent.reached, "spent": finite(spent.bytes / 1e6), "end": finite(spent.end)}
