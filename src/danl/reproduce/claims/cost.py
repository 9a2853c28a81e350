"""The claims of efficient communication and of robustness, beside what a user would try instead.

Bytes to a given gap, beside first-order methods with a tuned learning rate; even shards, beside shards skewed by label.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np

from danl.reproduce.claims.base import Case, Claim, Found, Groups, Judged, NumbersTable, grouped
from danl.reproduce.claims.measures import CONVERGED, SOLVED, clipped_gap, exchanges_to, median, reached
from danl.reproduce.claims.rules import case_values, most_data, sentence
from danl.reproduce.runs import MILD, PAPER, READINGS, ROUNDS, Plan, RunSpec
from danl.reproduce.store import StoredRun
from danl.wording import listed

GAPS = {f"gap {gap:.0e}": gap for gap in (1e-4, SOLVED)}
FIRST_ORDER_ROUNDS = 350
"""Of a first-order method: more bytes than the readings spend in the runs they are compared with."""
POLICY = "coverage:psi=3"
PARTITIONS = ("iid", "dirichlet:alpha=1.0", "dirichlet:alpha=0.1")
FACTOR = 2.0


def penalties(plan: Plan) -> list[str]:
    """The paper's and the mild one; those of the plan if it has neither."""
    return [each for each in plan.penalties if each in (PAPER, MILD)] or list(plan.penalties)


def first_order(plan: Plan) -> list[str]:
    """Gradient descent and FedAvg, with the steps and learning rates tried; the first of each where seeds are few."""
    rates, numbers = (("1.9/L", "1/L"), (5, 20)) if plan.n_seeds > 2 else (("1.9/L",), (5,))
    descent = [f"gd:learning_rate={rate}" for rate in rates]
    return descent + [f"fedavg:steps={steps},learning_rate={rate}" for steps, rate in product(numbers, rates)]


def cost_cases(plan: Plan) -> Iterator[Case]:
    """A case a gap, a penalty and a reading; the first-order runs are beside the reading's."""
    for setting, penalty, reading in product(GAPS, penalties(plan), READINGS):
        runs = {
            data: {
                "reading": [RunSpec(data, penalty, reading, POLICY)],
                "first-order": [
                    RunSpec(data, penalty, method, rounds=FIRST_ORDER_ROUNDS) for method in first_order(plan)
                ],
            }
            for data in plan.data
        }
        yield Case(reading, setting, penalty, runs)


def spent(stored: StoredRun, gap: float) -> Found:
    """The megabytes a run spent to get to a gap, or in all where it did not get there; infinity where it diverged."""
    exchanges, total = exchanges_to(stored, gap), stored.history.total_bytes() / 1e6
    there = exchanges < np.inf
    megabytes = 0.0 if exchanges == 0 else float(total[int(exchanges) - 1 if there else -1])
    if stored.status == "diverged":
        megabytes = np.inf  # it would never get there
    return {"reached": there, "spent": megabytes, "end": float(stored.gaps()[-1]), "method": stored.run.method}


def cheaper(one: Found, other: Found) -> bool:
    """Whether a run gets there with fewer bytes than the other one has spent on it, in vain or not."""
    return bool(one["reached"] and one["spent"] < other["spent"])


def costs(case: Case, runs: Groups) -> Found:
    """What the reading spent, and the best first-order method: the cheapest that gets there, else what ends lowest."""
    (own,), others = ([spent(each, GAPS[case.setting]) for each in group] for group in runs.values())
    reaching = [each for each in others if each["reached"]]
    best = min(reaching or others, key=lambda each: each["spent" if reaching else "end"])
    return {
        "own": own,
        "best": best,
        "cheaper": all(cheaper(own, each) for each in others),
        "beaten": best["reached"] and not cheaper(own, best),
        "megabytes": spent_values(own),
    }


def spent_values(run: Found) -> Found:
    return {name: run[name] for name in ("reached", "spent", "end")}


def megabytes(run: Found) -> str:
    if run["spent"] == np.inf:
        return "diverges"
    return f"{'' if run['reached'] else 'not in '}{run['spent']:.2f}"


def problem_groups(judged: Judged) -> list[tuple[str, str, list[Case], dict[str, Found]]]:
    """Gap, penalty, the cases of all readings, and the best first-order method by data set."""
    return [
        (f"{GAPS[setting]:.0e}", penalty, own, {data: found["best"] for data, found in own[0].found.items()})
        for (setting, penalty), own in grouped(judged, "setting", "penalty").items()
    ]


def cost_reason(judged: Judged) -> str:
    reasons, beaten = [], []
    for gap, penalty, readings, best in problem_groups(judged):
        to = f"at {penalty} to {gap}"
        reasons.append(f"{sum(each['reached'] for each in best.values())} of {len(best)} {to}")
        beaten += [
            f"{data} {to} ({each['method']}, {megabytes(each)} MB)"
            for data, each in best.items()
            if all(reading.found[data]["beaten"] for reading in readings)
        ]
    beats = f" It beats every reading on {listed(beaten, None)}." if beaten else ""
    return f"The best first-order run gets there on: {'; '.join(reasons)}.{beats}"


def cost_rows(judged: Judged) -> NumbersTable:
    rows = [
        (
            *(data, penalty, gap, *(megabytes(reading.found[data]["own"]) for reading in readings)),
            *(megabytes(each), each["method"], clipped_gap(each["end"])),
        )
        for gap, penalty, readings, best in problem_groups(judged)
        for data, each in best.items()
    ]
    readings = [f"{each}, MB" for each in READINGS]
    return NumbersTable(("data", "penalty", "gap", *readings, "first-order, MB", "which", "ends at"), tuple(rows))


def cost_values(judged: Judged) -> dict[str, Any]:
    entries = []
    for _, penalty, readings, best in problem_groups(judged):
        beside = {
            "reading": "first-order",
            "setting": readings[0].setting,
            "penalty": penalty,
            "megabytes": {data: spent_values(each) for data, each in best.items()},
            "method": {data: each["method"] for data, each in best.items()},
        }
        entries += [*(each.values("megabytes") for each in readings), beside]
    return {"cases": entries}


FEWER_BYTES = Claim(
    name="fewer-bytes-than-first-order",
    statement="DANL communicates efficiently; here: fewer bytes than tuned first-order methods.",
    where="abstract, section 1",
    run=lambda judged: (
        f"{listed(judged.plan.data)}, seed 0, at {listed(penalties(judged.plan))}: the readings with "
        f"psi*=3, {ROUNDS} rounds; {', '.join(first_order(judged.plan))}, {FIRST_ORDER_ROUNDS} rounds. Bytes up "
        "and down, Hessians included, the common FedAvg start not."
    ),
    condition="A reading is cheaper on a data set at a penalty if it gets to the gap "
    f"({' or '.join(f'{gap:.0e}' for gap in GAPS.values())}), for good, with fewer bytes than each first-order run "
    f"needs for it, or has spent in all its {FIRST_ORDER_ROUNDS} rounds where it does not get there (a run that "
    "diverged never would).",
    cases=cost_cases,
    measure=costs,
    shows=lambda found: found["cheaper"],
    rule=most_data("a gap to reach"),
    reason=cost_reason,
    table=cost_rows,
    values=cost_values,
)


def seeds(plan: Plan) -> range:
    """Half of the plan's seeds, rounded up: at most three of five, one of two."""
    return range((plan.n_seeds + 1) // 2)


def shard_cases(plan: Plan) -> Iterator[Case]:
    """A case a reading and penalty; a group is one kind of shards."""
    for reading, penalty in product(READINGS, penalties(plan)):
        runs = {
            data: {
                kind: [RunSpec(data, penalty, reading, POLICY, seed, partition=kind) for seed in seeds(plan)]
                for kind in PARTITIONS
            }
            for data in plan.data
        }
        yield Case(reading, "", penalty, runs)


def with_shards(case: Case, runs: Groups) -> Found:
    """Median exchanges by kind of shards, and the most by those of even shards; infinity where one is not reached."""
    needed = {kind: median(exchanges_to(each, CONVERGED) for each in group) for kind, group in runs.items()}
    most = max(needed.values())
    return {"exchanges": needed, "ratio": most / max(needed["iid"], 1.0) if most < np.inf else np.inf}


def with_all_shards(reading: str, cases: list[Case]) -> str:
    there, share = reached(cases, "ratio")
    worst = f", with at most {max(there):.1f} times the exchanges of even ones" if there else ""
    return f"{reading} gets there with all shards on {share}{worst}"


def shard_rows(judged: Judged) -> NumbersTable:
    rows = [
        (
            data,
            each.reading,
            each.penalty,
            *(f"{value:g}" if value < np.inf else "not reached" for value in found["exchanges"].values()),
        )
        for each in judged
        for data, found in each.found.items()
    ]
    return NumbersTable(("data", "reading", "penalty", *PARTITIONS), tuple(rows))


ROBUST = Claim(
    name="robust-to-heterogeneity",
    statement="DANL handles heterogeneous data.",
    where="abstract, section 1",
    run=lambda judged: (
        f"{listed(judged.plan.data)}, {len(seeds(judged.plan))} seed(s), at "
        f"{listed(penalties(judged.plan))}, psi*=3: shards {listed(PARTITIONS)}. Shards of uneven size also change the "
        "objective: every worker counts 1/N, and the paper's penalty is lambda/m_i."
    ),
    condition=f"A reading is robust on a data set at a penalty if it gets to a gap of {CONVERGED:.0e}, for good, "
    f"within {ROUNDS} rounds with all three kinds of shards, and skewed ones take at most {FACTOR:g} times the "
    "exchanges of even ones (medians over seeds).",
    cases=shard_cases,
    measure=with_shards,
    shows=lambda found: found["ratio"] <= FACTOR,
    rule=most_data(),
    reason=sentence("Of (data set, penalty): {}.", with_all_shards),
    table=shard_rows,
    values=case_values("exchanges"),
)
