"""Full gradients in every round, and the plain step in some metric: Newton Zero, undamped Newton, gradient descent.

    w <- w - metric^-1 sum_i weight_i grad F_i(w)

    newton-zero       metric = [Pi]_mu, the projected Hessian at w0      first exchange: Hessians
    newton-undamped   metric = [Hess f(w)]_mu                            every exchange: Hessians
    gd                metric = L I, L = sum_i weight_i L_i               first exchange: smoothness constants
                      metric = I / learning_rate                         no such exchange, but for the end

Newton Zero is what Algorithm 1 is with full masks; undamped Newton is the paper's benchmark for F* and can diverge.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from danl.methods.acceptance import Step, margins_of, only_rounding, size_of
from danl.methods.base import HoldsHessian, Info, Setup, Status, Turn, too_few
from danl.methods.checks import check_options
from danl.methods.ending import Origin, Remark, verdict
from danl.methods.smoothness import ask_smoothness, learning_rate_from, metric_from
from danl.protocol.messages import Array, Exchange, GradientTask, HessianTask
from danl.protocol.replies import Replies
from danl.server.aggregation import mean_gradient, mean_hessian, mean_loss_size
from danl.server.curvature import ProjectedHessian, project
from danl.server.partial_curvature import Diagonal
from danl.storage.serialize import storable


@storable
@dataclass(frozen=True)
class DescentState:
    """w and the metric, None before the first exchange: a projected Hessian, or for gradient descent a Diagonal."""

    w: Array
    status: Status | None = None
    metric: ProjectedHessian | Diagonal | None = None
    learning_rate: float | None = None  # of gradient descent
    squares: Literal["unknown", "asked", "known"] = "known"  # of the columns, for the metric of gradient descent
    largest: float = 0.0  # of the losses reported so far
    origin: Origin | None = None  # where some coefficients have no penalty: to see those that have no end
    remark: Remark | None = None


def descend(
    state: DescentState, gradient: Array, replies: Replies, setup: Setup, *, exact: bool
) -> tuple[DescentState, Info]:
    """One step down the gradient in the state's metric, unless w is good enough already."""
    metric = state.metric
    assert metric is not None
    loss, margins = mean_loss_size(replies, setup.weights), margins_of(metric, state.w)
    state = replace(state, largest=max(state.largest, loss, margins))
    size = size_of(loss, state.largest)
    step, origin = Step.down(metric, gradient, size), state.origin
    direction = step.direction if state.learning_rate is None else -state.learning_rate * gradient
    info = Info(step.decrement, estimated=not exact)
    if state.learning_rate is None:
        origin = origin or Origin.of(metric, size, setup)
        state = replace(state, origin=None if origin is None else origin.after(direction))
    if exact and (step.decrement <= setup.tol or only_rounding(step.hidden - step.slope, margins, setup.tol)):
        status, remark = verdict("converged", origin, state.w, step)
        if status is not None:
            return replace(state, status=status, remark=remark), info
    return replace(state, w=state.w + direction), info


def newton_step(
    state: DescentState, replies: Replies, setup: Setup, mu: float | None, *, exact: bool
) -> tuple[DescentState, Info]:
    """Take the projected Hessian as the new metric and step in it."""
    floor = setup.floor(mu)
    hessian = mean_hessian(replies, setup.weights, setup.n_coefficients)
    if not np.isfinite(hessian).all():
        return replace(state, status="diverged"), Info()
    state = replace(state, metric=project(hessian, floor, setup.strong_convexity))
    return descend(state, mean_gradient(replies, setup.weights), replies, setup, exact=exact)


@dataclass(frozen=True)
class NewtonZero(HoldsHessian):
    """One Hessian exchange, then full gradients against the fixed curvature.

    Parameters
    ----------
    mu : float, optional
        Floor of the projection. Default: the strong convexity the penalty guarantees.
    batch_size, hessian_batch : int, optional
        Rows a worker samples for a gradient and for the Hessian. Default: its whole shard.

    """

    name = "newton-zero"

    mu: float | None = None
    batch_size: int | None = None
    hessian_batch: int | None = None

    def __post_init__(self) -> None:
        check_options(self)

    def begin(self, setup: Setup) -> DescentState:
        return DescentState(setup.w0)

    def plan(self, state: DescentState, setup: Setup, turn: Turn) -> Exchange:
        if state.metric is not None:
            return setup.ask_everyone("gradient", GradientTask(turn.exchange, state.w, batch_size=self.batch_size))
        task = HessianTask(turn.exchange, state.w, self.batch_size, self.hessian_batch)
        return setup.ask_everyone("hessian", task)

    def absorb(self, state: DescentState, replies: Replies, setup: Setup) -> tuple[DescentState, Info]:
        if not len(replies.workers):
            return too_few(state, replies)
        exact = self.batch_size is None and not replies.failures
        if state.metric is None:
            return newton_step(state, replies, setup, self.mu, exact=exact)
        return descend(state, mean_gradient(replies, setup.weights), replies, setup, exact=exact)


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
        return newton_step(state, replies, setup, self.mu, exact=not replies.failures)


@dataclass(frozen=True)
class GradientDescent:
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

    def begin(self, setup: Setup) -> DescentState:
        rate = self.learning_rate
        if rate is None:
            return DescentState(setup.w0, squares="asked")
        alike = Diagonal(np.full(setup.n_coefficients, 1.0 / rate))  # until it matters how large the columns are
        return DescentState(setup.w0, metric=alike, learning_rate=float(rate), squares="unknown")

    def plan(self, state: DescentState, setup: Setup, turn: Turn) -> Exchange:
        if state.squares == "asked":
            return ask_smoothness(setup, turn)
        return setup.ask_everyone("gradient", GradientTask(turn.exchange, state.w, batch_size=self.batch_size))

    def absorb(self, state: DescentState, replies: Replies, setup: Setup) -> tuple[DescentState, Info]:
        if not len(replies.workers):
            return too_few(state, replies)
        if state.squares == "asked":
            rate = state.learning_rate
            rate = learning_rate_from(replies, setup, method=self.name) if rate is None else rate
            metric = metric_from(replies, setup, rate)
            return replace(state, learning_rate=rate, metric=metric, squares="known"), Info()
        exact = self.batch_size is None and not replies.failures
        gradient = mean_gradient(replies, setup.weights)
        after, info = descend(state, gradient, replies, setup, exact=exact)
        if state.squares == "unknown" and info.decrement <= setup.tol:  # as if all columns were alike: are they?
            return replace(state, squares="asked"), replace(info, decrement=np.nan)
        return after, info
