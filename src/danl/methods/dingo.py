r"""DINGO: Newton-type steps down the norm of the gradient, with directions that workers make of their own Hessians.

Crane & Roosta, "DINGO: Distributed Newton-type method for gradient-norm optimization", NeurIPS 2019. After the authors'
code; the numbers of the lines are ours.

     1  g = sum_i weight_i grad F_i(w)
     2  each worker i: sends H_i g, H_i^+ g and z_i = (H_i^2 + phi^2 I)^-1 H_i g           H_i = Hess F_i(w)
     3  server: h = sum_i weight_i H_i g, which is half the gradient of |grad f|^2
     4  case 1  p = -sum_i weight_i H_i^+ g          if  p . h <= -theta |g|^2
     5  case 2  p = -sum_i weight_i z_i              else, if  p . h <= -theta |g|^2
     6  case 3  each worker i gets h and sends       p_i = -z_i - lambda_i (H_i^2 + phi^2 I)^-1 h
                with the least lambda_i >= 0 for which  p_i . h <= -theta |g|^2;    p = sum_i weight_i p_i
     7  the largest length of 1, 1/2, 1/4, ... with  |grad f(w + length p)|^2 <= |g|^2 + 2 length rho p . h
     8  w <- w + length p, and g is the gradient there, which line 7 has; on with 2

So |grad f| falls in every step, whatever theta and phi are and however unlike the shards; the loss may rise on the way.

- Exchanges of a step: products, in case 3 directions, and a gradient for every length that is tried.
- Differs from the paper: weights are those of the objective, where its workers count alike; gradients at trial models
  are asked one by one, where the authors' code sends those of all 50 lengths at once. As there, the shortest step is
  taken if none is low enough.
- The sub-problems are solved exactly for up to 2,000 coefficients, by the eigenvalues of H_i; with `steps`, or above
  that (100), by so many steps of MINRES, LSMR and conjugate gradients, as the authors do (50).
- Open in the paper: who is absent. Those who answer count, with their weights made to sum to 1. The test of line 7 is
  about the workers whose gradients are known at both models; where there is none, gradients at w are asked anew. Where
  nobody answers the question is repeated, or the run ends.
- theta, phi and rho are those of the authors' experiments.
- With one worker, H > 0 and theta <= 1 it is case 1, and a full step is Newton's: p = -H^-1 g, p . h = -|g|^2.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from danl.checks import check_number, check_share, check_whole
from danl.frozen import replace
from danl.methods.base import Info, Setup, Status, Turn, too_few
from danl.methods.proven_end import proven_decrement
from danl.objective.regions import IntArray
from danl.protocol.messages import Array, Exchange, GradientTask
from danl.protocol.replies import Replies
from danl.server.aggregation import mean_gradient, mean_loss, mean_of_messages, shares
from danl.storage.serialize import storable
from danl.tasks.newton_directions import CorrectedDirectionTask, HessianProductsTask

MOST_TRIALS = 50
"""Lengths that are tried at most, as in the authors' code."""


@storable
@dataclass(frozen=True)
class DingoState:
    """The model, the gradients there, and as far as it is known what comes of them."""

    w: Array
    status: Status | None = None
    workers: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))  # whose gradients are known
    gradients: Array = field(default_factory=lambda: np.zeros((0, 0)))  # one row of each
    hessian_gradient: Array | None = None  # h, while case 3 is asked for
    direction: Array | None = None  # p
    slope: float = 0.0  # p . h
    trial: int = 0
    why: str = ""  # which case the direction is of


@dataclass(frozen=True)
class Dingo:
    """Distributed Newton-type method for the norm of the gradient.

    Parameters
    ----------
    theta : float
        How steep a direction must be: p . h <= -theta |g|^2.
    phi : float
        The damping of the workers' least squares.
    rho : float
        Armijo's constant of the line search on |grad f|^2.
    steps : int, optional
        Steps of a worker's iterations at most. Default: its sub-problems are solved exactly, for up to 2,000
        coefficients.

    """

    name = "dingo"

    theta: float = 1e-4
    phi: float = 1e-6
    rho: float = 1e-4
    steps: int | None = None

    def __post_init__(self) -> None:
        check_number("theta", self.theta)
        check_number("phi", self.phi)
        check_share("rho", self.rho, zero=False, one=False)
        if self.steps is not None:
            check_whole("steps", self.steps, next_step="leave it out for exact solutions")

    def begin(self, setup: Setup) -> DingoState:
        return DingoState(setup.w0)

    def plan(self, state: DingoState, setup: Setup, turn: Turn) -> Exchange:
        number, w = turn.exchange, state.w
        if not len(state.workers):
            return setup.ask_everyone("gradient", GradientTask(number, w))
        if state.direction is not None:
            return setup.ask_everyone("gradient", GradientTask(number, w + 0.5**state.trial * state.direction))
        gradient, solver = self._gradient(state, setup), (self.phi, self.steps)
        if state.hessian_gradient is None:
            return setup.ask_everyone("hessian-products", HessianProductsTask(number, w, gradient, *solver))
        task = CorrectedDirectionTask(number, w, gradient, state.hessian_gradient, self.theta, *solver)
        return setup.ask_everyone("corrected-direction", task)

    def absorb(self, state: DingoState, replies: Replies, setup: Setup) -> tuple[DingoState, Info]:
        if not len(replies.workers):
            return too_few(state, replies)
        if not len(state.workers):
            return self._arrived(state.w, replies, setup)
        if state.direction is not None:
            return self._tried(state, replies, setup)
        if state.hessian_gradient is None:
            return self._first_two_cases(state, replies, setup)
        direction = mean_of_messages(replies, setup.weights, "direction")
        return self._with_direction(state, direction, float(direction @ state.hessian_gradient), "case 3")

    def _gradient(self, state: DingoState, setup: Setup) -> Array:
        """Line 1, of those whose gradients are known."""
        return np.asarray(shares(setup.weights, state.workers) @ state.gradients)

    def _first_two_cases(self, state: DingoState, replies: Replies, setup: Setup) -> tuple[DingoState, Info]:
        """Lines 3 to 5."""
        g, h = self._gradient(state, setup), mean_of_messages(replies, setup.weights, "product")
        for case, name in (("case 1", "inverse"), ("case 2", "damped")):
            p = -mean_of_messages(replies, setup.weights, name)
            slope = float(p @ h)
            if not np.isfinite(slope):
                return replace(state, status="diverged"), Info()
            if slope <= -self.theta * float(g @ g):
                return self._with_direction(state, p, slope, case)
        return replace(state, hessian_gradient=h), Info()

    def _with_direction(self, state: DingoState, p: Array, slope: float, why: str) -> tuple[DingoState, Info]:
        if not np.isfinite(p).all():
            return replace(state, status="diverged"), Info()
        return replace(state, hessian_gradient=None, direction=p, slope=slope, trial=0, why=why), Info()

    def _tried(self, state: DingoState, replies: Replies, setup: Setup) -> tuple[DingoState, Info]:
        """Lines 7 and 8, with the gradients of those who are known at both models."""
        assert state.direction is not None
        assert replies.gradients is not None
        length = 0.5**state.trial
        both = np.intersect1d(state.workers, replies.senders)
        if not len(both):  # nothing to compare
            return DingoState(state.w), Info()
        own, before = shares(setup.weights, both), state.gradients[np.searchsorted(state.workers, both)]
        after = own @ replies.gradients[np.searchsorted(replies.senders, both)]
        before = own @ before
        low = float(after @ after) <= float(before @ before) + 2 * length * self.rho * state.slope
        if not low and state.trial + 1 < MOST_TRIALS:
            return replace(state, trial=state.trial + 1), Info(trial_rejected=True)
        return self._arrived(state.w + length * state.direction, replies, setup)

    def _arrived(self, w: Array, replies: Replies, setup: Setup) -> tuple[DingoState, Info]:
        """At a model whose gradients have come."""
        assert replies.gradients is not None
        state = DingoState(w, workers=replies.senders, gradients=replies.gradients)
        if replies.failures:
            return state, Info()
        gradient, loss = mean_gradient(replies, setup.weights), mean_loss(replies, setup.weights)
        here = Info(proven_decrement(gradient, loss, setup), objective=loss, exact_norm=float(np.linalg.norm(gradient)))
        return (replace(state, status="converged") if here.decrement <= setup.tol else state), here
