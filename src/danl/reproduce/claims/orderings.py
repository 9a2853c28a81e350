"""Claims that some masks are faster than others: psi* = 3 than 1, gamma = 2 than 4, one region a round slowest.

The paper does not say how masks of a given psi* and gamma were drawn, and the two ways of drawing them behave
differently (waits spread over 0, ..., gamma, or everyone waiting gamma rounds), so each is a setting of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import product
from statistics import mean

from danl.reproduce.claims.base import Case, Claim, Found, Groups, found_values
from danl.reproduce.claims.measures import AHEAD, CEILING, EXCHANGES, FLOOR, SCORE_RULE, Repeated, clipped_gap
from danl.reproduce.claims.rules import by_case, case_values, curve_cases, figures_run, median_of, most_data, sentence
from danl.reproduce.runs import FIGURES, Curve, Plan
from danl.wording import listed

DRAWING = {"fig1": "", "fig2": "waits spread", "fig2-longest": "longest waits"}
"""How the masks of a figure are drawn, where there are two ways."""
FIG1, FIG2 = FIGURES["fig1"], ("fig2", "fig2-longest")
PSI, GAMMA = (1, 2), (4, 2)
Pair = tuple[str, str, Curve, Curve]
"""A figure, a setting, and two curves of the figure: by the claim the first is faster than the second."""


def compared(case: Case, runs: Groups) -> Found:
    """What became of the first curve of a pair beside the second."""
    fast, slow = Repeated.of(runs["fast"]), Repeated.of(runs["slow"])
    ahead = slow.score - fast.score
    if abs(ahead) < AHEAD:
        outcome = "tie"
    elif ahead < 0:
        outcome = "slower"
    else:
        outcome = "faster" if fast.improves else "ahead, but leads away"
    ends = {"fast_end": fast.end, "slow_end": slow.end, "slow_improves": slow.improves}
    return {"outcomes": outcome, "decades_ahead": ahead} | ends


def outcome_counts(reading: str, cases: list[Case]) -> str:
    counts = Counter(found_values(cases, "outcomes")).most_common()
    return f"{reading}: {', '.join(f'{outcome} {number}' for outcome, number in counts)}"


def leads_away(reading: str, cases: list[Case]) -> str:
    improves = found_values(cases, "slow_improves")
    return f"{reading} {improves.count(False)} of {len(improves)}"


OUTCOMES = sentence("Comparisons (a data set at a penalty), {}.", outcome_counts)
SLOW_OR_DIVERGING = sentence(
    "The paper reports slow convergence; here psi*=10, S*=1 ends above its start, so does not converge, in (data set, "
    "penalty): {}.",
    leads_away,
    joined=", ",
)


def ordering(name: str, statement: str, where: str, *pairs: Pair, or_leads_away: bool = False) -> Claim:
    """The claim that the first curve of every pair is faster than the second, which may lead away."""

    def cases(plan: Plan) -> Iterator[Case]:
        for figure, setting, fast, slow in pairs:
            yield from curve_cases(plan, {setting: {"fast": fast, "slow": slow}}, FIGURES[figure].readings)

    alone = len(pairs) == 1
    ends = [f"{each.label} ends at" for each in pairs[0][2:]] if alone else ["it ends at", "the other ends at"]
    return Claim(
        name=name,
        statement=statement,
        where=where,
        run=figures_run(f"{listed(dict.fromkeys(pair[0] for pair in pairs))}: the figures' runs"),
        condition=SCORE_RULE,
        cases=cases,
        measure=compared,
        shows=lambda found: found["outcomes"] == "faster",
        rule=most_data("" if alone else "what is fixed and how masks are drawn"),
        reason=lambda judged: OUTCOMES(judged) + (f" {SLOW_OR_DIVERGING(judged)}" if or_leads_away else ""),
        table=by_case(
            "faster on",
            **{
                "decades ahead": median_of("decades_ahead", "{:+.2f}".format),
                ends[0]: median_of("fast_end", clipped_gap),
                ends[1]: median_of("slow_end", clipped_gap),
            },
        ),
        values=case_values("outcomes", "decades_ahead", "fast_end", "slow_end", "slow_improves"),
    )


def effects(case: Case, runs: Groups) -> Found:
    """The effects of psi* and of gamma, in decades of the score, and how the best setting ends."""
    lines = {
        (psi, gamma): Repeated.of(runs[FIGURES["fig2"].curve(psi, gamma=gamma).label])
        for psi, gamma in product(PSI, GAMMA)
    }
    by_psi = [mean(lines[psi, gamma].score for gamma in GAMMA) for psi in PSI]
    by_gamma = [mean(lines[psi, gamma].score for psi in PSI) for gamma in GAMMA]
    psi, gamma, best = by_psi[0] - by_psi[1], by_gamma[0] - by_gamma[1], lines[2, 2]
    larger = "psi" if psi >= abs(gamma) + AHEAD else "gamma" if gamma >= abs(psi) + AHEAD else ""
    away = larger == "psi" and not best.improves
    best_one = {"best_improves": best.improves, "best_end": best.end}
    return {"psi_effect": psi, "gamma_effect": gamma, "larger": larger, "away": away} | best_one


def larger_effects(case: str, cases: list[Case]) -> str:
    larger, away = found_values(cases, "larger"), sum(found_values(cases, "away"))
    leading = f" ({away} of them lead away)" if away else ""
    return f"{case}: psi* {larger.count('psi')}{leading}, gamma {larger.count('gamma')}"


def effect_cases(plan: Plan) -> Iterator[Case]:
    for name in FIG2:
        curves = {each.label: each for each in FIGURES[name].curves}
        yield from curve_cases(plan, {DRAWING[name]: curves}, FIGURES[name].readings)


ORDERINGS = (
    ordering(
        "larger-psi-is-faster",
        "With every region trained in every round (S*=4), psi*=3 converges faster than psi*=1.",
        "section 6.2, Fig. 1",
        ("fig1", "", FIG1.curve(3), FIG1.curve(1)),
    ),
    ordering(
        "one-region-is-slow",
        "With psi*=10 but one region a round (S*=1) convergence is very slow; here: slower than psi*=3, S*=4.",
        "section 6.2, Fig. 1",
        ("fig1", "", FIG1.curve(3), FIG1.curve(10, S=1)),
        or_leads_away=True,
    ),
    ordering(
        "smaller-gamma-is-faster",
        "At fixed psi*, gamma=2 converges faster than gamma=4.",
        "section 6.2, Fig. 2",
        *(
            (name, f"psi*={psi}, {DRAWING[name]}", FIGURES[name].curve(psi, gamma=2), FIGURES[name].curve(psi, gamma=4))
            for name, psi in product(FIG2, (1, 2))
        ),
    ),
    ordering(
        "larger-psi-is-faster-at-fixed-gamma",
        "At fixed gamma, psi*=2 converges faster than psi*=1.",
        "section 6.2, Fig. 2",
        *(
            (
                name,
                f"gamma={gamma}, {DRAWING[name]}",
                FIGURES[name].curve(2, gamma=gamma),
                FIGURES[name].curve(1, gamma=gamma),
            )
            for name, gamma in product(FIG2, (2, 4))
        ),
    ),
)
PSI_DOMINATES = Claim(
    name="psi-matters-more-than-gamma",
    statement="psi* plays the dominant part beside gamma, which has a slight effect on convergence.",
    where="section 6.2, Fig. 2",
    run=figures_run("fig2 and fig2-longest: the figures' runs"),
    condition=f"Score: mean over exchanges 1 to {EXCHANGES} of log10(gap clipped to [{FLOOR:.0e}, {CEILING:.0e}]), "
    "median over seeds. The effect of psi* is the score at psi*=1 less that at psi*=2, mean over gamma=2 and 4; that "
    "of gamma the score at gamma=4 less that at gamma=2, mean over psi*=1 and 2. psi* matters more on a data set at a "
    f"penalty if its effect is above gamma's, in size, by at least {AHEAD} decades, and the best setting (psi*=2, "
    "gamma=2) ends below the gap it started from.",
    cases=effect_cases,
    measure=effects,
    shows=lambda found: found["larger"] == "psi" and found["best_improves"],
    rule=most_data("a way of drawing masks"),
    reason=sentence(
        f"The larger effect by {AHEAD} decades, in (data set, penalty): {{}}.", larger_effects, "reading", "setting"
    ),
    table=by_case(
        "psi* more on",
        **{
            "effect of psi*": median_of("psi_effect", "{:+.2f}".format),
            "effect of gamma": median_of("gamma_effect", "{:+.2f}".format),
            "best ends at": median_of("best_end", clipped_gap),
        },
    ),
    values=case_values("psi_effect", "gamma_effect", "best_improves"),
)
