"""`Summary`: a fitted model as a table of coefficients, standard errors and intervals; a frame, or text."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri, stdtr, stdtrit

from danl.checks import check_installed
from danl.objective.layout import Layout
from danl.protocol.messages import Array
from danl.statistics.inference import DISPERSED, Inference
from danl.wording import coefficient, counted, ratio_text

INTERCEPT = "(intercept)"
NARROWEST = 72
"""Notes are not broken into lines shorter than this, however narrow the table is."""
RATIOS = {
    "logistic": "odds ratio",
    "multinomial": "odds ratio",
    "poisson": "rate ratio",
    "gamma": "mean ratio",
    "negative-binomial": "rate ratio",
}
TITLES = {
    "logistic": "Logistic regression",
    "multinomial": "Multinomial logistic regression",
    "squared": "Linear regression",
    "poisson": "Poisson regression, log link",
    "gamma": "Gamma regression, log link",
    "negative-binomial": "Negative binomial regression, log link, dispersion given",
}


@dataclass(frozen=True, eq=False)
class Summary:
    """Coefficients and what is known of them; `print` it, or take `to_frame()`."""

    title: str
    notes: tuple[str, ...]
    outputs: tuple[str, ...]  # the class of each line; "" where there is one output
    names: tuple[str, ...]  # the feature of each line
    coef: Array
    std_err: Array
    z: Array
    p_value: Array
    ci_low: Array
    ci_high: Array
    level: float
    ratio: str | None
    """What exp(coef) is called, where it has a name: "odds ratio", "rate ratio", "mean ratio"."""
    covariance: Array
    """Of the coefficients, in the order of the lines."""
    df: float | None = None
    """Degrees of freedom of t, which the column `z` then has; None where it is normal."""

    @classmethod
    def table(
        cls,
        title: str,
        notes: Sequence[str],
        names: Sequence[str],
        coef: Array,
        covariance: Array,
        *,
        outputs: Sequence[str] | None = None,
        level: float = 0.95,
        ratio: str | None = None,
        df: float | None = None,
    ) -> Summary:
        """The table of coefficients with a covariance; with `df` by the t distribution."""
        with np.errstate(invalid="ignore", divide="ignore"):
            std_err = np.sqrt(covariance.diagonal())
            z = coef / std_err
        if df is None:
            reach, p_value = ndtri(0.5 + level / 2), 2 * ndtr(-np.abs(z))
        else:
            reach, p_value = stdtrit(df, 0.5 + level / 2), 2 * stdtr(df, -np.abs(z))
        return cls(
            title=title,
            notes=tuple(notes),
            outputs=tuple(outputs or [""] * len(names)),
            names=tuple(names),
            coef=coef,
            std_err=std_err,
            z=z,
            p_value=p_value,
            ci_low=coef - reach * std_err,
            ci_high=coef + reach * std_err,
            level=level,
            ratio=ratio,
            covariance=covariance,
            df=df,
        )

    @classmethod
    def of(
        cls,
        outputs: list[str],
        features: list[str],
        layout: Layout,
        inference: Inference,
        level: float,
        kind: str,
        remarks: tuple[str, ...] = (),
        doubts: tuple[str, ...] = (),
    ) -> Summary:
        """The table of a fitted model; remarks and doubts are notes of the estimator's own."""
        order = lines_of(layout)
        covariance, phi = inference.covariance(layout, kind)
        covariance = covariance[np.ix_(order, order)]
        columns = [*features, INTERCEPT] if layout.intercept else features
        return cls.table(
            TITLES[inference.loss],
            (_rows(inference), *remarks, *_notes(inference, layout, kind, phi), *doubts),
            [columns[place % layout.columns] for place in order],
            inference.w[order],
            covariance,
            outputs=[outputs[place // layout.columns] for place in order],
            level=level,
            ratio=RATIOS.get(inference.loss),
        )

    def to_frame(self) -> Any:
        """A pandas frame, a line a coefficient; the index is the feature, or class and feature."""
        check_installed("to_frame", "pandas", "pandas")
        import pandas as pd

        if any(self.outputs):
            index = pd.MultiIndex.from_arrays([list(self.outputs), list(self.names)], names=["class", "feature"])
        else:
            index = pd.Index(list(self.names), name="feature")
        return pd.DataFrame(self.columns(), index=index)

    def columns(self) -> dict[str, Any]:
        """The numbers of the table, by the names of its columns."""
        columns = {name: getattr(self, name) for name in ("coef", "std_err", "z", "p_value", "ci_low", "ci_high")}
        if self.ratio is not None:
            name = self.ratio.replace(" ", "_")
            with np.errstate(over="ignore"):
                columns |= {
                    name: np.exp(self.coef),
                    f"{name}_low": np.exp(self.ci_low),
                    f"{name}_high": np.exp(self.ci_high),
                }
        return columns

    def __str__(self) -> str:
        return self.text()

    def text(self, *, ratio_intervals: bool = False) -> str:
        """The table as text."""
        percent = f"{100 * self.level:g}%"
        first = "class: feature" if any(self.outputs) else ""
        statistic = "z" if self.df is None else "t"
        ratios = [self.ratio, f"{percent} interval"][: 1 + ratio_intervals] if self.ratio else []
        head = [first, "coef", "std err", statistic, "p", f"{percent} interval", *ratios]
        lines = []
        values = zip(*self.columns().values(), strict=True)
        for output, name, (coef, std_err, z, p_value, low, high, *ratio) in zip(
            self.outputs, self.names, values, strict=True
        ):
            cells = [
                f"{output}: {name}" if output else name,
                coefficient(coef),
                coefficient(std_err),
                f"{z:.2f}",
                "<0.001" if p_value < 0.001 else f"{p_value:.3f}",
                f"{coefficient(low)} to {coefficient(high)}",
            ]
            if ratio:
                middle, *ends = map(ratio_text, ratio)
                cells += [middle, " to ".join(ends)]
            lines.append(cells[: len(head)])
        widths = [max(len(line[column]) for line in [head, *lines]) for column in range(len(head))]
        name_width, *others = widths
        table = ["  ".join([line[0].ljust(name_width), *map(str.rjust, line[1:], others)]) for line in [head, *lines]]
        rule = "-" * len(table[0])
        width = max(len(rule), NARROWEST)
        notes = [textwrap.fill(note, width, subsequent_indent="  ", break_on_hyphens=False) for note in self.notes]
        return "\n".join([self.title, rule, table[0], rule, *table[1:], rule, *notes])

    __repr__ = __str__


def lines_of(layout: Layout) -> list[int]:
    """Places in w, in the order of the table: of each output the intercept first."""
    order = []
    for output in range(layout.n_outputs):
        first = output * layout.columns
        features = list(range(first, first + layout.n_features))
        order += [first + layout.n_features, *features] if layout.intercept else features
    return order


def _rows(inference: Inference) -> str:
    rows = f"{counted(inference.n_rows, 'row')} at {counted(inference.n_workers, 'worker')}"
    if inference.total_weight != inference.n_rows:
        rows += f", weights sum to {inference.total_weight:g}"
    return f"{rows}; mean loss {inference.mean_loss:.6g}"


def _notes(inference: Inference, layout: Layout, kind: str, phi: float) -> tuple[str, ...]:
    how = {
        "observed": "standard errors: observed information, the Hessian at the fitted model",
        "sandwich": "standard errors: sandwich (HC0), the rows' scores between two inverse Hessians",
    }[kind]
    notes = [how]
    if inference.loss in DISPERSED and kind == "observed":
        if np.isnan(phi):
            notes.append("as many coefficients as rows: no residuals, and so no standard errors")
        elif inference.loss == "gamma":
            notes.append(f"dispersion {phi:.6g}, the deviance over its degrees of freedom")
        else:
            notes.append(
                f"residual standard deviation {np.sqrt(phi):.6g}; p-values and intervals by the normal distribution"
            )
    if layout.n_outputs > 1:
        notes.append("coefficients sum to zero over the classes: each is against the average class")
    if inference.alpha > 0:
        notes.append(
            f"PENALISED (alpha {inference.alpha:.3g} on the averaged loss): estimates are shrunk towards zero, and "
            "standard errors, p-values and intervals are conditional on the penalty, not those of an unpenalised fit; "
            "for those fit with C=numpy.inf"
        )
    return tuple(notes)
