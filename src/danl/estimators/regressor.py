"""`DANLRegressor`: ridge, Poisson, gamma and negative binomial regression on rows that stay in shards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.metrics import d2_tweedie_score
from sklearn.utils import check_consistent_length

from danl.errors import InputError
from danl.estimators.base import DANLModel
from danl.estimators.by_formula import rows_to_score
from danl.objective.log_link import NEGATIVE_BINOMIAL
from danl.objective.losses import Array, make_loss
from danl.run.result import Result
from danl.spec import unknown_name

LOSSES = ("squared", "poisson", "gamma", NEGATIVE_BINOMIAL)
POWERS = {"poisson": 1, "gamma": 2}
"""Of the mean, that the variance is in: what scikit-learn knows these deviances by."""


@dataclass(eq=False, repr=False)
class DANLRegressor(RegressorMixin, DANLModel):  # type: ignore[misc]
    """Ridge, Poisson, gamma or negative binomial regression: the pooled fit's answer from rows in shards.

    Parameters
    ----------
    loss : "squared", "poisson", "gamma" or "negative-binomial:alpha=A", default="squared"
        (y - x . w)^2 / 2, or half the deviance with a log link: of counts, of amounts above 0, of counts whose
        variance is m + A m^2 about their mean m. A is given, not fitted.
    C : float, default=1.0
        The inverse of the penalty: sum of the losses + 1 / (2 C) |coefficients|^2. With "squared" that is
        `sklearn.linear_model.Ridge(alpha=1 / C)`; numpy.inf is no penalty.
    alpha : float, optional
        The penalty on the averaged loss instead, alpha / 2 |coefficients|^2: with "poisson" that is
        `sklearn.linear_model.PoissonRegressor(alpha=alpha)`, with "gamma" `GammaRegressor(alpha=alpha)`. Where it is
        given, C is not used.
    fit_intercept, workers, regions, policy, method, engine, tol, max_rounds, warm_start, random_state, verbose
    callback
        As in `DANLClassifier`.
    formula : str, optional
        ``visits ~ age + C(smoking)``: X is a frame with these columns, and there is no y. Records with a missing value
        are left out, and counted in `left_out_`.

    Attributes
    ----------
    coef_ : array, (features,)
        Coefficients.
    intercept_ : float
        The intercept; 0.0 without one.
    n_iter_, history_, result_, bytes_up_, bytes_down_
        As in `DANLClassifier`.

    """

    loss: str = "squared"

    _numeric: ClassVar[bool] = True

    def _check_parameters(self) -> None:
        if self._family not in LOSSES:
            raise unknown_name("loss", str(self.loss), LOSSES, "a loss of your own is for danl.Problem and danl.solve")
        make_loss(self.loss)
        super()._check_parameters()

    def _targets(self, y: Any, weights: Array | None) -> tuple[Array, str, Array | None]:
        targets = np.asarray(y, dtype=np.float64)
        make_loss(self.loss).check_targets(targets)
        if self._family != "squared" and not targets.any():
            raise InputError(f"y: is 0 for every row, and loss {self.loss!r} has no optimum then; check the targets")
        return targets, self.loss, weights

    def _set_coefficients(self, result: Result) -> None:
        coefficients, intercepts = result.layout.split(result.w)
        self.coef_, self.intercept_ = coefficients[0], float(intercepts[0])

    def predict(self, X: Any) -> Array:
        """The mean of each row."""
        margins = self._margins(X)[:, 0]
        return margins if self._family == "squared" else np.asarray(np.exp(margins))

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """The share of the deviance explained: R^2 with "squared", D^2 with the others.

        With a formula of the complete records, and without y.
        """
        X, y, sample_weight = rows_to_score(self._design, X, y, sample_weight)
        if self._family == "squared":
            return float(super().score(X, y, sample_weight))
        if self._family in POWERS:
            power = POWERS[self._family]
            return float(d2_tweedie_score(y, self.predict(X), sample_weight=sample_weight, power=power))
        loss, margins, targets = make_loss(self.loss), self._margins(X)[:, 0], np.asarray(y, dtype=np.float64).ravel()
        check_consistent_length(margins, targets, sample_weight)
        loss.check_targets(targets)
        without = np.full(len(targets), np.log(np.average(targets, weights=sample_weight)))
        left, whole = (np.average(loss.value(targets, z), weights=sample_weight) for z in (margins, without))
        return float(1.0 - left / whole)

    @property
    def _family(self) -> str:
        """The loss without its options."""
        return str(self.loss).partition(":")[0]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = self._family != "squared"
        return tags
