"""FedAvg: every worker takes gradient steps on its own shard, the server averages the models.

    w_i <- w;  repeat `steps` times:  w_i <- w_i - learning_rate grad F_i(w_i)
    w   <- sum_i weight_i w_i

The paper starts its experiments from the tenth iteration of it: `FedAvg(rounds=10)`. The paper does not give the steps
or the learning rate; ours are 10 full-batch steps of 1 / L.
"""

from __future__ import annotations

from dataclasses import dataclass

from danl.checks import check_whole
from danl.frozen import replace
from danl.methods.acceptance import relative_decrement, scale_of
from danl.methods.base import Info, Setup, Status, Turn
from danl.methods.descent import DescentState, FirstOrder
from danl.methods.shared_options import check_options
from danl.protocol.messages import LocalStepsTask, Task
from danl.protocol.replies import Replies
from danl.server.aggregation import mean_loss_scale, mean_value


@dataclass(frozen=True)
class FedAvg(FirstOrder):
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

    def question(self, state: DescentState, turn: Turn) -> tuple[str, Task]:
        assert state.learning_rate is not None
        return "local-steps", LocalStepsTask(turn.exchange, state.w, self.steps, state.learning_rate, self.batch_size)

    def after_round(self, state: DescentState, replies: Replies, setup: Setup) -> tuple[DescentState, Info]:
        assert state.learning_rate is not None
        w, averages = mean_value(replies, setup.weights, "w"), state.averages + 1
        # The local steps sum to about learning_rate * steps * gradient: an estimate for the stopping rule.
        gradient = (w - state.w) / (state.learning_rate * self.steps)
        loss = mean_loss_scale(replies, setup.weights)
        largest = max(state.largest, loss)
        estimate = relative_decrement(state.metric, gradient, scale_of(loss, largest))
        status: Status | None = "max_rounds" if averages == self.rounds else None
        after = replace(state, w=w, averages=averages, status=status, largest=largest)
        if state.squares == "known":
            return after, Info(estimate, estimated=True)
        # As if all columns were alike it would be enough: are they?
        return replace(after, squares="asked" if estimate <= setup.tol else "unknown"), Info(estimated=True)
