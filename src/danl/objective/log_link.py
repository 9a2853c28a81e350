r"""Losses of means above 0 with a log link, exp(z): counts and amounts. Each is half a deviance, at least 0.

    poisson             exp(z) - y z                                    counts; their variance is the mean
    gamma               y exp(-z) + z                                   amounts above 0; it is as the mean squared
    negative-binomial   (y + 1 / alpha) log(1 + alpha exp(z)) - y z     counts; it is m + alpha m^2 for the mean m

up to terms in y alone. These make no difference to the model and all the difference to rounding: without them the
objective is a difference of large numbers that can be anywhere near 0. `danl.objective.losses` has the others.
"""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from danl._scipy import expit
from danl.checks import check_number
from danl.errors import InputError

Array = NDArray[np.float64]
NEGATIVE_BINOMIAL = "negative-binomial"
LARGEST_EXPONENT = 700.0
"""exp of more may overflow."""
MODERATE_COUNT = 1_000.0
"""Of targets up to this, a loss that is made of differences keeps all digits but three."""


class Poisson:
    """exp(z) - y z + y log y - y >= 0: Poisson regression.

    With u = z - log y it is y (exp(u) - 1 - u), which cancels nothing where the mean is near a large count.
    """

    name: ClassVar[str] = "poisson"
    second_bound: ClassVar[float] = math.inf
    third_bound: ClassVar[float] = math.inf
    binary: ClassVar[bool] = False

    def value(self, y: Array, z: Array) -> Array:
        counted = y > 0
        u = z - np.log(np.where(counted, y, 1.0))
        with np.errstate(over="ignore"):
            return np.asarray(np.where(counted & (u < 700), y * (np.expm1(u) - u), _exp(z)))  # where exp(u) overflows

    def first(self, y: Array, z: Array) -> Array:
        return _exp(z) - y

    def second(self, y: Array, z: Array) -> Array:
        return _exp(z)

    def target_terms(self, y: Array) -> Array | None:
        """Y log y - y, where counts are so small that little is lost by adding it to exp(z) - y z; else None."""
        if y.max(initial=0.0) > MODERATE_COUNT:
            return None
        return np.asarray(y * np.log(np.where(y > 0, y, 1.0)) - y)

    def value_and_first(self, y: Array, z: Array, terms: Array | None = None) -> tuple[Array, Array]:
        """Both from one exponential, given the terms in y alone."""
        if terms is None:
            return self.value(y, z), self.first(y, z)
        mean = _exp(z)
        value = mean - y * z
        value += terms
        return value, mean - y

    def null_margins(self, targets: Array) -> Array:
        """The logarithm of the mean."""
        return np.asarray(np.log(targets))

    def check_targets(self, y: Array) -> None:
        if (y < 0).any():
            rule = f"loss 'poisson' needs targets >= 0, and {np.count_nonzero(y < 0)} of {y.size} are negative"
            raise bad_target(y, y < 0, rule, "use loss='squared' or correct the targets")

    def mean(self, z: Array) -> Array:
        return _exp(z)


class Gamma:
    """y exp(-z) + z - 1 - log y >= 0: gamma regression, for targets above 0.

    With u = z - log y it is exp(-u) - 1 + u, which cancels nothing where the mean is near the target.
    """

    name: ClassVar[str] = "gamma"
    second_bound: ClassVar[float] = math.inf
    third_bound: ClassVar[float] = math.inf
    binary: ClassVar[bool] = False

    def value(self, y: Array, z: Array) -> Array:
        u = z - np.log(y)
        with np.errstate(over="ignore"):
            return np.asarray(np.expm1(-u) + u)

    def first(self, y: Array, z: Array) -> Array:
        with np.errstate(over="ignore"):
            return np.asarray(-np.expm1(np.log(y) - z))

    def second(self, y: Array, z: Array) -> Array:
        return _exp(np.log(y) - z)

    def target_terms(self, y: Array) -> Array:
        """Log y."""
        return np.asarray(np.log(y))

    def value_and_first(self, y: Array, z: Array, terms: Array | None = None) -> tuple[Array, Array]:
        """Both from one exponential, given log y."""
        u = z - (np.log(y) if terms is None else terms)
        with np.errstate(over="ignore"):
            less = np.expm1(-u)
        return less + u, -less

    def null_margins(self, targets: Array) -> Array:
        """The logarithm of the mean."""
        return np.asarray(np.log(targets))

    def mean(self, z: Array) -> Array:
        return _exp(z)

    def check_targets(self, y: Array) -> None:
        if (y <= 0).any():
            rule = f"loss 'gamma' needs targets > 0, and {np.count_nonzero(y <= 0)} of {y.size} are not"
            raise bad_target(y, y <= 0, rule, "use loss='poisson' where 0 occurs, or correct the targets")


class NegativeBinomial:
    """Half the deviance of counts with variance m + alpha m^2 about their mean m = exp(z), alpha fixed.

    With p = alpha y / (1 + alpha y), q = 1 - p and u = z - log y it is

        (log(1 + p (exp(u) - 1)) - p u) / (alpha q)  =  (log(1 + q (exp(-u) - 1)) + q u) / (alpha q)

    of which the form with the smaller share cancels nothing where the mean is near the count. As alpha goes to 0 it is
    Poisson's loss; for counts far above 1 / alpha it is that of gamma, over alpha.
    """

    second_bound: ClassVar[float] = math.inf  # (y + 1 / alpha) / 4: larger counts, more of it
    third_bound: ClassVar[float] = math.inf
    binary: ClassVar[bool] = False

    def __init__(self, alpha: float) -> None:
        self.alpha = check_number("alpha", alpha, f"{NEGATIVE_BINOMIAL}:alpha=0.5; alpha=0 is loss='poisson'")

    @property
    def name(self) -> str:
        return f"{NEGATIVE_BINOMIAL}:alpha={self.alpha!r}"

    def value(self, y: Array, z: Array) -> Array:
        counted, shift = y > 0, math.log(self.alpha)
        log_y = np.log(np.where(counted, y, 1.0))
        p, q, u = expit(log_y + shift), expit(-log_y - shift), z - log_y
        small = p < q
        distance = _bent(np.where(small, p, q), np.where(small, q, p), np.where(small, u, -u)) / q
        return np.asarray(np.where(counted, distance, np.logaddexp(0.0, z + shift)) / self.alpha)

    def first(self, y: Array, z: Array) -> Array:
        t = z + math.log(self.alpha)
        return np.asarray(expit(t) / self.alpha - y * expit(-t))  # (m - y) / (1 + alpha m)

    def second(self, y: Array, z: Array) -> Array:
        t = z + math.log(self.alpha)
        return np.asarray((y + 1.0 / self.alpha) * expit(t) * expit(-t))

    def null_margins(self, targets: Array) -> Array:
        """The logarithm of the mean."""
        return np.asarray(np.log(targets))

    def mean(self, z: Array) -> Array:
        return _exp(z)

    def check_targets(self, y: Array) -> None:
        wrong = (y < 0) | (y != np.floor(y))
        if wrong.any():
            rule = f"loss {NEGATIVE_BINOMIAL!r} needs counts, and {np.count_nonzero(wrong)} of {y.size} are none"
            raise bad_target(y, wrong, rule, "use loss='gamma' for amounts above 0, or correct the targets")


def _bent(share: Array, rest: Array, u: Array) -> Array:
    """log(1 + share (exp(u) - 1)) - share u, with share + rest = 1; past the largest exponent its asymptote."""
    most = np.minimum(u, LARGEST_EXPONENT)
    near = np.log1p(share * np.expm1(most)) - share * most
    return np.asarray(near + rest * (u - most))


def _exp(z: Array) -> Array:
    with np.errstate(over="ignore"):  # inf is the right answer past 709: no double is larger
        return np.exp(z)


def bad_target(y: Array, wrong: NDArray[np.bool_], rule: str, next_step: str, shown: str = "") -> InputError:
    """The error of the first wrong target; `shown` are values, which do not leave a site."""
    row = int(np.argmax(wrong))
    place = f"y[{row}]: {rule}; {next_step}"
    return InputError(f"y[{row}]={float(y[row])!r}: {rule}{shown}; {next_step}", redacted=place)
