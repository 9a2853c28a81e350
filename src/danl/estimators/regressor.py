"""`DANLRegressor`: ridge and Poisson regression on rows that stay in shards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.metrics import d2_tweedie_score

from danl.errors import InputError
from danl.estimators.base import DANLModel
from danl.objective.losses import Array, make_loss
from danl.run.result import Result
from danl.spec import unknown_name

LOSSES = ("squared", "poisson")


@dataclass(eq=False, repr=False)
class DANLRegressor(RegressorMixin, DANLModel):  # type: ignore[misc]
    """Ridge or Poisson regression that gives the pooled fit's answer from rows in shards.

    Parameters
    ----------
    loss : "squared" or "poisson", default="squared"
        (y - x . w)^2 / 2, or half the Poisson deviance with a log link.
    C : float, default=1.0
        The inverse of the penalty: sum of the losses + 1 / (2 C) |coefficients|^2. With "squared" that is
        `sklearn.linear_model.Ridge(alpha=1 / C)`; numpy.inf is no penalty.
    alpha : float, optional
        The penalty on the averaged loss instead, alpha / 2 |coefficients|^2: with "poisson" that is
        `sklearn.linear_model.PoissonRegressor(alpha=alpha)`. Where it is given, C is not used.
    fit_intercept, workers, regions, policy, method, engine, tol, max_rounds, warm_start, random_state, verbose
    callback
        As in `DANLClassifier`.

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
        if self.loss not in LOSSES:
            raise unknown_name("loss", str(self.loss), LOSSES, "a loss of your own is for danl.Problem and danl.solve")
        super()._check_parameters()

    def _targets(self, y: Any, weights: Array | None) -> tuple[Array, str, Array | None]:
        targets = np.asarray(y, dtype=np.float64)
        make_loss(self.loss).check_targets(targets)
        if self.loss == "poisson" and not targets.any():
            raise InputError("y: is 0 for every row, and loss 'poisson' has no optimum then; check the targets")
        return targets, self.loss, weights

    def _set_coefficients(self, result: Result) -> None:
        coefficients, intercepts = result.layout.split(result.w)
        self.coef_, self.intercept_ = coefficients[0], float(intercepts[0])

    def predict(self, X: Any) -> Array:
        """The mean of each row."""
        margins = self._margins(X)[:, 0]
        return np.asarray(np.exp(margins)) if self.loss == "poisson" else margins

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The share of the deviance explained: R^2 with "squared", D^2 with "poisson"."""
        if self.loss == "poisson":
            return float(d2_tweedie_score(y, self.predict(X), sample_weight=sample_weight, power=1))
        return float(super().score(X, y, sample_weight))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = self.loss == "poisson"
        return tags
