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
from dataclasses import dataclass

import numpy as np

from danl.frozen import at_once, replace
from danl.protocol.messages import Array, Mask
from danl.server.curvature import Curvature, ProjectedHessian
from danl.server.quasi_newton import Pairs, QuasiNewton
from danl.storage.serialize import storable

AGE = 0.7
"""Curvature is of age where the senders' own mismatch is more than this share of the rest's."""


@storable
@dataclass(frozen=True)
class Mismatch:
    """How far the change of the gradient along a step was from what the curvature said, beside the step's own size.

    It is what the next gradient is at least, as a share of the last one, in the norm of the curvature.
    """

    rest: float = 0.0  # of the workers whose Hessians were not sent
    own: float = 0.0  # of those that sent theirs, as if they were everyone

    @property
    def of_age(self) -> bool:
        """Whether it is its age that the curvature suffers from, more than from whose it is: new Hessians would help.

        What stands in for the rest ages like the senders' own.
        """
        return self.own > AGE * self.rest


@storable
@at_once
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
        if before is not None and share < 1.0 and np.array_equal(before.senders, senders):
            return cls(senders, share, total, before.rest)
        return cls(senders, share, total, Pairs.none(len(total)))

    def together_with(self, before: SomeHessians, weights: Array) -> SomeHessians:
        """With Hessians of other senders from a model nearby: the mean of both, by their weights."""
        senders = self.senders | before.senders
        share = min(float(weights[senders].sum()), 1.0)
        mean = (self.total + before.total) / (self.share + before.share)
        return replace(self, senders=senders, share=share, total=share * mean, rest=Pairs.none(len(mean)))

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
        seen = self._expected(curvature, w, weights)
        if seen is None:
            return None
        of_rest = seen.others @ gradients - seen.rest_gradient
        of_senders = weights @ gradients - seen.gradient - of_rest
        off = of_rest - seen.rest_change, of_senders - seen.own_change
        rest, own = (_norm(curvature, each) / seen.size for each in off)
        return Mismatch(rest, own / self.share)

    def mismatch_of_losses(self, curvature: Curvature, w: Array, changes: Array, weights: Array) -> Mismatch | None:
        """What the changes of the losses alone, (N,), show of it, where gradients at w have not come.

        A loss that changes by more than its slope and half of what the curvature says curves more along the step.
        """
        seen = self._expected(curvature, w, weights)
        if seen is None:
            return None
        step, of_rest = seen.step, seen.others > 0
        off_rest = float(weights[of_rest] @ changes[of_rest] - step @ (seen.rest_gradient + seen.rest_change / 2))
        of_own = seen.gradient - seen.rest_gradient + seen.own_change / 2
        off_own = float(weights[self.senders] @ changes[self.senders] - step @ of_own)
        rest, own = (math.inf if math.isnan(each) else 2 * abs(each) / seen.size**2 for each in (off_rest, off_own))
        return Mismatch(rest, own / self.share)

    def _expected(self, curvature: Curvature, w: Array, weights: Array) -> _Expected | None:
        """What the curvature says of the step from the newest whole gradients to w; None where there is none."""
        if not isinstance(curvature, QuasiNewton) or not isinstance(curvature.initial, ProjectedHessian):
            return None
        before, rest = curvature.pairs.newest, self.rest.newest
        if before is None or rest is None or self.everyone or not np.array_equal(before.w, rest.w):
            return None
        step, others = w - before.w, np.where(self.senders, 0.0, weights)
        if not np.array_equal(rest.weights, others):
            return None
        size = math.sqrt(max(float(step @ curvature.initial.times(step)), 0.0))
        own = self.total @ step
        made = _Expected(
            step, size, others, before.gradient, rest.gradient, own, curvature.initial.hessian @ step - own
        )
        return made if size > 0 else None


@dataclass(frozen=True)
class _Expected:
    """A step, and the change of the gradient that the curvature promised along it."""

    step: Array
    size: float  # of the step, in the norm of the curvature
    others: Array  # weights of the rest
    gradient: Array  # of everyone, where the step begins
    rest_gradient: Array
    own_change: Array  # of the senders
    rest_change: Array


def _norm(curvature: Curvature, vector: Array) -> float:
    """The length of a gradient: sqrt(vector^T B^-1 vector); inf where it has overflown."""
    square = float(vector @ curvature.solve(vector)) if np.isfinite(vector).all() else math.inf
    return math.inf if math.isnan(square) else math.sqrt(max(square, 0.0))
