r"""FedSN: every worker approximates a Newton step by SGD on its quadratic model, and the steps are averaged.

Bullins, Patel, Shamir, Srebro & Woodworth, "A stochastic Newton algorithm for distributed convex optimization", NeurIPS
2021. This is FedSN-Lite, the version of their experiments, as we know it: its box was not held against the printed
paper, and the numbers of the lines are ours.

     1  w = w0
     2  each worker i: u_i = 0
     3    repeat `steps` times: u_i <- u_i - learning_rate (H_S u_i + g_S)
                  H_S, g_S: Hessian and gradient of F_i at w on a mini-batch S of `batch_size` rows, drawn anew
     4    sends u_i
     5  server: w <- w + beta sum_i weight_i u_i, and on with 2

- What is left out of the theory's version: a trust region about w, and a search over the penalty that keeps the step in
  it. Its guarantees are for that version.
- global_gradient=false is the paper's: g_S is of the worker's own rows. The paper's workers all draw from one
  distribution, so that every F_i is f on average. Where the shards are parts of a data set, they are not: with whole
  shards and many steps it comes to rest where  sum_i weight_i H_i^-1 grad F_i(w) = 0,  which is not the optimum.
- global_gradient=true asks everyone for the gradient first, one more exchange a round, and has it in place of g_S in
  line 3. Its only rest is the optimum, whatever the shards: GIANT without its line search, with SGD in
  place of the solver, so it may diverge where shards are unlike. The run then can
  end as "converged".
- Differs from the paper: its rates are tuned. Default here: 1 / L_i, of every worker its own, where L_i bounds the
  curvature of whatever it draws (`danl.tasks.quadratic_steps`): no local step grows, on any data. H_S and g_S
  are of the same rows, which is one pass over them; the last u_i is sent, not an average.
- Steps see only curvature above about 1 / (learning_rate * steps). Along flatter directions the round is
  learning_rate * steps of gradient descent.
- Mini-batches with a fixed rate leave a floor of noise.
- Open in the paper: who is absent. Those who answer are averaged; where nobody does the question is repeated, or the
  run ends.
- With whole shards, identical ones, and many steps on a squared loss it is Newton's method: one round to the optimum.
  With one step it is a gradient step.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from danl.checks import check_number
from danl.errors import bad_argument
from danl.frozen import replace
from danl.methods.base import Info, Setup, Status, Turn, too_few
from danl.methods.proven_end import proven_decrement
from danl.methods.shared_options import check_options
from danl.protocol.messages import Array, Exchange, GradientTask
from danl.protocol.replies import Replies
from danl.server.aggregation import mean_gradient, mean_loss, mean_of_messages
from danl.storage.serialize import storable
from danl.tasks.quadratic_steps import QuadraticStepsTask


@storable
@dataclass(frozen=True)
class FedSNState:
    """The model, and everyone's gradient there once it has come."""

    w: Array
    status: Status | None = None
    gradient: Array | None = None


@dataclass(frozen=True)
class FedSN:
    """A federated stochastic Newton method: local SGD on the quadratic models, steps averaged.

    Parameters
    ----------
    steps : int
        Steps of a worker in a round: K.
    learning_rate : float, optional
        Of these steps. Default: 1 / L_i, the largest that is stable whatever a worker draws.
    batch_size : int, optional
        Rows of a step, drawn with replacement. Default: the whole shard.
    beta : float
        The length of the averaged step: 1 is Newton's.
    global_gradient : bool
        Whether everyone's gradient takes the place of the worker's own; false is the paper's.

    """

    name = "fedsn"

    steps: int = 100
    learning_rate: float | None = None
    batch_size: int | None = None
    beta: float = 1.0
    global_gradient: bool = False

    def __post_init__(self) -> None:
        check_options(self, steps=1)
        check_number("beta", self.beta)
        if not isinstance(self.global_gradient, bool):
            raise bad_argument("global_gradient", self.global_gradient, "true or false")

    def begin(self, setup: Setup) -> FedSNState:
        return FedSNState(setup.w0)

    def plan(self, state: FedSNState, setup: Setup, turn: Turn) -> Exchange:
        if self.global_gradient and state.gradient is None:
            return setup.ask_everyone("gradient", GradientTask(turn.exchange, state.w))
        options = (self.learning_rate, self.batch_size)
        task = QuadraticStepsTask(turn.exchange, state.w, self.steps, state.gradient, *options)
        return setup.ask_everyone("quadratic-steps", task)

    def absorb(self, state: FedSNState, replies: Replies, setup: Setup) -> tuple[FedSNState, Info]:
        if not len(replies.workers):
            return too_few(state, replies)
        if self.global_gradient and state.gradient is None:
            return self._with_gradient(state, replies, setup)
        step = mean_of_messages(replies, setup.weights, "step")
        return FedSNState(state.w + self.beta * step), Info()  # line 5

    def _with_gradient(self, state: FedSNState, replies: Replies, setup: Setup) -> tuple[FedSNState, Info]:
        """Everyone's gradient, and the end."""
        gradient, loss = mean_gradient(replies, setup.weights), mean_loss(replies, setup.weights)
        state = replace(state, gradient=gradient)
        if replies.failures:
            return state, Info()
        here = Info(proven_decrement(gradient, loss, setup), objective=loss, exact_norm=float(np.linalg.norm(gradient)))
        return (replace(state, status="converged") if here.decrement <= setup.tol else state), here
