"""Claims judged by the runs of Figures 1 and 2, in which every setting is the default or the paper's.

The shape of the curves (the gap first rises, then falls; it falls on a straight line in log scale), and that it simply
works: as printed, without tuning, with one Hessian exchange.
"""

from __future__ import annotations

import numpy as np

from danl.reproduce.claims.base import Case, Claim, Found, Groups, Judged, NumbersTable, found_values, grouped
from danl.reproduce.claims.measures import (
    CONVERGED,
    FLOOR,
    SOLVED,
    Repeated,
    clipped,
    clipped_gap,
    exchanges_to,
    falling_line,
    hessians_to,
    majority,
    median,
    reached,
)
from danl.reproduce.claims.rules import (
    by_case,
    by_penalty,
    case_values,
    curve_cases,
    figures_run,
    median_of,
    most_data,
    pooled,
    sentence,
)
from danl.reproduce.runs import FIGURES, ROUNDS, Plan
from danl.wording import listed

AS_PRINTED = "danl-paper"
"""Algorithm 1 to the letter."""
NEARLY_ALL = 0.95
RISE = 2.0
EARLY = 20
STRAIGHT = 0.8
STEEP = 0.02
PROMISED = float(np.log10(2))
"""Decades an exchange by Theorem 1: the squared distance, hence the gap near w*, halves."""
MASKS = {each.label: each for name in ("fig1", "fig2") for each in FIGURES[name].curves}
"""The mask settings of both figures (waits spread), by label."""
ALL_RUNS = figures_run("fig1 and fig2: the figures' runs", f"; at most {ROUNDS} rounds")


def mask_cases(plan: Plan) -> list[Case]:
    """A case for every reading, mask setting and penalty."""
    return curve_cases(plan, {label: {"": line} for label, line in MASKS.items()})


def repeated(case: Case, runs: Groups) -> Found:
    lines = Repeated.of(runs[""])
    return {"end": lines.end, "converging": lines.converging}


def converging(reading: str, cases: list[Case]) -> str:
    counts = {penalty: sum(found_values(own, "converging")) for (penalty,), own in grouped(cases, "penalty").items()}
    return f"{reading} {', '.join(f'{count} at {penalty}' for penalty, count in counts.items())}"


def converging_reason(judged: Judged) -> str:
    runs = len(MASKS) * len(judged.plan.data) * judged.plan.n_seeds
    return sentence(f"Runs that converge, of {runs} a penalty: {{}}.", converging)(judged)


CONVERGES = Claim(
    name="converges-as-printed",
    statement="Algorithm 1 as printed converges in the paper's own experiments, as its figures imply.",
    where="section 6.2, Figs. 1 and 2",
    run=ALL_RUNS,
    condition=f"A run converges if its gap gets to {CONVERGED:.0e} and stays there. A data set counts if more than "
    "half of its seeds converge.",
    cases=mask_cases,
    measure=repeated,
    shows=lambda found: majority(found["converging"]),
    rule=most_data("a mask setting", only=AS_PRINTED),
    reason=converging_reason,
    table=by_penalty(median_of("end", lambda end: f"ends at {clipped_gap(end)}")),
    values=case_values("end"),
)


def rise(case: Case, runs: Groups) -> Found:
    """Whether most runs rise early, and whether they come back; of every run three gaps."""
    gaps = [clipped(each) for each in runs[""]]
    first, peak = [float(each[1]) for each in gaps], [float(each[2 : EARLY + 1].max()) for each in gaps]
    end = [float(each[-1]) for each in gaps]
    rises = majority(high >= RISE * begin for begin, high in zip(first, peak, strict=True))
    falls = majority(last < begin for begin, last in zip(first, end, strict=True))
    return {"rises": rises, "falls": falls, "rises_only": rises and not falls, "first": first, "peak": peak, "end": end}


def rises_only(reading: str, cases: list[Case]) -> str:
    alone = found_values(cases, "rises_only").count(True)
    return f"{reading} {alone}" if alone else ""


def rise_reason(judged: Judged) -> str:
    """Who rises and does not come back, and who never rises."""
    away = sentence("It rises and does not come back, in (masks, data set, penalty): {}. ", rises_only, joined=", ")
    flat = [reading for (reading,), own in grouped(judged, "reading").items() if not any(found_values(own, "rises"))]
    never = f"{listed(flat)} never {'rises' if len(flat) == 1 else 'rise'}." if flat else ""
    return f"{away(judged)}{never}"


EARLY_RISE = Claim(
    name="early-rise",
    statement="In the early stages the loss increases for a while before it decreases.",
    where="section 6.2, Fig. 1",
    run=figures_run("fig1, psi*=1 and psi*=3 with S*=4,"),
    condition=f"A run rises and falls if the largest gap in exchanges 2 to {EARLY} is at least {RISE:g} times the gap "
    "after Phase I (exchange 1), and the gap at the end is below that after Phase I. A data set counts if that is so "
    "for more than half of its seeds.",
    cases=lambda plan: curve_cases(plan, {each.label: {"": each} for each in map(FIGURES["fig1"].curve, (1, 3))}),
    measure=rise,
    shows=lambda found: found["rises"] and found["falls"],
    rule=most_data("a mask setting"),
    reason=rise_reason,
    table=by_case(
        "seen on",
        **{
            "after Phase I": median_of("first", clipped_gap),
            f"largest to {EARLY}": median_of("peak", clipped_gap),
            "at the end": median_of("end", clipped_gap),
        },
    ),
    values=case_values("rises", "falls"),
)


def lines(case: Case, runs: Groups) -> Found:
    """The slope, R^2 and end of every run's line, 0 where there is none, and how many of them fall straight."""
    fits = [falling_line(each) for each in runs[""]]
    straight = [fit.r_squared >= STRAIGHT and fit.slope <= -STEEP and fit.end <= CONVERGED for fit in fits]
    columns = {name: [float(np.nan_to_num(getattr(fit, name))) for fit in fits] for name in LINE}
    return columns | {"straight": straight, "rates": [-fit.slope for fit in fits] if majority(straight) else []}


LINE = ("slope", "r_squared", "end")


def line_medians(case: Case) -> dict[str, float]:
    return {name: median(found_values([case], name)) for name in LINE}


def line_cell(case: Case) -> str:
    slope, r_squared, end = line_medians(case).values()
    return f"slope {slope:.2f}, R^2 {r_squared:.2f}, ends at {clipped_gap(end)}"


def rates(reading: str, cases: list[Case]) -> str:
    """The rates where it is linear."""
    each = found_values(cases, "rates")
    return f"{reading} {np.nanmedian(each):.2f} ({np.nanmin(each):.2f} to {np.nanmax(each):.2f})" if each else ""


RATES = sentence(
    f"Decades an exchange where it does: {{}}; Theorem 1's factor 1/2 is {PROMISED:.2f}.", rates, joined=", "
)
LINEAR = Claim(
    name="linear-convergence",
    statement="DANL converges linearly in the experiments.",
    where="abstract, section 1, Theorem 1",
    run=figures_run("fig1 and fig2: the figures' runs"),
    condition="A line is fitted by least squares to log10(gap) over exchanges, from the largest gap to the first at "
    f"{FLOOR:.0e} or to the end. A run converges linearly if R^2 is at least {STRAIGHT} (below 0.9 also where it falls "
    f"faster than linearly at the end), the slope at most -{STEEP} decades an exchange, and the gap at the end at most "
    f"{CONVERGED:.0e}. A data set counts if that is so for more than half of its seeds.",
    cases=mask_cases,
    measure=lines,
    shows=lambda found: majority(found["straight"]),
    rule=most_data("a mask setting"),
    reason=lambda judged: RATES(judged) or "No setting gets a straight fall.",
    table=by_penalty(line_cell),
    values=lambda judged: {"cases": [each.values() | line_medians(each) for each in judged]},
)


def solved_share(cases: list[Case]) -> float:
    return float(np.isfinite(found_values(cases, "exchanges")).mean())


def solved_rows(judged: Judged) -> NumbersTable:
    rows = []
    for each in judged:
        solved, share = reached([each], "exchanges")
        rows.append((each.reading, each.penalty, share, f"{max(solved):g}" if solved else "-"))
    return NumbersTable(("reading", "penalty", "solved", "exchanges at most"), tuple(rows))


NO_TUNING = Claim(
    name="no-tuning",
    statement="DANL needs no complex tuning of parameters.",
    where="abstract, section 1",
    run=ALL_RUNS,
    condition=f"A reading needs no tuning if, with every parameter at its default, at least {NEARLY_ALL:.0%} of its "
    f"runs over all data sets, masks, penalties and seeds get to a gap of {SOLVED:.0e}, for good, within {ROUNDS} "
    "rounds.",
    cases=lambda plan: curve_cases(plan, {"": MASKS}),
    measure=lambda _, runs: {"exchanges": [exchanges_to(each, SOLVED) for group in runs.values() for each in group]},
    rule=pooled(
        "The claim holds if all readings do, and for some readings if at least one does.",
        lambda cases: solved_share(cases) >= NEARLY_ALL,
    ),
    reason=sentence(
        f"Share of runs that get to {SOLVED:.0e} with the defaults: {{}}.",
        lambda reading, cases: f"{reading} {solved_share(cases):.0%}",
        joined=", ",
    ),
    table=solved_rows,
    values=lambda judged: {
        "shares": {reading: solved_share(own) for (reading,), own in grouped(judged, "reading").items()}
    },
)


def hessian_values(case: Case) -> dict[str, float | None]:
    runs, (solved, _) = found_values([case], "hessians"), reached([case], "hessians")
    return {"runs": len(runs), "solved": len(solved), "hessians": median(solved) if solved else None}


def hessian_cell(case: Case) -> str:
    runs, solved, hessians = hessian_values(case).values()
    return f"{solved} of {runs} runs solved" + ("" if hessians is None else f" with {hessians:g}")


def hessians_in_all(reading: str, cases: list[Case]) -> str:
    solved, share = reached(cases, "hessians")
    once = f", {solved.count(1)} of them with one (median {median(solved):g})" if solved else ""
    return f"{reading} solves {share} runs{once}"


HESSIAN_ONCE = Claim(
    name="hessian-once",
    statement="The Hessian is exchanged once, at the start, and reused throughout the optimization.",
    where="abstract, section 1, section 4",
    run=ALL_RUNS,
    condition=f"One is enough in a run if the gap gets to {SOLVED:.0e}, for good, after 1 exchange of Hessians and no "
    "more. A data set counts if that is so for more than half of its seeds.",
    cases=mask_cases,
    measure=lambda _, runs: {"hessians": [hessians_to(each, SOLVED) for each in runs[""]]},
    shows=lambda found: majority(count == 1 for count in found["hessians"]),
    rule=most_data("a mask setting"),
    reason=sentence("In all: {}.", hessians_in_all),
    table=by_penalty(hessian_cell),
    values=lambda judged: {"cases": [each.values() | hessian_values(each) for each in judged]},
)
