"""The claim that DANL handles heterogeneous data: even shards beside shards skewed by label."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from danl.reproduce.claims.base import Reader, Table, Verdict
from danl.reproduce.claims.cases import Finding, count, enumerated, finite, readings_of, share_rule, summary, word_of
from danl.reproduce.claims.cost import penalties
from danl.reproduce.claims.measures import CONVERGED, exchanges_to
from danl.reproduce.runs import READINGS, Plan, Run

PARTITIONS = ("iid", "dirichlet:alpha=1.0", "dirichlet:alpha=0.1")
FACTOR = 2.0
POLICY = "coverage:psi=3"


def seeds(plan: Plan) -> range:
    """Half of the plan's seeds, rounded up: at most three of five, one of two."""
    return range((plan.n_seeds + 1) // 2)


class RobustToHeterogeneity:
    """Skewed shards do little harm."""

    name = "robust-to-heterogeneity"

    def runs(self, plan: Plan) -> Iterator[Run]:
        for data, penalty, reading, partition in product(plan.data, penalties(plan), READINGS, PARTITIONS):
            yield from self.repeated(plan, data, penalty, reading, partition)

    @staticmethod
    def repeated(plan: Plan, data: str, penalty: str, reading: str, partition: str) -> list[Run]:
        return [Run(data, penalty, reading, POLICY, seed, partition=partition) for seed in seeds(plan)]

    def judge(self, plan: Plan, read: Reader) -> Verdict:
        findings, rows, values, ratios = [], [], [], {reading: list[float]() for reading in READINGS}
        for reading, penalty in product(READINGS, penalties(plan)):
            needed = {
                data: {
                    partition: float(
                        np.median(
                            [
                                exchanges_to(read(run), CONVERGED)
                                for run in self.repeated(plan, data, penalty, reading, partition)
                            ]
                        )
                    )
                    for partition in PARTITIONS
                }
                for data in plan.data
            }
            case = Finding(reading, "", penalty, {data: robust(each) for data, each in needed.items()})
            findings.append(case)
            for data, each in needed.items():
                rows.append((data, reading, penalty, *(count(each[partition]) for partition in PARTITIONS)))
                if all(np.isfinite(value) for value in each.values()):
                    ratios[reading].append(max(each.values()) / max(each["iid"], 1.0))
            values.append(
                case.values()
                | {"exchanges": {data: {k: finite(v) for k, v in each.items()} for data, each in needed.items()}}
            )
        total = len(plan.data) * len(penalties(plan))
        told = "; ".join(
            f"{reading} gets there with all shards on {len(each)} of {total}"
            + (f", with at most {max(each):.1f} times the exchanges of even ones" if each else "")
            for reading, each in ratios.items()
        )
        return Verdict(
            claim=self.name,
            statement="DANL handles heterogeneous data.",
            where="abstract, section 1",
            run=f"{enumerated(plan.data)}, {len(seeds(plan))} seed(s), at {enumerated(penalties(plan))}, psi*=3: "
            f"shards {enumerated(PARTITIONS)}. Shards of uneven size also change the objective: every worker counts "
            "1/N, and the paper's penalty is lambda/m_i.",
            rule=f"A reading is robust on a data set at a penalty if it gets to a gap of {CONVERGED:.0e}, for good, "
            f"within 100 rounds with all three kinds of shards, and skewed ones take at most {FACTOR:g} times the "
            f"exchanges of even ones (medians over seeds). {share_rule()}",
            word=word_of(findings),
            readings=readings_of(findings),
            why=f"{summary(findings)} Of (data set, penalty): {told}.",
            numbers=Table(("data", "reading", "penalty", *PARTITIONS), tuple(rows)),
            values={"cases": values},
        )


def robust(exchanges: dict[str, float]) -> bool:
    """Whether all get there, and none of the skewed ones in more than twice the exchanges."""
    return all(np.isfinite(each) for each in exchanges.values()) and (
        max(exchanges.values()) <= FACTOR * max(exchanges["iid"], 1.0)
    )
