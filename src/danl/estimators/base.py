r"""What both estimators share: from rows and groups to a `Problem`, through `solve`, to fitted attributes.

The objective is the pooled one, so the answer does not depend on how the rows are divided: with s_j the weight of a row
and S the sum of them,

    (1 / S) sum_j s_j loss_j(w)  +  (alpha / 2) |coefficients|^2            alpha = 1 / (C S)

C is that of scikit-learn's LogisticRegression. The intercept is not penalised. A row of weight 2 is a row that is there
twice; a row of weight 0 is not there.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from danl.checks import check_choice, check_number, check_share, check_whole
from danl.data.partition import as_they_lie, partition
from danl.data.shard import Shard
from danl.errors import DanlWarning, InputError
from danl.estimators.by_formula import left_out, margins_of_frame, rows_to_fit
from danl.estimators.saved import read_estimator, write_estimator
from danl.objective.losses import Array
from danl.objective.problem import Problem
from danl.objective.regions import Regions
from danl.run.history import History, Row
from danl.run.result import Result
from danl.run.separation import endless, may_be_separated
from danl.run.solver import solve
from danl.statistics.inference import Inference, request_inference
from danl.statistics.summary import Summary

WHAT_TO_DO = {
    "max_rounds": "give it more rounds (max_rounds), scale the features, or add a penalty (a smaller C)",
    "stuck": "no step showed a decrease any more: scale the features, or add a penalty (a smaller C)",
    "diverged": "scale the features, add a penalty (a smaller C), or use method='danl' or 'newton'",
    "quorum_lost": "too many workers did not answer: see result_.failures, and fit again when they are back",
    "stopped": "a callback ended it: fit again without it, with warm_start=True to go on from here",
    "interrupted": "it was interrupted: fit again, with warm_start=True to go on from here",
    "separated": "add a penalty (a finite C, or alpha above 0): without one this data has no best model",
}
PERHAPS = (
    "; without a penalty it may also be that there is no best model, because some features tell the class of all or "
    "some rows alone (separation)"
)


class FittedAttributes(BaseEstimator):  # type: ignore[misc]
    """What a fit leaves behind."""

    coef_: Array
    intercept_: Any
    result_: Result
    history_: History
    n_iter_: int
    n_features_in_: int
    bytes_up_: int
    bytes_down_: int
    _problem: Problem | None  # the rows: for `summary`, not for a copy or a file
    _regions: Regions
    _inference: Inference | None
    _seed: int
    left_out_: int
    _design: Any = None  # that of the formula and the frame, where there is one


@dataclass(eq=False, repr=False, kw_only=True)
class DANLModel(FittedAttributes):
    """A linear model fitted by workers that each hold some of the rows; the two estimators derive from it.

    The fields are the parameters: a dataclass makes the constructor that scikit-learn asks for.
    """

    C: float = 1.0
    alpha: float | None = None
    fit_intercept: bool = True
    workers: int = 10
    regions: Any = None
    policy: Any = None
    method: Any = "danl"
    engine: Any = "local"
    tol: float = 1e-10
    max_rounds: int = 200
    warm_start: bool = False
    random_state: Any = None
    verbose: int = 0
    callback: Any = None
    formula: str | None = None

    _numeric: ClassVar[bool] = False  # whether targets must be numbers

    def fit(self, X: Any, y: Any = None, *, groups: Any = None, sample_weight: Any = None) -> Self:
        """Fit the model.

        Parameters
        ----------
        X : array, sparse matrix or frame, (rows, features)
            The features, with a formula all its columns; not copied where they need not be, so leave them as they are
            until `summary` was called.
        y : array, (rows,), but with a formula
            The labels, or the targets; 0 or more for "poisson", above 0 for "gamma".
        groups : array, (rows,), optional
            The site each row is at: one worker per site. Without it the rows are divided into `workers` shards.
        sample_weight : array, (rows,), optional
            Weights of the rows.

        """
        before = dict(self.__dict__)
        try:
            self._check_parameters()
            X, y, groups, weights = self._checked_rows(*rows_to_fit(self, X, y, groups, sample_weight))
            targets, loss, weights = self._targets(y, weights)
            self._set_coefficients(self._solve(X, targets, loss, groups, weights))
        except BaseException:  # a fit that fails leaves the estimator as it was before
            self.__dict__.clear()
            self.__dict__.update(before)
            raise
        return self

    def _targets(self, y: Any, weights: Array | None) -> tuple[Array, str, Array | None]:
        """The targets as the loss takes them, the loss, and the weights of the rows."""
        raise NotImplementedError

    def _set_coefficients(self, result: Result) -> None:
        """Make coef_ and intercept_ of the fitted w."""
        raise NotImplementedError

    def _solve(self, X: Any, y: Array, loss: str, groups: Any, weights: Array | None) -> Result:
        """Fit w to checked rows."""
        problem = self._problem_of(X, y, loss, groups, weights)
        named = hasattr(self, "feature_names_in_")
        regions = problem.layout.regions(self.regions, self._names() if named else None)
        before: Result | None = getattr(self, "result_", None) if self.warm_start else None
        start = before.w if before is not None and before.layout == problem.layout else None
        given = self.callback if isinstance(self.callback, list | tuple) else [self.callback]
        with _progress(self.verbose, type(self).__name__) as progress, _caught() as caught:
            result = solve(
                problem,
                method=self.method,
                regions=regions,
                policy=self.policy,
                w0=start,
                max_rounds=self.max_rounds,
                tol=self.tol,
                seed=self._seed,
                engine=self.engine,
                callback=[each for each in (progress, *given) if each is not None],
            )
        if result.status != "converged":
            caught.append(self._not_converged(problem, result))
        said = {str(each) for each in caught}
        caught += [DanlWarning(f"{type(self).__name__}: {note}") for note in result.notes if note not in said]
        for each in caught:
            warnings.warn(each, stacklevel=3)
        self._problem, self._regions, self._inference = problem, regions, None
        self.result_, self.history_ = result, result.history
        self._set_totals(result.history)
        return result

    def _not_converged(self, problem: Problem, result: Result) -> ConvergenceWarning:
        left = result.history[-1].decrement if len(result.history) else np.nan
        stuck = result.status == "max_rounds" and result.n_rounds < self.max_rounds
        what_to_do = WHAT_TO_DO["separated" if endless(result) else "stuck" if stuck else result.status]
        if not endless(result) and result.status != "stopped" and may_be_separated(problem):
            what_to_do += PERHAPS
        return ConvergenceWarning(
            f"{type(self).__name__} did not converge: {result.status} after {len(result.history)} exchanges, "
            f"decrement {left:.1e} (tol {self.tol:g}); {what_to_do}"
        )

    def _problem_of(self, X: Any, y: Array, loss: str, groups: Any, weights: Array | None) -> Problem:
        n_rows = len(y)
        total = float(n_rows if weights is None else weights.sum())
        self._seed = (
            int(check_random_state(self.random_state).randint(2**31 - 1)) if self.random_state is not None else 0
        )
        if groups is None:
            # Who has which rows matters only where not everyone is asked for everything; as they lie, none is copied.
            plain = (self.method, self.engine, self.policy) == ("danl", "local", None)
            workers = min(self.workers, n_rows)
            if plain:
                shards = as_they_lie(X, y, workers, weights)
            else:
                shards = partition(X, y, workers=workers, seed=self._seed, weights=weights)
        else:
            shards = _by_group(X, y, groups, weights)
        if hasattr(self, "feature_names_in_"):
            names = tuple(self._names())
            if len(set(names)) == len(names):
                shards = [replace(shard, feature_names=names) for shard in shards]
        alpha = 1.0 / (self.C * total) if self.alpha is None else float(self.alpha)
        intercept = self.fit_intercept if self._design is None else self._design.intercept
        return Problem(shards, loss=loss, alpha=alpha, weighting="samples", intercept=intercept)

    def _set_totals(self, history: History) -> None:
        """Exchanges and bytes, those for the standard errors included."""
        self.n_iter_ = len(history)
        self.bytes_up_ = int(history.column("bytes_up").sum()) if len(history) else 0
        self.bytes_down_ = int(history.column("bytes_down").sum()) if len(history) else 0

    def _check_parameters(self) -> None:
        """Every parameter the base has, before anything is touched."""
        if self.alpha is None:
            check_number("C", self.C, "C=numpy.inf or alpha=0 is no penalty", infinite=True)
        else:
            check_number("alpha", self.alpha, "None uses C", least=0)
        check_whole("workers", self.workers)

    def _checked_rows(self, X: Any, y: Any, groups: Any, sample_weight: Any) -> tuple[Any, Any, Any, Array | None]:
        """Rows as scikit-learn checks them, without those of weight zero."""
        if self._design is not None:
            self.n_features_in_, self.feature_names_in_ = X.shape[1], np.array(self._design.names, dtype=object)
        elif _is_plain(X, y):  # what scikit-learn would find, in a tenth of the time
            self.n_features_in_ = X.shape[1]
            self.__dict__.pop("feature_names_in_", None)
        else:
            X, y = validate_data(self, X, y, accept_sparse=("csr", "csc"), dtype=np.float64, y_numeric=self._numeric)
        weights = None
        if sample_weight is not None:
            weights = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        if groups is not None:
            groups = np.asarray(groups)
            if groups.shape != (X.shape[0],):
                raise InputError(
                    f"groups: must name the site of each of the {X.shape[0]} rows, found shape {groups.shape}"
                )
        if weights is not None and (weights == 0).any():
            kept = weights > 0
            if not kept.any():
                raise InputError("sample_weight: is zero for every row; give at least one row some weight")
            X, y, weights = X[kept], y[kept], weights[kept]
            groups = None if groups is None else groups[kept]
        return X, y, groups, weights

    def _margins(self, X: Any) -> Array:
        """X coefficients + intercept, for new rows."""
        check_is_fitted(self)
        if self._design is not None:
            return margins_of_frame(self._design, self.intercept_, self.coef_, X)
        X = validate_data(self, X, accept_sparse=("csr", "csc"), dtype=np.float64, reset=False)
        return np.asarray(X @ np.atleast_2d(self.coef_).T + np.ravel(self.intercept_))

    # Inference.

    def summary(self, *, level: float = 0.95, covariance: str = "observed") -> Summary:
        """Coefficients with standard errors, z, p-values and confidence intervals.

        The first call asks the workers for the Hessian at the fitted model: one exchange more, which is added to
        `history_`, `n_iter_`, `bytes_up_` and `bytes_down_`.

        Parameters
        ----------
        level : float
            Of the confidence intervals.
        covariance : "observed" or "sandwich"
            The inverse of the observed information, or the sandwich with the rows' scores between (HC0), which does
            not trust the model's variance; it takes one exchange more.

        Returns
        -------
        Summary
            `print` it, or take `to_frame()`.

        """
        check_is_fitted(self)
        check_share("level", level, "for example 0.95", zero=False, one=False)
        check_choice("covariance", covariance, ("observed", "sandwich"))
        with _caught() as caught:
            inference = self._inference
            if inference is None or (covariance == "sandwich" and inference.scores is None):
                inference = self._request_inference(covariance)
            outputs, names, layout = self._output_names(), self._names(), self.result_.layout
            notes = (*self._remarks(), *left_out(self)), self._fit_warnings()
            summary = Summary.of(outputs, names, layout, inference, level, covariance, *notes)
        for each in caught:
            warnings.warn(each, stacklevel=2)
        return summary

    def _request_inference(self, covariance: str) -> Inference:
        """Ask the workers for what the covariance needs and is not known yet."""
        if self._problem is None:
            raise InputError(
                f"summary: the {covariance} covariance needs the rows, and this estimator was loaded or copied "
                f"without them; call summary(covariance={covariance!r}) before it is saved"
            )
        scores, before = covariance == "sandwich", len(self.history_)
        self._inference, asked = request_inference(
            self._problem, self.result_, self._regions, self.engine, scores=scores, known=self._inference
        )
        numbered = (replace(row, exchange=before + row.exchange) for row in asked)
        self.history_ = History([*self.history_, *numbered])
        self._set_totals(self.history_)
        return self._inference

    def _fit_warnings(self) -> tuple[str, ...]:
        """What a reader of the table must know of a fit that did not end well."""
        if endless(self.result_):
            return ("SEPARABLE: without a penalty there is no best model, and these numbers mean nothing",)
        if self.result_.status != "converged":
            return (f"NOT CONVERGED ({self.result_.status}): these are not the numbers of the best model",)
        return ()

    def _remarks(self) -> tuple[str, ...]:
        """What the estimator has to say of its table."""
        return ()

    def _names(self) -> list[str]:
        names = getattr(self, "feature_names_in_", None)
        return [f"x{column}" for column in range(self.n_features_in_)] if names is None else [str(n) for n in names]

    def _output_names(self) -> list[str]:
        return [""]

    # Files, and what a copy takes along.

    def save(self, path: Any) -> None:
        """Write the fitted estimator to one file, an npz of arrays and JSON without pickled objects."""
        check_is_fitted(self)
        write_estimator(self, path)

    @classmethod
    def load(cls, path: Any) -> Self:
        """Read what `save` wrote; a file of another kind, or one that was changed, is refused."""
        read: Self = read_estimator(cls, path)
        return read

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = dict(super().__getstate__())
        if "_problem" in state:
            state["_problem"] = None  # the rows stay where they are
        return state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def _is_plain(X: Any, y: Any) -> bool:
    """Whether these are arrays of float64 and of numbers, of the right shapes and finite: there is nothing to say."""
    if type(X) is not np.ndarray or type(y) is not np.ndarray or X.dtype != np.float64 or y.dtype.kind not in "biuf":
        return False
    if X.ndim != 2 or y.ndim != 1 or len(X) != len(y) or not X.size:
        return False
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(X.sum()) and np.isfinite(y.sum()))


def _by_group(X: Any, y: Array, groups: Any, weights: Array | None) -> list[Shard]:
    """A shard for every group; what is wrong with the groups is said of the argument that has them."""
    try:
        return partition(X, y, scheme="site", weights=weights, sites=groups)
    except InputError as error:
        message = str(error)
        if not message.startswith("sites"):
            raise
        raise InputError("groups" + message.removeprefix("sites")) from None


@contextmanager
def _caught() -> Iterator[list[Warning]]:
    """Collect warnings, to be given out again where the caller of the estimator stands."""
    given: list[Warning] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield given
        given += [each.message for each in caught if isinstance(each.message, Warning)]


@contextmanager
def _progress(verbose: int, name: str) -> Iterator[Callable[[Row], object] | None]:
    """A callback that shows on standard error how the fit stands; None unless verbose."""
    if not verbose:
        yield None
        return
    from rich.console import Console

    console = Console(stderr=True)

    def line(row: Row) -> str:
        return (
            f"{name}: exchange {row.exchange} ({row.kind}), objective {row.objective:.10g}, "
            f"|grad| {row.grad_norm:.1e}, {row.active} workers"
        )

    if verbose == 1 and console.is_terminal:
        with console.status(f"{name}: waiting for the workers") as status:
            yield lambda row: status.update(line(row))
    else:
        yield lambda row: console.print(line(row), highlight=False, markup=False, soft_wrap=True)
