r"""Newton's method, safeguarded: a Hessian exchange at every accepted model, backtracking where the step was too long.

    w <- w - t [Hess f(w)]_mu^-1 grad f(w)

The Hessian exchange at the trial model tells its loss as well. If that is not low enough (Armijo), t is halved on
loss-only exchanges until it is, and only then are Hessians exchanged there. Every accepted full step costs one
exchange. The plain step without the safeguard, the paper's benchmark for F*, is `danl.methods.NewtonUndamped`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from danl.methods.armijo import at_rounding, given_up, low_enough, shorter
from danl.methods.base import Info, Setup, Status, Turn, too_few
from danl.methods.checks import check_options
from danl.methods.ending import Origin, Remark, margins_of, relative, size_of, verdict
from danl.objective.regions import Regions
from danl.protocol.messages import Array, Exchange, HessianTask, LossTask
from danl.protocol.replies import Replies
from danl.server.aggregation import mean_gradient, mean_hessian, mean_loss
from danl.server.curvature import project
from danl.storage.serialize import storable


@storable
@dataclass(frozen=True)
class NewtonState:
    """The accepted model and, while a step is tried, the direction and length of it."""

    w: Array
    status: Status | None = None
    loss: float = np.inf
    decrement: float = np.inf  # relative
    hidden: float = 0.0  # what the projection hides of the way to the optimum
    largest: float = 0.0  # the largest |loss| so far
    origin: Origin | None = None  # where some coefficients have no penalty: to see those that have no end
    reached: float = np.inf  # the reach of the newest step
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

    @property
    def left(self) -> float:
        """What is left to gain on a quadratic, as far as it is known."""
        return (0.0 if np.isinf(self.hidden) else self.hidden / 2) - self.slope / 2

    def ended(self, status: Status, reached: float = 0.0) -> NewtonState:
        """The end of the run, "converged" only where the model is an optimum; as it is where the run is to go on."""
        assert self.direction is not None
        concluded, remark = verdict(
            status, self.origin, self.w, self.direction, -self.slope, self.hidden, self.size, reached
        )
        if concluded is None:
            return self
        return replace(self, direction=None, status=concluded, remark=remark)


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
        check_options(self)

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
            loss = mean_loss(replies, setup.weights)
            return (replace(state, searching=False), Info()) if state.accepts(loss) else refuse(state)
        loss = mean_loss(replies, setup.weights)
        if not state.accepts(loss):
            return refuse(state)

        gradient = mean_gradient(replies, setup.weights)
        norm = float(np.linalg.norm(gradient))
        hessian = mean_hessian(replies, setup.weights, setup.n_features)
        if not (np.isfinite(loss) and np.isfinite(norm) and np.isfinite(hessian).all()):
            return replace(state, w=state.trial, direction=None, status="diverged"), Info(objective=loss)
        curvature = project(hessian, setup.floor(self.mu), setup.strong_convexity)
        first, direction = state.direction is None and np.isinf(state.loss), -curvature.solve(gradient)
        largest = max(state.largest, abs(loss), margins_of(curvature, state.trial))
        origin = Origin.of(curvature, size_of(loss, largest), setup) if first else state.origin
        accepted = NewtonState(
            state.trial,
            loss=loss,
            hidden=curvature.hidden(gradient, size_of(loss, largest)),
            largest=largest,
            origin=origin,
            reached=np.inf if origin is None else origin.reach(direction),
            direction=direction,
            slope=float(gradient @ direction),
        )
        decrement = relative(accepted.hidden - accepted.slope, accepted.size)
        accepted = replace(accepted, decrement=decrement)
        info = Info(decrement, objective=loss, exact_norm=norm)
        # Or there is no decrease left that a double could show.
        stalled = at_rounding(accepted.left, accepted.size) and decrement >= state.decrement / 2
        if decrement <= setup.tol or stalled:
            return accepted.ended("converged", state.reached), info
        return accepted, info


def refuse(state: NewtonState) -> tuple[NewtonState, Info]:
    """A shorter step; the end where no length shows a decrease."""
    info = Info(refused=True)
    if at_rounding(-state.length * state.slope, state.size):
        return state.ended(given_up(state.left, state.size)), info
    return replace(state, length=shorter(state.length), searching=True), info
