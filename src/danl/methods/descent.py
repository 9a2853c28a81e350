"""Full gradients in every round, and the plain step in some metric: Newton Zero, undamped Newton, gradient descent.

    w <- w - metric^-1 sum_i weight_i grad F_i(w)

    newton-zero       metric = [Pi]_mu, the projected Hessian at w0      first exchange: Hessians
    newton-undamped   metric = [Hess f(w)]_mu                            every exchange: Hessians
    gd                metric = L I, L = sum_i weight_i L_i               first exchange: smoothness constants
                      metric = I / learning_rate                         no such exchange, but for the end

Newton Zero is what Algorithm 1 is with full masks; undamped Newton is the paper's benchmark for F* and can diverge.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from danl.errors import InputError
from danl.frozen import replace
from danl.methods.acceptance import measured_step
from danl.methods.base import HoldsHessian, Info, Setup, Status, Turn, too_few
from danl.methods.shared_options import check_options
from danl.methods.stopping import InitialCurvature, Remark, final_status
from danl.protocol.messages import Array, Exchange, GradientTask, HessianTask, SmoothnessTask, Task
from danl.protocol.replies import Replies
from danl.server.aggregation import mean_gradient, mean_hessian, mean_value
from danl.server.curvature import ProjectedHessian, project
from danl.server.partial_curvature import Diagonal
from danl.storage.serialize import storable


@storable
@dataclass(frozen=True)
class DescentState:
    """w and the metric, None before the first exchange: a projected Hessian, or a Diagonal."""

    w: Array
    status: Status | None = None
    metric: ProjectedHessian | Diagonal | None = None
    learning_rate: float | None = None  # of a first-order method
    squares: Literal["unknown", "asked", "known"] = "known"  # of the columns, for the metric of a first-order method
    averages: int = 0  # of FedAvg
    largest: float = 0.0  # of the losses reported so far
    initial: InitialCurvature | None = None  # where some coefficients have no penalty: to see those that have no end
    remark: Remark | None = None


def descend(state: DescentState, replies: Replies, setup: Setup, *, exact: bool) -> tuple[DescentState, Info]:
    """One step down the gradient in the state's metric, unless w is good enough already."""
    metric, gradient, initial = state.metric, mean_gradient(replies, setup.weights), state.initial
    assert metric is not None
    step, largest, enough = measured_step(metric, gradient, state.w, state.largest, replies, setup)
    state, info = replace(state, largest=largest), Info(step.decrement, estimated=not exact)
    direction = step.direction if state.learning_rate is None else -state.learning_rate * gradient
    if state.learning_rate is None:
        initial = initial or InitialCurvature.of(metric, step.scale, setup)
        state = replace(state, initial=None if initial is None else initial.after(direction))
    if exact and enough:
        status, remark = final_status("converged", initial, state.w, step)
        if status is not None:
            return replace(state, status=status, remark=remark), info
    return replace(state, w=state.w + direction), info


@dataclass(frozen=True)
class NewtonUndamped(HoldsHessian):
    """Newton's method with a Hessian exchange every round and the full step, whatever comes of it.

    Parameters
    ----------
    mu : float, optional
        Floor of the projection. Default: the strong convexity the penalty guarantees.

    """

    name = "newton-undamped"

    mu: float | None = None

    def __post_init__(self) -> None:
        check_options(self)

    def begin(self, setup: Setup) -> DescentState:
        return DescentState(setup.w0)

    def plan(self, state: DescentState, setup: Setup, turn: Turn) -> Exchange:
        return setup.ask_everyone("hessian", HessianTask(turn.exchange, state.w))

    def absorb(self, state: DescentState, replies: Replies, setup: Setup) -> tuple[DescentState, Info]:
        if not len(replies.workers):
            return too_few(state, replies)
        if replies.curvature_sum is not None:
            hessian = mean_hessian(replies, setup.weights, setup.n_coefficients)
            if not np.isfinite(hessian).all():
                return replace(state, status="diverged"), Info()
            state = replace(state, metric=project(hessian, setup.floor(self.mu), setup.strong_convexity))
        sampled = getattr(self, "batch_size", None) is not None
        return descend(state, replies, setup, exact=not sampled and not replies.failures)


@dataclass(frozen=True)
class NewtonZero(NewtonUndamped):
    """One Hessian exchange, then full gradients and plain steps against the fixed curvature.

    Parameters
    ----------
    mu : float, optional
        Floor of the projection. Default: the strong convexity the penalty guarantees.
    batch_size, hessian_batch : int, optional
        Rows a worker samples for a gradient and for the Hessian. Default: its whole shard.

    """

    name = "newton-zero"

    batch_size: int | None = None
    hessian_batch: int | None = None

    def plan(self, state: DescentState, setup: Setup, turn: Turn) -> Exchange:
        if state.metric is None:
            task = HessianTask(turn.exchange, state.w, self.batch_size, self.hessian_batch)
            return setup.ask_everyone("hessian", task)
        return setup.ask_everyone("gradient", GradientTask(turn.exchange, state.w, batch_size=self.batch_size))


class FirstOrder:
    """Steps of a fixed length: a learning rate, or 1 / L with L = sum_i weight_i L_i asked from the workers.

    And what gradients are measured by: with s_j the mean square of column j, the inverse curvature along it is taken to
    be  learning_rate * max(s) / s_j,  so that a column's unit does not matter (`danl.methods.stopping`). With a
    learning rate columns count as alike until that would be enough to end; then their mean squares are asked for.
    """

    name: str
    learning_rate: float | None

    def begin(self, setup: Setup) -> DescentState:
        rate = self.learning_rate
        if rate is None:
            return DescentState(setup.w0, squares="asked")
        alike = Diagonal(np.full(setup.n_coefficients, 1.0 / rate))
        return DescentState(setup.w0, metric=alike, learning_rate=float(rate), squares="unknown")

    def plan(self, state: DescentState, setup: Setup, turn: Turn) -> Exchange:
        if state.squares == "asked":
            return setup.ask_everyone("smoothness", SmoothnessTask(turn.exchange))
        return setup.ask_everyone(*self.question(state, turn))

    def absorb(self, state: DescentState, replies: Replies, setup: Setup) -> tuple[DescentState, Info]:
        if not len(replies.workers):
            return too_few(state, replies)
        if state.squares != "asked":
            return self.after_round(state, replies, setup)
        rate = self._one_over_smoothness(replies, setup) if state.learning_rate is None else state.learning_rate
        squares = mean_value(replies, setup.weights, "squares")
        top = float(squares.max(initial=0.0))  # which a column without entries counts as
        metric = Diagonal(np.where(squares > 0, squares / top if top > 0 else 1.0, 1.0) / rate)
        return replace(state, learning_rate=rate, metric=metric, squares="known"), Info()

    def _one_over_smoothness(self, replies: Replies, setup: Setup) -> float:
        """1 / L; a loss without a bound on its curvature has no such step."""
        smoothness = float(mean_value(replies, setup.weights, "smoothness"))
        if not math.isfinite(smoothness):
            raise InputError(
                "learning_rate=None: this loss has no bound on its curvature to take a step from; "
                f"give one, for example --method {self.name}:learning_rate=0.01"
            )
        return 1.0 / smoothness if smoothness > 0 else 1.0

    def question(self, state: DescentState, turn: Turn) -> tuple[str, Task]:
        """What everyone is asked in a round, and what the record calls it."""
        raise NotImplementedError

    def after_round(self, state: DescentState, replies: Replies, setup: Setup) -> tuple[DescentState, Info]:
        """The state after the answers."""
        raise NotImplementedError


@dataclass(frozen=True)
class GradientDescent(FirstOrder):
    """Distributed gradient descent with a fixed step.

    Parameters
    ----------
    learning_rate : float, optional
        Default: 1 / L. The first exchange asks every worker for its smoothness constant, and for the mean squares of
        its columns, by which it sees how far the optimum is; with a learning rate, an exchange before the end does.
    batch_size : int, optional
        Rows a worker samples for a gradient. Default: its whole shard.

    """

    name = "gd"

    learning_rate: float | None = None
    batch_size: int | None = None

    def __post_init__(self) -> None:
        check_options(self)

    def question(self, state: DescentState, turn: Turn) -> tuple[str, Task]:
        return "gradient", GradientTask(turn.exchange, state.w, batch_size=self.batch_size)

    def after_round(self, state: DescentState, replies: Replies, setup: Setup) -> tuple[DescentState, Info]:
        after, info = descend(state, replies, setup, exact=self.batch_size is None and not replies.failures)
        if state.squares == "unknown" and info.decrement <= setup.tol:  # as if all columns were alike: are they?
            return replace(state, squares="asked"), replace(info, decrement=np.nan)
        return after, info
