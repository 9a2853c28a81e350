r"""Algorithm 1 of the paper: one Hessian, then masked gradients with a memory of the newest fragments.

    line  2- 4   every worker sends grad F_i(w0) and Hess F_i(w0)
    line  5      Pi = sum_i weight_i Hess F_i(w0)
    line  6      Theta_i^q = grad^q F_i(w0)
    line  7      w <- w - [Pi]_mu^-1 sum_i weight_i grad F_i(w0)
    line 11-14   worker i picks tau_i, sends grad F_i(w * tau_i) * tau_i
    line 15-18   Theta_i^q <- what came back for i in C^{t,q}, else kept
    line 19      grad^q = sum_i weight_i Theta_i^q
    line 20      w <- w - [Pi]_mu^-1 grad

The readings differ in where the gradient is evaluated and in what a stale fragment counts for:

    submodel="pruned"    at w * tau_i, as printed                        (danl-paper)
    submodel="full"      at w, and only what is sent is masked           (danl-masked)
    memory="corrected"   line 19 with every fragment corrected to today's w (see danl.server.memory)

Nothing is safeguarded here: what comes of a step is taken. `danl.methods.safeguarded` is the loop that looks first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from danl.methods.acceptance import measured_step
from danl.methods.base import Info, Setup, Status, Turn, too_few
from danl.methods.curvature_exchange import hessian_task
from danl.methods.questions import masked_round
from danl.protocol.messages import Array, Dtype, Exchange, GradientTask
from danl.protocol.replies import Replies
from danl.server.aggregation import mean_gradient, mean_hessian
from danl.server.curvature import ProjectedHessian, project
from danl.server.memory import Memory
from danl.storage.serialize import storable

if TYPE_CHECKING:
    from danl.methods.danl import DANL


@storable
@dataclass(frozen=True)
class Algorithm1State:
    """w, and what the server keeps from round to round; metric and memory are None before Phase I."""

    w: Array
    round: int = 0  # t: 0 is Phase I
    status: Status | None = None
    metric: ProjectedHessian | None = None  # [Pi]_mu, in which gradients are measured
    memory: Memory | None = None
    largest: float = 0.0  # of the losses reported so far


@dataclass(frozen=True)
class Algorithm1:
    """The unguarded loop, with the options of a `DANL`."""

    options: DANL

    def begin(self, setup: Setup) -> Algorithm1State:
        return Algorithm1State(w=setup.w0)

    def plan(self, state: Algorithm1State, setup: Setup, turn: Turn) -> Exchange:
        options = self.options
        if state.memory is None:  # Phase I, line 1
            batch, hessian_batch = options.batch_size, options.hessian_batch
            dtype: Dtype = "float32" if options.hessian_dtype == "float32" else "float64"
            task = hessian_task(
                options.hessian_form, turn.exchange, state.w, dtype=dtype, batch_size=batch, hessian_batch=hessian_batch
            )
            return setup.ask_everyone("hessian", task)
        template = GradientTask(
            turn.exchange, state.w, round=state.round, submodel=options.submodel, batch_size=options.batch_size
        )
        return masked_round(template, setup, turn)

    def absorb(self, state: Algorithm1State, replies: Replies, setup: Setup) -> tuple[Algorithm1State, Info]:
        if state.memory is None or state.metric is None:
            return self._phase_one(state, replies, setup)
        return self._phase_two(state, state.memory, state.metric, replies, setup)

    def _phase_one(self, state: Algorithm1State, replies: Replies, setup: Setup) -> tuple[Algorithm1State, Info]:
        """Lines 5-7."""
        if len(replies.workers) < setup.n_workers:  # the memory needs a first fragment of everyone
            return too_few(state, replies, everyone=True)
        mu = setup.floor(self.options.mu)
        curvature = project(mean_hessian(replies, setup.weights, setup.n_coefficients), mu, setup.strong_convexity)
        assert replies.gradients is not None
        memory = Memory.fresh(replies.gradients, state.w, setup.regions.n_regions, stamp=state.round)
        gradient = mean_gradient(replies, setup.weights)
        return self._step(state, memory, curvature, gradient, replies, setup, exact=self.options.batch_size is None)

    def _phase_two(
        self, state: Algorithm1State, memory: Memory, curvature: ProjectedHessian, replies: Replies, setup: Setup
    ) -> tuple[Algorithm1State, Info]:
        """Lines 15-20."""
        memory = memory.refreshed(replies, state.w, state.round, setup.regions, setup.weights)
        trained = replies.trained(setup.n_workers, setup.regions.n_regions)
        if self.options.memory == "corrected":
            gradient = memory.corrected(setup.weights, curvature, state.w, setup.regions)
        elif self.options.aggregate == "all":
            gradient = memory.mean_all(setup.weights)
        else:
            gradient = memory.mean_covered(setup.weights, trained, setup.regions)
        exact = bool(trained.all()) and self.options.batch_size is None
        return self._step(state, memory, curvature, gradient, replies, setup, exact=exact)

    def _step(
        self,
        state: Algorithm1State,
        memory: Memory,
        curvature: ProjectedHessian,
        gradient: Array,
        replies: Replies,
        setup: Setup,
        *,
        exact: bool,
    ) -> tuple[Algorithm1State, Info]:
        """Line 7 or 20, unless the workers have just shown that w is good enough."""
        step, largest, enough = measured_step(curvature, gradient, state.w, state.largest, replies, setup)
        status: Status | None = "converged" if exact and enough else None
        w = state.w + step.direction if status is None else state.w
        state = Algorithm1State(w, state.round + 1, status, curvature, memory, largest)
        return state, Info(step.decrement, estimated=not exact)
