r"""A study-level meta-analysis: each site's own fit, combined, as ds.glmSLMA has it, to stand beside the pooled one.

Of a coefficient with estimates b_i and variances v_i at k sites, and weights 1 / v_i:

    fixed     b = sum b_i / v_i / sum 1 / v_i                  variance 1 / sum 1 / v_i
    Q         sum (b_i - b)^2 / v_i                            k - 1 on average where the sites do not differ
    I^2       max(0, (Q - (k - 1)) / Q)                        the share of the variation that is between sites
    tau^2     max(0, (Q - (k - 1)) / (sum w - sum w^2 / sum w))              DerSimonian and Laird
    random    the same sums with weights 1 / (v_i + tau^2)

A site that cannot tell of a coefficient (a level nobody there has) is not in its sums; of one site there is no Q, I^2
or tau^2. Effects of sites are left out of each site's own model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import chdtrc, ndtri

from danl.errors import InputError
from danl.objective.centring import covariance_from_centred, from_centred
from danl.protocol.messages import Array, Mask, unpack
from danl.statistics.fit_answers import FitAnswers, why_silent
from danl.statistics.summary import lines_of
from danl.tasks.local_fit import ALIASED, EXACT, FACTS, FITTED, NO_OPTIMUM, TOO_FEW
from danl.wording import coefficient

WHY_NOT = {
    ALIASED: "its rows cannot tell the coefficients apart",
    NO_OPTIMUM: "its rows alone have no best model (separation)",
    EXACT: "its own model leaves no residuals, so that it would outweigh all others; look at its outcomes",
    TOO_FEW: "it has no more rows than coefficients",
}


@dataclass(frozen=True, eq=False)
class MetaAnalysis:
    """Each site's own coefficients, and what they are together; a line a coefficient, a column a site."""

    names: tuple[str, ...]
    sites: tuple[str, ...]
    estimates: Array
    """(coefficients, sites); nan where the site cannot tell."""
    std_err: Array
    fixed: Array
    fixed_std_err: Array
    random: Array
    random_std_err: Array
    q: Array
    q_p_value: Array
    i_squared: Array
    tau_squared: Array
    left_out: tuple[str, ...]
    """Sites that are not in it, and why."""

    def to_dict(self) -> dict[str, Any]:
        """As plain data, a table a coefficient."""
        return {
            "sites": list(self.sites),
            "left_out": list(self.left_out),
            "coefficients": {name: self._line(place) for place, name in enumerate(self.names)},
        }

    def _line(self, place: int) -> dict[str, Any]:
        single = ("fixed", "fixed_std_err", "random", "random_std_err", "q", "q_p_value", "i_squared", "tau_squared")
        line: dict[str, Any] = {name: float(getattr(self, name)[place]) for name in single}
        return line | {"estimates": self.estimates[place].tolist(), "std_err": self.std_err[place].tolist()}

    def text(self, level: float = 0.95) -> str:
        """The table, a line a coefficient."""
        head = ["each site's own fit", "sites", "fixed", "interval", "random", "interval", "Q", "p", "I2", "tau2"]
        reach, lines = float(ndtri(0.5 + level / 2)), [head]
        for place, name in enumerate(self.names):
            told = int(np.isfinite(self.estimates[place]).sum())
            cells = [name, str(told)]
            for kind in ("fixed", "random"):
                middle, width = getattr(self, kind)[place], reach * getattr(self, f"{kind}_std_err")[place]
                cells += [coefficient(middle), f"{coefficient(middle - width)} to {coefficient(middle + width)}"]
            if told < 2:
                lines.append([*cells, "-", "-", "-", "-"])  # one site does not differ
                continue
            cells += [f"{self.q[place]:.2f}", f"{self.q_p_value[place]:.3f}", f"{100 * self.i_squared[place]:.0f} %"]
            lines.append([*cells, coefficient(self.tau_squared[place])])
        widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
        table = [
            "  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]).rstrip() for line in lines
        ]
        return "\n".join([*table, *(f"not in it: {each}" for each in self.left_out)])


def combined(names: Sequence[str], sites: Sequence[str], b: Array, variances: Array, left_out: Sequence[str]) -> Any:
    """The meta-analysis of estimates (coefficients, sites) and their variances; nan where a site tells nothing."""
    told = np.isfinite(b) & np.isfinite(variances) & (variances > 0)
    b, v = np.where(told, b, 0.0), np.where(told, variances, np.inf)
    with np.errstate(divide="ignore", invalid="ignore"):
        weights, k = 1.0 / v, told.sum(axis=1)
        total = weights.sum(axis=1)
        fixed = (weights * b).sum(axis=1) / total
        q = (weights * np.square(b - fixed[:, None])).sum(axis=1)
        df = k - 1
        i_squared = np.where(q > 0, np.maximum(0.0, (q - df) / q), 0.0)
        spread = total - np.square(weights).sum(axis=1) / total
        tau_squared = np.where(df > 0, np.maximum(0.0, (q - df) / spread), 0.0)
        own = 1.0 / (v + tau_squared[:, None])
        random = (own * b).sum(axis=1) / own.sum(axis=1)
        errors = 1.0 / np.sqrt(total), 1.0 / np.sqrt(own.sum(axis=1))
        q, i_squared, tau_squared = (np.where(df > 0, each, np.nan) for each in (q, i_squared, tau_squared))
    return MetaAnalysis(
        names=tuple(names),
        sites=tuple(sites),
        estimates=np.where(told, b, np.nan),
        std_err=np.where(told, np.sqrt(np.where(told, v, 0.0)), np.nan),
        fixed=fixed,
        fixed_std_err=errors[0],
        random=random,
        random_std_err=errors[1],
        q=q,
        q_p_value=np.where(df > 0, chdtrc(np.maximum(df, 1), q), np.nan),
        i_squared=i_squared,
        tau_squared=tau_squared,
        left_out=tuple(left_out),
    )


def meta_analysis(answers: FitAnswers, names: Sequence[str], sites: Sequence[str], chosen: Mask) -> MetaAnalysis:
    """Combine what every site told of its own fit of the `chosen` numbers of w."""
    layout, centre, asked = answers.layout, answers.centre, answers.besides["local-fit"].by_somebody("meta")
    order = [place for place in lines_of(layout) if chosen[place]]
    b = np.full((len(order), len(asked.workers)), np.nan)
    variances, left_out, shown = b.copy(), [], []
    for column, worker in enumerate(asked.workers.tolist()):
        ended = float(asked.arrays["facts"][column][FACTS.index("ended")])
        if ended != FITTED:
            left_out.append(f"{sites[worker]}: {WHY_NOT.get(ended, 'its fit did not end')}")
            continue
        told = asked.arrays["told"][column] > 0
        model = from_centred(asked.arrays["model"][column], layout, centre)
        covariance = unpack(asked.arrays["covariance"][column], layout.n_coefficients)
        covariance = covariance_from_centred(covariance, layout, centre)
        b[:, column] = np.where(told, model, np.nan)[order]
        variances[:, column] = np.where(told, covariance.diagonal(), np.nan)[order]
        shown.append(column)
    left_out += [why_silent(sites[failure.worker], failure) for failure in asked.failures]
    if not shown:
        raise InputError(f"meta: no site has a fit of its own: {'; '.join(left_out)}")
    in_order = lines_of(layout)
    kept = [names[in_order.index(place)] for place in order]
    made: MetaAnalysis = combined(
        kept, [sites[int(asked.workers[column])] for column in shown], b[:, shown], variances[:, shown], left_out
    )
    return made
