r"""Newton's method, safeguarded: a Hessian exchange at every accepted model, backtracking where the step was too long.

    w <- w - t [Hess f(w)]_mu^-1 grad f(w)

The Hessian exchange at the trial model tells its loss as well. If that is not low enough (Armijo), t is halved on
loss-only exchanges until it is, and only then are Hessians exchanged there. Every accepted full step costs one
exchange. The plain step without the safeguard, the paper's benchmark for F*, is `danl.methods.NewtonUndamped`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from danl.frozen import replace
from danl.methods.acceptance import Step, margins_of, scale_of
from danl.methods.base import HoldsHessian, Info, Setup, Status, Turn, too_few
from danl.methods.shared_options import check_options
from danl.methods.stopping import InitialCurvature, Remark, final_status
from danl.protocol.messages import Array, Exchange, HessianTask, LossTask
from danl.protocol.replies import Replies
from danl.server.aggregation import mean_gradient, mean_hessian, mean_loss
from danl.server.curvature import project
from danl.storage.serialize import storable


@storable
@dataclass(frozen=True)
class NewtonState:
    """The accepted model and, while one is tried, the step from it."""

    w: Array
    status: Status | None = None
    loss: float = np.inf
    largest: float = 0.0  # |loss| so far
    initial: InitialCurvature | None = None  # where some coefficients have no penalty: to see those that have no end
    remark: Remark | None = None
    step: Step | None = None
    searching: bool = False

    @property
    def trial(self) -> Array:
        return self.w if self.step is None else self.w + self.step.length * self.step.direction

    def accepts(self, loss: float) -> bool:
        """Armijo's rule at the trial model."""
        return self.step is None or self.step.accepts(self.loss, loss)


@dataclass(frozen=True)
class Newton(HoldsHessian):
    """Safeguarded Newton. Needs every worker in every exchange: losses compare only over the same workers.

    Parameters
    ----------
    mu : float, optional
        Floor of the projection. Default: the strong convexity the penalty guarantees.
    hessian_batch : int, optional
        Rows a worker samples for the Hessian. Default: its whole shard.

    """

    name = "newton"

    mu: float | None = None
    hessian_batch: int | None = None

    def __post_init__(self) -> None:
        check_options(self)

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
        loss = mean_loss(replies, setup.weights)
        if not state.accepts(loss):
            return rejected(state)
        if state.searching:
            return replace(state, searching=False), Info()
        gradient = mean_gradient(replies, setup.weights)
        norm = float(np.linalg.norm(gradient))
        hessian = mean_hessian(replies, setup.weights, setup.n_coefficients)
        if not (np.isfinite(loss) and np.isfinite(norm) and np.isfinite(hessian).all()):
            return replace(state, w=state.trial, step=None, status="diverged"), Info(objective=loss)
        curvature = project(hessian, setup.floor(self.mu), setup.strong_convexity)
        w, before = state.trial, state.step
        largest = max(state.largest, abs(loss), margins_of(curvature, w))
        scale = scale_of(loss, largest)
        initial = InitialCurvature.of(curvature, scale, setup) if np.isinf(state.loss) else state.initial
        step = Step.down(curvature, gradient, scale)
        info = Info(step.decrement, objective=loss, exact_norm=norm)
        # Or there is no decrease left that a double could show.
        stalled = before is not None and step.negligible and step.decrement >= before.decrement / 2
        if step.decrement <= setup.tol or stalled:
            status, remark = final_status("converged", initial, w, step)
            if status is not None:
                return NewtonState(w, status, loss, largest, initial, remark), info
        if initial is not None:
            initial = initial.after(step.direction)
        return NewtonState(w, None, loss, largest, initial, step=step), info


def rejected(state: NewtonState) -> tuple[NewtonState, Info]:
    """A shorter step; the end where no length shows a decrease."""
    assert state.step is not None
    shorter = state.step.shorter()
    if shorter is not None:
        return replace(state, step=shorter, searching=True), Info(trial_rejected=True)
    status, remark = final_status(state.step.given_up(), state.initial, state.w, state.step, final=True)
    return replace(state, step=None, status=status, remark=remark), Info(trial_rejected=True)
