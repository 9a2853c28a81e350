r"""Losses: a pointwise function of target and margin, with its first and second derivative in the margin.

For a row a with target y and margin z = a . w, a loss is three vectorised functions

    value(y, z)     loss(y, z)
    first(y, z)     d loss / dz          gradient of the row:  first * a
    second(y, z)    d^2 loss / dz^2      Hessian of the row:   second * a a^T

and the bounds the theory asks for. Everything else (averages, penalties, masks) is built on these three.
All are written so that margins of +-1e4 give the right double, which may be 0 or inf, never NaN.
"""

from __future__ import annotations

import math
from typing import ClassVar, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, xlogy

from danl.errors import InputError
from danl.spec import unknown_name

Array = NDArray[np.float64]


@runtime_checkable
class Loss(Protocol):
    """What a loss has to offer; implement it to bring your own."""

    name: ClassVar[str]
    second_bound: ClassVar[float]
    """sup of `second`: makes the gradient Lipschitz; inf where there is none."""
    third_bound: ClassVar[float]
    """Lipschitz constant of `second`: makes the Hessian Lipschitz; inf where there is none."""
    first_bound: ClassVar[float]
    """sup of |`first`|: makes the loss Lipschitz; inf where there is none."""
    binary: ClassVar[bool]
    """True when targets must be 0 or 1."""

    def value(self, y: Array, z: Array) -> Array: ...
    def first(self, y: Array, z: Array) -> Array: ...
    def second(self, y: Array, z: Array) -> Array: ...
    def check_targets(self, y: Array) -> None: ...


class Logistic:
    r"""log(1 + exp(-s z)) with s = 2 y - 1: binary cross-entropy, the paper's experiments."""

    name: ClassVar[str] = "logistic"
    first_bound: ClassVar[float] = 1.0
    second_bound: ClassVar[float] = 0.25
    third_bound: ClassVar[float] = 1.0 / (6.0 * math.sqrt(3.0))
    binary: ClassVar[bool] = True

    def value(self, y: Array, z: Array) -> Array:
        # Written in s z so that a confident right answer keeps its tiny loss instead of rounding to 0.
        return np.logaddexp(0.0, -_sign(y) * z)

    def first(self, y: Array, z: Array) -> Array:
        sign = _sign(y)
        out: Array = -sign * expit(-sign * z)
        return out

    def second(self, y: Array, z: Array) -> Array:
        out: Array = expit(z) * expit(-z)
        return out

    def check_targets(self, y: Array) -> None:
        _check_binary(self.name, y)


class SquaredError:
    """(z - y)^2 / 2: ridge regression."""

    name: ClassVar[str] = "squared"
    first_bound: ClassVar[float] = math.inf
    second_bound: ClassVar[float] = 1.0
    third_bound: ClassVar[float] = 0.0
    binary: ClassVar[bool] = False

    def value(self, y: Array, z: Array) -> Array:
        out: Array = 0.5 * np.square(z - y)
        return out

    def first(self, y: Array, z: Array) -> Array:
        return z - y

    def second(self, y: Array, z: Array) -> Array:
        return np.ones_like(z)

    def check_targets(self, y: Array) -> None:
        """Any finite target will do."""


class Poisson:
    """Half the deviance, exp(z) - y z + y log y - y >= 0: Poisson regression with log link.

    The terms in y alone make no difference to the model and all the difference to rounding: without them the objective
    is a difference of large numbers that can be anywhere near 0.
    """

    name: ClassVar[str] = "poisson"
    first_bound: ClassVar[float] = math.inf
    second_bound: ClassVar[float] = math.inf
    third_bound: ClassVar[float] = math.inf
    binary: ClassVar[bool] = False

    def value(self, y: Array, z: Array) -> Array:
        out: Array = _exp(z) - y * z + (xlogy(y, y) - y)
        return out

    def first(self, y: Array, z: Array) -> Array:
        return _exp(z) - y

    def second(self, y: Array, z: Array) -> Array:
        return _exp(z)

    def check_targets(self, y: Array) -> None:
        wrong = np.flatnonzero(y < 0)
        if wrong.size:
            row = int(wrong[0])
            raise InputError(
                f"y[{row}]={float(y[row])!r}: loss 'poisson' needs targets >= 0, and {wrong.size} of "
                f"{y.size} are negative; use loss='squared' or correct the targets"
            )


class SquaredHinge:
    """max(0, 1 - s z)^2 with s = 2 y - 1; its second derivative is the generalised one (2 inside the hinge)."""

    name: ClassVar[str] = "squared_hinge"
    first_bound: ClassVar[float] = math.inf
    second_bound: ClassVar[float] = 2.0
    third_bound: ClassVar[float] = math.inf  # the second derivative jumps at the hinge
    binary: ClassVar[bool] = True

    def value(self, y: Array, z: Array) -> Array:
        out: Array = np.square(np.maximum(0.0, 1.0 - _sign(y) * z))
        return out

    def first(self, y: Array, z: Array) -> Array:
        sign = _sign(y)
        out: Array = -2.0 * sign * np.maximum(0.0, 1.0 - sign * z)
        return out

    def second(self, y: Array, z: Array) -> Array:
        return np.where(_sign(y) * z < 1.0, 2.0, 0.0)

    def check_targets(self, y: Array) -> None:
        _check_binary(self.name, y)


LOSSES: dict[str, Loss] = {loss.name: loss for loss in (Logistic(), SquaredError(), Poisson(), SquaredHinge())}


def make_loss(loss: str | Loss) -> Loss:
    """Turn a name into a loss, or check that an object is one."""
    if isinstance(loss, str):
        if loss in LOSSES:
            return LOSSES[loss]
        raise unknown_name("loss", loss, LOSSES)
    if isinstance(loss, Loss):
        return loss
    raise InputError(
        f"loss={loss!r}: must be one of {', '.join(LOSSES)} or an object with the attributes of danl.objectives.Loss"
    )


def _sign(y: Array) -> Array:
    return 2.0 * y - 1.0


def _exp(z: Array) -> Array:
    with np.errstate(over="ignore"):  # inf is the right answer past 709: no double is larger
        return np.exp(z)


def _check_binary(loss: str, y: Array) -> None:
    wrong = np.flatnonzero((y != 0) & (y != 1))
    if wrong.size:
        row = int(wrong[0])
        found = np.unique(y)
        shown = ", ".join(f"{value:g}" for value in found[:5]) + (", ..." if found.size > 5 else "")
        raise InputError(
            f"y[{row}]={float(y[row])!r}: loss {loss!r} needs targets 0 and 1, and found {found.size} values ({shown})"
            "; danl.load_dataset maps any two values to 0 and 1, and loss='squared' takes real targets"
        )
