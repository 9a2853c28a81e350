"""Claims about the shape of a curve: the gap first rises, then falls; it falls on a straight line in log scale."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from danl.protocol.messages import Array
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
    word_of,
)
from danl.reproduce.claims.measures import CONVERGED, FLOOR, clipped, falling_line, most
from danl.reproduce.claims.orderings import curve
from danl.reproduce.runs import FIGURES, READINGS, Curve, Plan, Run

RISE = 2.0
EARLY = 20
STRAIGHT = 0.8
STEEP = 0.02
PROMISED = float(np.log10(2))
"""Decades an exchange by Theorem 1: the squared distance, hence the gap near w*, halves."""


def figure_masks() -> dict[str, Curve]:
    """The mask settings of both figures (waits spread), by label."""
    return {each.label: each for name in ("fig1", "fig2") for each in FIGURES[name].curves}


def figure_runs(plan: Plan) -> Iterator[Run]:
    """The runs of Figures 1 and 2, waits spread."""
    for parts in product(plan.data, plan.penalties, READINGS, figure_masks().values()):
        yield from plan.curve_runs(*parts)


class EarlyRise:
    """The loss first increases, then decreases."""

    name = "early-rise"
    curves = (curve("fig1", 1), curve("fig1", 3))

    def runs(self, plan: Plan) -> Iterator[Run]:
        for parts in product(plan.data, plan.penalties, READINGS, self.curves):
            yield from plan.curve_runs(*parts)

    def judge(self, plan: Plan, read: Reader) -> Verdict:
        findings, rows, values = [], [], []
        for reading, line, penalty in product(READINGS, self.curves, plan.penalties):
            gaps = {
                data: [clipped(read(run)) for run in plan.curve_runs(data, penalty, reading, line)]
                for data in plan.data
            }
            rises = {data: most(self.rises(each) for each in runs) for data, runs in gaps.items()}
            falls = {data: most(self.falls(each) for each in runs) for data, runs in gaps.items()}
            case = Finding(reading, line.label, penalty, {data: rises[data] and falls[data] for data in gaps})
            findings.append(case)
            every = [each for runs in gaps.values() for each in runs]
            points = np.array([(each[1], each[2 : EARLY + 1].max(), each[-1]) for each in every])
            phase_one, peak, end = np.median(points, axis=0)
            rows.append((reading, line.label, penalty, case.count, small(phase_one), small(peak), small(end)))
            values.append(case.values() | {"rises": rises, "falls": falls})
        only = {
            reading: sum(
                case["rises"][data] and not case["falls"][data]
                for case in values
                if case["reading"] == reading
                for data in plan.data
            )
            for reading in READINGS
        }
        flat = [
            reading
            for reading in READINGS
            if not any(each for case in values if case["reading"] == reading for each in case["rises"].values())
        ]
        why = summary(findings)
        if any(only.values()):
            listed = ", ".join(f"{reading} {number}" for reading, number in only.items() if number)
            why += f" It rises and does not come back, in (masks, data set, penalty): {listed}."
        if flat:
            why += f" {enumerated(flat)} never {'rises' if len(flat) == 1 else 'rise'}."
        return Verdict(
            claim=self.name,
            statement="In the early stages the loss increases for a while before it decreases.",
            where="section 6.2, Fig. 1",
            run=f"fig1, psi*=1 and psi*=3 with S*=4, on {enumerated(plan.data)}, seeds 0 to {plan.n_seeds - 1}, "
            f"at {enumerated(plan.penalties)}.",
            rule=f"A run rises and falls if the largest gap in exchanges 2 to {EARLY} is at least {RISE:g} times the "
            "gap after Phase I (exchange 1), and the gap at the end is below that after Phase I. A data set counts if "
            "that is so for more than half of its seeds. " + share_rule("a mask setting"),
            word=word_of(findings),
            readings=readings_of(findings),
            why=why,
            numbers=Table(
                ("reading", "setting", "penalty", "seen on", "after Phase I", f"largest to {EARLY}", "at the end"),
                tuple(rows),
            ),
            values={"cases": values},
        )

    @staticmethod
    def rises(gaps: Array) -> bool:
        return bool(gaps[2 : EARLY + 1].max() >= RISE * gaps[1])

    @staticmethod
    def falls(gaps: Array) -> bool:
        return bool(gaps[-1] < gaps[1])


class LinearConvergence:
    """The gap falls linearly in log scale, in the paper's experiments."""

    name = "linear-convergence"

    def runs(self, plan: Plan) -> Iterator[Run]:
        return figure_runs(plan)

    def judge(self, plan: Plan, read: Reader) -> Verdict:
        findings, cells, values, rates = [], [], [], {reading: list[float]() for reading in READINGS}
        for reading, (label, line), penalty in product(READINGS, figure_masks().items(), plan.penalties):
            lines = {
                data: [falling_line(read(run)) for run in plan.curve_runs(data, penalty, reading, line)]
                for data in plan.data
            }
            shown = {
                data: most(
                    each.r_squared >= STRAIGHT and each.slope <= -STEEP and each.end <= CONVERGED for each in fits
                )
                for data, fits in lines.items()
            }
            case = Finding(reading, label, penalty, shown)
            findings.append(case)
            rates[reading] += [-each.slope for data, fits in lines.items() if shown[data] for each in fits]
            middle = {
                name: float(np.median(np.nan_to_num([getattr(each, name) for fits in lines.values() for each in fits])))
                for name in ("slope", "r_squared", "end")
            }
            cells.append(f"slope {middle['slope']:.2f}, R^2 {middle['r_squared']:.2f}, ends at {small(middle['end'])}")
            values.append(case.values() | {name: finite(each) for name, each in middle.items()})
        return Verdict(
            claim=self.name,
            statement="DANL converges linearly in the experiments.",
            where="abstract, section 1, Theorem 1",
            run=f"fig1 and fig2: the figures' runs on {enumerated(plan.data)}, seeds 0 to {plan.n_seeds - 1}, "
            f"at {enumerated(plan.penalties)}.",
            rule="A line is fitted by least squares to log10(gap) over exchanges, from the largest gap to the first at "
            f"{FLOOR:.0e} or to the end. A run converges linearly if R^2 is at least {STRAIGHT} (below 0.9 also where "
            f"it falls faster than linearly at the end), the slope at most -{STEEP} decades an exchange, and the gap "
            f"at the end at most {CONVERGED:.0e}. A data set counts if that is so for more than half of its seeds. "
            + share_rule("a mask setting"),
            word=word_of(findings),
            readings=readings_of(findings),
            why=f"{summary(findings)} {told_rates(rates)}",
            numbers=by_penalty(findings, cells),
            values={"cases": values},
        )


def told_rates(rates: dict[str, list[float]]) -> str:
    """The rates where it is linear, beside Theorem 1's."""
    parts = [
        f"{reading} {np.nanmedian(each):.2f} ({np.nanmin(each):.2f} to {np.nanmax(each):.2f})"
        for reading, each in rates.items()
        if each
    ]
    if not parts:
        return "No setting gets a straight fall."
    return f"Decades an exchange where it does: {', '.join(parts)}; Theorem 1's factor 1/2 is {PROMISED:.2f}."
