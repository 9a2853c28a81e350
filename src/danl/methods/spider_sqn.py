r"""SPIDER-SQN: stochastic quasi-Newton steps on SPIDER's estimate of the gradient.

Zhang, Huang, Deng & Huang, "Faster stochastic quasi-Newton methods", IEEE TNNLS 2022 (arXiv 2004.06479), with SdLBFGS
of Wang, Ma, Goldfarb & Liu, SIAM J. Optim. 2017, procedure 3.1.

        for k = 0, 1, ...
     1    k mod q = 0:   v = sum_i weight_i grad F_i(w)                                     everyone's whole gradient
     2    else:          v <- v + sum_i weight_i (grad F_i,S(w) - grad F_i,S(before))       a batch S of every worker
     3    s = w - before,  y = the change of v, where it is that of the same rows
     4    gamma = max(y . y / s . y, delta)                                                 delta where s . y <= 0
     5    theta = 0.75 gamma s . s / (gamma s . s - s . y)  if s . y < 0.25 gamma s . s  else 1
     6    ybar = theta y + (1 - theta) gamma s                                              s . ybar >= gamma s . s / 4
     7    H = two loops over the newest `memory` pairs (s, ybar), from I / gamma
     8    before, w <- w, w - learning_rate H v

The form of the method is checked against a summary of it, the formulas 4-6 against two programs of SdLBFGS; the numbers
of the lines are ours.

- In line 2 the change of v is y itself: it costs nothing. At a refresh, line 1, it is that of other rows than before,
  and there is no pair; unless v was the whole gradient before, too.
- At a refresh w is looked at for the end, as everyone's whole gradient is known.
- q: batches of a pass over the rows, but no more than a batch of all workers has rows: SPIDER's error adds up between
  refreshes, and q of the order of the batch keeps it in bounds. The paper has q and the batch of about sqrt(n), where
  both are the same.
- Differs from the paper: it is of one machine; here batches are drawn by workers and averaged by their weights. The
  paper's step is a constant of order sigma_min / (L sigma_max^2), sigma the bounds of the eigenvalues of H, and far too
  short to be of use; ours is a share of the quasi-Newton step. Before the first pair H = I / L, L the smoothness of f,
  and delta = L / 100: the workers tell L with the first gradient. Where delta is given, H = I / max(1, delta) before.
- Open in the paper: who is absent. Those who answer are averaged; a whole gradient that somebody is missing in makes
  no pair.
- With whole shards it is limited-memory BFGS with a fixed step, where nothing has to be damped; with memory = 0 and
  q = 1 it is gradient descent.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from danl.checks import check_number, check_whole
from danl.frozen import replace
from danl.methods.base import Info, Setup, Status, Turn, too_few
from danl.methods.mini_batches import BATCH_SIZE, StepConstants, batches_of_a_pass, check_steps
from danl.methods.proven_end import proven_decrement
from danl.protocol.messages import Array, Exchange, GradientTask
from danl.protocol.replies import Replies
from danl.server.aggregation import mean_gradient, mean_loss, mean_of_messages
from danl.server.partial_curvature import Diagonal
from danl.server.quasi_newton import Pairs, QuasiNewton
from danl.storage.serialize import storable
from danl.tasks.gradient_differences import DifferenceTask
from danl.tasks.step_constants import StepConstantsTask

DELTA = 0.01
"""The least gamma as a share of L, unless `delta` says another."""


@storable
@dataclass(frozen=True)
class SpiderState:
    """The model and the one before it, the estimate of the gradient, and the pairs."""

    w: Array
    before: Array
    estimate: Array  # v
    pairs: Pairs
    gamma: float
    delta: float | None
    step: int = 0  # k
    whole: bool = False  # whether v is everyone's whole gradient, at `before` once w has moved
    status: Status | None = None


@dataclass(frozen=True)
class SpiderSQN:
    """Stochastic quasi-Newton with SPIDER's variance reduction.

    Parameters
    ----------
    q : int, optional
        Steps from one whole gradient to the next. Default: a pass over the rows, or as many as a batch has rows.
    batch_size : int or "all"
        Rows a worker draws for a step, with replacement; "all", or None: the whole shard.
    memory : int
        Pairs that are kept.
    delta : float, optional
        Least curvature gamma that H begins with. Default: a hundredth of the smoothness.
    learning_rate : float
        Share of the quasi-Newton step that is taken.

    """

    name = "spider-sqn"

    q: int | None = None
    batch_size: int | None = BATCH_SIZE
    memory: int = 10
    delta: float | None = None
    learning_rate: float = 0.25

    def __post_init__(self) -> None:
        check_number("learning_rate", self.learning_rate, "try learning_rate=0.25")
        check_steps(self)
        object.__setattr__(self, "memory", check_whole("memory", self.memory, 0))
        if self.q is not None:
            object.__setattr__(self, "q", check_whole("q", self.q, next_step="leave it out for a pass over the rows"))
        if self.delta is not None:
            delta = check_number("delta", self.delta, "leave it out for a share of the smoothness")
            object.__setattr__(self, "delta", delta)

    def begin(self, setup: Setup) -> SpiderState:
        w0 = setup.w0
        return SpiderState(w0, w0, np.zeros_like(w0), Pairs.none(w0.size), max(1.0, self.delta or 0.0), self.delta)

    def plan(self, state: SpiderState, setup: Setup, turn: Turn) -> Exchange:
        if state.step == 0 and state.delta is None:
            return setup.ask_everyone("step-constants", StepConstantsTask(turn.exchange, state.w))
        if state.step % self.period(setup) == 0:
            return setup.ask_everyone("gradient", GradientTask(turn.exchange, state.w))
        return setup.ask_everyone("difference", DifferenceTask(turn.exchange, state.w, state.before, self.batch_size))

    def period(self, setup: Setup) -> int:
        """How often gradients are whole."""
        if self.q is not None or self.batch_size is None:
            return self.q or 1
        return min(batches_of_a_pass(setup, self.batch_size), setup.n_workers * self.batch_size)

    def absorb(self, state: SpiderState, replies: Replies, setup: Setup) -> tuple[SpiderState, Info]:
        if not len(replies.workers):
            return too_few(state, replies)
        if state.step % self.period(setup):  # line 2
            y, exact = mean_of_messages(replies, setup.weights, "difference"), self.batch_size is None
            state = self._with_pair(state, y)
            state = replace(state, estimate=state.estimate + y, whole=state.whole and exact and not replies.failures)
            return self._stepped(state), Info()
        gradient, loss = mean_gradient(replies, setup.weights), mean_loss(replies, setup.weights)
        decrement = proven_decrement(gradient, loss, setup) if not replies.failures else np.nan
        if decrement <= setup.tol:
            here = Info(decrement, objective=loss, exact_norm=float(np.linalg.norm(gradient)))
            return replace(state, status="converged"), here
        if state.delta is None:
            smoothness = StepConstants.of(replies, setup, None, "spider-sqn:delta=1").smoothness
            state = replace(state, gamma=smoothness, delta=DELTA * smoothness)
        if state.whole and not replies.failures:
            state = self._with_pair(state, gradient - state.estimate)
        return self._stepped(replace(state, estimate=gradient, whole=not replies.failures)), Info()

    def _with_pair(self, state: SpiderState, y: Array) -> SpiderState:
        """Lines 3 to 6."""
        s = state.w - state.before
        assert state.delta is not None
        if not self.memory or not s.any():
            return state
        ybar, gamma = damped(s, y, state.delta)
        return replace(state, pairs=state.pairs.with_pair(s, ybar, self.memory), gamma=gamma)

    def _stepped(self, state: SpiderState) -> SpiderState:
        """Lines 7 and 8."""
        initial = Diagonal(np.full(state.w.size, state.gamma))
        direction = QuasiNewton(initial, state.pairs).solve(state.estimate)
        w = state.w - self.learning_rate * direction
        return replace(state, before=state.w, w=w, step=state.step + 1)


def damped(s: Array, y: Array, delta: float) -> tuple[Array, float]:
    """Lines 4 to 6: ybar and gamma."""
    along, size = float(s @ y), float(s @ s)
    gamma = max(float(y @ y) / along, delta) if along > 0 else delta
    if along >= 0.25 * gamma * size:
        return y, gamma
    theta = 0.75 * gamma * size / (gamma * size - along)
    return theta * y + (1.0 - theta) * gamma * s, gamma
