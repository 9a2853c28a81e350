"""Claims that it simply works in the paper's own experiments: as printed, without tuning, with one Hessian exchange.

All three are judged by the runs of Figures 1 and 2, in which every setting is the default or the paper's.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from statistics import median

from danl.reproduce.claims.base import Reader, Table, Verdict
from danl.reproduce.claims.cases import (
    Finding,
    by_penalty,
    enumerated,
    finite,
    readings_of,
    share_rule,
    small,
    summary,
    word_for,
    word_of,
)
from danl.reproduce.claims.measures import CONVERGED, SOLVED, Repeated, exchanges_to, most
from danl.reproduce.claims.shapes import figure_masks, figure_runs
from danl.reproduce.runs import READINGS, Plan, Run
from danl.reproduce.store import Stored

AS_PRINTED = "danl-paper"
"""Algorithm 1 to the letter."""
NEARLY_ALL = 0.95


def what_was_run(plan: Plan) -> str:
    return (
        f"fig1 and fig2: the figures' runs on {enumerated(plan.data)}, seeds 0 to {plan.n_seeds - 1}, "
        f"at {enumerated(plan.penalties)}; at most 100 rounds."
    )


class Converges:
    """Algorithm 1 converges in the paper's own experiments."""

    name = "converges-as-printed"

    def runs(self, plan: Plan) -> Iterator[Run]:
        return figure_runs(plan)

    def judge(self, plan: Plan, read: Reader) -> Verdict:
        findings, cells, values = [], [], []
        done = dict.fromkeys(product(READINGS, plan.penalties), 0)
        for reading, (label, line), penalty in product(READINGS, figure_masks().items(), plan.penalties):
            lines = {data: Repeated.of(plan.curve_runs(data, penalty, reading, line), read) for data in plan.data}
            case = Finding(reading, label, penalty, {data: each.converging > 0.5 for data, each in lines.items()})
            findings.append(case)
            done[reading, penalty] += sum(round(each.converging * plan.n_seeds) for each in lines.values())
            cells.append(f"ends at {small(median(each.end for each in lines.values()))}")
            values.append(case.values() | {"end": {data: finite(each.end) for data, each in lines.items()}})
        printed = [each for each in findings if each.reading == AS_PRINTED]
        each = len(figure_masks()) * len(plan.data) * plan.n_seeds
        told = "; ".join(
            f"{reading} {', '.join(f'{done[reading, penalty]} at {penalty}' for penalty in plan.penalties)}"
            for reading in READINGS
        )
        return Verdict(
            claim=self.name,
            statement="Algorithm 1 as printed converges in the paper's own experiments, as its figures imply.",
            where="section 6.2, Figs. 1 and 2",
            run=what_was_run(plan),
            rule=f"A run converges if its gap gets to {CONVERGED:.0e} and stays there. A data set counts if more than "
            f"half of its seeds converge. {share_rule('a mask setting')} Judged is {AS_PRINTED}, Algorithm 1 as "
            "printed; the other readings are shown beside it.",
            word=word_of(printed),
            readings=readings_of(printed),
            why=f"{summary(printed)} Runs that converge, of {each} a penalty: {told}.",
            numbers=by_penalty(findings, cells),
            values={"cases": values},
        )


def hessians_to(stored: Stored, gap: float) -> float:
    """Hessian exchanges until the gap is reached; infinity where it never is."""
    exchanges = exchanges_to(stored, gap)
    if exchanges == float("inf"):
        return exchanges
    return float(sum(stored.history[t].kind == "hessian" for t in range(int(exchanges))))


class HessianOnce:
    """One Hessian exchange is enough."""

    name = "hessian-once"

    def runs(self, plan: Plan) -> Iterator[Run]:
        return figure_runs(plan)

    def judge(self, plan: Plan, read: Reader) -> Verdict:
        findings, cells, values = [], [], []
        solved = {reading: list[float]() for reading in READINGS}
        for reading, (label, line), penalty in product(READINGS, figure_masks().items(), plan.penalties):
            hessians = {
                data: [hessians_to(read(run), SOLVED) for run in plan.curve_runs(data, penalty, reading, line)]
                for data in plan.data
            }
            case = Finding(
                reading, label, penalty, {data: most(each == 1 for each in needed) for data, needed in hessians.items()}
            )
            findings.append(case)
            every = [each for needed in hessians.values() for each in needed]
            reached = [each for each in every if each < float("inf")]
            solved[reading] += reached
            middle = median(reached) if reached else None
            needed_in_the_middle = "" if middle is None else f" with {middle:g}"
            cells.append(f"{len(reached)} of {len(every)} runs solved{needed_in_the_middle}")
            values.append(case.values() | {"runs": len(every), "solved": len(reached), "hessians": middle})
        total = len(figure_masks()) * len(plan.penalties) * len(plan.data) * plan.n_seeds
        parts = [
            f"{reading} solves {len(each)} of {total} runs"
            + (f", {sum(one == 1 for one in each)} of them with one (median {median(each):g})" if each else "")
            for reading, each in solved.items()
        ]
        return Verdict(
            claim=self.name,
            statement="The Hessian is exchanged once, at the start, and reused throughout the optimization.",
            where="abstract, section 1, section 4",
            run=what_was_run(plan),
            rule=f"One is enough in a run if the gap gets to {SOLVED:.0e}, for good, after 1 exchange of Hessians and "
            f"no more. A data set counts if that is so for more than half of its seeds. {share_rule('a mask setting')}",
            word=word_of(findings),
            readings=readings_of(findings),
            why=f"{summary(findings)} In all: {'; '.join(parts)}.",
            numbers=by_penalty(findings, cells),
            values={"cases": values},
        )


class NoTuning:
    """Nothing needs to be tuned."""

    name = "no-tuning"

    def runs(self, plan: Plan) -> Iterator[Run]:
        return figure_runs(plan)

    def judge(self, plan: Plan, read: Reader) -> Verdict:
        shares, rows = {}, []
        for reading in READINGS:
            counts = {
                penalty: [
                    exchanges_to(read(run), SOLVED)
                    for data, line in product(plan.data, figure_masks().values())
                    for run in plan.curve_runs(data, penalty, reading, line)
                ]
                for penalty in plan.penalties
            }
            every = [each for needed in counts.values() for each in needed]
            shares[reading] = sum(each < float("inf") for each in every) / len(every)
            for penalty, needed in counts.items():
                reached = [each for each in needed if each < float("inf")]
                worst = f"{max(reached):g}" if reached else "-"
                rows.append((reading, penalty, f"{len(reached)} of {len(needed)}", worst))
        solving = tuple(reading for reading, share in shares.items() if share >= NEARLY_ALL)
        told = ", ".join(f"{reading} {share:.0%}" for reading, share in shares.items())
        return Verdict(
            claim=self.name,
            statement="DANL needs no complex tuning of parameters.",
            where="abstract, section 1",
            run=what_was_run(plan),
            rule=f"A reading needs no tuning if, with every parameter at its default, at least {NEARLY_ALL:.0%} of its "
            f"runs over all data sets, masks, penalties and seeds get to a gap of {SOLVED:.0e}, for good, within 100 "
            "rounds. The claim holds if all readings do, and for some readings if at least one does.",
            word=word_for(reading in solving for reading in READINGS),
            readings=solving,
            why=f"Share of runs that get to {SOLVED:.0e} with the defaults: {told}.",
            numbers=Table(("reading", "penalty", "solved", "exchanges at most"), tuple(rows)),
            values={"shares": {reading: finite(share) for reading, share in shares.items()}},
        )
