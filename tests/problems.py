"""Small problems with known shape, made from a seed; the tests' own data."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from danl.data import Shard
from danl.objective.problem import Problem


def random_shards(seed=0, sizes=(9, 14, 5, 12), d=7, *, as_sparse=False, weighted=False, targets="binary"):
    """Uneven shards of a noisy linear model; some rows weigh more when `weighted`."""
    rng = np.random.default_rng(seed)
    w = rng.normal(size=d)
    shards = []
    for number, size in enumerate(sizes):
        X = rng.normal(size=(size, d)) * (rng.random((size, d)) < 0.7)
        z = X @ w
        if targets == "binary":
            y = (rng.random(size) < 1 / (1 + np.exp(-z))).astype(float)
            y[: min(2, size)] = [0.0, 1.0][: min(2, size)]
        elif targets == "count":
            y = rng.poisson(np.exp(np.clip(z, -3, 2))).astype(float)
        elif targets == "amount":
            y = np.exp(np.clip(z, -3, 2)) * rng.gamma(2.0, 0.5, size=size)
        else:
            y = z + rng.normal(size=size)
        weights = rng.uniform(0.5, 2.0, size=size) if weighted else None
        X = sparse.csr_matrix(X) if as_sparse else X
        shards.append(Shard.of(X, y, weights=weights, name=f"worker-{number}"))
    return shards


TARGETS = {
    "logistic": "binary",
    "squared": "real",
    "poisson": "count",
    "gamma": "amount",
    "negative-binomial:alpha=0.5": "count",
    "squared_hinge": "binary",
}


EXPONENTIAL = ("gamma", "poisson")
"""Losses that grow like an exponential: far from the optimum they are beyond all bounds."""


def random_problem(loss="logistic", *, l2=0.5, alpha=None, weighting="uniform", **shape):
    """A problem for one of the losses, strongly penalised so that every method behaves."""
    shards = random_shards(targets=TARGETS[loss], **shape)
    return Problem(shards, loss=loss, l2=None if alpha is not None else l2, alpha=alpha, weighting=weighting)


def plain(shards):
    """Shards as the oracle takes them: dense triples."""
    return [(s.X.toarray() if sparse.issparse(s.X) else s.X, s.y, s.weights) for s in shards]
