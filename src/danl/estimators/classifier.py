"""`DANLClassifier`: logistic regression, binary or multinomial, on rows that stay in shards."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.special import expit, log_expit, log_softmax, softmax
from sklearn.base import ClassifierMixin
from sklearn.utils import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from danl.errors import InputError
from danl.estimators.base import DANLModel
from danl.estimators.by_formula import rows_to_score
from danl.objective.losses import MULTINOMIAL, Array
from danl.run.result import Result
from danl.statistics.inference import sum_to_zero

LABELS = "biu"
"""Kinds of arrays whose entries are labels whatever they are: booleans and whole numbers."""


@dataclass(eq=False, repr=False)
class DANLClassifier(ClassifierMixin, DANLModel):  # type: ignore[misc]
    """Logistic regression, binary or multinomial, that gives the pooled fit's answer from rows in shards.

    Parameters
    ----------
    C : float, default=1.0
        The inverse of the penalty, as in `sklearn.linear_model.LogisticRegression`; numpy.inf is no penalty.
    alpha : float, optional
        The penalty on the averaged loss instead, alpha / 2 |coefficients|^2: alpha = 1 / (C * rows). Where it is given,
        C is not used.
    fit_intercept : bool, default=True
        Fit an intercept; it is not penalised.
    class_weight : dict or "balanced", optional
        Weights of the classes, as in scikit-learn.
    workers : int, default=10
        Shards the rows are divided into where `fit` is given no groups; at most one for every row.
    regions : int, sizes, index groups, "prefix" or "classes", optional
        How the features are cut; "classes" makes one region of every class. Default: 4.
    policy : str, policy or callable, optional
        Who trains what in each round; see `danl.policies`. Default: everyone everything.
    method : str or method, default="danl"
        See `danl.methods`.
    engine : str or engine, default="local"
        Where the workers run: this process, "ray" or "flower".
    tol : float, default=1e-10
        Stop when what is left to the optimum, the Newton decrement over the square root of the averaged objective, is
        at most this, or as small as rounding lets it be. A number without units.
    max_rounds : int, default=200
        Most exchanges after the first one.
    warm_start : bool, default=False
        Start from the model of the fit before.
    random_state : int, RandomState or None
        Of the division into shards, the masks and the mini-batches. None: 0, as the answer does not depend on it.
    verbose : int, default=0
        1 shows progress, 2 a line for every exchange.
    callback : callable or list of callables, optional
        Called with every new row, as in `danl.solve`; True ends the fit.
    formula : str, optional
        ``ill ~ age + C(smoking)``: X is a frame with these columns, and there is no y. Two classes; ``ill[yes]`` says
        which is the event. Records with a missing value are left out, and counted in `left_out_`.

    Attributes
    ----------
    coef_ : array, (1, features) or (classes, features)
        Coefficients; those of a multinomial fit sum to zero over the classes.
    intercept_ : array, (1,) or (classes,)
        Intercepts; zeros without one.
    classes_ : array
        The labels.
    feature_names_in_ : array of str
        Where X is a frame its columns, with a formula those of the design.
    left_out_ : int
        With a formula: records of X with a missing value.
    n_iter_ : int
        Exchanges.
    history_, result_ : History, Result
        A row an exchange; and how the run ended.
    bytes_up_, bytes_down_ : int
        What the exchanges weigh on the wire.

    """

    C: float = 1.0
    class_weight: Any = field(default=None, kw_only=True)

    def _targets(self, y: Any, weights: Array | None) -> tuple[Array, str, Array | None]:
        plain = y.dtype.kind in LABELS  # any numbers of these are classes; scikit-learn takes longer than a small fit
        if not plain:
            check_classification_targets(y)
        self.classes_, codes = _classes(y)
        if self._design is not None:
            self._order_as_the_formula(codes)
        count = len(self.classes_)
        if plain and 2 * count > len(y):
            check_classification_targets(y)  # which warns where nearly every row has a class of its own
        if count < 2:
            raise ValueError(  # scikit-learn looks for these words
                f"y: classifier needs at least 2 classes in the data, and there is one class only: {self.classes_[0]}"
            )
        if self.class_weight is not None:
            weights = self._by_class(y, codes, weights)
        return codes.astype(np.float64), "logistic" if count == 2 else f"{MULTINOMIAL}:classes={count}", weights

    def _order_as_the_formula(self, codes: Any) -> None:
        """The event is the second class; an outcome of numbers is 0 and 1."""
        levels = self._design.outcome_levels
        if levels is None:
            self.classes_ = self.classes_.astype(np.intp)
        elif tuple(self.classes_) != levels:
            self.classes_ = np.array(levels)
            np.subtract(1, codes, out=codes)

    def _set_coefficients(self, result: Result) -> None:
        # What all classes share changes no probability: without it, there is one answer however it came.
        self.coef_, self.intercept_ = result.layout.split(sum_to_zero(result.w, result.layout))

    def _by_class(self, y: Any, codes: Any, weights: Array | None) -> Array:
        """The rows' weights, times those of their classes."""
        of_class = compute_class_weight(self.class_weight, classes=self.classes_, y=y, sample_weight=weights)
        for label, weight in zip(self.classes_, of_class, strict=True):
            if not 0 < weight < np.inf:
                raise InputError(f"class_weight: gives class {label} the weight {weight:g}; it must be above 0")
        by_row: Array = of_class[codes]
        return by_row if weights is None else by_row * weights

    def decision_function(self, X: Any) -> Array:
        """Margins: (rows,) for two classes, else (rows, classes)."""
        margins = self._margins(X)
        return margins[:, 0] if len(self.classes_) == 2 else margins

    def predict_proba(self, X: Any) -> Array:
        """Probabilities of the classes, (rows, classes)."""
        margins = self.decision_function(X)
        if margins.ndim == 1:
            return np.column_stack([expit(-margins), expit(margins)])
        return np.asarray(softmax(margins, axis=1))

    def predict_log_proba(self, X: Any) -> Array:
        """Logarithms of the probabilities; those of tiny ones are right, too."""
        margins = self.decision_function(X)
        if margins.ndim == 1:
            return np.column_stack([log_expit(-margins), log_expit(margins)])
        return np.asarray(log_softmax(margins, axis=1))

    def predict(self, X: Any) -> Any:
        """The likeliest class of each row."""
        check_is_fitted(self)
        margins = self.decision_function(X)
        winners = (margins > 0).astype(np.intp) if margins.ndim == 1 else margins.argmax(axis=1)
        return self.classes_[winners]

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """The share of the rows whose class is predicted; with a formula of the complete ones, and without y."""
        return float(super().score(*rows_to_score(self._design, X, y, sample_weight)))

    def _remarks(self) -> tuple[str, ...]:
        if len(self.classes_) > 2:
            return ()
        return (f"coefficients are of the log-odds of class {self.classes_[1]}, against class {self.classes_[0]}",)

    def _output_names(self) -> list[str]:
        return [""] if len(self.classes_) == 2 else [str(label) for label in self.classes_]


def _classes(y: Any) -> tuple[Any, Any]:
    """The classes in order, and the number of each row's; two classes of numbers are told without sorting the rows."""
    if y.dtype.kind in LABELS and len(y):
        both = np.array([y.min(), y.max()])
        codes = y == both[1]
        if both[0] != both[1] and np.count_nonzero(codes) + np.count_nonzero(y == both[0]) == len(y):
            return both, codes.astype(np.intp)
    return np.unique(y, return_inverse=True)
