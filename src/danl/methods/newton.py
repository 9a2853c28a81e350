r"""Newton's method, safeguarded: a Hessian exchange at every accepted model, backtracking where the step was too long.

    w <- w - t [Hess f(w)]_mu^-1 grad f(w)

The Hessian exchange at the trial model tells its loss as well. If that is not low enough (Armijo), t is halved on
loss-only exchanges until it is, and only then are Hessians exchanged there. Every accepted full step costs one
exchange. The plain step without the safeguard, the paper's benchmark for F*, is `danl.methods.NewtonUndamped`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from danl.core.aggregate import mean_gradient, mean_hessian, mean_loss, of_kind
from danl.core.curvature import Curvature, project
from danl.core.messages import Array, Exchange, HessianReply, HessianTask, LossReply, LossTask, Replies
from danl.methods.armijo import at_rounding, given_up, low_enough, shorter
from danl.methods.base import Info, Setup, Status, Turn, too_few
from danl.methods.checks import check_batch_size, check_mu
from danl.methods.ending import Remark, relative, size_of, verdict
from danl.regions import Regions


@dataclass(frozen=True)
class NewtonState:
    """The accepted model and, while a step is tried, the direction and length of it."""

    w: Array
    status: Status | None = None
    loss: float = np.inf
    decrement: float = np.inf  # relative
    hidden: float = 0.0  # what the projection hides of the way to the optimum
    largest: float = 0.0  # the largest |loss| so far
    start: Curvature | None = None  # the first curvature, where there is no penalty: to see what has no end
    start_loss: float = 0.0
    remark: Remark | None = None
    direction: Array | None = None
    slope: float = 0.0
    length: float = 1.0
    searching: bool = False

    @property
    def trial(self) -> Array:
        return self.w if self.direction is None else self.w + self.length * self.direction

    @property
    def size(self) -> float:
        """The size of the objective."""
        return size_of(self.loss, self.largest)

    def accepts(self, loss: float) -> bool:
        """Armijo's rule at the trial model."""
        return self.direction is None or low_enough(self.loss, loss, self.size, self.length * self.slope)

    def ended(self, status: Status) -> NewtonState:
        """The end of the run; "converged" only where the model is an optimum."""
        assert self.direction is not None
        status, remark = verdict(
            status, self.start, self.start_loss, self.direction, -self.slope, self.hidden, self.size
        )
        return replace(self, direction=None, status=status, remark=remark)


@dataclass(frozen=True)
class Newton:
    """Safeguarded Newton. Needs every worker in every exchange: losses compare only over the same workers.

    Parameters
    ----------
    mu : float, optional
        Floor of the projection. Default: the strong convexity the penalty guarantees.
    hessian_batch : int, optional
        Rows a worker samples for the Hessian. Default: its whole shard.

    """

    mu: float | None = None
    hessian_batch: int | None = None

    def __post_init__(self) -> None:
        check_mu(self.mu)
        check_batch_size("hessian_batch", self.hessian_batch)

    @property
    def name(self) -> str:
        return "newton"

    def curvature_numbers(self, regions: Regions) -> int:
        """Of a whole Hessian."""
        return regions.n_features**2

    def begin(self, setup: Setup) -> NewtonState:
        return NewtonState(setup.w0)

    def plan(self, state: NewtonState, setup: Setup, turn: Turn) -> Exchange:
        if state.searching:
            return setup.ask_everyone("loss", LossTask(turn.exchange, state.trial))
        task = HessianTask(turn.exchange, state.trial, hessian_batch=self.hessian_batch)
        return setup.ask_everyone("hessian", task)

    def absorb(self, state: NewtonState, replies: Replies, setup: Setup) -> tuple[NewtonState, Info]:
        if replies.failures:
            return too_few(state, replies, everyone=True)
        if state.searching:
            loss = mean_loss(of_kind(replies, LossReply), setup.weights)
            return (replace(state, searching=False), Info()) if state.accepts(loss) else refuse(state)
        answers = of_kind(replies, HessianReply)
        loss = mean_loss(answers, setup.weights)
        if not state.accepts(loss):
            return refuse(state)

        gradient = mean_gradient(answers, setup.weights, setup.n_features)
        norm = float(np.linalg.norm(gradient))
        hessian = mean_hessian(replies, setup.weights, setup.n_features)
        if not (np.isfinite(loss) and np.isfinite(norm) and np.isfinite(hessian).all()):
            return replace(state, w=state.trial, direction=None, status="diverged"), Info(objective=loss)
        curvature = project(hessian, setup.floor(self.mu), setup.strong_convexity)
        first, direction = state.direction is None and np.isinf(state.loss), -curvature.solve(gradient)
        accepted = NewtonState(
            state.trial,
            loss=loss,
            hidden=curvature.hidden(gradient, abs(loss)),
            largest=max(state.largest, abs(loss)),
            start=(None if setup.penalised else curvature) if first else state.start,
            start_loss=abs(loss) if first else state.start_loss,
            direction=direction,
            slope=float(gradient @ direction),
        )
        decrement = relative(accepted.hidden - accepted.slope, accepted.size)
        accepted = replace(accepted, decrement=decrement)
        info = Info(decrement, objective=loss, exact_norm=norm)
        # Or there is no decrease left that a double could show.
        if decrement <= setup.tol or (
            at_rounding(-accepted.slope / 2, accepted.size) and decrement >= state.decrement / 2
        ):
            return accepted.ended("converged"), info
        return accepted, info


def refuse(state: NewtonState) -> tuple[NewtonState, Info]:
    """A shorter step; the end where no length shows a decrease."""
    info = Info(refused=True)
    if at_rounding(-state.length * state.slope, state.size):
        return state.ended(given_up(-state.slope / 2, state.size)), info
    return replace(state, length=shorter(state.length), searching=True), info
