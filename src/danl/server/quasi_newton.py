r"""Curvature that fits the gradients a run has seen: limited-memory BFGS on any initial curvature.

Where everyone sends the whole gradient at two models, the change y of the gradient is the average Hessian between them
times the step s. The newest such pairs correct a curvature that is out of date, or a part of the Hessian: B s = y for
the newest pair, by the smallest change there is. It costs the server a few products of vectors, nothing on the wire.

    solve    B^-1 g by two loops over the pairs (Nocedal & Wright, algorithm 7.4)
    times    B V in the compact form B = B_0 - N M N^T (theorem 7.4)

Where B_0 is a part of the Hessian, steps are made with B_0 / gamma, gamma = s . y / (y . B_0^-1 y) of the newest pair
(equation 7.20): a diagonal knows nothing of columns that go together, and steps along these would be too long.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from danl.frozen import at_once, cached_property, replace
from danl.objective.regions import Regions
from danl.protocol.messages import Array
from danl.server.curvature import Curvature, ProjectedHessian
from danl.storage.serialize import storable

FLAT = 1e-8
"""A pair counts where the gradient's change along the step is more than this share of the sum of its terms' sizes:
less is rounding. Each term is a coefficient times its gradient, so that the features' units do not matter."""


@storable
@at_once
@dataclass(frozen=True)
class WholeGradient:
    """Everyone's whole gradient at a model, and what everyone counted in it."""

    w: Array
    gradient: Array
    weights: Array

    def same_workers(self, weights: Array) -> bool:
        """Whether everyone counts the same by these weights."""
        return self.weights is weights or np.array_equal(self.weights, weights)


@storable
@at_once
@dataclass(frozen=True)
class Pairs:
    """The newest steps s and changes y of a gradient along them, the newest last, scaled so that s . y = 1."""

    steps: Array  # (pairs, d)
    changes: Array  # (pairs, d)
    newest: WholeGradient | None = None  # where the next pair begins

    @classmethod
    def none(cls, d: int) -> Pairs:
        """Without any."""
        return cls(np.empty((0, d)), np.empty((0, d)))

    def __len__(self) -> int:
        return len(self.steps)

    def with_gradient(self, w: Array, gradient: Array, weights: Array, most: int) -> Pairs:
        """What a whole gradient adds: a pair with the one before it, if that was of the same workers."""
        before, made = self.newest, self
        if before is not None and before.same_workers(weights):
            made = self.with_pair(w - before.w, gradient - before.gradient, most)
        elif before is not None:
            made = Pairs.none(len(w))
        return replace(made, newest=WholeGradient(w, gradient, weights))

    def with_pair(self, step: Array, change: Array, most: int) -> Pairs:
        """One pair more, and of all of them the newest `most`; one that rounding has made is left out."""
        product, size = float(step @ change), float(np.abs(step) @ np.abs(change))
        if most < 1 or not product > FLAT * size:
            return self
        # Scaled so that s . y = 1: the equations do not change, and no number is far from the others.
        scale = 1.0 / np.sqrt(product)
        steps = np.concatenate([self.steps, (scale * step)[None]])
        changes = np.concatenate([self.changes, (scale * change)[None]])
        return replace(self, steps=steps[-most:], changes=changes[-most:])

    def on(self, matrix: Array) -> Array:
        """The matrix that fits the pairs, one after the other (Nocedal & Wright, 6.19)."""
        for step, change in zip(self.steps, self.changes, strict=True):
            product = matrix @ step
            along = float(step @ product)
            if along > 0:
                matrix = matrix + np.outer(change, change) - np.outer(product, product) / along
        return matrix


@storable
@at_once
@dataclass(frozen=True)
class QuasiNewton(Curvature):
    """An initial curvature and the pairs (s, y) it is to fit."""

    initial: Curvature
    pairs: Pairs

    @classmethod
    def start(cls, initial: Curvature, d: int) -> QuasiNewton:
        """Without pairs."""
        return cls(initial, Pairs.none(d))

    def with_gradient(self, w: Array, gradient: Array, weights: Array, most: int) -> QuasiNewton:
        """What a whole gradient adds."""
        return replace(self, pairs=self.pairs.with_gradient(w, gradient, weights, most))

    @cached_property
    def scale(self) -> float:
        """gamma; 1 where the initial curvature is that of a whole Hessian."""
        if not len(self.pairs) or isinstance(self.initial, ProjectedHessian):
            return 1.0
        step, change = self.pairs.steps[-1], self.pairs.changes[-1]
        along = float(change @ self.initial.solve(change))
        return float(step @ change) / along if along > 0 else 1.0

    def solve(self, gradient: Array) -> Array:
        return self._two_loops(gradient, 1.0)

    def downhill(self, gradient: Array) -> Array:
        return self._two_loops(gradient, self.scale)

    def _two_loops(self, gradient: Array, scale: float) -> Array:
        left, shares = gradient, []
        for step, change in zip(self.pairs.steps[::-1], self.pairs.changes[::-1], strict=True):
            shares.append(float(step @ left))
            left = left - shares[-1] * change
        solved = scale * self.initial.solve(left)
        for step, change, share in zip(self.pairs.steps, self.pairs.changes, reversed(shares), strict=True):
            solved = solved + (share - float(change @ solved)) * step
        return solved

    def times(self, vectors: Array) -> Array:
        """B times vectors; of a whole Hessian Pi times vectors: pairs correct its steps alone."""
        product = self.initial.times(vectors)
        if not len(self.pairs) or isinstance(self.initial, ProjectedHessian):
            return product
        wide, middle = self._compact
        return np.asarray(product - wide @ (middle @ (wide.T @ vectors)))

    def memory_correction(self, offsets: Array, shares: Array, regions: Regions) -> Array:
        if isinstance(self.initial, ProjectedHessian):
            return self.initial.memory_correction(offsets, shares, regions)
        return super().memory_correction(offsets, shares, regions)

    def hidden(self, gradient: Array, objective: float) -> float:
        """What the initial curvature hides; where it hides nothing, neither does this."""
        return self.initial.hidden(gradient, objective)

    @cached_property
    def _compact(self) -> tuple[Array, Array]:
        """The matrices N and M."""
        steps, changes = self.pairs.steps, self.pairs.changes
        initial = self.initial.times(steps.T)
        products = steps @ changes.T
        lower = np.tril(products, -1)
        middle = np.block([[steps @ initial, lower], [lower.T, -np.diag(products.diagonal())]])
        return np.hstack([initial, changes.T]), np.linalg.pinv(middle, rcond=1e-14)
