r"""What the loss of a family is as a likelihood: the variance of a row, its information, and the terms in y alone.

The loss of a row is half its deviance, so that with weights s

    deviance            2 sum s loss(y, z)
    log-likelihood      sum s (saturated(y) - loss(y, z))        of Bernoulli rows, Poisson, negative binomial
    Pearson's chi2      sum s (y - m)^2 / variance(m)            m = mean(z)
    expected            sum s (dm/dz)^2 / variance(m) a a^T      the information; observed: the second derivative

Gaussian and gamma log-likelihoods need the dispersion as well: the server makes them of these sums
(`danl.statistics.families`). Successes of trials are two rows of one record, with weights k and n - k. Their deviance
and chi2 are those of the record.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from danl.errors import bad_argument
from danl.objective.losses import Array, Loss

TINY = float(np.finfo(float).tiny)
FAMILY_OF_LOSS = {
    "squared": "gaussian",
    "logistic": "binomial",
    "poisson": "poisson",
    "gamma": "gamma",
    "negative-binomial": "negative-binomial",
}
"""The families there are, by the name of their loss without its options."""


def family_of(loss: Loss) -> str:
    """The family that a loss is of."""
    name = loss.name.partition(":")[0]
    if name not in FAMILY_OF_LOSS:
        allowed = f"of a family: {', '.join(FAMILY_OF_LOSS)}"
        raise bad_argument("loss", loss.name, allowed, "other losses have no likelihood here")
    return FAMILY_OF_LOSS[name]


def variance(loss: Any, mean: Array) -> Array:
    """The variance of a row with this mean, over the dispersion."""
    match family_of(loss):
        case "gaussian":
            return np.ones_like(mean)
        case "binomial":
            return np.asarray(mean * (1.0 - mean))
        case "poisson":
            return mean
        case "gamma":
            return np.square(mean)
    return np.asarray(mean + loss.alpha * np.square(mean))


def expected_information(loss: Any, z: Array) -> Array | None:
    """The expected second derivative of each row's loss; None where the observed one does not depend on y."""
    match family_of(loss):
        case "gamma":
            return np.ones_like(z)
        case "negative-binomial":
            mean = loss.mean(z)
            return np.asarray(mean / (1.0 + loss.alpha * mean))
    return None


def saturated(loss: Any, y: Array, weights: Array) -> float:
    """What the log-likelihood of the rows has beside the loss; of gamma sum s log y, of gaussian nothing."""
    from scipy.special import gammaln, xlogy  # here: a site that is asked for a gradient does without

    match family_of(loss):
        case "poisson":
            terms = xlogy(y, y) - y - gammaln(y + 1.0)
        case "negative-binomial":
            k = 1.0 / loss.alpha
            terms = xlogy(y, y) - (y + k) * np.log1p(loss.alpha * y) + y * np.log(loss.alpha)
            terms = terms + gammaln(y + k) - gammaln(y + 1.0) - gammaln(k)
        case "gamma":
            terms = np.log(y)
        case _:
            return 0.0
    return float(weights @ terms)


def record_sums(values: Array, records: NDArray[np.int64] | None) -> Array:
    """Values of rows, added up by record."""
    return values if records is None else np.asarray(np.bincount(records, weights=values), dtype=np.float64)


def trial_terms(y: Array, weights: Array, records: NDArray[np.int64] | None) -> tuple[float, float]:
    """Of binomial records: half of what their deviance lacks to that of their rows, and sum log (n over k)."""
    if records is None:
        return 0.0, 0.0
    from scipy.special import gammaln, xlog1py, xlogy

    n, k = record_sums(weights, records), record_sums(weights * y, records)
    share = k / n
    best = -xlogy(k, share) - xlog1py(n - k, -share)
    choices = gammaln(n + 1.0) - gammaln(k + 1.0) - gammaln(n - k + 1.0)
    return float(best.sum()), float(choices.sum())


def pearson(loss: Any, y: Array, z: Array, weights: Array, records: NDArray[np.int64] | None) -> float:
    """Pearson's chi2; of binomial records that of the share of successes."""
    return float(pearson_terms(loss, y, z, weights, records).sum())


def pearson_terms(loss: Any, y: Array, z: Array, weights: Array, records: NDArray[np.int64] | None) -> Array:
    """What each record adds to it."""
    mean = loss.mean(z)
    if records is not None and family_of(loss) == "binomial":
        n, k = record_sums(weights, records), record_sums(weights * y, records)
        mean, weights, y = record_sums(weights * mean, records) / n, n, k / n
    spread = np.maximum(variance(loss, mean), TINY)  # a probability may have rounded to 0 or 1
    return np.asarray(weights * (np.square(y - mean) / spread))
