r"""Curvature that fits the gradients a run has seen: limited-memory BFGS on any initial curvature.

Where everyone sends the whole gradient at two models, the change y of the gradient is the average Hessian between them
times the step s. The newest such pairs correct a curvature that is out of date, or a part of the Hessian: B s = y for
the newest pair, by the smallest change there is. It costs the server a few products of vectors, nothing on the wire.

    solve    B^-1 g by two loops over the pairs (Nocedal & Wright, algorithm 7.4)
    times    B V in the compact form B = B_0 - N M N^T (theorem 7.4)

Where a part P of the Hessian is all that is known, steps begin with an average of its inverse and that of E, a
curvature that is the same along all coefficients with a penalty. Each is brought to the size of the newest pair, and
counts as much as it fits that, which is 1 where C s is a multiple of y:

    B_0^-1 = share_P gamma_P P^-1 + share_E gamma_E E^-1
    gamma_C = s . y / (y . C^-1 y)                                      equation 7.20
    share_C ~ (s . y)^2 / ((y . C^-1 y) (s . C s)),  share_P + share_E = 1

A diagonal knows nothing of columns that go together, and steps along these would be too long: hence gamma. Nor does it
know that some combinations of columns are zero in every row, those of one-hot features for example. Steps with P^-1 go
along these as well, and only the penalty leads back, slowly; steps from zero with E^-1 never do. But E knows nothing
of rare columns, and no pair tells before which of both will be the faster: the average is mostly near the better one.
"""

from __future__ import annotations

from collections.abc import Callable
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
ON_A_PART, NUMBERS = 5, 1_000_000
"""On a part of the Hessian pairs are most of what is known: so many times as many are kept, as far as their steps are
no more than so many numbers."""


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
    even: Curvature | None = None  # beside a part of the Hessian: the same along all coefficients with a penalty

    @classmethod
    def start(cls, initial: Curvature, d: int, even: Curvature | None = None) -> QuasiNewton:
        """Without pairs."""
        return cls(initial, Pairs.none(d), even)

    @property
    def whole(self) -> bool:
        """Whether the initial curvature is that of a whole Hessian."""
        return isinstance(self.initial, ProjectedHessian)

    def with_gradient(self, w: Array, gradient: Array, weights: Array, most: int) -> QuasiNewton:
        """What a whole gradient adds."""
        return replace(self, pairs=self.pairs.with_gradient(w, gradient, weights, self.kept(most)))

    def with_pair(self, step: Array, change: Array, most: int) -> QuasiNewton:
        """With one pair more."""
        return replace(self, pairs=self.pairs.with_pair(step, change, self.kept(most)))

    def kept(self, most: int) -> int:
        """How many pairs are kept where `most` are on a whole Hessian."""
        return most if self.whole else max(most, min(ON_A_PART * most, NUMBERS // self.pairs.steps.shape[1]))

    @cached_property
    def scales(self) -> tuple[float, float]:
        """The shares times gamma, of the part and of the even curvature; 1 and 0 of a whole Hessian, or at first."""
        if self.whole or not len(self.pairs):
            return 1.0, 0.0
        step, change = self.pairs.steps[-1], self.pairs.changes[-1]  # s . y = 1
        gammas, fits = [], []
        for each in (self.initial, self.even):
            along, across = (0.0, 0.0) if each is None else (change @ each.solve(change), step @ each.times(step))
            gammas.append(1.0 / along if along > 0 else 0.0)
            fits.append(1.0 / max(along * across, 1.0) if along > 0 else 0.0)
        total = sum(fits)
        own, even = (gamma * fit / total for gamma, fit in zip(gammas, fits, strict=True)) if total else (1.0, 0.0)
        return float(own), float(even)

    def solve(self, gradient: Array) -> Array:
        return self._two_loops(gradient, self.initial.solve)

    def downhill(self, gradient: Array) -> Array:
        return self._two_loops(gradient, self._begin)

    def _begin(self, gradient: Array) -> Array:
        """B_0^-1 times what is left of a gradient."""
        own, even = self.scales
        solved = own * self.initial.solve(gradient)
        return solved if not even or self.even is None else solved + even * self.even.solve(gradient)

    def _two_loops(self, gradient: Array, begin: Callable[[Array], Array]) -> Array:
        left, shares = gradient, []
        for step, change in zip(self.pairs.steps[::-1], self.pairs.changes[::-1], strict=True):
            shares.append(float(step @ left))
            left = left - shares[-1] * change
        solved = begin(left)
        for step, change, share in zip(self.pairs.steps, self.pairs.changes, reversed(shares), strict=True):
            solved = solved + (share - float(change @ solved)) * step
        return solved

    def times(self, vectors: Array) -> Array:
        """B times vectors; of a whole Hessian Pi times vectors: pairs correct its steps alone."""
        product = self.initial.times(vectors)
        if self.whole or not len(self.pairs):
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

    def lost(self, gradient: Array, objective: float) -> Array | None:
        return self.initial.lost(gradient, objective)

    @cached_property
    def _compact(self) -> tuple[Array, Array]:
        """The matrices N and M."""
        steps, changes = self.pairs.steps, self.pairs.changes
        initial = self.initial.times(steps.T)
        products = steps @ changes.T
        lower = np.tril(products, -1)
        middle = np.block([[steps @ initial, lower], [lower.T, -np.diag(products.diagonal())]])
        return np.hstack([initial, changes.T]), np.linalg.pinv(middle, rcond=1e-14)
