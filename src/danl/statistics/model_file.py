"""`model.json`: a fitted model as a file, without a row of anybody; and its predictions for new records.

    format, version          "danl model", 1
    family, link             of the mean
    design                   formula, outcome, levels with the reference first, columns (`danl.design.Design`)
    intercept, coefficients  by name
    names, covariance        of the coefficients, the intercept first; how it was made, and the dispersion
    records, sites           how many it was fitted to, and whose

The file is read as JSON and looked at before anything is made of it. A record with a missing value has no prediction
(nan, an empty cell in a file); one with a level that the model does not know is an error that names it.
"""

from __future__ import annotations

import csv
import io
import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from danl._version import __version__
from danl.checks import is_finite
from danl.data.records import Records, read_records, records_of_frame
from danl.design.design import Design
from danl.design.expression import parse
from danl.design.survey import check_finite
from danl.errors import InputError, bad_argument
from danl.objective.losses import make_loss
from danl.protocol.messages import Array
from danl.statistics.families import LINKS
from danl.statistics.summary import INTERCEPT
from danl.storage.atomic import write_text
from danl.wording import listed

FORMAT, VERSION = "danl model", 1
LONGEST = 50_000_000
"""Bytes of a model that is read."""


@dataclass(frozen=True, eq=False)
class Model:
    """A fitted model, as `model.json` has it."""

    design: Design
    intercept: float
    coefficients: Array
    """In the order of the design's columns."""
    covariance: Array = field(repr=False)
    """Of the intercept, where there is one, and the coefficients; nan where the data did not tell."""
    covariance_kind: str
    dispersion: float
    records: int
    sites: tuple[str, ...]

    @classmethod
    def of(cls, fit: Any) -> Model:
        """The model of a `GLMFit`."""
        if fit.design is None:
            raise InputError("model: a fit of a problem without a formula has no columns to predict from; use danl.glm")
        first = int(fit.design.intercept)
        return cls(
            fit.design,
            float(fit.coef[0]) if first else 0.0,
            fit.coef[first:],
            fit.covariance,
            fit.covariance_kind,
            fit.numbers.dispersion,
            fit.numbers.records,
            tuple(site.name for site in fit.sites),
        )

    @property
    def names(self) -> tuple[str, ...]:
        """Of the covariance's rows."""
        return (INTERCEPT, *self.design.names) if self.design.intercept else self.design.names

    def predict(self, data: Any, *, site: str | None = None, link: bool = False) -> Array:
        """The mean of each record, or with `link` its linear predictor; nan where a value is missing.

        `data` is a frame, or a CSV or Parquet file. With effects of sites `site` is the one whose effect is meant.
        """
        design = self.design
        if design.sites and site not in design.sites:
            raise bad_argument("site", site, f"one of {listed(design.sites)}", "the model has an effect of each site")
        if site is not None and not design.sites:
            raise bad_argument("site", site, "left out", "the model has no effects of sites")
        z = margins_of(design, self.intercept, self.coefficients, data, site or "")
        return z if link else np.asarray(make_loss(design.analysis.loss).mean(z))  # type: ignore[attr-defined]

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "danl": __version__,
            "family": self.design.analysis.family,
            "link": _link_of(self.design),
            "intercept": self.intercept,
            "coefficients": dict(zip(self.design.names, self.coefficients.tolist(), strict=True)),
            "references": self.design.references,
            "design": self.design.to_dict(),
            "names": list(self.names),
            "covariance": [[None if math.isnan(value) else value for value in row] for row in self.covariance.tolist()],
            "covariance_kind": self.covariance_kind,
            "dispersion": self.dispersion if math.isfinite(self.dispersion) else None,
            "records": self.records,
            "sites": list(self.sites),
        }

    def write(self, path: str | Path) -> None:
        """Write model.json."""
        write_text(path, json.dumps(self.to_dict(), indent=2, allow_nan=False) + "\n")

    @classmethod
    def read(cls, path: str | Path) -> Model:
        """Read what `write` wrote, or the model.json of a folder; anything else is refused."""
        path = Path(path)
        path = path / "model.json" if path.is_dir() else path
        try:
            data = path.read_bytes()
        except OSError as error:
            raise InputError(
                f"{path}: cannot be read ({error.strerror}); give a model.json of danl fit --out"
            ) from None
        try:
            if len(data) > LONGEST:
                raise ValueError("it is too long")
            return cls.from_dict(json.loads(data))
        except InputError as error:
            raise InputError(f"{path}: {error}") from None
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path}: is no model of danl ({error}); give the model.json of danl fit --out") from None

    @classmethod
    def from_dict(cls, values: object) -> Model:
        """Of plain data; a `ValueError` says what is wrong with it."""
        if not isinstance(values, dict) or values.get("format") != FORMAT:
            raise ValueError("its format is another")
        if values.get("version") != VERSION:
            raise ValueError(f"its version is {values.get('version')!r}, and this danl reads {VERSION}")
        design = Design.from_dict(values.get("design"))
        _check_family(design, values.get("family"), values.get("link"))
        if not design.is_of_its_formula():
            raise ValueError("its columns are not those of its formula and levels")
        coefficients, covariance = values.get("coefficients"), values.get("covariance")
        if not isinstance(coefficients, dict) or tuple(coefficients) != design.names:
            raise ValueError("its coefficients are not those of its design")
        numbers = [*coefficients.values(), values.get("intercept")]
        if not all(is_finite(value) for value in numbers):
            raise ValueError("a coefficient is no number")
        d = len(design.names) + design.intercept
        if not isinstance(covariance, list) or any(not isinstance(row, list) or len(row) != d for row in covariance):
            raise ValueError("its covariance has another size")
        if len(covariance) != d or not all(value is None or is_finite(value) for row in covariance for value in row):
            raise ValueError("its covariance is no matrix of numbers")
        records, sites, dispersion = values.get("records"), values.get("sites"), values.get("dispersion")
        if type(records) is not int or not isinstance(sites, list) or not all(isinstance(each, str) for each in sites):
            raise ValueError("records or sites are not told")
        if dispersion is not None and not is_finite(dispersion):
            raise ValueError("its dispersion is no number")
        return cls(
            design,
            float(values["intercept"]),
            np.array(list(coefficients.values()), dtype=float),
            np.array([[math.nan if value is None else value for value in row] for row in covariance], dtype=float),
            str(values.get("covariance_kind")),
            math.nan if dispersion is None else float(dispersion),
            records,
            tuple(sites),
        )


def margins_of(
    design: Design, intercept: Any, coefficients: Array, data: Any, site: str = "", source: str = "data"
) -> Array:
    """The linear predictor of each record of a file or a frame, called `source`; nan where a value is missing."""
    wanted = design.explaining
    records = (
        read_records(Path(data), wanted) if isinstance(data, str | Path) else records_of_frame(data, wanted, source)
    )
    complete, known = design.usable(records, wanted)
    if (complete & ~known).any():
        raise _new_level(design, records, complete)
    _check_numbers(design, records, complete)
    rows = np.flatnonzero(complete)
    z = np.full(records.n_records, np.nan)
    margins = intercept + design.matrix(records, rows, site) @ coefficients
    offset = design.offset(records, rows)
    z[rows] = margins if offset is None else margins + offset
    return z


def _new_level(design: Design, records: Records, complete: Any) -> InputError:
    """The first level that the model has not: the file is the reader's own, and it is shown."""
    for name, levels in design.levels.items():
        if name not in records.columns:
            continue
        labels = records.columns[name].labels.astype(str)
        strange = complete & ~np.isin(labels, levels)
        if strange.any():
            row = int(np.argmax(strange))
            allowed = f"has a level that the model does not know; it knows {listed(map(repr, levels))}"
            return records.error(row, name, f"{allowed}; merge it into one of these, or leave the record out")
    raise AssertionError("a level is not known, and all are")


def _link_of(design: Design) -> str:
    return LINKS.get(design.analysis.family_name, "log")


def _check_family(design: Design, family: object, link: object) -> None:
    """Refuse a family that is not that of the design, or cannot have its outcome."""
    own = design.analysis.family
    if family != own or link != _link_of(design):
        raise ValueError(
            f"its family is {family!r} with link {link!r}, and its design has {own!r}, {_link_of(design)!r}"
        )
    make_loss(design.analysis.loss)
    if design.outcome_levels is not None and design.analysis.family_name != "binomial":
        raise ValueError(f"its outcome is one of two words, and its family is {own!r}; that must be 'binomial'")


def predictions_csv(predictions: Array) -> str:
    """One column, `predicted`, a line a record; empty where there is no prediction."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["predicted"])
    writer.writerows([["" if math.isnan(value) else repr(float(value))] for value in predictions])
    return text.getvalue()


def _check_numbers(design: Design, records: Records, complete: Any) -> None:
    """Refuse words in columns of numbers, and numbers of which an expression makes none."""
    for name in design.explaining:
        column = records.columns[name]
        if name in design.levels:
            continue
        words = complete & column.words
        if words.any():
            row = int(np.argmax(words))
            raise records.error(row, name, column.fault(row))
    for text in dict.fromkeys(text for factors in design.products[1:] for text in factors):
        check_finite(records, parse(text), complete)
