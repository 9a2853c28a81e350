"""The server's curvature: [Pi]_mu, the aggregated Hessian projected so that no direction is flatter than mu."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from danl._scipy import dpotrf, dpotrs
from danl.frozen import at_once
from danl.objective.regions import IntArray, Regions
from danl.protocol.messages import Array
from danl.storage.serialize import storable

RELATIVE_FLOOR = 1e-12
"""Without a penalty there is no mu to take from the problem. Directions whose eigenvalue, in units in which the
diagonal is 1, is below this share of the largest are those the data says nothing about: some thousand roundings."""
EIGENVALUE_ROUNDING = 1e-15
"""Eigenvalues below this share of the largest are rounding: no mu, however small, lets a step divide by them."""
FAR = 1e3
"""What is so many times above a floor is so whatever the rounding."""
GRADIENT_ROUNDING = 1e3 * float(np.finfo(float).eps)
"""A sum of rows is rounded to a few hundred machine epsilons of its terms, at most."""


class Curvature:
    """What the server knows of the objective's curvature: Pi, the aggregated Hessian or a part of it, and [Pi]_mu."""

    def solve(self, gradient: Array) -> Array:
        """[Pi]_mu^-1 gradient."""
        raise NotImplementedError

    def downhill(self, gradient: Array) -> Array:
        """The step that is taken down a gradient: [Pi]_mu^-1 gradient, or what is known to be a better length of it."""
        return self.solve(gradient)

    def times(self, vectors: Array) -> Array:
        """Pi times a vector, or the columns of a matrix."""
        raise NotImplementedError

    def hidden(self, gradient: Array, objective: float) -> float:
        """gradient^T (Pi^-1 - [Pi]_mu^-1) gradient: what the projection hides of the way to the optimum."""
        raise NotImplementedError

    def lost(self, gradient: Array, objective: float) -> Array | None:
        """Down the gradient where curvature is lost in rounding, of length 1 in units of Pi's diagonal; else None."""
        return None

    def memory_correction(self, offsets: Array, shares: Array, regions: Regions) -> Array:
        """[Pi sum_r share_qr offset_r]^q for every region q, (d,); offsets are (R, d), shares (Q, R)."""
        products = self.times(np.ascontiguousarray(offsets.T))
        return np.asarray(np.einsum("dr,dr->d", shares[regions.of_coefficient], products))


@storable
@at_once
@dataclass(frozen=True)
class ProjectedHessian(Curvature):
    """[Pi]_mu of a whole Hessian, ready to solve with, and Pi itself.

    Where the projection changes nothing [Pi]_mu = Pi, kept as its Cholesky factor; else as
    vectors diag(eigenvalues) vectors^T, in units of `scale` if there is one.
    """

    hessian: Array
    factor: Array | None = None  # its upper triangle: Pi = factor^T factor
    eigenvalues: Array | None = None
    vectors: Array | None = None
    scale: Array | None = None  # what a unit of each coefficient is
    found: Array | None = None  # the eigenvalues of Pi itself; 0 where they are rounding

    def solve(self, gradient: Array) -> Array:
        if self.factor is not None:
            return np.asarray(dpotrs(self.factor, gradient)[0])
        assert self.vectors is not None
        assert self.eigenvalues is not None
        if self.scale is not None:
            gradient = self.scale * gradient
        step = np.asarray(self.vectors @ ((self.vectors.T @ gradient) / self.eigenvalues))
        return step if self.scale is None else self.scale * step

    def hidden(self, gradient: Array, objective: float) -> float:
        """What the projection hides of the way to the optimum.

        Infinite where there is gradient along directions whose curvature is rounding: nobody knows how far to go there.
        There is none where it is rounding itself, given the size of the objective: a gradient's terms are about
        sqrt(objective * diagonal of Pi).
        """
        if self.found is None or self.vectors is None or self.eigenvalues is None:
            return 0.0
        raised, slopes = self._raised(gradient, objective)
        found = self.found[raised]
        if (found <= 0).any():
            return np.inf
        return float(np.square(slopes) @ (1.0 / found - 1.0 / self.eigenvalues[raised]))

    def lost(self, gradient: Array, objective: float) -> Array | None:
        if self.found is None or self.vectors is None:
            return None
        raised, slopes = self._raised(gradient, objective)
        flat = self.found[raised] <= 0
        if not flat.any():
            return None
        direction = -self.vectors[:, raised[flat]] @ slopes[flat]
        if self.scale is not None:
            direction = self.scale * direction
        return np.asarray(direction / np.sqrt(np.abs(self.hessian.diagonal()) @ np.square(direction)))

    def _raised(self, gradient: Array, objective: float) -> tuple[IntArray, Array]:
        """Vectors whose eigenvalue was raised and that the gradient has more than rounding along, and how much."""
        assert self.found is not None
        assert self.vectors is not None
        assert self.eigenvalues is not None
        diagonal = np.abs(self.hessian.diagonal())
        if self.scale is not None:
            gradient, diagonal = self.scale * gradient, np.square(self.scale) * diagonal
        raised = np.flatnonzero(self.found < self.eigenvalues)
        vectors = self.vectors[:, raised]
        slopes = gradient @ vectors
        there = np.square(slopes) > GRADIENT_ROUNDING**2 * len(gradient) * objective * (diagonal @ np.square(vectors))
        return raised[there], slopes[there]

    def times(self, vectors: Array) -> Array:
        return np.asarray(self.hessian @ vectors)

    def memory_correction(self, offsets: Array, shares: Array, regions: Regions) -> Array:
        correction = np.empty(len(self.hessian))
        for own, offset in zip(regions.groups, shares @ offsets, strict=True):  # d^2 work, not R d^2
            correction[own] = self.hessian[own] @ offset
        return correction

    def matrix(self) -> Array:
        """[Pi]_mu itself."""
        if self.vectors is None or self.eigenvalues is None:
            return self.hessian
        matrix = np.asarray((self.vectors * self.eigenvalues) @ self.vectors.T)
        return matrix if self.scale is None else matrix / np.multiply.outer(self.scale, self.scale)


def project(hessian: Array, mu: float, least: float | None = None, *, convex: bool = False) -> ProjectedHessian:
    """Definition 1: [A]_mu = [A - mu I]_0 + mu I, the closest matrix with eigenvalues of at least mu.

    Differs from the paper: no floor is below the rounding of the eigenvalues; and with mu = 0 (no penalty, or an
    intercept, on which there is none) [A]_0 need not have an inverse. Directions the data says nothing about then count
    as steep as the steepest: a step goes along them by no more than the gradient shows, where dividing by a tiny floor
    would turn the errors of an estimated gradient into steps without end. They are looked for in units in which the
    diagonal is 1, so that it does not matter whether an income is in thousands. The same is done where columns are so
    different in size that mu is lost in the rounding of the largest eigenvalue.

    `least` is what no true eigenvalue is below, mu unless it is given: what the penalty guarantees. `convex`: the
    Hessians are sums of rows, to double precision, so that the penalty is not only true of what they should be. Then a
    mu of no more is not proven again.
    """
    if mu <= 0:
        return _in_units_of_the_diagonal(hessian)
    most = float(np.abs(hessian).sum(axis=1).max())  # at least the largest eigenvalue
    # With a penalty the lowest eigenvalue is often mu itself, up to rounding: that counts as not below.
    floor = mu - len(hessian) * EIGENVALUE_ROUNDING * most
    proven = convex and least is not None and mu <= least
    if floor > EIGENVALUE_ROUNDING * most and (proven or _above(hessian, floor)):
        factor, failed = dpotrf(hessian.T, clean=0)
        if not failed:
            return ProjectedHessian(hessian, np.asarray(factor))
    eigenvalues, vectors = np.linalg.eigh(hessian)
    rounding = EIGENVALUE_ROUNDING * _top(eigenvalues)
    if mu <= rounding:
        return _in_units_of_the_diagonal(hessian)
    found = np.maximum(
        np.where(eigenvalues > len(hessian) * rounding, eigenvalues, 0.0), mu if least is None else least
    )
    return ProjectedHessian(hessian, eigenvalues=np.maximum(eigenvalues, mu), vectors=vectors, found=found)


def _in_units_of_the_diagonal(hessian: Array) -> ProjectedHessian:
    floor = RELATIVE_FLOOR * len(hessian)  # the trace, d, is at least the largest eigenvalue
    factor, failed = dpotrf(hessian.T, clean=0)
    if not failed and _clearly_above(hessian, factor, floor):
        return ProjectedHessian(hessian, np.asarray(factor))
    scaled, scale = with_unit_diagonal(hessian)
    if not failed and _above(scaled, floor, overwrite=True):
        return ProjectedHessian(hessian, np.asarray(factor))
    eigenvalues, vectors = np.linalg.eigh(scaled if failed else with_unit_diagonal(hessian)[0])
    top = _top(eigenvalues)
    flat = eigenvalues < RELATIVE_FLOOR * top
    known, found = np.where(flat, top, eigenvalues), np.where(flat, 0.0, eigenvalues)
    return ProjectedHessian(hessian, eigenvalues=known, vectors=vectors, scale=scale, found=found)


def with_unit_diagonal(hessian: Array) -> tuple[Array, Array]:
    """The matrix in units in which its diagonal is 1, and what a unit of each coefficient is."""
    diagonal = hessian.diagonal()
    scale = 1.0 / np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
    scaled = scale[:, None] * hessian
    scaled *= scale
    return scaled, scale


def _clearly_above(hessian: Array, factor: Array, floor: float) -> bool:
    """Whether the factor alone proves that in units in which the diagonal is 1 every eigenvalue is far above the floor.

    Of d eigenvalues that add up to d, those beside the lowest have a product of at most (d / (d - 1))^(d - 1) < e: the
    lowest is more than the determinant / e, and that is the product of the factor's squared diagonal, in these units.
    """
    shares = np.square(factor.diagonal()) / hessian.diagonal()  # of 1 each, at most
    return bool(shares.prod() > FAR * math.e * floor)


def _above(hessian: Array, floor: float, *, overwrite: bool = False) -> bool:
    """Whether every eigenvalue is above the floor, which a Cholesky factorisation proves."""
    diagonal = hessian.diagonal()
    if not np.isfinite(diagonal).all() or diagonal.min() <= floor:
        return False
    shifted = hessian if overwrite else hessian.copy()
    shifted.flat[:: len(shifted) + 1] -= floor
    return bool(dpotrf(shifted.T, overwrite_a=1, clean=0)[1] == 0)  # columns, as LAPACK has them: no copy


def _top(eigenvalues: Array) -> float:
    return max(float(eigenvalues[-1]), float(np.finfo(float).tiny))
