"""The server's curvature: [Pi]_mu, the aggregated Hessian projected so that no direction is flatter than mu."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotrs

from danl.core.messages import Array

RELATIVE_FLOOR = 1e-12
"""Without a penalty there is no mu to take from the problem: directions flatter than this share of the top eigenvalue,
a few thousand roundings of it, are those the data says nothing about."""
EIGENVALUE_ROUNDING = 1e-15
"""Eigenvalues below this share of the largest are rounding: no mu, however small, lets a step divide by them."""


@dataclass(frozen=True)
class Curvature:
    """[Pi]_mu, ready to solve with, and Pi itself.

    Where the projection changes nothing [Pi]_mu = Pi, kept as its Cholesky factor; else as
    vectors diag(eigenvalues) vectors^T.
    """

    hessian: Array
    factor: Array | None = None  # upper triangular, Pi = factor^T factor
    eigenvalues: Array | None = None
    vectors: Array | None = None

    def solve(self, gradient: Array) -> Array:
        """[Pi]_mu^-1 gradient."""
        if self.factor is not None:
            return np.asarray(dpotrs(self.factor, gradient)[0])
        assert self.vectors is not None
        assert self.eigenvalues is not None
        return np.asarray(self.vectors @ ((self.vectors.T @ gradient) / self.eigenvalues))

    def matrix(self) -> Array:
        """[Pi]_mu itself."""
        if self.vectors is None or self.eigenvalues is None:
            return self.hessian
        return np.asarray((self.vectors * self.eigenvalues) @ self.vectors.T)


def project(hessian: Array, mu: float) -> Curvature:
    """Definition 1: [A]_mu = [A - mu I]_0 + mu I, the closest matrix with eigenvalues of at least mu.

    Differs from the paper: no floor is below the rounding of the eigenvalues; and with mu = 0 (no penalty, or an
    intercept, on which there is none) [A]_0 need not have an inverse. Directions flatter than RELATIVE_FLOOR times the
    largest eigenvalue, which the data says nothing about, then count as steep as the steepest: a step goes along them
    by no more than the gradient shows, where dividing by a tiny floor would turn the errors of an estimated gradient
    into steps without end.
    """
    factor = _factor(hessian, mu)
    if factor is not None:
        return Curvature(hessian, factor)
    eigenvalues, vectors = np.linalg.eigh(hessian)
    top = max(float(eigenvalues[-1]), float(np.finfo(float).tiny))
    if mu > 0:
        eigenvalues = np.maximum(eigenvalues, max(mu, EIGENVALUE_ROUNDING * top))
    else:
        eigenvalues = np.where(eigenvalues < RELATIVE_FLOOR * top, top, eigenvalues)
    return Curvature(hessian, eigenvalues=eigenvalues, vectors=vectors)


def _factor(hessian: Array, mu: float) -> Array | None:
    """The Cholesky factor where no eigenvalue is below the floor, which a second factorisation proves; else None.

    With a penalty the lowest eigenvalue is often mu itself, up to rounding: that counts as not below.
    """
    diagonal = hessian.diagonal()
    if not np.isfinite(diagonal).all() or diagonal.min() <= 0:
        return None
    most = float(np.abs(hessian).sum(axis=1).max())  # at least the largest eigenvalue
    floor = mu - len(hessian) * EIGENVALUE_ROUNDING * most if mu > 0 else RELATIVE_FLOOR * most
    if floor <= EIGENVALUE_ROUNDING * most:
        return None
    shifted = hessian.copy()
    shifted[np.diag_indices_from(shifted)] -= floor
    if dpotrf(shifted, overwrite_a=1)[1] != 0:
        return None
    factor, failed = dpotrf(hessian)
    return None if failed else np.asarray(factor)
