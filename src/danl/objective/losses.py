r"""Losses: a pointwise function of target and margin, with its first and second derivative in the margin.

For a row a with target y and margin z = a . w + offset, a loss is three vectorised functions

    value(y, z)     loss(y, z)
    first(y, z)     d loss / dz          gradient of the row:  first * a
    second(y, z)    d^2 loss / dz^2      Hessian of the row:   second * a a^T

and the bounds the theory asks for. Everything else (averages, penalties, masks) is built on these three.
All are written so that margins of +-1e4 give the right double, which may be 0 or inf, never NaN.

    logistic            log(1 + exp(-s z)), s = 2 y - 1
    squared             (z - y)^2 / 2
    squared_hinge       max(0, 1 - s z)^2
    poisson, gamma, negative-binomial      half a deviance, the mean is exp(z): `danl.objective.log_link`

A multinomial loss has a margin for every class: z is then (rows, classes), `first` as well, and instead of `second` it
has `second_blocks`, the second derivative in the margins of each pair of classes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from danl._scipy import expit, logsumexp, softmax
from danl.checks import check_whole
from danl.errors import InputError
from danl.objective.log_link import LARGEST_EXPONENT, NEGATIVE_BINOMIAL, bad_target
from danl.objective.log_link import Gamma as Gamma
from danl.objective.log_link import NegativeBinomial as NegativeBinomial
from danl.objective.log_link import Poisson as Poisson
from danl.spec import Registry

Array = NDArray[np.float64]


@runtime_checkable
class Loss(Protocol):
    """What a loss has to offer; implement it to bring your own."""

    @property
    def name(self) -> str:
        """What it is called on the command line."""
        ...

    second_bound: ClassVar[float]
    """sup of `second`: makes the gradient Lipschitz; inf where there is none."""
    third_bound: ClassVar[float]
    """Lipschitz constant of `second`: makes the Hessian Lipschitz; inf where there is none."""
    binary: ClassVar[bool]
    """True when targets must be 0 or 1."""

    def value(self, y: Array, z: Array) -> Array:
        """loss(y, z) of every row."""
        ...

    def first(self, y: Array, z: Array) -> Array:
        """Its derivative in the margin z."""
        ...

    def second(self, y: Array, z: Array) -> Array:
        """Its second derivative in z, at least 0."""
        ...

    def check_targets(self, y: Array) -> None:
        """Raise `InputError` where the loss cannot have these targets."""
        ...


class Logistic:
    r"""log(1 + exp(-s z)) with s = 2 y - 1: binary cross-entropy, the paper's experiments."""

    name: ClassVar[str] = "logistic"
    second_bound: ClassVar[float] = 0.25
    third_bound: ClassVar[float] = 1.0 / (6.0 * math.sqrt(3.0))
    binary: ClassVar[bool] = True
    log_odds: ClassVar[bool] = True  # what its margins are

    def value(self, y: Array, z: Array) -> Array:
        # Written in s z so that a confident right answer keeps its tiny loss instead of rounding to 0.
        wrong = -_sign(y) * z
        return np.asarray(np.maximum(wrong, 0.0) + np.log1p(np.exp(-np.abs(wrong))))

    def first(self, y: Array, z: Array) -> Array:
        sign = _sign(y)
        return np.asarray(-sign * expit(-sign * z))

    def second(self, y: Array, z: Array) -> Array:
        return np.asarray(expit(z) * expit(-z))

    def null_margins(self, targets: Array) -> Array:
        """Log p / (1 - p)."""
        return np.asarray(np.log(targets) - np.log1p(-targets))

    def mean(self, z: Array) -> Array:
        return np.asarray(expit(z))

    def exp_value_and_first(self, y: Array, z: Array) -> tuple[Array, Array]:
        """1 + t, whose logarithm is the loss, and -s t / (1 + t), both from one exponential, t = exp(-s z)."""
        first = np.multiply(y, -2.0)
        first += 1.0  # -s
        t = first * z
        if t.max(initial=0.0) > LARGEST_EXPONENT:
            return np.full(len(z), np.inf), self.first(y, z)
        np.exp(t, out=t)
        first *= t
        t += 1.0
        first /= t
        return t, first

    def check_targets(self, y: Array) -> None:
        _check_binary(self.name, y)


class SquaredError:
    """(z - y)^2 / 2: ridge regression."""

    name: ClassVar[str] = "squared"
    second_bound: ClassVar[float] = 1.0
    third_bound: ClassVar[float] = 0.0
    binary: ClassVar[bool] = False

    def value(self, y: Array, z: Array) -> Array:
        return np.asarray(0.5 * np.square(z - y))

    def first(self, y: Array, z: Array) -> Array:
        return z - y

    def second(self, y: Array, z: Array) -> Array:
        return np.ones_like(z)

    def null_margins(self, targets: Array) -> Array:
        """The mean."""
        return targets

    def mean(self, z: Array) -> Array:
        return z

    def check_targets(self, y: Array) -> None:
        """Any finite target will do."""


class SquaredHinge:
    """max(0, 1 - s z)^2 with s = 2 y - 1; its second derivative is the generalised one (2 inside the hinge)."""

    name: ClassVar[str] = "squared_hinge"
    second_bound: ClassVar[float] = 2.0
    third_bound: ClassVar[float] = math.inf  # the second derivative jumps at the hinge
    curvature_jumps: ClassVar[bool] = True  # and what it was along a step says little of the next one
    binary: ClassVar[bool] = True

    def value(self, y: Array, z: Array) -> Array:
        return np.asarray(np.square(np.maximum(0.0, 1.0 - _sign(y) * z)))

    def first(self, y: Array, z: Array) -> Array:
        sign = _sign(y)
        return np.asarray(-2.0 * sign * np.maximum(0.0, 1.0 - sign * z))

    def second(self, y: Array, z: Array) -> Array:
        return np.where(_sign(y) * z < 1.0, 2.0, 0.0)

    def check_targets(self, y: Array) -> None:
        _check_binary(self.name, y)


class Multinomial:
    r"""log sum_k exp(z_k) - z_y: softmax cross-entropy over `classes` classes, each with coefficients of its own.

    Adding the same vector to the coefficients of all classes changes no probability, so without a penalty there are
    many optima; with one, the coefficients of the classes sum to zero.
    """

    second_bound: ClassVar[float] = 0.5  # of diag(p) - p p^T (Böhning, 1992)
    third_bound: ClassVar[float] = math.inf  # there is one; nothing here needs it
    binary: ClassVar[bool] = False

    def __init__(self, classes: int) -> None:
        self.n_outputs = check_whole("classes", classes, 2, "for example multinomial:classes=3")

    @property
    def name(self) -> str:
        return f"multinomial:classes={self.n_outputs}"

    def value(self, y: Array, z: Array) -> Array:
        top = z.max(axis=1, keepdims=True)
        own = np.take_along_axis(z, y.astype(np.intp)[:, None], axis=1)
        # log1p of the others' shares where the own class leads: a confident right answer keeps its tiny loss.
        with np.errstate(invalid="ignore"):
            return np.asarray(
                np.where(own == top, _log1p_others(z, y), logsumexp(z, axis=1, keepdims=True) - own)[:, 0]
            )

    def first(self, y: Array, z: Array) -> Array:
        slopes: Array = softmax(z, axis=1)
        rows, own = np.arange(len(y)), y.astype(np.intp)
        others = slopes.copy()
        others[rows, own] = 0.0
        slopes[rows, own] = -others.sum(axis=1)  # p_y - 1 without cancellation
        return slopes

    def value_and_first(self, y: Array, z: Array, terms: Array | None = None) -> tuple[Array, Array]:
        """Both from one exponential of every margin; class by class, so that sums go along the rows."""
        margins, own = np.ascontiguousarray(z.T), (y.astype(np.intp), np.arange(len(y)))
        top = margins.max(axis=0)
        if not np.isfinite(top).all():
            return self.value(y, z), self.first(y, z)
        of_own = margins[own]
        margins = margins - top
        shares = np.exp(margins, out=margins)
        share_of_own = shares[own]
        shares[own] = 0.0
        others = shares.sum(axis=0)
        total = others + share_of_own
        value = np.log(total) + (top - of_own)
        np.log1p(others, out=value, where=of_own == top)  # a confident right answer keeps its tiny loss
        shares /= total
        shares[own] = -others / total
        return value, shares.T

    def second_blocks(self, y: Array, z: Array) -> Iterator[tuple[int, int, Array]]:
        """(k, m, p_k ([k = m] - p_m)) for k <= m."""
        p: Array = softmax(z, axis=1)
        for k in range(self.n_outputs):
            others = np.delete(p, k, axis=1).sum(axis=1)
            yield k, k, p[:, k] * others
            for m in range(k + 1, self.n_outputs):
                yield k, m, -p[:, k] * p[:, m]

    def null_margins(self, targets: Array) -> Array:
        """The logarithms of the shares, moved to sum to zero."""
        logs = np.log(targets)
        return np.asarray(logs - logs.mean())

    def second(self, y: Array, z: Array) -> Array:
        """The whole matrix of every row, (rows, classes, classes)."""
        out = np.empty((*z.shape, self.n_outputs))
        for k, m, second in self.second_blocks(y, z):
            out[:, k, m] = out[:, m, k] = second
        return out

    def check_targets(self, y: Array) -> None:
        wrong = (y < 0) | (y >= self.n_outputs) | (y != np.floor(y))
        if wrong.any():
            rule = f"loss {self.name!r} needs targets from 0 to {self.n_outputs - 1}, the numbers of the classes"
            next_step = "danl.load_dataset(..., target='classes') numbers any labels"
            error = bad_target(y, wrong, rule, next_step)
            raise InputError(str(error), redacted=f"y: {rule}; {next_step}")  # no row: who asks chose the classes


_PLAIN: tuple[Loss, ...] = (Logistic(), SquaredError(), Poisson(), Gamma(), SquaredHinge())
LOSSES: dict[str, Loss] = {loss.name: loss for loss in _PLAIN}
"""The losses of danl that need no options, by name."""
MULTINOMIAL = "multinomial"
_REGISTRY = Registry[Loss](
    "loss",
    "danl.losses",
    {
        **{name: type(loss) for name, loss in LOSSES.items()},
        NEGATIVE_BINOMIAL: NegativeBinomial,
        MULTINOMIAL: Multinomial,
    },
    parts=("name", "value", "first", "second", "check_targets", "binary", "second_bound", "third_bound"),
    examples={NEGATIVE_BINOMIAL: "negative-binomial:alpha=0.5", MULTINOMIAL: "multinomial:classes=3"},
)


def make_loss(loss: str | Loss) -> Loss:
    """Turn a name, with options if need be (``"multinomial:classes=3"``), into a loss, or check an object."""
    return _REGISTRY.make(loss)


def target_of(loss: str | Loss) -> Literal["binary", "classes", "real"]:
    """What kind of target a loss needs, as `danl.load_dataset` takes it."""
    if loss == MULTINOMIAL:
        return "classes"  # as many as the data has
    made = make_loss(loss)
    return "binary" if made.binary else "classes" if outputs_of(made) > 1 else "real"


def outputs_of(loss: Loss) -> int:
    """How many margins a row has: one, or as many as the loss says (`n_outputs`)."""
    return int(getattr(loss, "n_outputs", 1))


def null_margins(loss: Loss, targets: Array, *, offset: bool = False) -> Array:
    """The intercepts of the model without features, from the mean target or the share of each class; zeros if unknown.

    A loss says so itself, where it can, in a method of the same name. With an offset the targets are those of
    `danl.objective.null_model`, which needs to know what the mean at a margin is.
    """
    own = getattr(loss, "null_margins", None) if hasattr(loss, "mean") or not offset else None
    with np.errstate(divide="ignore", invalid="ignore"):
        margins = np.zeros(outputs_of(loss)) if own is None else np.asarray(own(targets), dtype=float)
    return margins if np.isfinite(margins).all() else np.zeros(outputs_of(loss))


def target_terms(loss: Loss, y: Array) -> Array | None:
    """What of the loss of every row depends on its target alone, where the loss knows how to use it; else None."""
    own = getattr(loss, "target_terms", None)
    return None if own is None else own(y)


def value_and_first(loss: Loss, y: Array, z: Array, terms: Array | None = None) -> tuple[Array, Array]:
    """The loss of every row and its derivative in the margin; from one exponential where the loss has it so."""
    together = getattr(loss, "value_and_first", None)
    if together is None:
        return loss.value(y, z), loss.first(y, z)
    made: tuple[Array, Array] = together(y, z) if terms is None else together(y, z, terms)
    return made


def weighted_second_derivatives(
    loss: Any, y: Array, z: Array, weights: Array, rows: NDArray[np.int64] | None = None
) -> Iterator[tuple[int, int, Array]]:
    """The second derivatives in the margins k <= m of every row, times the row's weight; zeros beside `rows`."""
    own = weights if rows is None else weights[rows]
    if rows is not None:
        y, z = y[rows], z[rows]
    for k, m, second in [(0, 0, loss.second(y, z))] if z.ndim == 1 else loss.second_blocks(y, z):
        if rows is None:
            yield k, m, own * second
        else:
            spread = np.zeros(len(weights))
            spread[rows] = own * second
            yield k, m, spread


def _log1p_others(z: Array, y: Array) -> Array:
    """log(1 + sum of exp(z_k - z_y) over the other classes)."""
    own = y.astype(np.intp)
    with np.errstate(over="ignore", invalid="ignore"):
        shares = np.exp(z - np.take_along_axis(z, own[:, None], axis=1))
    shares[np.arange(len(y)), own] = 0.0
    out: Array = np.log1p(shares.sum(axis=1, keepdims=True))
    return out


def _sign(y: Array) -> Array:
    return 2.0 * y - 1.0


def _check_binary(loss: str, y: Array) -> None:
    wrong = (y != 0) & (y != 1)
    if wrong.any():
        found = np.unique(y)
        shown = ", ".join(f"{value:g}" for value in found[:5]) + (", ..." if found.size > 5 else "")
        rule = f"loss {loss!r} needs targets 0 and 1, and found {found.size} values"
        maps = "danl.load_dataset maps any two values to 0 and 1, and loss='squared' takes real targets"
        raise bad_target(y, wrong, rule, maps, f" ({shown})")
