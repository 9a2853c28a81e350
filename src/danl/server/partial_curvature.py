r"""The server's curvature from what the workers sent of their Hessians: `build`.

    ProjectedHessian   the whole matrix (`danl.server.curvature`)
    BlockDiagonal      a ProjectedHessian for every region
    LowRank            D + W W^T: leading eigenpairs of the data's part, from its sketch, and the diagonal of the rest
    Diagonal           D

The eigenpairs are those of Nystrom's approximation Y (Omega^T Y)^-1 Y^T with Y = (Pi - penalty) Omega, stabilised by a
shift of rounding size (Tropp, Yurtsever, Udell & Cevher, 2017; Frangella, Tropp & Udell, 2023). It is never above
the matrix itself, so the diagonal of what is left is never below the penalty. The inverse is Woodbury's.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from danl.frozen import replace
from danl.objective.regions import IntArray, Regions
from danl.protocol.hessian_form import HessianForm, packed_blocks, sketch_matrix
from danl.protocol.messages import Array, Dtype, Mask, unpack
from danl.server.curvature import EIGENVALUE_ROUNDING, RELATIVE_FLOOR, Curvature, ProjectedHessian, project
from danl.storage.serialize import storable

ROUNDING = {"float64": 1e-14, "float32": 1e-6}
"""What the numbers of a sketch are rounded to, as a share of its norm, with room for the sums they are."""
WIDEST = 1e10
"""From this ratio of the largest to the smallest diagonal entry on a sketch has lost the small columns to rounding."""


@storable
@dataclass(frozen=True)
class Diagonal(Curvature):
    """D, and what it is without a floor above the true curvature, if it has one."""

    diagonal: Array
    plain: Diagonal | None = None

    def solve(self, gradient: Array) -> Array:
        return gradient / self.diagonal

    def times(self, vectors: Array) -> Array:
        return np.asarray((self.diagonal * vectors.T).T)

    def hidden(self, gradient: Array, objective: float) -> float:
        return _beside(self.plain, self, gradient)


@storable
@dataclass(frozen=True)
class BlockDiagonal(Curvature):
    """A ProjectedHessian for every region."""

    parts: tuple[ProjectedHessian, ...]
    places: tuple[IntArray, ...]

    def solve(self, gradient: Array) -> Array:
        solved = np.empty_like(gradient)
        for part, own in zip(self.parts, self.places, strict=True):
            solved[own] = part.solve(gradient[own])
        return solved

    def times(self, vectors: Array) -> Array:
        product = np.empty_like(vectors)
        for part, own in zip(self.parts, self.places, strict=True):
            product[own] = part.hessian @ vectors[own]
        return product

    def hidden(self, gradient: Array, objective: float) -> float:
        cut = zip(self.parts, self.places, strict=True)
        return float(sum(part.hidden(gradient[own], objective) for part, own in cut))


@storable
@dataclass(frozen=True)
class LowRank(Curvature):
    """D + W W^T, and its inverse D^-1 - V V^T."""

    diagonal: Array
    factor: Array  # W, (d, r)
    inverse: Array  # V, (d, r)
    plain: LowRank | None = None  # without a floor above the true curvature, if it has one

    @classmethod
    def of(cls, diagonal: Array, factor: Array) -> LowRank:
        """Woodbury: V = D^-1 W L^-T with L L^T = I + W^T D^-1 W."""
        scaled = factor / diagonal[:, None]
        inner = np.linalg.cholesky(np.eye(factor.shape[1]) + factor.T @ scaled)
        return cls(diagonal, factor, np.linalg.solve(inner, scaled.T).T)

    def solve(self, gradient: Array) -> Array:
        return np.asarray(gradient / self.diagonal - self.inverse @ (self.inverse.T @ gradient))

    def times(self, vectors: Array) -> Array:
        return np.asarray((self.diagonal * vectors.T).T + self.factor @ (self.factor.T @ vectors))

    def hidden(self, gradient: Array, objective: float) -> float:
        return _beside(self.plain, self, gradient)


def build(
    form: HessianForm,
    numbers: Array,
    regions: Regions,
    mu: float,
    sketch: int = 0,
    dtype: Dtype = "float64",
    least: float | None = None,
    *,
    convex: bool = False,
) -> ProjectedHessian | BlockDiagonal | LowRank | Diagonal:
    """The curvature that the sum of what the workers sent makes, no direction of it flatter than mu.

    `least` is what the true curvature is not below, mu unless it is given; `convex` as `project` has it.
    """
    if least is not None and mu > least and form.kind in ("lowrank", "diag"):
        made = build(form, numbers, regions, mu, sketch, dtype)
        return replace(made, plain=build(form, numbers, regions, least, sketch, dtype))
    d = regions.n_coefficients
    match form.kind:
        case "block":
            blocks = packed_blocks(numbers, regions)
            parts = tuple(project(unpack(packed, own.size), mu, least, convex=convex) for packed, own in blocks)
            return BlockDiagonal(parts, regions.groups)
        case "lowrank":
            omega = sketch_matrix(sketch, d, form.columns(d))
            return low_rank(numbers[:d], numbers[d:].reshape(omega.shape), omega, mu, ROUNDING[dtype])
        case "diag":
            return Diagonal(_above_zero(numbers, numbers, mu))
        case "full":
            made = project(unpack(numbers, d), mu, least, convex=convex)
            return made if form.whole else BlockDiagonal((made,), (np.arange(d),))


def even(form: HessianForm, numbers: Array, regions: Regions, free: Mask) -> Diagonal:
    """The diagonal with its mean in place of all numbers but those of coefficients that are `free` of a penalty.

    A penalty says that the units of the others are comparable.
    """
    diagonal = numbers[form.diagonal_places(regions)]
    diagonal = np.where(free, diagonal, diagonal[~free].mean())
    return Diagonal(_above_zero(diagonal, diagonal, 0.0))


def low_rank(diagonal: Array, sketch: Array, omega: Array, mu: float, rounding: float) -> LowRank:
    """Leading eigenpairs of the data's part, and the diagonal of the rest.

    Where columns are so different in size that a sketch sees only the largest, the diagonal alone.
    """
    there = diagonal[diagonal > 0]
    if there.size and there.max() > WIDEST * there.min():
        return LowRank.of(_above_zero(diagonal, diagonal, mu), np.zeros((diagonal.size, 0)))
    values, vectors = nystrom(sketch, omega, rounding)
    factor = vectors * np.sqrt(values)
    rest = diagonal - np.square(factor).sum(axis=1)
    return LowRank.of(_above_zero(rest, diagonal, mu), factor)


def nystrom(sketch: Array, omega: Array, rounding: float) -> tuple[Array, Array]:
    """Eigenvalues and eigenvectors of Y (Omega^T Y)^-1 Y^T for Y = A Omega."""
    basis, triangle = np.linalg.qr(omega)
    sketch = np.linalg.solve(triangle.T, sketch.T).T  # A times the basis
    shift = rounding * max(float(np.linalg.norm(sketch)), float(np.finfo(float).tiny))
    shifted = sketch + shift * basis
    core = basis.T @ shifted
    inner, turned = np.linalg.eigh((core + core.T) / 2)
    # Below the shift there is only rounding; A has no negative direction.
    root = shifted @ (turned / np.sqrt(np.maximum(inner, shift)))
    vectors, values, _ = np.linalg.svd(root, full_matrices=False)
    return np.maximum(np.square(values) - shift, 0.0), vectors


def _above_zero(rest: Array, diagonal: Array, mu: float) -> Array:
    """What is left of a diagonal, at least mu and a small share of itself, whatever a column's unit is.

    A column without any entry counts as the steepest: there is no gradient along it.
    """
    if mu > 0:
        return np.maximum(rest, np.maximum(EIGENVALUE_ROUNDING * diagonal, mu))
    top = max(float(diagonal.max(initial=0.0)), float(np.finfo(float).tiny))
    return np.where(diagonal > 0, np.maximum(rest, RELATIVE_FLOOR * diagonal), top)


def _beside(plain: Diagonal | LowRank | None, floored: Diagonal | LowRank, gradient: Array) -> float:
    """What a floor hides of gradient^T Pi^-1 gradient."""
    return 0.0 if plain is None else max(0.0, float(gradient @ (plain.solve(gradient) - floored.solve(gradient))))
