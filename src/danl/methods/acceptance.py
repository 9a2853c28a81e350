r"""Whether a step is accepted: Armijo's rule on the losses that workers reported, up to rounding.

How far the optimum is, is measured by the Newton decrement (Boyd & Vandenberghe, Convex Optimization, 9.5.1) over the
objective's scale,

    decrement = sqrt(grad^T Pi^-1 grad / scale),        scale = sum_i weight_i |F_i(w)|

the distance to the optimum in the norm of the curvature. It is the same number in whatever units features, targets, row
weights and penalty are given.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from danl.frozen import at_once, replace
from danl.methods.base import Setup
from danl.protocol.messages import Array, Mask
from danl.protocol.replies import Replies
from danl.server.aggregation import mean_loss_scale
from danl.server.curvature import Curvature
from danl.storage.serialize import storable

if TYPE_CHECKING:
    from danl.methods.safeguarded_state import Known, SafeguardedState

SUFFICIENT_DECREASE = 1e-4
"""Armijo's constant: accept when the loss falls by this share of what the slope promises (Nocedal & Wright, 3.4)."""
ROUNDING = 16 * float(np.finfo(float).eps)
"""A rise of the loss below this share of the objective's scale is rounding, not a rise."""
TINY = float(np.finfo(float).tiny)


@storable
@at_once
@dataclass(frozen=True)
class Step:
    """A Newton step that is tried: w + length * direction."""

    direction: Array  # -[Pi]_mu^-1 gradient
    slope: float  # gradient . direction < 0
    hidden: float  # what the projection hides of the way to the optimum
    scale: float  # of the objective
    gain: float  # of the full step on a quadratic: (1/2) grad^T [Pi]_mu^-1 grad
    left: float  # to gain on a quadratic, as far as it is known: gain and what is hidden
    decrement: float  # relative
    negligible: bool  # whether what is left to gain is below the rounding of the loss
    length: float = 1.0
    lost: Array | None = None
    """Down the gradient where nobody knows how far to go (`Curvature.lost`)."""

    @classmethod
    def down(cls, curvature: Curvature, gradient: Array, scale: float) -> Step:
        """The full step down a gradient."""
        direction = -curvature.downhill(gradient)
        slope, hidden = float(gradient @ direction), curvature.hidden(gradient, scale)
        gain = -slope / 2
        left = gain if math.isinf(hidden) else gain + hidden / 2
        decrement, negligible = relative(hidden - slope, scale), _at_rounding(left, scale)
        lost = curvature.lost(gradient, scale) if math.isinf(hidden) else None
        return cls(direction, slope, hidden, scale, gain, left, decrement, negligible, lost=lost)

    def with_curvature_of(self, share: float) -> Step:
        """Where the curvature is that of workers with this share of the objective: Pi is at least share times it.

        So the decrement is at most 1 / sqrt(share) times what it looks like.
        """
        return self if share >= 1 else replace(self, decrement=self.decrement / math.sqrt(share))

    def accepts(self, before: float, after: float) -> bool:
        """Armijo's rule: whether the loss is low enough at the end of the step."""
        return low_enough(before, after, self.scale, self.length * self.slope)

    def shorter(self) -> Step | None:
        """Half the step; a sixteenth once ten halvings have not helped, so that a wild direction costs few exchanges.

        None where no length would show a decrease.
        """
        if _at_rounding(-self.length * self.slope, self.scale):
            return None
        return replace(self, length=self.length / (2 if self.length > 2.0**-10 else 16))

    @property
    def longest_next(self) -> float:
        """How long an exact step after this one may be: twice as long, or the root where it was very short."""
        return max(2 * self.length, math.sqrt(self.length))

    def interpolated(self, rise: float) -> Step | None:
        """A shorter step where this one rose by so much; None where no length would show a decrease.

        To where the parabola through both losses and the slope is lowest, between a tenth and half of the step.
        """
        shorter = self.shorter()
        if shorter is None or not math.isfinite(rise):  # somebody did not report
            return shorter
        bent = rise - self.length * self.slope  # half of the second derivative, times the squared length
        best = -self.slope * self.length / (2 * bent) * self.length if bent > 0 else self.length
        return replace(self, length=min(max(best, 0.1 * self.length), 0.5 * self.length))

    def given_up(self) -> Literal["converged", "max_rounds"]:
        """What to call a run in which no length of the step shows a decrease.

        The direction is one of descent, so rounding hides it: of the loss, and of the margins behind it, up to some
        thousand times larger. Where there was more to gain than that, the run has failed to find it.
        """
        return "converged" if _at_rounding(self.left / 1e3, self.scale) else "max_rounds"


def low_enough(before: float, after: float, scale: float, promised: float = 0.0) -> bool:
    """Whether a loss fell as `promised` (length * slope <= 0) by Armijo's rule, up to rounding."""
    return bool(after <= before + SUFFICIENT_DECREASE * promised + ROUNDING * scale)


def _at_rounding(decrease: float, scale: float) -> bool:
    return bool(decrease <= ROUNDING * max(scale, TINY))


def relative(squared: float, scale: float) -> float:
    """sqrt(squared / scale); nan stays nan."""
    return math.sqrt(max(squared, 0.0) / max(scale, TINY)) if not math.isnan(squared) else math.nan


def relative_decrement(metric: Curvature | None, gradient: Array, scale: float) -> float:
    """sqrt(gradient^T metric^-1 gradient / scale); nan where nothing is known of the curvature."""
    return math.nan if metric is None else Step.down(metric, gradient, scale).decrement


def scale_of(loss: float, largest: float) -> float:
    """The scale of the objective; never below the rounding of the largest: a perfect fit has none of its own."""
    return max(abs(loss), ROUNDING * largest, TINY)


def margins_of(metric: Curvature, w: Array) -> float:
    """w^T Pi w, about the square of the margins: what losses and gradients are rounded by.

    Pairs are left out: they change little of it, and cost more than all the rest.
    """
    metric = getattr(metric, "initial", metric)
    square = float(w @ metric.times(w))
    return square if math.isfinite(square) else 0.0


def measured_step(
    metric: Curvature, gradient: Array, w: Array, largest: float, replies: Replies, setup: Setup
) -> tuple[Step, float, bool]:
    """The full step down a gradient at w, the largest loss so far, and whether w is good enough already.

    It is at the tolerance, or where the step changes the margins by no more than rounding; tol=0 goes on.
    """
    loss, margins = mean_loss_scale(replies, setup.weights), margins_of(metric, w)
    largest = max(largest, loss, margins)
    step = Step.down(metric, gradient, scale_of(loss, largest))
    only_rounding = setup.tol > 0 and step.hidden - step.slope <= (4.0 * ROUNDING) ** 2 * margins
    return step, largest, step.decrement <= setup.tol or only_rounding


# Trials of the safeguarded loop, beside its anchor.


def trial_accepted(state: SafeguardedState, known: Known, losses: Array, setup: Setup) -> bool:
    """Whether the losses at the trial are low enough beside those at the anchor, over the same workers."""
    step, weights = state.trial.step, state.weights
    if step is None and state.base.at_anchor:
        return True  # it is the anchor itself
    membership = state.membership
    everyone = membership.complete and math.isfinite(losses.dot(known.losses))  # all of them are, then
    reported = membership.members if everyone else membership.members & ~np.isnan(losses)
    if not everyone and (losses[reported] == np.inf).any():
        return False
    common = reported if everyone else reported & ~np.isnan(known.losses)
    if not everyone and not common.any():
        return True  # nobody of the anchor is left to compare with
    before, after = _averages(weights[common], known.losses[common], losses[common])
    if step is not None and not everyone and not reported[membership.members].all():
        return low_enough(before, before + _estimated_change(state, known, losses, setup), known.scale)
    promised = step.length * step.slope if state.base.fresh and step is not None else known.owed
    return low_enough(before, after, known.scale, promised)


def _averages(weights: Array, before: Array, after: Array) -> tuple[float, float]:
    share = weights / weights.sum()
    return float(share @ before), float(share @ after)


def _estimated_change(state: SafeguardedState, known: Known, losses: Array, setup: Setup) -> float:
    """The objective's change from the base to the trial, where only some workers reported their loss at both.

    The memory predicts every worker's change as  grad_i . step + (1/2) step^T Pi step; how far off that is for the
    workers that reported is taken for how far off it is for all of them (a difference estimator: Cochran, 7.5).
    """
    base, weights, step = state.base, state.weights, state.trial.w - state.base.w
    predicted = known.memory.predicted_changes(known.curvature, base.w, step, setup.regions)
    measured = losses - base.losses
    reported = state.membership.members & ~np.isnan(measured)
    error = 0.0
    if reported.any():
        share = weights[reported] / weights[reported].sum()
        error = float(share @ (measured[reported] - predicted[reported]))
    return float(weights @ predicted) + error


def objective_at_anchor(known: Known, weights: Array) -> float:
    """The members' objective at the model the run would return, as they reported it."""
    everyone = float(weights @ known.losses)
    return everyone if math.isfinite(everyone) else float(weights @ np.where(weights > 0, known.losses, 0.0))


def anchored(known: Known, losses: Array, weights: Array, members: Mask, **learnt: Any) -> Known:
    """What is known with a new anchor, where every member reported its loss; `learnt` is what else is new."""
    scale = float(weights[members] @ np.abs(losses[members]))
    largest = max(known.largest, scale)
    return replace(known, losses=losses, scale=scale_of(scale, largest), largest=largest, owed=0.0, **learnt)


def with_margins(known: Known, w: Array, **learnt: Any) -> Known:
    """The scale of the objective is never below the rounding of the margins: w^T Pi w is about their square."""
    largest = max(known.largest, margins_of(learnt.get("curvature", known.curvature), w))
    return replace(known, largest=largest, scale=scale_of(known.scale, largest), **learnt)
