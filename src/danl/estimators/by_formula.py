"""Rows of a frame by a formula: what an estimator with `formula=` is fitted to, predicts from and is scored on.

The frame has all columns, the outcome among them, so that there is no y. Levels are those of the frame; a record in
which a value is missing is left out of a fit and a score, and counted.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from danl.data.records import Records, records_of_frame
from danl.design.agreement import agree
from danl.design.analysis import LOSSES, Analysis
from danl.design.design import Design
from danl.design.formula import read_model
from danl.design.survey import survey
from danl.errors import InputError, bad_argument
from danl.objective.losses import Array
from danl.statistics.model_file import margins_of

FAMILIES = {loss: family for family, loss in LOSSES.items()}


def rows_to_fit(estimator: Any, X: Any, y: object, groups: Any, sample_weight: Any) -> tuple[Any, Any, Any, Any]:
    """Features and targets of the complete records, and what is given for these; without a formula what is given.

    The estimator has the design.
    """
    estimator._design = None
    if estimator.formula is None:
        return X, y, groups, sample_weight
    design, records = _agreed(estimator.formula, getattr(estimator, "loss", "logistic"), X)
    if not estimator.fit_intercept and design.intercept:
        raise bad_argument("fit_intercept", False, "True with a formula", "write 0 + in it for no intercept")
    features, targets, rows, estimator.left_out_ = _complete(design, records, y)
    estimator._design = design
    return features, targets, *_chosen(X, rows, groups=groups, sample_weight=sample_weight)


def rows_to_score(design: Design | None, X: Any, y: Any, sample_weight: Any) -> tuple[Any, Any, Any]:
    """The complete records of a frame, their outcome and weights; without a design what is given."""
    if design is None:
        return X, y, sample_weight
    _, targets, rows, _ = _complete(design, records_of_frame(X, design.needed, "X"), y)
    return X.iloc[rows] if hasattr(X, "iloc") else X[rows], targets, *_chosen(X, rows, sample_weight=sample_weight)


def margins_of_frame(design: Design, intercept: Any, coefficients: Any, X: Any) -> Array:
    """The margins of the records of a frame, (records, 1); all must be complete."""
    z = margins_of(design, float(np.ravel(intercept)[0]), np.ravel(coefficients), X, source="X")
    if np.isnan(z).any():
        record = int(np.argmax(np.isnan(z)))
        raise InputError(
            f"X: in record {record} (counted from 0) a value is missing in a column of the formula; leave such records "
            "out, or fill the values in"
        )
    return z[:, None]


def left_out(estimator: Any) -> tuple[str, ...]:
    """What a table says of records that the fit is without."""
    count = 0 if estimator._design is None else estimator.left_out_
    return (f"{count} record{'s' * (count > 1)} left out: a value is missing",) if count else ()


def _agreed(formula: object, loss: str, frame: Any) -> tuple[Design, Records]:
    """The design that a formula and the levels of a frame make, and its records; `loss` is that of the estimator."""
    if not isinstance(formula, str):
        raise bad_argument("formula", formula, "text, such as 'ill ~ age + C(smoking)'", "danl.glm takes an Analysis")
    name, colon, options = loss.partition(":")
    analysis = Analysis(formula=formula, family=FAMILIES[name] + colon + options)
    model = read_model(analysis)
    records = records_of_frame(frame, model.names, "X")
    return agree(analysis, [survey(records, analysis, model, site="X")]).design, records


def _complete(design: Design, records: Records, y: object) -> tuple[Array, Any, Any, int]:
    """Features and targets of the complete records, in words where the outcome has words; which, and how many not."""
    if y is not None:
        raise bad_argument("y", type(y).__name__, "None", f"the formula takes {design.outcome} from X")
    shard = design.shard(records)
    levels = design.outcome_levels
    targets = shard.y if levels is None else np.array(levels)[shard.y.astype(np.intp)]
    return np.asarray(shard.X), targets, shard.rows, shard.left_out


def _chosen(frame: Any, rows: Any, **given: Any) -> list[Any]:
    """What is given for every record, of the chosen ones."""
    for name, value in given.items():
        if value is not None and np.shape(value) != (len(frame),):
            raise InputError(f"{name}: must have one for each of the {len(frame)} records, found {np.shape(value)}")
    return [None if value is None else np.asarray(value)[rows] for value in given.values()]
