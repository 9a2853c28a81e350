r"""SVRG: mini-batch steps whose noise is taken out by a snapshot, with workers that may read old models.

Reddi, Hefny, Sra, Poczos & Smola, "On variance reduction in stochastic gradient descent and its asynchronous variants",
NIPS 2015; SVRG itself is of Johnson & Zhang, NIPS 2013.

        repeat
     1    snapshot = w;   g = sum_i weight_i grad F_i(snapshot)                 everyone's whole gradient
     2    for step = 0, ..., inner - 1
     3      worker i draws a batch S and reads a model that is delay_i <= min(delay, step) steps old, w_i
     4      difference_i = grad F_i,S(w_i) - grad F_i,S(snapshot)
     5      w <- w - learning_rate (sum_i weight_i difference_i + g)

The form of the steps is the paper's as we know it; the numbers of the lines are ours, and the constants below were not
held against the printed paper.

- The first step of an epoch is at the snapshot itself, where every difference is 0: it needs no exchange of its own.
- Snapshots are a barrier, as in the authors' code: no worker reads a model from before one. There w is looked at for
  the end, as everyone's whole gradient is known. The next snapshot is the last inner model, as in that code; the theory
  takes one of them at random.
- learning_rate: min(1 / smoothness, 0.1 / batch_smoothness) / (1 + delay), of f and of its mini-batches
  (`danl.methods.mini_batches`). With one worker and one row a batch it is 0.1 over that of the worst row, the theory's
  choice; a delay divides it as the theory does where data is not sparse. The constants come with the first snapshot.
- Differs from the paper: a step is the mean over all workers, and a delay is simulated, drawn for every worker and step
  from 0, ..., min(delay, step); there it is what threads on shared memory happen to have. Workers take batches, there
  single rows.
- Open in the paper: who is absent. Those who answer are averaged; who misses a snapshot is missing in g until the next.
- With inner = 1 it is gradient descent; with delay = 0 it is the synchronous method, bit for bit.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from danl.checks import check_whole
from danl.frozen import replace
from danl.methods.base import Info, Setup, Status, Turn, too_few
from danl.methods.mini_batches import BATCH_SIZE, StepConstants, batches_of_a_pass, check_steps
from danl.methods.proven_end import proven_decrement
from danl.protocol.messages import Array, Exchange, GradientTask
from danl.protocol.replies import Replies
from danl.protocol.streams import DELAYS, stream
from danl.server.aggregation import mean_gradient, mean_loss, mean_of_messages
from danl.storage.serialize import storable
from danl.tasks.gradient_differences import DifferenceTask
from danl.tasks.step_constants import StepConstantsTask

ROWS_STEP = 0.1
"""eta L of the theory, where L is the smoothness of one row."""


@storable
@dataclass(frozen=True)
class SVRGState:
    """The newest model, and what the epoch began with."""

    w: Array
    learning_rate: float | None
    snapshot: Array
    gradient: Array  # there
    recent: Array  # the newest models of the epoch, the newest last, (at most delay + 1, d)
    step: int = 0  # of the epoch; at 0 a snapshot is due
    status: Status | None = None


@dataclass(frozen=True)
class SVRG:
    """Stochastic variance-reduced gradients, synchronous or with delays.

    Parameters
    ----------
    inner : int, optional
        Steps from one snapshot to the next. Default: as many as make a pass over the rows.
    batch_size : int or "all"
        Rows a worker draws for a step, with replacement; "all", or None: the whole shard.
    learning_rate : float, optional
        Default: from the smoothness constants that workers tell with the first snapshot.
    delay : int
        How many steps old a model may be that a worker reads. 0: every worker reads the newest one.

    """

    name = "svrg"

    inner: int | None = None
    batch_size: int | None = BATCH_SIZE
    learning_rate: float | None = None
    delay: int = 0

    def __post_init__(self) -> None:
        check_steps(self)
        object.__setattr__(self, "delay", check_whole("delay", self.delay, 0))
        if self.inner is not None:
            inner = check_whole("inner", self.inner, next_step="leave it out for a pass over the rows")
            object.__setattr__(self, "inner", inner)

    def begin(self, setup: Setup) -> SVRGState:
        return SVRGState(setup.w0, self.learning_rate, setup.w0, np.zeros_like(setup.w0), setup.w0[None])

    def plan(self, state: SVRGState, setup: Setup, turn: Turn) -> Exchange:
        if state.learning_rate is None:  # line 1, with the constants
            return setup.ask_everyone("step-constants", StepConstantsTask(turn.exchange, state.w))
        if state.step == 0:  # line 1
            return setup.ask_everyone("gradient", GradientTask(turn.exchange, state.w))
        task, own = DifferenceTask(turn.exchange, state.w, state.snapshot, self.batch_size), None
        if self.delay:  # line 3
            draws = stream(setup.seed, DELAYS, turn.exchange).random(setup.n_workers)
            old = (draws * len(state.recent)).astype(np.int64)
            own = {"w": state.recent[len(state.recent) - 1 - old]}
        return Exchange("difference", task, np.arange(setup.n_workers), own=own)

    def absorb(self, state: SVRGState, replies: Replies, setup: Setup) -> tuple[SVRGState, Info]:
        if not len(replies.workers):
            return too_few(state, replies)
        if state.step > 0:
            difference = mean_of_messages(replies, setup.weights, "difference")
            return self._after_step(state, difference + state.gradient, setup), Info()
        gradient, loss = mean_gradient(replies, setup.weights), mean_loss(replies, setup.weights)
        decrement = proven_decrement(gradient, loss, setup) if not replies.failures else np.nan
        if decrement <= setup.tol:
            here = Info(decrement, objective=loss, exact_norm=float(np.linalg.norm(gradient)))
            return replace(state, status="converged"), here
        if state.learning_rate is None:
            state = replace(state, learning_rate=self._rate(replies, setup))
        state = replace(state, snapshot=state.w, gradient=gradient, recent=state.w[None])
        return self._after_step(state, gradient, setup), Info()

    def _after_step(self, state: SVRGState, direction: Array, setup: Setup) -> SVRGState:
        """Line 5."""
        assert state.learning_rate is not None
        inner = batches_of_a_pass(setup, self.batch_size) if self.inner is None else self.inner
        w = state.w - state.learning_rate * direction
        recent = np.concatenate([state.recent, w[None]])[-(self.delay + 1) :]
        return replace(state, w=w, recent=recent, step=(state.step + 1) % inner)

    def _rate(self, replies: Replies, setup: Setup) -> float:
        """What the smoothness of f, and of mini-batches of it, allows."""
        told = StepConstants.of(replies, setup, self.batch_size, "svrg:learning_rate=0.01")
        longest = 1.0 / max(told.smoothness, np.finfo(float).tiny)
        return min(longest, ROWS_STEP / told.batch_smoothness if told.batch_smoothness > 0 else longest) / (
            1 + self.delay
        )
