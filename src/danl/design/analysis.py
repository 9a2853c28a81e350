"""What a statistician asks for: a formula, or columns; a family; and what else the rows say of themselves.

    Analysis("death ~ age + C(smoking, reference='never') + log(bmi)", family="binomial")

Plain data, which travels as JSON: whoever has it and the levels of the sites' words makes the same design of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from danl.checks import check_choice, check_flag
from danl.data.records import composed
from danl.errors import InputError, bad_argument
from danl.spec import parse_spec, unknown_name

LOSSES = {
    "gaussian": "squared",
    "binomial": "logistic",
    "poisson": "poisson",
    "gamma": "gamma",
    "negative-binomial": "negative-binomial",
}
"""The loss of each family, with its canonical link, or the logarithm."""
LONGEST = 5_000
"""Characters a formula may have."""


@dataclass(frozen=True)
class Analysis:
    """A regression, as it is asked for.

    Parameters
    ----------
    formula : str, optional
        ``outcome ~ age + C(smoking, reference="never") + log(bmi)``; docs/data.md says what may stand in it.
    outcome, columns : str, sequence of str, optional
        Instead of a formula: the target, and the columns it is explained by, with an intercept.
    family : str
        gaussian, binomial, poisson, gamma (log link) or negative-binomial:alpha=1.0.
    event : str, optional
        Of a binomial outcome in words: the one that is counted. Default: the later in order; or ``outcome[yes]``.
    offset : str, optional
        What is added to every linear predictor: a column, or an expression such as log(days).
    weights : str, optional
        The column with the weight of each record.
    trials : str, optional
        Binomial: the column with how many trials the outcome's successes are of.
    missing : "complete" or "error"
        Leave out records in which a value is missing, and count them, or refuse them.
    site_effects : bool
        An effect of every site beside the formula's: the first site is the one the others are compared with.
    cluster : str, optional
        "site", or a column: what standard errors are clustered by.

    """

    formula: str | None = None
    outcome: str | None = None
    columns: tuple[str, ...] | None = None
    family: str = "gaussian"
    event: str | None = None
    offset: str | None = None
    weights: str | None = None
    trials: str | None = None
    missing: Literal["complete", "error"] = "complete"
    site_effects: bool = False
    cluster: str | None = None

    def __post_init__(self) -> None:
        if self.columns is not None:
            names = names_in(self.columns)
            if names is None or not all(isinstance(name, str) and name for name in names):
                raise bad_argument("columns", self.columns, "names of columns", "such as ['age', 'smoking']")
            object.__setattr__(self, "columns", tuple(map(composed, names)))
        for name in ("formula", "outcome", "event", "offset", "weights", "trials", "cluster"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, str) or not value.strip() or len(value) > LONGEST):
                raise bad_argument(
                    name, value, f"text of at most {LONGEST} characters", "leave it out if there is none"
                )
            if value is not None:
                object.__setattr__(self, name, composed(value))
        if (self.formula is None) == (self.columns is None) or (self.columns is None) != (self.outcome is None):
            raise InputError(
                "Analysis: give a formula, such as 'outcome ~ age + smoking', or instead outcome= and columns="
            )
        if self.columns is not None and len({*self.columns, self.outcome}) <= len(self.columns):
            raise bad_argument("columns", self.columns, "different columns, without the outcome")
        check_choice("missing", self.missing, ("complete", "error"))
        check_flag("site_effects", self.site_effects)
        name, options = parse_spec(self.family, argument="family")
        if name not in LOSSES:
            raise unknown_name("family", name, LOSSES)
        if set(options) - ({"alpha"} if name == "negative-binomial" else set()):
            raise bad_argument("family", self.family, "a name; only negative-binomial has an option, alpha=1.0")
        if name != "binomial" and (self.trials is not None or self.event is not None):
            given = "trials" if self.trials is not None else "event"
            raise bad_argument(given, getattr(self, given), "left out", "it is for family='binomial'")
        if self.trials is not None and self.event is not None:
            raise bad_argument("event", self.event, "left out", "with trials= the outcome is a number of successes")

    @property
    def family_name(self) -> str:
        """The family without its options."""
        return parse_spec(self.family, argument="family")[0]

    @property
    def loss(self) -> str:
        """What is minimised: the name of a loss."""
        name, colon, options = self.family.strip().partition(":")
        return LOSSES[name.strip()] + colon + options

    def alone(self, **beside: Any) -> Analysis:
        """The analysis itself; an `InputError` where one of its fields is given beside it."""
        for part in fields(self):
            if part.name in beside and beside[part.name] != part.default:
                raise bad_argument(part.name, beside[part.name], "left out", "the Analysis has it already")
        return self

    def to_dict(self) -> dict[str, Any]:
        """As plain data; what is as by default is left out."""
        plain = {part.name: getattr(self, part.name) for part in fields(self)}
        plain["columns"] = None if self.columns is None else list(self.columns)
        return {part.name: plain[part.name] for part in fields(self) if plain[part.name] != part.default}

    @classmethod
    def from_dict(cls, values: object) -> Analysis:
        """From plain data, as `to_dict` writes it."""
        if not isinstance(values, Mapping):
            raise bad_argument("analysis", type(values).__name__, "an object with the fields of danl.Analysis")
        known = [part.name for part in fields(cls)]
        for name in values:
            if name not in known:
                raise unknown_name("analysis", str(name), known)
        columns = values.get("columns")
        if columns is not None and not isinstance(columns, list | tuple):
            raise bad_argument("columns", columns, "names of columns")
        return cls(**{**values, "columns": None if columns is None else tuple(columns)})

    def to_json(self) -> str:
        """As text."""
        return json.dumps(self.to_dict())

    @classmethod
    def from_json(cls, text: object) -> Analysis:
        """From text."""
        try:
            return cls.from_dict(json.loads(text))  # type: ignore[arg-type]  # whatever came: it is looked at
        except (TypeError, ValueError, RecursionError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError("analysis: is no JSON") from None


def names_in(given: object) -> tuple[Any, ...] | None:
    """What a list of names has in it; None where it is no list."""
    return tuple(given) if isinstance(given, Iterable) and not isinstance(given, str) else None
