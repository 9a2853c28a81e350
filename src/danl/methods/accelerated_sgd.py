r"""Accelerated mini-batch SGD: gradients of batches of all workers, with the momentum of AC-SA.

Shamir & Srebro, "Distributed stochastic optimization and learning", Allerton 2014, compare what distributed methods can
promise, this one among them; the method is AC-SA of Lan, Math. Program. 2012, its mini-batch form that of Cotter,
Shamir, Srebro & Sridharan, NIPS 2011.

     1  x = w = w0
        for t = 1, 2, ...
     2    beta = (t + 1) / 2
     3    middle = x / beta + (1 - 1 / beta) w                         x^md
     4    G = sum_i weight_i grad F_i,S(middle)                        a batch S of every worker
     5    x <- x - learning_rate beta G
     6    w <- x / beta + (1 - 1 / beta) w                             x^ag, the model that is returned

None of these papers could be opened here: the method is as we know it, and the numbers of the lines are ours.

- learning_rate: min(1 / (2 L), sqrt(6) D / ((T + 2)^1.5 sigma)), as Lan has it: L the smoothness of f, T = `max_rounds`
  the steps there will be, sigma^2 the variance of G at w0, and D^2 = |w0 - w*|^2 / 2. The workers tell L and sigma with
  the first gradient, which is a whole one. For |w0 - w*| we take  distance = sqrt(2 f(w0) / mu), a bound where f is
  strongly convex by mu and at least 0; without a penalty  f(w0) / |grad f(w0)|, where a line down the gradient is 0.
- Without noise, sigma = 0, it keeps  f(w) - f* <= 4 L |w0 - w*|^2 / (t (t + 2))  after t steps.
- `restart` begins anew, x = w and t = 1, after ceil(4 / sqrt(2 learning_rate mu)) steps: by the bound above, with mu
  the strong convexity, the gap to f* is half of what it was, so that convergence is linear. With mini-batches T is that
  number, and the noise is left: the longer stages that the theory has against it are not here.
- With whole shards the gradient at `middle` is everyone's: where it is small enough, `middle` is returned.
- Open in the papers: who is absent. Those who answer are averaged.
- The first step is a gradient step. Differs from the papers: there is no projection, and mini-batches are drawn without
  replacement, as those of `gd`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from danl.checks import check_number
from danl.errors import bad_argument
from danl.frozen import replace
from danl.methods.base import Info, Setup, Status, Turn, too_few
from danl.methods.mini_batches import BATCH_SIZE, StepConstants, check_steps
from danl.methods.proven_end import proven_decrement
from danl.protocol.messages import Array, Exchange, GradientTask
from danl.protocol.replies import Replies
from danl.server.aggregation import mean_gradient, mean_loss
from danl.storage.serialize import storable
from danl.tasks.step_constants import StepConstantsTask


@storable
@dataclass(frozen=True)
class AcceleratedState:
    """The average that is returned, the sequence of long steps, and t."""

    w: Array  # x^ag
    x: Array
    learning_rate: float | None
    step: int = 1  # t, since the last restart
    status: Status | None = None

    @property
    def middle(self) -> Array:
        """Line 3: where the gradient is asked for."""
        return averaged(self.x, self.w, self.step)


@dataclass(frozen=True)
class AcceleratedSGD:
    """SGD with mini-batches and acceleration.

    Parameters
    ----------
    batch_size : int or "all"
        Rows a worker samples for a gradient; "all", or None: the whole shard.
    learning_rate : float, optional
        Of the first step; step t takes (t + 1) / 2 times as much. Default: from the smoothness and the noise that
        workers tell with the first gradient.
    distance : float, optional
        From w0 to the optimum, for the default learning rate. Default: what the penalty and f(w0) say at most.
    restart : bool
        Whether to begin anew each time that strong convexity has halved the gap; needs a penalty.

    """

    name = "accelerated-sgd"

    batch_size: int | None = BATCH_SIZE
    learning_rate: float | None = None
    distance: float | None = None
    restart: bool = False

    def __post_init__(self) -> None:
        check_steps(self)
        if self.distance is not None:
            object.__setattr__(self, "distance", check_number("distance", self.distance, "leave it out for a guess"))
        if not isinstance(self.restart, bool):
            raise bad_argument("restart", self.restart, "true or false")

    def begin(self, setup: Setup) -> AcceleratedState:
        if self.restart and setup.strong_convexity <= 0:
            raise bad_argument("restart", True, "false, as no penalty makes the objective strongly convex")
        return AcceleratedState(setup.w0, setup.w0, self.learning_rate)

    def plan(self, state: AcceleratedState, setup: Setup, turn: Turn) -> Exchange:
        if state.learning_rate is None:
            return setup.ask_everyone("step-constants", StepConstantsTask(turn.exchange, state.w))
        return setup.ask_everyone("gradient", GradientTask(turn.exchange, state.middle, batch_size=self.batch_size))

    def absorb(self, state: AcceleratedState, replies: Replies, setup: Setup) -> tuple[AcceleratedState, Info]:
        if not len(replies.workers):
            return too_few(state, replies)
        gradient, loss, middle = mean_gradient(replies, setup.weights), mean_loss(replies, setup.weights), state.middle
        whole = (self.batch_size is None or state.learning_rate is None) and not replies.failures
        if whole and proven_decrement(gradient, loss, setup) <= setup.tol:
            here = Info(
                proven_decrement(gradient, loss, setup), objective=loss, exact_norm=float(np.linalg.norm(gradient))
            )
            return replace(state, w=middle, status="converged"), here
        rate = self._rate(replies, gradient, loss, setup) if state.learning_rate is None else state.learning_rate
        x = state.x - rate * (state.step + 1) / 2 * gradient
        w = averaged(x, state.w, state.step)
        state = replace(state, w=w, x=x, learning_rate=rate, step=state.step + 1)
        if self.restart and state.step > stage_length(rate, setup.strong_convexity):
            state = replace(state, x=w, step=1)
        return state, Info()

    def _rate(self, replies: Replies, gradient: Array, loss: float, setup: Setup) -> float:
        """What the smoothness of f allows, and over so many steps its noise."""
        told = StepConstants.of(replies, setup, self.batch_size, "accelerated-sgd:learning_rate=0.01")
        smooth = 0.5 / max(told.smoothness, np.finfo(float).tiny)
        norm = float(np.linalg.norm(gradient))
        if told.batch_noise <= 0 or norm <= 0:
            return smooth
        mu, distance = setup.strong_convexity, self.distance
        if distance is None:
            distance = math.sqrt(2.0 * abs(loss) / mu) if mu > 0 else abs(loss) / norm
        steps = setup.setting.max_rounds + 1
        if self.restart:
            steps = min(steps, stage_length(smooth, setup.strong_convexity))
        return min(smooth, math.sqrt(3.0 / told.batch_noise) * distance / math.pow(steps + 2, 1.5))


def averaged(x: Array, w: Array, step: int) -> Array:
    """Lines 3 and 6: x / beta + (1 - 1 / beta) w with beta = (t + 1) / 2; in the first step w does not count."""
    share = 2.0 / (step + 1)
    return share * x + (1.0 - share) * w if step > 1 else x


def stage_length(learning_rate: float, mu: float) -> int:
    """Steps after which the gap is halved: t (t + 2) >= 16 L / mu, where learning_rate is 1 / (2 L)."""
    return math.ceil(4.0 / math.sqrt(2.0 * learning_rate * mu))
