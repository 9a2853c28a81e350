"""`DANLRegressor`: ridge and Poisson regression on rows that stay in shards."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.metrics import d2_tweedie_score

from danl.errors import InputError
from danl.estimators.base import DANLModel
from danl.objective.losses import Array, make_loss
from danl.spec import unknown_name

LOSSES = ("squared", "poisson")


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

    def __init__(
        self,
        loss: str = "squared",
        *,
        C: float = 1.0,
        alpha: float | None = None,
        fit_intercept: bool = True,
        workers: int = 10,
        regions: Any = None,
        policy: Any = None,
        method: Any = "danl-secant",
        engine: Any = "local",
        tol: float = 1e-12,
        max_rounds: int = 200,
        warm_start: bool = False,
        random_state: Any = None,
        verbose: int = 0,
        callback: Any = None,
    ) -> None:
        self.loss = loss
        self.C = C
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.workers = workers
        self.regions = regions
        self.policy = policy
        self.method = method
        self.engine = engine
        self.tol = tol
        self.max_rounds = max_rounds
        self.warm_start = warm_start
        self.random_state = random_state
        self.verbose = verbose
        self.callback = callback

    def fit(self, X: Any, y: Any, *, groups: Any = None, sample_weight: Any = None) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : array, sparse matrix or frame, (rows, features)
            The features.
        y : array, (rows,)
            The targets; 0 or more for "poisson".
        groups : array, (rows,), optional
            The site each row is at: one worker per site. Without it the rows are divided into `workers` shards.
        sample_weight : array, (rows,), optional
            Weights of the rows.

        """
        with self._all_or_nothing():
            if self.loss not in LOSSES:
                raise unknown_name("loss", str(self.loss), LOSSES)
            X, y, groups, weights = self._checked_rows(X, y, groups, sample_weight, y_numeric=True)
            y = np.asarray(y, dtype=np.float64)
            make_loss(self.loss).check_targets(y)
            if self.loss == "poisson" and not y.any():
                raise InputError("y: is 0 for every row, and loss 'poisson' has no optimum then; check the targets")
            result = self._fit(X, y, self.loss, groups, weights)
            coefficients, intercepts = result.layout.split(result.w)
            self.coef_, self.intercept_ = coefficients[0], float(intercepts[0])
        return self

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
