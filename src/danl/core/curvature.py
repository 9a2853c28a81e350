"""The server's curvature: [Pi]_mu, the aggregated Hessian projected so that no direction is flatter than mu."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from danl.core.messages import Array

RELATIVE_FLOOR = 1e-12
"""Without a penalty there is no mu to take from the problem: the floor is then this share of the top eigenvalue,
a few thousand roundings of an eigenvalue, so that directions the data says nothing about are not divided by noise."""
EIGENVALUE_ROUNDING = 1e-15
"""Eigenvalues below this share of the largest are rounding: no mu, however small, lets a step divide by them."""


@dataclass(frozen=True)
class Curvature:
    """[Pi]_mu = vectors diag(eigenvalues) vectors^T, ready to solve with; and Pi itself."""

    hessian: Array
    eigenvalues: Array
    vectors: Array

    def solve(self, gradient: Array) -> Array:
        """[Pi]_mu^-1 gradient."""
        return np.asarray(self.vectors @ ((self.vectors.T @ gradient) / self.eigenvalues))

    def times(self, vectors: Array) -> Array:
        """Pi times vectors."""
        return np.asarray(self.hessian @ vectors)

    def matrix(self) -> Array:
        """[Pi]_mu itself."""
        return np.asarray((self.vectors * self.eigenvalues) @ self.vectors.T)


def project(hessian: Array, mu: float) -> Curvature:
    """Definition 1: [A]_mu = [A - mu I]_0 + mu I, the closest matrix with eigenvalues of at least mu.

    Differs from the paper: with mu = 0 (no penalty) the floor is RELATIVE_FLOOR times the largest eigenvalue, because
    [A]_0 need not have an inverse; and no floor is below the rounding of the eigenvalues.
    """
    eigenvalues, vectors = np.linalg.eigh(hessian)
    top = max(float(eigenvalues[-1]), float(np.finfo(float).tiny))
    floor = max(mu, EIGENVALUE_ROUNDING * top) if mu > 0 else RELATIVE_FLOOR * top
    return Curvature(hessian, np.maximum(eigenvalues, floor), vectors)
