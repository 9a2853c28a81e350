"""Theorem 1 on runs: is its bound kept where its conditions hold, and do they hold in the paper's experiments?

Judged are the two readings of Algorithm 1 the theorem is about. `danl` is another algorithm, and its rows show a step
when everyone has reported the loss, one exchange late, so the count of exchanges is not the theorem's t.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import product

from danl.reproduce.claims.base import Case, Claim, Found, Groups, Judged, NumbersTable, grouped
from danl.reproduce.claims.rules import pooled
from danl.reproduce.runs import MILD, NEAR, PAPER, START, Plan, RunSpec
from danl.wording import listed

ALGORITHM_1 = ("danl-paper", "danl-masked")
PENALTIES = ("alpha=1", "alpha=0.1", MILD, PAPER)
FULL, PARTIAL = "FedAvg start, full masks", "FedAvg start, psi*=3"
SETTINGS = {"near w*, full masks": (NEAR, "full"), FULL: (START, "full"), PARTIAL: (START, "coverage:psi=3")}


def certified_cases(plan: Plan, penalties: Sequence[str]) -> list[Case]:
    """One seed on the first and the last data set of the plan."""
    cases = []
    for penalty, reading, (setting, (start, policy)) in product(penalties, ALGORITHM_1, SETTINGS.items()):
        runs = [RunSpec(data, penalty, reading, policy, start=start, certified=True) for data in plan.first_and_last]
        cases.append(Case(reading, setting, penalty, {run.data: {"": [run]} for run in runs}))
    return cases


def certified(case: Case, runs: Groups) -> Found:
    """What the certificate of the run says, and whether the run can tell anything."""
    run, record = runs[""][0].run, runs[""][0].record
    certificate, distance = record["certificate"], record["start"]["distance"]
    limits = [certificate["constants"][name] for name in ("high", "reach")]
    return {
        "run": run.name,
        "start": run.start,
        "policy": run.policy,
        "conditions_met": bool(certificate["conditions_met"]),
        "not_met": [each["name"] for each in certificate["conditions"] if not each["holds"]],
        "first_violation": certificate["first_violation"],
        "initial_distance": float(distance),
        # The largest |w0 - w*| condition (iv) allows; None where rho < 0 and it allows none.
        "allowed_distance": None if None in limits else float(min(limits)),
        # Whether the start is farther from w* than w* is known: |w - w*| <= |grad f(w)| / mu.
        "resolved": distance > record["optimum"]["grad_norm"] / record["strong_convexity"],
    }


def all_runs(cases: Sequence[Case]) -> list[Found]:
    """What was found in all runs, by data set, with data set and case."""
    return [
        {"data": data, "reading": each.reading, "setting": each.setting, "penalty": each.penalty} | each.found[data]
        for data in cases[0].found
        for each in cases
    ]


def run_records(judged: Judged) -> list[Found]:
    """All runs, for machines."""
    return [
        {name: value for name, value in found.items() if name not in ("resolved", "setting")}
        for found in all_runs(judged.cases)
    ]


def is_kept(found: Found) -> bool:
    return found["first_violation"] is None


def kept_of(runs: Iterable[Found]) -> str:
    flags = [is_kept(each) for each in runs]
    return f"{sum(flags)} of {len(flags)}" if flags else "-"


def all_kept(cases: list[Case]) -> bool:
    """Whether runs that can tell are there, and the bound is kept in all of them."""
    telling = [is_kept(each) for each in all_runs(cases) if each["conditions_met"] and each["resolved"]]
    return bool(telling) and all(telling)


def kept_rows(judged: Judged) -> NumbersTable:
    rows = []
    for key, cases in grouped(judged, "penalty", "setting").items():
        runs = all_runs(cases)
        met = [each for each in runs if each["conditions_met"]]
        telling = kept_of(each for each in met if each["resolved"])
        there = "too close to tell" if met and telling == "-" else telling
        rows.append((*key, f"{len(met)} of {len(runs)}", there, kept_of(each for each in runs if each not in met)))
    columns = ("penalty", "setting", "conditions met", "bound kept there", "bound kept where not met")
    return NumbersTable(columns, tuple(rows))


def kept_counts(judged: Judged) -> dict[str, int]:
    runs = all_runs(judged.cases)
    close = sum(each["conditions_met"] and not each["resolved"] for each in runs)
    tally = Counter(
        (each["conditions_met"], is_kept(each)) for each in runs if each["resolved"] or not each["conditions_met"]
    )
    met = {"met_kept": tally[True, True], "met_broken": tally[True, False], "met_too_close": close}
    return met | {"not_met_kept": tally[False, True], "not_met_broken": tally[False, False]}


def kept_reason(judged: Judged) -> str:
    runs, (kept, broken, close, others_kept, others_broken) = all_runs(judged.cases), kept_counts(judged).values()
    partial = sum(each["conditions_met"] and each["policy"] != "full" for each in runs)
    return (
        f"The conditions are met in {kept + broken + close} of {len(runs)} runs, {partial} of them with partial masks. "
        f"{close} of these start too close to w* to tell; the bound is kept in {kept} of the other {kept + broken}. "
        f"Where the conditions are not met, it is kept in {others_kept} of {others_kept + others_broken} and broken in "
        f"{others_broken}."
    )


FACTOR_ONE_HALF = Claim(
    name="factor-one-half",
    statement="If conditions (i) to (iv) hold, |w_t - w*|^2 <= 2^-t |w_0 - w*|^2 for all t.",
    where="Theorem 1",
    run=lambda judged: (
        f"{listed(judged.cases[0].found)}, seed 0, at {listed(PENALTIES)}; from half the distance "
        f"condition (iv) allows, and from the paper's FedAvg start; full masks and psi*=3; {listed(ALGORITHM_1)}."
    ),
    condition="A reading shows it if all four conditions hold in at least 1 of its runs, and in every run in which "
    "they hold no |w_t - w*|^2 is above 2^-t |w_0 - w*|^2 by more than rounding, 1e-14 in |w_t - w*|. A run that "
    "starts closer to w* than w* is known, |grad f(w*)| / mu, cannot tell and is left out. Runs in which the "
    "conditions do not hold say nothing about the theorem; they are counted beside.",
    cases=lambda plan: certified_cases(plan, PENALTIES),
    measure=certified,
    rule=pooled("", all_kept),
    reason=kept_reason,
    table=kept_rows,
    values=lambda judged: {**kept_counts(judged), "runs": run_records(judged)},
)


def met_reason(judged: Judged) -> str:
    runs = all_runs(judged.cases)
    own = [each["conditions_met"] for each in runs if each["setting"] == PARTIAL]
    full = [each for each in runs if each["setting"] == FULL]
    reaches = [each["allowed_distance"] for each in full if each["allowed_distance"] is not None]
    why = f"The conditions are met in {sum(own)} of {len(own)} runs."
    if reaches:
        why += (
            f" Even with full masks condition (iv) allows a start at most {max(reaches):.0e} from w*; the FedAvg start "
            f"is {listed(dict.fromkeys(round(each['initial_distance']) for each in full))} away."
        )
    return why


def met_rows(judged: Judged) -> NumbersTable:
    rows = []
    for each in all_runs(judged.cases):
        limit = each["allowed_distance"]
        allowed = "none: rho < 0" if limit is None else f"{limit:.1e}"
        names = (each["data"], each["reading"], each["setting"], " ".join(each["not_met"]) or "-")
        if each["start"] == START:
            rows.append((*names, f"{each['initial_distance']:.1f}", allowed))
    return NumbersTable(("data", "reading", "setting", "not met", "|w0 - w*|", "allowed by (iv)"), tuple(rows))


THEORY_COVERS = Claim(
    name="theorem-covers-the-experiments",
    statement="Theorem 1 covers the paper's experiments, which are said to be consistent with it.",
    where="section 6.2, Theorem 1",
    run=lambda judged: (
        f"{listed(judged.cases[0].found)}, seed 0, at the paper's penalty from the FedAvg start, "
        f"psi*=3 (full masks beside); {listed(ALGORITHM_1)}."
    ),
    condition="A reading shows it if all 4 conditions of Theorem 1 hold in every one of its runs with psi*=3.",
    cases=lambda plan: certified_cases(plan, (PAPER,)),
    measure=certified,
    shows=lambda found: found["conditions_met"],
    rule=pooled(
        "The claim holds if both readings show it, and for some readings if one does.",
        lambda cases: all(all(each.shown_on.values()) for each in cases if each.setting == PARTIAL),
    ),
    reason=met_reason,
    table=met_rows,
    values=lambda judged: {"runs": run_records(judged)},
)
