"""What a site answers: its rules, on by default, set in its own configuration and nowhere else.

The defaults are for statistics of people: whole sums over enough records, of a model that is small beside them. What
asks for fewer records, or weights them so that few of them are the answer, is refused. A rule counts records, of which
a row with weight 0 is none.

    sizes      min-rows, min-cell, max-features-per-row, by-mask, sparse-columns, arithmetic, max-levels
    questions  tasks, losses, formulas, columns, subsets
    weights    max-share (`danl.engines.flower.dominance`)
    history    max-exchanges, max-exchanges-a-day, changed-data, ledger (`danl.engines.flower.ledger`)
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from danl.checks import check_choice, check_number, check_share, check_whole
from danl.design.expression import degree_of
from danl.errors import InputError, bad_argument
from danl.objective.losses import LOSSES, MULTINOMIAL, make_loss, outputs_of
from danl.protocol.messages import TASKS, GradientTask, Task
from danl.protocol.own_tasks import OWN_TASKS, OwnTask
from danl.spec import unknown_name
from danl.tasks.several import SeveralTask

ALL, NONE = "all", "none"
PRUNED = "pruned-gradient"
"""What a gradient at a pruned model is called among the tasks."""
OF_STATISTICS = ("hessian", "curvature", "gradient", "loss", "scores", "moments")
"""The tasks of the default method and of standard errors."""
STATISTICAL_LOSSES = ("squared", "logistic", "poisson", "gamma", "negative-binomial", MULTINOMIAL)
"""The losses that are log-likelihoods. A hinge lets rows drop out of the sum one by one."""
MOST_POWERS = 3
"""Of columns that a column of the model may be the product of."""
NO_LIMIT = 2**53
"""A whole number that nothing reaches."""


class RefusedError(InputError):
    """A question the site does not answer; the text names the rule, and has no value of a record."""

    def __init__(self, message: str) -> None:
        super().__init__(message, redacted=message)


def task_names() -> tuple[str, ...]:
    """The tasks there are: those of Algorithm 1 and its readings, and those of other methods that are imported.

    Several in one message are each held against the rules.
    """
    return (*(task.name for task in TASKS), PRUNED, *(name for name in OWN_TASKS if name != SeveralTask.name))


def default_tasks() -> tuple[str, ...]:
    """What a site answers unless its rules say otherwise."""
    return (*OF_STATISTICS, *(name for name, task in OWN_TASKS.items() if task.by_default))


def loss_names() -> tuple[str, ...]:
    """The losses a rule may name."""
    return tuple(dict.fromkeys([*STATISTICAL_LOSSES, *LOSSES]))


@dataclass(frozen=True)
class SiteRules:
    """What a site is willing to answer; `SiteRules.open()` is a site without rules.

    Parameters
    ----------
    min_rows : int
        The fewest records that an answer is computed on, and that two answered sets of records may differ by.
    min_cell : int
        The fewest records of a cell: of a level, a class of the outcome, a bin; and the fewest effective records that
        the curvature of a logistic model may be of.
    max_features_per_row : float
        The largest ratio of coefficients to records. Many numbers of few records tell the records.
    by_mask : bool
        Whether a gradient counts with the coordinates of its mask alone. Masks of several exchanges add up to a whole.
    sparse_columns : bool
        Whether columns, and binary outcomes, are used in which fewer than `min_cell` records differ from the others, or
        one record has nearly all there is.
    arithmetic : bool
        Whether a formula may calculate more of columns than logarithms, roots, squares, cubes and products of three.
    max_levels : int
        The most levels that a column may have, and classes an outcome, where it counts by them.
    max_share : float
        The largest share that one record may have in the sum of weights behind an answer; 1 is no rule.
    tasks : tuple of str
        The tasks it accepts: hessian, curvature (a part of a Hessian, or one in float32 or compressed), gradient,
        pruned-gradient, loss, local-steps, scores, smoothness, moments; and those of the field's methods
        (`danl.tasks`). Default: those of the default method and of statistics.
    losses : tuple of str
        The losses it accepts, without their options.
    formulas : tuple of str, optional
        The formulas it accepts; spaces do not count. Default: any.
    columns : tuple of str, optional
        The columns it lets be used, the outcome's among them. Default: any.
    subsets : bool
        Whether it answers about some of the rows: mini-batches, samples, draws.
    max_exchanges : int
        The most questions that it answers in a run; one about several models counts as many.
    max_exchanges_a_day : int
        The most it answers on a day (UTC), over all runs: who asks can begin new ones.
    changed_data : bool
        Whether it answers about records of which fewer than `min_rows` differ from others it has answered about.
    ledger : str
        The folder with what was answered about; "" is one of the user's, by the site's name, "none" keeps none.

    """

    min_rows: int = 10
    min_cell: int = 3
    max_features_per_row: float = 0.33
    by_mask: bool = False
    sparse_columns: bool = False
    arithmetic: bool = False
    max_levels: int = 40
    max_share: float = 0.8
    tasks: tuple[str, ...] = field(default_factory=default_tasks)
    losses: tuple[str, ...] = STATISTICAL_LOSSES
    formulas: tuple[str, ...] | None = None
    columns: tuple[str, ...] | None = None
    subsets: bool = False
    max_exchanges: int = 200
    max_exchanges_a_day: int = 1000
    changed_data: bool = False
    ledger: str = ""

    def __post_init__(self) -> None:
        for name in ("min_rows", "min_cell", "max_levels", "max_exchanges", "max_exchanges_a_day"):
            check_whole(_key(name), getattr(self, name))
        check_number("max-features-per-row", self.max_features_per_row, infinite=True)
        check_share("max-share", self.max_share, zero=False)
        for name in ("by_mask", "sparse_columns", "arithmetic", "subsets", "changed_data"):
            if not isinstance(getattr(self, name), bool):
                raise bad_argument(_key(name), getattr(self, name), "true or false")
        if not isinstance(self.ledger, str):
            raise bad_argument("ledger", self.ledger, "a folder, or 'none'")
        for name, known in (("tasks", task_names()), ("losses", loss_names())):
            for each in getattr(self, name):
                if each not in known:
                    raise unknown_name(name, each, known, f"or {name} = {ALL!r}")

    @classmethod
    def open(cls) -> SiteRules:
        """No rules: for sites that are played, whose rows are whoever's who asks."""
        anything: dict[str, Any] = {"tasks": task_names(), "losses": loss_names(), "ledger": NONE}
        anything |= dict.fromkeys(("min_rows", "min_cell", "max_share"), 1) | {"max_features_per_row": math.inf}
        anything |= dict.fromkeys(("max_levels", "max_exchanges", "max_exchanges_a_day"), NO_LIMIT)
        anything |= dict.fromkeys(("by_mask", "sparse_columns", "arithmetic", "subsets", "changed_data"), True)
        return cls(**anything)

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> SiteRules:
        """From the keys of a node's configuration that are rules; lists are text with commas, formulas semicolons.

        With ``rules = "open"`` there are none but those that are given.
        """
        check_choice("rules", config.get("rules", "default"), ("default", "open"))
        given = {name: config[key] for key, name in RULE_KEYS.items() if key in config}
        for name, known in (("tasks", task_names), ("losses", loss_names)):
            if name in given:
                listed = _listed(given[name], ",")
                given[name] = known() if listed == (ALL,) else listed
        if "formulas" in given:
            given["formulas"] = _listed(given["formulas"], ";")
        if "columns" in given:
            given["columns"] = _listed(given["columns"], ",")
        return replace(cls.open(), **given) if config.get("rules") == "open" else cls(**given)

    # Questions.

    def broken_by(self, task: Task, n_rows: int, n_features: int, trained: int | None = None) -> str | None:
        """The rule a task breaks on so many records, with its numbers; None where it breaks none.

        `trained` are the coordinates of the mask, where one is known.
        """
        name = PRUNED if isinstance(task, GradientTask) and task.submodel == "pruned" else task.name
        if name not in self.tasks:
            return f"tasks: {name} is not among {', '.join(self.tasks) or 'none'}"
        sizes = subset_sizes(task)
        if sizes and not self.subsets:
            asked = ", ".join(f"{key}={value}" for key, value in sizes.items())
            return f"subsets: {asked} asks about some of the rows, and answers are about all of them"
        rows = min([n_rows, *sizes.values()])  # that any part of the answer is of
        if rows < self.min_rows:
            return f"min-rows: {self.count(rows)} rows, and at least {self.min_rows} are asked for"
        if name in ("loss", "smoothness") or (isinstance(task, OwnTask) and task.cells):
            return None  # one number of all rows, or cells that have a rule of their own
        features = trained if self.by_mask and trained is not None else n_features
        if features > self.max_features_per_row * rows:
            return (
                f"max-features-per-row: {features} features of {rows} rows are {features / rows:.3g} a row, "
                f"and at most {self.max_features_per_row:g} are allowed"
            )
        return None

    def broken_by_loss(self, loss: str) -> str | None:
        """The same of a loss, by its name with or without options."""
        name = loss.partition(":")[0]
        if name not in self.losses:
            return f"losses: {name} is not among {', '.join(self.losses) or 'none'}"
        if outputs_of(make_loss(loss)) > self.max_levels:
            return f"max-levels: {loss} has more than {self.max_levels} classes"
        return None

    def broken_by_design(self, formula: str | None, columns: Iterable[str]) -> str | None:
        """The same of a formula, None where there is none, and of all columns that a run uses."""
        if self.formulas is not None and (formula is None or _bare(formula) not in map(_bare, self.formulas)):
            asked = "a run without a formula" if formula is None else "this formula"
            return f"formulas: {asked} is not among the {len(self.formulas)} that are allowed"
        if self.columns is not None:
            others = sorted(set(columns) - set(self.columns))
            if others:
                return f"columns: {', '.join(others[:5])} {'is' if len(others) == 1 else 'are'} not allowed"
        return None

    def broken_by_levels(self, counts: Mapping[str, int], levels: Collection[str] | None) -> str | None:
        """The same of the levels of a column that a design has, None for all: those of the agreement, and no others.

        Who chooses levels chooses records. A level that the site has told is left out by nobody who agreed on them.
        """
        if len(counts) > self.max_levels:
            return f"max-levels: a column has more than {self.max_levels} levels"
        if levels is None or self.subsets or set(self.tellable_levels(counts)) <= set(levels):
            return None
        return f"subsets: the design leaves out a level of at least {self.min_cell} records"

    def broken_by_arithmetic(self, products: Iterable[Sequence[str]]) -> str | None:
        """The same of what a model is made of: outcome, offset and terms, each with the expressions it multiplies."""
        if self.arithmetic:
            return None
        for place, factors in enumerate(products):
            degrees = [degree_of(text) for text in factors]
            if None in degrees or sum(filter(None, degrees)) > MOST_POWERS:
                what = "the outcome" if place == 0 else "a column of the model"
                return (
                    f"arithmetic: {what} is more than a column, its logarithm, root, square or cube, or a product of "
                    f"{MOST_POWERS} of them: such a column can be made to be of one record alone"
                )
        return None

    # What is told before and beside a fit.

    def tellable_count(self, count: int) -> int | None:
        """A number of records as it may be told; None where it is a cell of too few, nobody being no cell."""
        return count if count == 0 or count >= self.min_cell else None

    def tellable_levels(self, counts: Mapping[str, int]) -> tuple[str, ...]:
        """The levels of a column with enough records each; `RefusedError` where there are too many to tell any."""
        if len(counts) > self.max_levels:
            raise RefusedError(f"max-levels: a column has more than {self.max_levels} levels")
        return tuple(level for level, count in counts.items() if count >= self.min_cell)

    def count(self, count: int) -> str:
        """A number of records in a message."""
        return f"{count}" if self.tellable_count(count) is not None else f"fewer than {self.min_cell}"


def subset_sizes(task: Task) -> dict[str, int]:
    """The fields of a task that ask about so many of the rows, drawn with a seed that the server knows."""
    found = {part.name: getattr(task, part.name) for part in fields(task) if "batch" in part.name}
    return {name: int(size) for name, size in found.items() if size is not None}


def cost(task: Task) -> int:
    """How many exchanges a task counts as: one for every model that it asks about."""
    return max(int(getattr(task, "count", 1)), 1)


def not_among(config: Mapping[str, Any], known: Sequence[str]) -> InputError | None:
    """The error of a key of a node's configuration that there is none of."""
    wrong = next((key for key in config if key not in known), None)
    return None if wrong is None else unknown_name("node-config key", wrong, sorted(known))


def _listed(text: object, separator: str) -> tuple[str, ...]:
    return tuple(each.strip() for each in str(text).split(separator) if each.strip())


def _bare(formula: str) -> str:
    return re.sub(r"\s+", "", formula)


def _key(name: str) -> str:
    return name.replace("_", "-")


RULE_KEYS = {_key(part.name): part.name for part in fields(SiteRules)}
"""The keys of a node's configuration that are rules, and the fields they are of."""
