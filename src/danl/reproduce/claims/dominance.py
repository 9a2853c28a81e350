"""The claim that psi* matters more than gamma: the effect of going from psi* = 1 to 2 beside that of gamma = 4 to 2."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from statistics import mean, median
from typing import Any

from danl.reproduce.claims.base import Reader, Table, Verdict
from danl.reproduce.claims.cases import Finding, enumerated, finite, readings_of, share_rule, small, summary, word_of
from danl.reproduce.claims.measures import AHEAD, CEILING, EXCHANGES, FLOOR, Repeated
from danl.reproduce.claims.orderings import DRAWING, curve
from danl.reproduce.runs import FIGURES, Plan, Run

PSI, GAMMA = (1, 2), (4, 2)


class PsiDominates:
    """psi* plays the dominant part, gamma has a slight effect."""

    name = "psi-matters-more-than-gamma"

    def runs(self, plan: Plan) -> Iterator[Run]:
        for name in ("fig2", "fig2-longest"):
            yield from plan.figure_runs(name)

    def judge(self, plan: Plan, read: Reader) -> Verdict:
        findings, rows, values = [], [], []
        for name in ("fig2", "fig2-longest"):
            for reading, penalty in product(FIGURES[name].readings, plan.penalties):
                effects = {data: self._effects(plan, read, name, reading, data, penalty) for data in plan.data}
                shown = {
                    data: psi >= abs(gamma) + AHEAD and best.improves for data, (psi, gamma, best) in effects.items()
                }
                case = Finding(reading, DRAWING[name], penalty, shown)
                findings.append(case)
                psi, gamma, end = (
                    median(each)
                    for each in zip(*((psi, gamma, best.end) for psi, gamma, best in effects.values()), strict=True)
                )
                rows.append((reading, case.setting, penalty, case.count, f"{psi:+.2f}", f"{gamma:+.2f}", small(end)))
                values.append(
                    case.values()
                    | {
                        "psi_effect": {data: finite(each[0]) for data, each in effects.items()},
                        "gamma_effect": {data: finite(each[1]) for data, each in effects.items()},
                        "best_improves": {data: each[2].improves for data, each in effects.items()},
                    }
                )
        return Verdict(
            claim=self.name,
            statement="psi* plays the dominant part beside gamma, which has a slight effect on convergence.",
            where="section 6.2, Fig. 2",
            run=f"fig2 and fig2-longest: the figures' runs on {enumerated(plan.data)}, seeds 0 to {plan.n_seeds - 1}, "
            f"at {enumerated(plan.penalties)}.",
            rule=f"Score: mean over exchanges 1 to {EXCHANGES} of log10(gap clipped to [{FLOOR:.0e}, {CEILING:.0e}]), "
            "median over seeds. The effect of psi* is the score at psi*=1 less that at psi*=2, mean over gamma=2 and "
            "4; that of gamma the score at gamma=4 less that at gamma=2, mean over psi*=1 and 2. psi* matters more on "
            f"a data set at a penalty if its effect is above gamma's, in size, by at least {AHEAD} decades, and the "
            "best setting (psi*=2, gamma=2) ends below the gap it started from. "
            + share_rule("a way of drawing masks"),
            word=word_of(findings),
            readings=readings_of(findings),
            why=f"{summary(findings)} {larger_effects(values)}",
            numbers=Table(
                ("reading", "setting", "penalty", "psi* more on", "effect of psi*", "effect of gamma", "best ends at"),
                tuple(rows),
            ),
            values={"cases": values},
        )

    @staticmethod
    def _effects(
        plan: Plan, read: Reader, figure: str, reading: str, data: str, penalty: str
    ) -> tuple[float, float, Repeated]:
        """Effect of psi*, effect of gamma, and the best setting, in decades of the score."""
        lines = {
            (psi, gamma): Repeated.of(plan.curve_runs(data, penalty, reading, curve(figure, psi, gamma=gamma)), read)
            for psi, gamma in product(PSI, GAMMA)
        }
        by_psi = [mean(lines[psi, gamma].score for gamma in GAMMA) for psi in PSI]
        by_gamma = [mean(lines[psi, gamma].score for psi in PSI) for gamma in GAMMA]
        return by_psi[0] - by_psi[1], by_gamma[0] - by_gamma[1], lines[2, 2]


def larger_effects(cases: list[dict[str, Any]]) -> str:
    """Which effect is the larger one, whether or not anything converges."""
    parts = []
    for case in dict.fromkeys((each["reading"], each["setting"]) for each in cases):
        own = [each for each in cases if (each["reading"], each["setting"]) == case]
        pairs = [
            (each["psi_effect"][data] or 0.0, each["gamma_effect"][data] or 0.0, each["best_improves"][data])
            for each in own
            for data in each["psi_effect"]
        ]
        psi = sum(psi >= abs(gamma) + AHEAD for psi, gamma, _ in pairs)
        away = sum(psi >= abs(gamma) + AHEAD and not improves for psi, gamma, improves in pairs)
        gamma = sum(gamma >= abs(psi) + AHEAD for psi, gamma, _ in pairs)
        parts.append(
            f"{case[0]}, {case[1]}: psi* {psi}" + (f" ({away} of them lead away)" if away else "") + f", gamma {gamma}"
        )
    return f"The larger effect by {AHEAD} decades, in (data set, penalty): {'; '.join(parts)}."
