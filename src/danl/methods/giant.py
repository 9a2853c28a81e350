r"""GIANT: workers divide the common gradient by their own Hessians, and the directions are averaged.

Wang, Roosta, Xu & Mahoney, "GIANT: Globally improved approximate Newton method for distributed optimization", NeurIPS
2018. After the authors' Spark code; the numbers of the lines are ours.

     1  w = w0
     2  each worker i: sends grad F_i(w);              server: g = sum_i weight_i grad F_i(w)
     3  each worker i: sends p_i = H_i^-1 g            H_i = Hess F_i(w): the own Hessian, everyone's gradient
     4  server: p = sum_i weight_i p_i                 the harmonic mean of the Hessians, times g
     5  each worker i: sends F_i(w - 4^-k p) for k = 0, ..., 9
     6  server: the largest length = 4^-k with  f(w - length p) <= f(w) - 0.1 length p . g;  4^-9 if there is none
     7  w <- w - length p, and on with 2

- A round is three exchanges: gradients, directions, losses; two with `line_search=false`, which takes the full step.
- Line 3 is by at most q conjugate-gradient steps in the paper: `cg` is its q. Default here: exactly, by Cholesky's
  factorisation, for up to 2,000 coefficients, and 100 steps above that.
- Weights are those of the objective; the authors' are shares of the rows, which is weighting="samples". The penalty is
  part of every H_i and of the losses.
- The test of line 6 has no allowance for rounding. With one, steps that are too long by what it hides would pass, and
  the gradient would stay at about the square root of it where the shards are small.
- Open in the paper: who is absent. Those who answer count, with their weights made to sum to 1, in each of the three
  exchanges; a worker tells F_i(w) with its ten losses, so that both sides of line 6 are of the same workers. Where
  nobody answers the question is repeated, or the run ends.
- What it is good for are shards that are random samples of the rows, of many more rows than coefficients: then all H_i
  are alike. On small or unlike shards the mean of the inverses is far above the inverse of the mean, and the search
  shortens every step.
- With one worker, or identical shards, it is Newton's method with this search. An own Hessian that has no inverse
  counts with its pseudo-inverse.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from danl.checks import check_whole
from danl.errors import bad_argument
from danl.frozen import replace
from danl.methods.base import Info, Setup, Status, Turn, too_few
from danl.methods.proven_end import proven_decrement
from danl.protocol.messages import Array, Exchange, GradientTask
from danl.protocol.replies import Replies
from danl.server.aggregation import mean_gradient, mean_loss, mean_of_messages
from danl.storage.serialize import storable
from danl.tasks.newton_directions import NewtonDirectionTask
from danl.tasks.trial_losses import TrialLossesTask

SUFFICIENT, SHORTER, TRIALS = 0.1, 4.0, 10
"""Armijo's constant, how much shorter each trial step is, and how many there are: those of the authors' code."""


@storable
@dataclass(frozen=True)
class GiantState:
    """The model; its gradient once that is known, and then the direction."""

    w: Array
    status: Status | None = None
    gradient: Array | None = None
    direction: Array | None = None  # -p


@dataclass(frozen=True)
class Giant:
    """Globally improved approximate Newton: local Newton directions of the global gradient, averaged.

    Parameters
    ----------
    cg : int, optional
        Conjugate-gradient steps of a worker at most. Default: its direction is exact, for up to 2,000 coefficients.
    line_search : bool
        Whether workers tell their losses along the direction; else the full step is taken.

    """

    name = "giant"

    cg: int | None = None
    line_search: bool = True

    def __post_init__(self) -> None:
        if self.cg is not None:
            check_whole("cg", self.cg, next_step="leave it out for the exact direction")
        if not isinstance(self.line_search, bool):
            raise bad_argument("line_search", self.line_search, "true or false")

    def begin(self, setup: Setup) -> GiantState:
        return GiantState(setup.w0)

    def plan(self, state: GiantState, setup: Setup, turn: Turn) -> Exchange:
        if state.gradient is None:
            return setup.ask_everyone("gradient", GradientTask(turn.exchange, state.w))
        if state.direction is None:
            task = NewtonDirectionTask(turn.exchange, state.w, state.gradient, self.cg)
            return setup.ask_everyone("newton-direction", task)
        return setup.ask_everyone("losses", TrialLossesTask(turn.exchange, state.w, state.direction, SHORTER, TRIALS))

    def absorb(self, state: GiantState, replies: Replies, setup: Setup) -> tuple[GiantState, Info]:
        if not len(replies.workers):
            return too_few(state, replies)
        if state.gradient is None:
            return self._with_gradient(state, replies, setup)
        if state.direction is None:
            return self._with_direction(state, replies, setup)
        return self._searched(state, replies, setup)

    def _with_gradient(self, state: GiantState, replies: Replies, setup: Setup) -> tuple[GiantState, Info]:
        """Line 2, and the end."""
        gradient, loss = mean_gradient(replies, setup.weights), mean_loss(replies, setup.weights)
        state = replace(state, gradient=gradient)
        if replies.failures:
            return state, Info()
        here = Info(proven_decrement(gradient, loss, setup), objective=loss, exact_norm=float(np.linalg.norm(gradient)))
        return (replace(state, status="converged") if here.decrement <= setup.tol else state), here

    def _with_direction(self, state: GiantState, replies: Replies, setup: Setup) -> tuple[GiantState, Info]:
        """Line 4, and without a search line 7."""
        direction = -mean_of_messages(replies, setup.weights, "direction")
        if not np.isfinite(direction).all():
            return replace(state, status="diverged"), Info()
        if self.line_search:
            return replace(state, direction=direction), Info()
        return GiantState(state.w + direction), Info()

    def _searched(self, state: GiantState, replies: Replies, setup: Setup) -> tuple[GiantState, Info]:
        """Lines 6 and 7."""
        assert state.gradient is not None
        assert state.direction is not None
        lengths = SHORTER ** -np.arange(TRIALS, dtype=float)
        before = mean_loss(replies, setup.weights)
        after = mean_of_messages(replies, setup.weights, "losses")
        promised = SUFFICIENT * lengths * float(state.direction @ state.gradient)
        low = after <= before + promised
        chosen = int(np.argmax(low)) if low.any() else TRIALS - 1
        w = state.w + lengths[chosen] * state.direction
        return GiantState(w), Info(objective=np.nan if replies.failures else float(after[chosen]))
