r"""Curvature of everyone from the Hessians of some: those that sent theirs, and what stands in for the rest.

The Hessians that were sent are added up with their weights, and stand in for those of the rest, scaled to their weight.
Everyone sends gradients, so the change of the rest's gradient along a step is known: it is the rest's own average
Hessian times the step. The newest such pairs correct what stands in for the rest, and the rest alone (BFGS), and go on
when new Hessians come:

    Pi = sum_{senders} weight_i H_i  +  BFGS( (1 - share) / share  sum_{senders} weight_i H_i ;  pairs of the rest )

How far off each of both was along a step is measured: `mismatch`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from danl.protocol.messages import Array, Mask
from danl.server.curvature import Curvature, ProjectedHessian
from danl.server.quasi_newton import Pairs, QuasiNewton
from danl.storage.serialize import storable


@storable
@dataclass(frozen=True)
class Mismatch:
    """How far the change of the gradient along a step was from what the curvature said, beside the step's own size.

    It is what the next gradient is at least, as a share of the last one, in the norm of the curvature.
    """

    rest: float = 0.0  # of the workers whose Hessians were not sent
    own: float = 0.0  # of those that sent theirs, as if they were everyone


@storable
@dataclass(frozen=True)
class SomeHessians:
    """The sum of the Hessians that were sent, and the pairs of the rest."""

    senders: Mask  # (N,)
    share: float  # their weight in the objective
    total: Array  # (d, d): sum over the senders of weight_i H_i
    rest: Pairs

    @classmethod
    def of(cls, total: Array, senders: Mask, weights: Array, before: SomeHessians | None) -> SomeHessians:
        """With new Hessians; the pairs of the rest go on where it is the same rest."""
        share = min(float(weights[senders].sum()), 1.0)
        same = before is not None and np.array_equal(before.senders, senders)
        rest = before.rest if same and before is not None else Pairs.none(len(total))
        return cls(senders, share, total, rest)

    @property
    def everyone(self) -> bool:
        """Whether there is no rest."""
        return not self.share < 1.0 - 1e-12

    def matrix(self) -> Array:
        """Pi."""
        if self.everyone:
            return self.total
        return self.total + self.rest.on((1.0 - self.share) / self.share * self.total)

    def with_gradients(self, w: Array, gradients: Array, weights: Array, most: int) -> SomeHessians:
        """What everyone's whole gradients at w, (N, d), add: a pair of the rest."""
        if self.everyone or most < 1:
            return self
        own = np.where(self.senders, 0.0, weights)
        return replace(self, rest=self.rest.with_gradient(w, own @ gradients, own, most))

    def mismatch(self, curvature: Curvature, w: Array, gradients: Array, weights: Array) -> Mismatch | None:
        """Along the step from the newest whole gradients to w; None where there is none."""
        if not isinstance(curvature, QuasiNewton) or not isinstance(curvature.initial, ProjectedHessian):
            return None
        before, rest = curvature.pairs.newest, self.rest.newest
        if before is None or rest is None or self.everyone or not np.array_equal(before.w, rest.w):
            return None
        step = w - before.w
        others = np.where(self.senders, 0.0, weights)
        if not np.array_equal(rest.weights, others):
            return None
        of_rest = others @ gradients - rest.gradient
        of_senders = weights @ gradients - before.gradient - of_rest
        expected = self.total @ step
        off_rest = of_rest - (curvature.initial.hessian @ step - expected)
        size = math.sqrt(max(float(step @ curvature.initial.times(step)), 0.0))
        if not size > 0:
            return None
        own, other = (_norm(curvature, off) / size for off in (of_senders - expected, off_rest))
        return Mismatch(other, own / self.share)


def _norm(curvature: Curvature, vector: Array) -> float:
    """The length of a gradient: sqrt(vector^T B^-1 vector); inf where it has overflown."""
    square = float(vector @ curvature.solve(vector)) if np.isfinite(vector).all() else math.inf
    return math.inf if math.isnan(square) else math.sqrt(max(square, 0.0))
