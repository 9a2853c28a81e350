r"""DANL, Algorithm 1 of the paper: one Hessian, then masked gradients with a memory of the newest fragments.

    line  2- 4   every worker sends grad F_i(w0) and Hess F_i(w0)
    line  5      Pi = sum_i weight_i Hess F_i(w0)
    line  6      Theta_i^q = grad^q F_i(w0)
    line  7      w <- w - [Pi]_mu^-1 sum_i weight_i grad F_i(w0)
    line 11-14   worker i picks tau_i, sends grad F_i(w * tau_i) * tau_i
    line 15-19   Theta_i^q <- what came back for i in C^{t,q}, else kept
    line 20      grad^q = sum_i weight_i Theta_i^q
    line 21      w <- w - [Pi]_mu^-1 grad

The readings differ in where the gradient is evaluated:

    submodel="pruned"   at w * tau_i, as printed                         (danl-paper)
    submodel="full"     at w, and only what is sent is masked            (danl-masked)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from danl.core.aggregate import mean_gradient, mean_hessian, of_kind, trained_pairs
from danl.core.curvature import Curvature, project
from danl.core.memory import Memory
from danl.core.messages import (
    Array,
    Exchange,
    GradientReply,
    GradientTask,
    HessianReply,
    HessianTask,
    Replies,
    Submodel,
)
from danl.core.streams import PLANNED_MASKS, stream
from danl.methods.base import Info, Setup, Status, Turn
from danl.methods.checks import check_batch_size, check_choice, check_mu
from danl.policies.base import Round, validated_masks


@dataclass(frozen=True)
class DANLState:
    """w, and what the server keeps from round to round; curvature and memory are None before Phase I."""

    w: Array
    round: int = 0  # t: 0 is Phase I
    status: Status | None = None
    curvature: Curvature | None = None
    memory: Memory | None = None


@dataclass(frozen=True)
class DANL:
    """Distributed Adaptive Newton Learning, Algorithm 1 with its open points as options.

    Parameters
    ----------
    submodel : "pruned" or "full"
        Where a worker evaluates its gradient: at w * tau_i as printed, or at w.
    aggregate : "all" or "covered"
        Average the memory over all workers (the algorithm), or trained regions over C^{t,q} only (the proofs).
    mu : float, optional
        Floor of the projection. Default: the strong convexity the penalty guarantees, the paper's lambda / m.
    batch_size, hessian_batch : int, optional
        Rows a worker samples for a gradient and for the Hessian. Default: its whole shard.

    """

    submodel: Submodel = "full"
    aggregate: Literal["all", "covered"] = "all"
    mu: float | None = None
    batch_size: int | None = None
    hessian_batch: int | None = None

    def __post_init__(self) -> None:
        check_choice("submodel", self.submodel, ("pruned", "full"))
        check_choice("aggregate", self.aggregate, ("all", "covered"))
        check_mu(self.mu)
        check_batch_size("batch_size", self.batch_size)
        check_batch_size("hessian_batch", self.hessian_batch)

    @property
    def name(self) -> str:
        return "danl-paper" if self.submodel == "pruned" else "danl-masked"

    def begin(self, setup: Setup) -> DANLState:
        return DANLState(w=setup.w0)

    def plan(self, state: DANLState, setup: Setup, turn: Turn) -> Exchange:
        if state.memory is None:  # Phase I, line 1
            task = HessianTask(turn.exchange, state.w, self.batch_size, self.hessian_batch)
            return Exchange("hessian", dict.fromkeys(setup.everyone(), task))
        template = GradientTask(
            turn.exchange,
            state.w,
            round=state.round,
            submodel=self.submodel,
            batch_size=self.batch_size,
        )
        if setup.policy.side == "worker":  # line 11: the worker picks tau_i^t = M(w, i) itself
            return Exchange("gradient", dict.fromkeys(setup.everyone(), replace(template, choose=True)))
        rng = stream(setup.seed, PLANNED_MASKS, state.round)
        view = Round(setup.setting, state.round, state.w, turn.staleness, rng, setup.regions)
        masks = validated_masks(setup.policy.masks(view), policy=setup.policy, round=view)
        # A worker without a region this round is not bothered at all.
        return Exchange("gradient", {i: replace(template, mask=mask) for i, mask in enumerate(masks) if mask.any()})

    def absorb(self, state: DANLState, replies: Replies, setup: Setup) -> tuple[DANLState, Info]:
        if state.memory is None:
            return self._phase_one(state, replies, setup)
        return self._phase_two(state, state.memory, replies, setup)

    def _phase_one(self, state: DANLState, replies: Replies, setup: Setup) -> tuple[DANLState, Info]:
        """Lines 5-7."""
        answers = of_kind(replies, HessianReply)
        if len(answers) < setup.n_workers:  # the memory needs a first fragment of everyone
            return replace(state, status="quorum_lost"), Info()
        mu = setup.strong_convexity if self.mu is None else self.mu
        curvature = project(mean_hessian(answers, setup.weights, setup.n_features), mu)
        memory = Memory(np.stack([reply.gradient for reply in answers.values()]))
        state = replace(state, curvature=curvature, memory=memory)
        gradient = mean_gradient(answers, setup.weights, setup.n_features)
        return self._step(state, gradient, setup, exact=self.batch_size is None)

    def _phase_two(self, state: DANLState, memory: Memory, replies: Replies, setup: Setup) -> tuple[DANLState, Info]:
        """Lines 15-21."""
        memory = memory.refreshed(of_kind(replies, GradientReply), setup.regions)
        trained = trained_pairs(replies, setup.n_workers, setup.regions.n_regions)
        if self.aggregate == "all":
            gradient = memory.mean_all(setup.weights)
        else:
            gradient = memory.mean_covered(setup.weights, trained, setup.regions)
        exact = bool(trained.all()) and self.batch_size is None
        return self._step(replace(state, memory=memory), gradient, setup, exact=exact)

    def _step(self, state: DANLState, gradient: Array, setup: Setup, *, exact: bool) -> tuple[DANLState, Info]:
        """Line 7 or 21, unless the workers have just shown that w is good enough."""
        curvature = state.curvature
        assert curvature is not None
        info = Info(grad_norm=float(np.linalg.norm(gradient)))
        state = replace(state, round=state.round + 1)
        if exact and info.grad_norm <= setup.tol:
            return replace(state, status="converged"), info
        return replace(state, w=state.w - curvature.solve(gradient)), info
