"""FedAvg: every worker takes gradient steps on its own shard, the server averages the models.

    w_i <- w;  repeat `steps` times:  w_i <- w_i - learning_rate grad F_i(w_i)
    w   <- sum_i weight_i w_i

The paper starts its experiments from the tenth iteration of it: `FedAvg(rounds=10)`. The paper does not give the steps
or the learning rate; ours are 10 full-batch steps of 1 / L.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from danl.checks import check_whole
from danl.methods.acceptance import relative, relative_decrement, size_of
from danl.methods.base import Info, Setup, Status, Turn, too_few
from danl.methods.checks import check_options
from danl.methods.smoothness import ask_smoothness, learning_rate_from, metric_from
from danl.protocol.messages import Array, Exchange, LocalStepsTask
from danl.protocol.replies import Replies
from danl.server.aggregation import mean_loss_size, mean_value
from danl.server.partial_curvature import Diagonal
from danl.storage.serialize import storable


@storable
@dataclass(frozen=True)
class FedAvgState:
    """w, how many averages it has seen, and the learning rate once it is known."""

    w: Array
    status: Status | None = None
    averages: int = 0
    learning_rate: float | None = None
    metric: Diagonal | None = None  # what gradients are measured by; None where a learning rate was given
    asked: bool = False  # whether it is asked for
    largest: float = 0.0  # of the losses reported so far


@dataclass(frozen=True)
class FedAvg:
    """Federated averaging.

    Parameters
    ----------
    rounds : int, optional
        Stop after this many averages. Default: go on until `max_rounds`.
    steps : int
        Local gradient steps per round.
    learning_rate : float, optional
        Default: 1 / L. The first exchange asks every worker for its smoothness constant, and for the mean squares of
        its columns, by which it sees how far the optimum is; with a learning rate, an exchange before the end does.
    batch_size : int, optional
        Rows of a local step. Default: the whole shard.

    """

    name = "fedavg"

    rounds: int | None = None
    steps: int = 10
    learning_rate: float | None = None
    batch_size: int | None = None

    def __post_init__(self) -> None:
        check_options(self, steps=1)
        if self.rounds is not None:
            check_whole("rounds", self.rounds, next_step="leave it out to go on until max_rounds")

    def begin(self, setup: Setup) -> FedAvgState:
        return FedAvgState(setup.w0, learning_rate=self.learning_rate, asked=self.learning_rate is None)

    def plan(self, state: FedAvgState, setup: Setup, turn: Turn) -> Exchange:
        if state.asked:
            return ask_smoothness(setup, turn)
        assert state.learning_rate is not None
        task = LocalStepsTask(turn.exchange, state.w, self.steps, state.learning_rate, self.batch_size)
        return setup.ask_everyone("local-steps", task)

    def absorb(self, state: FedAvgState, replies: Replies, setup: Setup) -> tuple[FedAvgState, Info]:
        if not len(replies.workers):
            return too_few(state, replies)
        rate = state.learning_rate
        if state.asked:
            rate = learning_rate_from(replies, setup, method=self.name) if rate is None else rate
            return replace(state, learning_rate=rate, metric=metric_from(replies, setup, rate), asked=False), Info()
        assert rate is not None
        w = mean_value(replies, setup.weights, "w")
        averages = state.averages + 1
        # The local steps sum to about learning_rate * steps * gradient: an estimate for the stopping rule.
        gradient = (w - state.w) / (rate * self.steps)
        loss = mean_loss_size(replies, setup.weights)
        largest = max(state.largest, loss)
        size = size_of(loss, largest)
        estimate = relative_decrement(state.metric, gradient, size)
        # As if all columns were alike it would be enough: are they?
        ask = state.metric is None and relative(rate * float(gradient @ gradient), size) <= setup.tol
        status: Status | None = "max_rounds" if averages == self.rounds else None
        state = replace(state, w=w, averages=averages, status=status, largest=largest, asked=ask)
        return state, Info(estimate, estimated=True)
