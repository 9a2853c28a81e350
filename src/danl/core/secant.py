r"""Curvature the gradients tell between two Hessian exchanges: limited-memory BFGS on top of [Pi]_mu.

When everyone sends the whole gradient at two models in a row, the difference is the average Hessian between them times
the step. The newest of these pairs correct [Pi]_mu^-1 where it is out of date (Nocedal & Wright, algorithm 7.4, with
[Pi]_mu^-1 for the initial matrix). It costs the server a few products of vectors, and nothing on the wire.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from danl.core.messages import Array

CURVED = 1e-10
"""A pair counts where the gradient's change along the step is at least this share of what the two lengths allow."""


@dataclass(frozen=True)
class Secant:
    """Steps and the changes of the gradient over them, the newest last; and where the newest ended."""

    w: Array
    gradient: Array
    steps: Array  # (k, d)
    changes: Array  # (k, d)

    @classmethod
    def start(cls, w: Array, gradient: Array) -> Secant:
        """At a model with new curvature: no pairs yet."""
        return cls(w, gradient, np.empty((0, len(w))), np.empty((0, len(w))))

    def moved(self, w: Array, gradient: Array, keep: int) -> Secant:
        """At another model whose gradient is known; at most `keep` pairs stay."""
        step, change = w - self.w, gradient - self.gradient
        curved = float(step @ change) > CURVED * float(np.linalg.norm(step)) * float(np.linalg.norm(change))
        if not curved:
            return Secant(w, gradient, self.steps, self.changes)
        return Secant(w, gradient, np.vstack([self.steps, step])[-keep:], np.vstack([self.changes, change])[-keep:])

    def solve(self, solve: Callable[[Array], Array], gradient: Array) -> Array:
        """The inverse of the corrected curvature times a gradient; `solve` is that of the curvature itself."""
        if not len(self.steps):
            return solve(gradient)
        inverses = 1.0 / np.einsum("kd,kd->k", self.steps, self.changes)
        shares = np.empty(len(inverses))
        left = gradient.copy()
        for k in reversed(range(len(inverses))):
            shares[k] = inverses[k] * (self.steps[k] @ left)
            left -= shares[k] * self.changes[k]
        direction = solve(left)
        for k in range(len(inverses)):
            direction = direction + (shares[k] - inverses[k] * (self.changes[k] @ direction)) * self.steps[k]
        return direction
