"""The tables of a `GLMFit`: coefficients, sites and the numbers of the fit, as text, a frame, CSV and JSON.

coefficients.csv   a line a coefficient
summary.txt        what `print(fit.summary())` shows
summary.json       all of it as plain data
model.json         the model itself (`danl.statistics.model_file`)
"""

from __future__ import annotations

import csv
import io
import json
import math
import textwrap
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from danl.statistics.families import LINKS, RATIOS, TITLES
from danl.statistics.fit import GLMFit
from danl.statistics.model_file import Model
from danl.statistics.summary import Summary
from danl.storage.atomic import write_text
from danl.wording import coefficient, counted

COEFFICIENTS, TEXT, JSON, MODEL = "coefficients.csv", "summary.txt", "summary.json", "model.json"
ERRORS = {
    "model": "standard errors: of the model, its expected information",
    "HC0": "standard errors: robust (HC0), the records' scores between two inverse Hessians",
    "HC1": "standard errors: robust (HC1), as HC0 times n / (n - p)",
    "cluster": "standard errors: clustered by {cluster}, {n} clusters; a cluster is within a site",
    "cluster by site": "standard errors: clustered by site, {n} clusters",
}
FEW_CLUSTERS = 30
"""Standard errors by fewer clusters are too small."""


@dataclass(frozen=True, eq=False)
class FitSummary:
    """What a fit comes to; `print` it."""

    fit: GLMFit
    table: Summary

    @classmethod
    def of(cls, fit: GLMFit, level: float) -> FitSummary:
        """The tables with intervals at a level; of a gaussian model by t, where its own variance is used."""
        numbers = fit.numbers
        by_t = numbers.family == "gaussian" and fit.covariance_kind == "model"
        title = TITLES[numbers.family]
        if fit.design is not None and fit.design.analysis.formula is not None:
            title += f": {fit.design.analysis.formula}"
        table = Summary.table(
            title,
            (),
            fit.names,
            fit.coef,
            fit.covariance,
            level=level,
            ratio=RATIOS.get(numbers.family),
            df=numbers.df_resid if by_t else None,
        )
        return cls(fit, table)

    def to_frame(self) -> Any:
        """A pandas frame, a line a coefficient."""
        return self.table.to_frame()

    def to_csv(self, path: str | Path | None = None) -> str:
        """The coefficients as CSV, written to a file if one is given."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        columns = self.table.columns() | self._per_deviation()
        if self.table.df is not None:
            columns = {"t" if name == "z" else name: values for name, values in columns.items()}
        writer.writerow(["name", *columns])
        for name, values in zip(self.table.names, zip(*columns.values(), strict=True), strict=True):
            writer.writerow([name, *("" if math.isnan(value) else repr(float(value)) for value in values)])
        if path is not None:
            write_text(path, text.getvalue())
        return text.getvalue()

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data."""
        fit, table, numbers = self.fit, self.table, self.fit.numbers
        columns = table.columns() | self._per_deviation()
        design = fit.design
        plain: dict[str, Any] = _plain(
            {
                "title": table.title,
                "family": numbers.family,
                "link": LINKS.get(numbers.family, "log"),
                "analysis": None if design is None else design.analysis.to_dict(),
                "references": {} if design is None else design.references,
                "status": fit.result.status,
                "exchanges": fit.exchanges,
                "level": table.level,
                "statistic": "z" if table.df is None else "t",
                "ratio": table.ratio,
                "covariance": fit.covariance_kind,
                "clusters": fit.n_clusters,
                "coefficients": [
                    {"name": name, **{column: values[line] for column, values in columns.items()}}
                    for line, name in enumerate(table.names)
                ],
                "numbers": asdict(numbers),
                "sites": [asdict(site) for site in fit.sites],
                "remarks": self._remarks(),
                "absent": list(fit.absent),
                "notes": list(fit.notes),
                "meta_analysis": None if fit.meta is None else fit.meta.to_dict(),
                "diagnostics": None if fit.diagnostics is None else fit.diagnostics.to_dict(),
            }
        )
        return plain

    def to_json(self, path: str | Path | None = None) -> str:
        """The same as JSON, written to a file if one is given."""
        text = json.dumps(self.to_dict(), indent=2, allow_nan=False) + "\n"
        if path is not None:
            write_text(path, text)
        return text

    def _per_deviation(self) -> dict[str, Any]:
        if self.fit.scales is None:
            return {}
        return {
            "coef_per_sd": self.table.coef * self.fit.scales,
            "std_err_per_sd": self.table.std_err * self.fit.scales,
        }

    def __str__(self) -> str:
        table = self.table.text(ratio_intervals=True)
        width = max(72, max(map(len, table.splitlines())))
        lines = [textwrap.fill(line, width, subsequent_indent="  ", break_on_hyphens=False) for line in self._lines()]
        parts = [table, *lines, "", self._sites()]
        if self.fit.scales is not None:
            parts += ["", self._standardised()]
        if self.fit.meta is not None:
            parts += ["", "Meta-analysis of each site's own fit", self.fit.meta.text(self.table.level)]
        if self.fit.diagnostics is not None:
            parts += ["", self._diagnostics()]
        return "\n".join(parts)

    __repr__ = __str__

    def _lines(self) -> list[str]:
        fit, numbers = self.fit, self.fit.numbers
        records = f"{counted(numbers.records, 'record')} at {counted(len(fit.sites), 'site')}"
        if numbers.weight != numbers.records:
            records += f", weights sum to {numbers.weight:g}"
        if numbers.events is not None:
            records += f"; {numbers.events:g} events"
        left_out = sum(site.left_out + site.unknown_levels for site in fit.sites)
        if left_out:
            records += f"; {counted(left_out, 'record')} left out"
        lines = [
            f"{records}; {counted(fit.exchanges, 'exchange')}",
            f"deviance {numbers.deviance:.6g} on {numbers.df_resid:g} degrees of freedom; null deviance "
            f"{numbers.null_deviance:.6g} on {numbers.df_null:g}",
            f"log-likelihood {numbers.log_likelihood:.6g}; AIC {numbers.aic:.6g}; "
            f"Pearson chi2 {numbers.pearson_chi2:.6g}",
        ]
        if numbers.family == "gaussian":
            lines.append(
                f"residual variance {numbers.dispersion:.6g}, standard deviation {numbers.dispersion**0.5:.6g}"
            )
        elif numbers.family == "gamma":
            lines.append(f"dispersion {numbers.dispersion:.6g} (Pearson chi2 over degrees of freedom)")
        return [*lines, *self._remarks(), *(f"not in it: {each}" for each in fit.absent), *fit.notes]

    def _remarks(self) -> list[str]:
        """What the coefficients are to be read with: how their errors were made, the event, the reference levels."""
        fit, lines = self.fit, []
        cluster = "" if fit.design is None else fit.design.analysis.cluster
        lines.append(ERRORS[fit.covariance_kind].format(cluster=cluster, n=fit.n_clusters))
        if fit.n_clusters and not fit.small_sample:
            lines[-1] += ", without the small-sample correction"
        if 0 < fit.n_clusters < FEW_CLUSTERS:
            lines.append(f"FEW CLUSTERS: standard errors by {fit.n_clusters} clusters tend to be too small")
        if fit.design is not None and fit.design.outcome_levels is not None:
            other, event = fit.design.outcome_levels
            lines.append(f"event: {fit.design.outcome}={event} (the other outcome is {other})")
        if fit.design is not None and fit.design.references:
            named = ", ".join(f"{name}={level}" for name, level in fit.design.references.items())
            lines.append(f"reference levels: {named}")
        return lines

    def _sites(self) -> str:
        events = self.fit.numbers.events is not None
        head = ["site", "records", *(["events"] if events else []), "missing", "other levels", "deviance"]
        lines = [head]
        for site in self.fit.sites:
            own = [f"{site.events:g}"] if site.events is not None else []
            counts = [str(site.left_out), str(site.unknown_levels)]
            lines.append([site.name, str(site.records), *own, *counts, f"{site.deviance:.6g}"])
        return _aligned(lines)

    def _standardised(self) -> str:
        scales = self.fit.scales
        assert scales is not None
        lines = [["per standard deviation", "sd", "coef", "std err"]]
        for name, sd, coef, error in zip(self.table.names, scales, self.table.coef, self.table.std_err, strict=True):
            if not math.isnan(sd):
                lines.append([name, coefficient(sd), coefficient(coef * sd), coefficient(error * sd)])
        return _aligned(lines)

    def _diagnostics(self) -> str:
        found = self.fit.diagnostics
        assert found is not None
        lines = [["calibration", "records", "predicted", "observed"]]
        for number, group in enumerate(found.calibration, start=1):
            lines.append([f"group {number}", f"{group.records:.0f}", f"{group.predicted:.4f}", f"{group.observed:.4f}"])
        hidden = f"; {100 * found.hidden:.2g} % of the records in bins that sites hide" if found.hidden else ""
        return "\n".join(
            [
                f"AUC {found.auc:.4f} from {found.bins} bins{hidden}",
                f"from {found.threshold:g} on: sensitivity {found.sensitivity:.3f}, "
                f"specificity {found.specificity:.3f} "
                f"({found.true_positive:.0f} true and {found.false_positive:.0f} false positives, "
                f"{found.true_negative:.0f} true and {found.false_negative:.0f} false negatives)",
                _aligned(lines),
            ]
        )


def summary_files(fit: GLMFit, level: float = 0.95) -> dict[str, Callable[[Path], object]]:
    """The files of a fit beside those of its run, by their names, and what writes each."""
    summary = fit.summary(level=level)
    files: dict[str, Callable[[Path], object]] = {
        COEFFICIENTS: summary.to_csv,
        TEXT: lambda path: write_text(path, f"{summary}\n"),
        JSON: summary.to_json,
    }
    if fit.design is not None:
        files[MODEL] = lambda path: Model.of(fit).write(path)
    return files


def _aligned(lines: list[list[str]]) -> str:
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return "\n".join("  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]) for line in lines)


def _plain(value: Any) -> Any:
    """Plain data for JSON: None for what is no finite number."""
    if isinstance(value, float | np.floating):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, np.integer):
        return int(value)
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
