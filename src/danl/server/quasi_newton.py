r"""Curvature the gradients tell between two Hessian exchanges: limited-memory BFGS on top of what was exchanged.

When everyone sends the whole gradient at two models in a row, the difference y is the average Hessian between them
times the step s. The newest of these pairs correct the curvature where it is out of date (Nocedal & Wright, algorithm
7.4, with the exchanged curvature for the initial matrix). It costs the server a few products of vectors, and nothing on
the wire.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from danl.protocol.messages import Array
from danl.storage.serialize import storable

FLAT = 1e-8
"""A pair counts where the gradient's change along the step is more than this share of the sum of its terms' sizes:
less is rounding. Each term is a coefficient times its gradient, so that the features' units do not matter."""

Pairs = tuple[Array, Array]
"""Steps s and changes y, the newest last, (k, d) each, scaled so that s . y = 1."""


def no_pairs(d: int) -> Pairs:
    """Nothing seen yet."""
    return np.empty((0, d)), np.empty((0, d))


def with_pair(pairs: Pairs, step: Array, change: Array, most: int) -> Pairs:
    """One pair more, and of all of them the newest `most`; one that rounding has made is left out."""
    product, size = float(step @ change), float(np.abs(step) @ np.abs(change))
    if most < 1 or not product > FLAT * size:
        return pairs
    # Scaled so that s . y = 1: the equations do not change, and no number is far from the others.
    scale = 1.0 / np.sqrt(product)
    return np.vstack([pairs[0], scale * step])[-most:], np.vstack([pairs[1], scale * change])[-most:]


def two_loops(solve: Callable[[Array], Array], pairs: Pairs, gradient: Array) -> Array:
    """The inverse of the corrected curvature times a gradient; `solve` is that of the curvature itself."""
    steps, changes = pairs
    left, shares = gradient, []
    for step, change in zip(steps[::-1], changes[::-1], strict=True):
        shares.append(float(step @ left))
        left = left - shares[-1] * change
    solved = solve(left)
    for step, change, share in zip(steps, changes, reversed(shares), strict=True):
        solved = solved + (share - float(change @ solved)) * step
    return solved


@storable
@dataclass(frozen=True)
class Secant:
    """The pairs seen since curvature was exchanged, and where the newest ended."""

    w: Array
    gradient: Array
    steps: Array
    changes: Array

    @classmethod
    def start(cls, w: Array, gradient: Array) -> Secant:
        """At a model with new curvature: no pairs yet."""
        return cls(w, gradient, *no_pairs(len(w)))

    def moved(self, w: Array, gradient: Array, keep: int) -> Secant:
        """At another model whose gradient is known; at most `keep` pairs stay."""
        pairs = with_pair((self.steps, self.changes), w - self.w, gradient - self.gradient, keep)
        return Secant(w, gradient, *pairs)

    def solve(self, solve: Callable[[Array], Array], gradient: Array) -> Array:
        """The inverse of the corrected curvature times a gradient."""
        return two_loops(solve, (self.steps, self.changes), gradient)
