"""Data the estimators' tests share, read or made once, and how its rows are put at sites."""

from __future__ import annotations

from functools import cache

import numpy as np
from scipy import sparse
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits
from sklearn.preprocessing import StandardScaler

WORKERS = (1, 2, 7, 30)
POLICIES = (None, "coverage:psi=1", "random:keep=0.5", "subset:S=1", "magnitude:keep=0.5")
CONTAINERS = {"dense": np.asarray, "csr": sparse.csr_array, "csc": sparse.csc_matrix}


@cache
def breast_cancer():
    X, y = load_breast_cancer(return_X_y=True)
    return frozen(StandardScaler().fit_transform(X), y)


@cache
def digits(classes=10, rows=None):
    """Digits 0 to `classes` - 1, the first `rows` of them."""
    X, y = load_digits(return_X_y=True)
    here = np.flatnonzero(y < classes)[:rows]
    return frozen(X[here] / 16.0, y[here])


@cache
def diabetes():
    return frozen(*load_diabetes(return_X_y=True))


@cache
def linear(kind, rows=200, d=5, seed=0):
    """Rows of a linear model: "binary", "classes" (3), "count", "amount" or "real" targets; a third are zeros."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, d)) * (rng.random((rows, d)) < 0.7)
    margins = X @ rng.normal(size=(d, 3)) * 0.8 + [0.4, 0.0, -0.2]
    if kind == "binary":
        y = (rng.random(rows) < 1 / (1 + np.exp(-margins[:, 0]))).astype(int)
    elif kind == "classes":
        y = (margins + rng.gumbel(size=margins.shape)).argmax(axis=1)
    elif kind == "count":
        y = rng.poisson(np.exp(margins[:, 0] / 2)).astype(float)
    elif kind == "amount":
        y = np.exp(margins[:, 0] / 2) * rng.gamma(2.0, 0.5, size=rows)
    else:
        y = margins[:, 0] + rng.normal(size=rows)
    return frozen(X, y)


def frozen(*arrays):
    """Arrays that a test cannot change under the feet of the next."""
    for array in arrays:
        array.flags.writeable = False
    return arrays


def sites(y, workers, sort):
    """None, or as many sites as there are workers with the rows dealt by label: no site is like another."""
    if not sort:
        return None
    groups = np.empty(len(y), dtype=int)
    for site, rows in enumerate(np.array_split(np.argsort(y, kind="stable"), workers)):
        groups[rows] = site
    return groups


def weights(rows, seed=1):
    """Weights between 0.2 and 3, some of them 0."""
    rng = np.random.default_rng(seed)
    return np.where(rng.random(rows) < 0.1, 0.0, rng.uniform(0.2, 3.0, size=rows))
