"""The server's curvature: [Pi]_mu, the aggregated Hessian projected so that no direction is flatter than mu."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from danl.core.messages import Array

RELATIVE_FLOOR = 1e-12
"""Without a penalty there is no mu to take from the problem. Directions whose eigenvalue, in units in which the
diagonal is 1, is below this share of the largest are those the data says nothing about: some thousand roundings."""
EIGENVALUE_ROUNDING = 1e-15
"""Eigenvalues below this share of the largest are rounding: no mu, however small, lets a step divide by them."""


@dataclass(frozen=True)
class Curvature:
    """[Pi]_mu = vectors diag(eigenvalues) vectors^T, in units of `scale` if there is one; and Pi itself."""

    hessian: Array
    eigenvalues: Array
    vectors: Array
    scale: Array | None = None  # what a unit of each coefficient is

    def solve(self, gradient: Array) -> Array:
        """[Pi]_mu^-1 gradient."""
        if self.scale is not None:
            gradient = self.scale * gradient
        step = np.asarray(self.vectors @ ((self.vectors.T @ gradient) / self.eigenvalues))
        return step if self.scale is None else self.scale * step

    def matrix(self) -> Array:
        """[Pi]_mu itself."""
        matrix = np.asarray((self.vectors * self.eigenvalues) @ self.vectors.T)
        return matrix if self.scale is None else matrix / np.multiply.outer(self.scale, self.scale)


def project(hessian: Array, mu: float) -> Curvature:
    """Definition 1: [A]_mu = [A - mu I]_0 + mu I, the closest matrix with eigenvalues of at least mu.

    Differs from the paper: no floor is below the rounding of the eigenvalues; and with mu = 0 (no penalty, or an
    intercept, on which there is none) [A]_0 need not have an inverse. Directions the data says nothing about then count
    as steep as the steepest: a step goes along them by no more than the gradient shows, where dividing by a tiny floor
    would turn the errors of an estimated gradient into steps without end. They are looked for in units in which the
    diagonal is 1, so that it does not matter whether an income is in thousands.
    """
    if mu <= 0:
        return _without_penalty(hessian)
    eigenvalues, vectors = np.linalg.eigh(hessian)
    return Curvature(hessian, np.maximum(eigenvalues, max(mu, EIGENVALUE_ROUNDING * _top(eigenvalues))), vectors)


def _without_penalty(hessian: Array) -> Curvature:
    diagonal = hessian.diagonal()
    scale = 1.0 / np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
    eigenvalues, vectors = np.linalg.eigh(scale[:, None] * hessian * scale)
    top = _top(eigenvalues)
    return Curvature(hessian, np.where(eigenvalues < RELATIVE_FLOOR * top, top, eigenvalues), vectors, scale)


def _top(eigenvalues: Array) -> float:
    return max(float(eigenvalues[-1]), float(np.finfo(float).tiny))
