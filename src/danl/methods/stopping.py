r"""When a run may say "converged".

A run has converged where the decrement (`danl.methods.acceptance`) is at most `tol`, made of everyone's whole gradient
at w, or where rounding hides what is left; and never where

- there is gradient along directions whose curvature is lost in rounding (`Curvature.hidden`): nobody knows how far the
  optimum is along them, and there is none where there was curvature at the start;
- steps stay large while nothing is gained by them: there is no optimum, coefficients grow without end.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from danl.frozen import at_once, replace
from danl.methods.acceptance import TINY, Step
from danl.methods.base import Setup, Status
from danl.protocol.messages import Array
from danl.server.curvature import Curvature
from danl.server.partial_curvature import Diagonal
from danl.storage.serialize import storable

VANISHED = 1e-4
"""Curvature along a step that is below this share of what it was at the start has vanished."""
NOT_SMALL = 1e-6
"""A step is not small where its length, in the curvature of the start over the objective there, is above this."""
SHRINKS = 0.9
"""Steps that fall at least to this share from one to the next may be on their way to an optimum: one more will tell."""
GROWS = 1e-3
"""A coefficient grows without end only where the step is more than this share of it."""
MOST_NAMED, WORTH_NAMING = 5, 0.1
"""Coefficients that a remark names, and what share of the most growing one's part in the step each must have."""

NO_OPTIMUM = "there is no finite optimum"
ENDLESS = (
    NO_OPTIMUM + ": {names} would grow without end, and nothing is gained by it (quasi-complete separation: a feature "
    "tells the outcome of some rows alone, or a group has no event); drop or combine features, or set alpha or l2 > 0, "
    "or C of an estimator"
)
FLAT = (
    "not converged: there is gradient left along directions whose curvature is lost in rounding; columns are nearly "
    "collinear, or have means that are huge beside their spread: drop or combine columns, fit an intercept (columns "
    "are then centred), or add a penalty"
)


@storable
@dataclass(frozen=True)
class Remark:
    """What the end of a run says of its model; `{names}` in it stands for the names of some coefficients."""

    text: str
    coefficients: tuple[int, ...] = ()

    def text_with(self, name: Callable[[int], str]) -> str:
        """The remark with the coefficients by their names."""
        return self.text.replace("{names}", ", ".join(name(number) for number in self.coefficients))


@storable
@at_once
@dataclass(frozen=True)
class InitialCurvature:
    """The curvature and the objective's scale at the start, where some coefficients have no penalty.

    Near an optimum steps vanish with the decrement. Where there is none, as with a feature that tells the class of some
    rows alone, or a group without any event, Newton's steps go on at the same length while curvature, gradient and
    decrement fade: the curvature at the start knows how large they are.
    """

    curvature: Curvature
    scale: float
    reached: float = np.inf  # by the newest step from everyone's whole gradient

    @classmethod
    def of(cls, curvature: Curvature, scale: float, setup: Setup) -> InitialCurvature | None:
        """Of all that has no penalty: everything, the intercepts, or nothing."""
        if not setup.penalised:
            return cls(curvature, scale)
        if not setup.free.any():
            return None
        free = np.flatnonzero(setup.free)
        units = np.zeros((setup.n_coefficients, free.size))
        units[free, np.arange(free.size)] = 1.0
        own = curvature.times(units)[free, np.arange(free.size)]
        diagonal = np.zeros(setup.n_coefficients)
        diagonal[free] = own
        return cls(Diagonal(diagonal), scale)

    def reach(self, step: Array) -> float:
        """The square of a step's length."""
        return float(step @ self.curvature.times(step)) / max(self.scale, TINY)

    def after(self, step: Array) -> InitialCurvature:
        """With the reach of a step, to see whether the next one is shorter."""
        return replace(self, reached=self.reach(step))

    def had(self, direction: Array) -> bool:
        """Whether there was curvature along a direction whose own is lost now: there never is any of collinear columns.

        A reference level that tells the outcome for certain makes one of the intercept and the other levels.
        """
        return float(direction @ self.curvature.times(direction)) > NOT_SMALL

    def growing(self, step: Array) -> tuple[int, ...]:
        """The coefficients that make up most of it."""
        shares = np.abs(step * self.curvature.times(step))
        most = np.argsort(-shares)[:MOST_NAMED]
        return tuple(sorted(int(j) for j in most if shares[j] > WORTH_NAMING * shares.max()))


def final_status(
    status: Status, initial: InitialCurvature | None, w: Array, step: Step, *, final: bool = False
) -> tuple[Status | None, Remark | None]:
    """How a run ends that would end with this status, and what to say of it: "converged" only at an optimum.

    `step` is the one that would come next from w. None: the run does not end, one more step will tell, unless the
    status is `final`.
    """
    direction, scale = step.direction, max(step.scale, TINY)
    reach = 0.0 if initial is None or not np.isfinite(direction).all() else initial.reach(direction)
    if initial is not None and reach > NOT_SMALL**2 and -step.slope < VANISHED * reach * scale:
        growing = tuple(j for j in initial.growing(direction) if abs(direction[j]) > GROWS * abs(w[j]))
        if growing and not final and reach < SHRINKS**2 * initial.reached:
            return None, None
        if growing:
            return "diverged", Remark(ENDLESS, growing)
    if status == "converged" and math.isinf(step.hidden):
        if initial is not None and step.lost is not None and initial.had(step.lost):
            return "diverged", Remark(ENDLESS, initial.growing(np.abs(step.lost)))  # they may make up for one another
        return "max_rounds", Remark(FLAT)
    return status, None
