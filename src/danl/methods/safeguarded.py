r"""The default method's loop: Algorithm 1's rounds, looked at before they are trusted.

Every exchange asks the workers something about a trial model w + length * direction, and every reply tells the loss
there as well. What is asked:

    hessian    gradient, Hessian and loss of everyone: new curvature, fresh memory
    gradient   Algorithm 1's masked round: fragments of the regions each worker keeps, everyone's loss
    full       the whole gradient of everyone: the workers' word on the tolerance
    loss       the loss alone: backtracking

    1  the trial's loss is not low enough:    back to the anchor, the newest model whose loss everyone told;
         the curvature is from there        -> halve the step (Armijo) on loss-only exchanges, Hessians where it ends
         it is not                          -> exchange Hessians there
    2  it is: the trial is the new model; refresh the memory and step  -[Pi]_mu^-1 (corrected gradient)
    3  the decrements (1/2) grad^T [Pi]_mu^-1 grad contract slower than promised -> exchange Hessians at the next trial
    4  the gradient, or the decrease left to gain, seems small enough -> ask for the full gradient; it decides

Workers may be absent. A masked round goes on with the replies there are. The other questions need everyone who is
alive, so those missing are asked again for the same model; a worker that missed `patience` exchanges in a row counts as
gone, and the objective is that of the workers that remain, until it is back. Losses are compared over the same workers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from danl.core.aggregate import of_kind, trained_pairs
from danl.core.curvature import Curvature, project
from danl.core.memory import Memory
from danl.core.messages import (
    Array,
    Exchange,
    GradientReply,
    GradientTask,
    HessianReply,
    HessianTask,
    LossTask,
    Mask,
    Replies,
    Reply,
    SmoothnessReply,
    Task,
    unpack,
)
from danl.methods.armijo import SMALLEST_STEP, at_rounding, low_enough
from danl.methods.base import Info, Setup, Status, Turn
from danl.methods.masking import masked_tasks
from danl.regions import IntArray

if TYPE_CHECKING:
    from danl.methods.danl import DANL

Ask = Literal["hessian", "gradient", "full", "loss"]

GROSS_RISE = 0.5
"""Where only some workers told their loss, or it is of a mini-batch, a step is refused when what they told rose by more
than this share of itself: anything less may be the others' gain, or noise. The anchor stands behind it."""


@dataclass(frozen=True)
class Gathered:
    """Answers to a question that needs everyone, collected over as many exchanges as it takes."""

    answered: Mask  # (N,)
    losses: Array  # (N,), nan where there is no answer
    gradients: Array  # (N, d), 0 where there is no answer
    packed_hessian: Array | float = 0.0  # sum of weight_i times the packed Hessians so far

    @classmethod
    def nothing(cls, n_workers: int, d: int) -> Gathered:
        return cls(np.zeros(n_workers, dtype=bool), np.full(n_workers, np.nan), np.zeros((n_workers, d)))

    def with_replies(self, replies: Replies, weights: Array) -> Gathered:
        answered, losses, gradients = self.answered.copy(), self.losses.copy(), self.gradients.copy()
        packed = self.packed_hessian
        for worker in sorted(replies.received):
            reply = replies.received[worker]
            answered[worker], losses[worker] = True, loss_of(reply)
            if isinstance(reply, HessianReply):
                gradients[worker] = reply.gradient
                packed = packed + weights[worker] * reply.packed_hessian
            elif isinstance(reply, GradientReply):
                gradients[worker] = reply.fragment
        return Gathered(answered, losses, gradients, packed)


@dataclass(frozen=True)
class Anchor:
    """The newest accepted model whose loss every member told: where a run goes back to."""

    w: Array
    losses: Array  # (N,)


@dataclass(frozen=True)
class SafeguardedState:
    """The accepted model, what is being asked about the trial model, and what the server keeps."""

    w: Array
    missed: IntArray  # (N,): exchanges in a row a worker was asked in and did not answer
    members: Mask  # (N,): the workers the objective is made of
    weights: Array  # (N,): what each counts in it; sums to 1
    losses: Array  # (N,): F_i(w), nan where a worker did not tell
    status: Status | None = None
    round: int = 0  # masked rounds so far, the paper's t
    ask: Ask = "hessian"
    direction: Array | None = None
    slope: float = 0.0
    length: float = 1.0
    curvature: Curvature | None = None
    memory: Memory | None = None
    fresh: bool = False  # curvature and gradient were exchanged at w itself
    decrements: tuple[float, ...] = ()  # since the last Hessian exchange
    exact_norm: float = np.inf  # of the last gradient everyone sent in full
    anchor: Anchor | None = None
    gathered: Gathered | None = None
    full_batch: bool = True
    exact_decrement: float = np.inf  # at the last Hessian exchange, for the noise floor of mini-batches

    @property
    def trial(self) -> Array:
        return self.w if self.direction is None else self.w + self.length * self.direction

    @property
    def notes(self) -> tuple[str, ...]:
        gone = np.flatnonzero(~self.members)
        if self.memory is None or not gone.size:
            return ()
        names = ", ".join(str(worker) for worker in gone)
        return (f"worker {names} left: the objective is that of the other {int(self.members.sum())} workers",)


@dataclass(frozen=True)
class Safeguarded:
    """The loop that looks first, with the options of a `DANL`."""

    options: DANL

    def begin(self, setup: Setup) -> SafeguardedState:
        everyone = np.ones(setup.n_workers, dtype=bool)
        return SafeguardedState(
            w=setup.w0,
            missed=np.zeros(setup.n_workers, dtype=np.int64),
            members=everyone,
            weights=setup.weights,
            losses=np.full(setup.n_workers, np.nan),
            full_batch=self.options.batch_size is None,
        )

    def plan(self, state: SafeguardedState, setup: Setup, turn: Turn) -> Exchange:
        exchange, trial = turn.exchange, state.trial
        if state.ask == "gradient":
            batch = None if state.full_batch else self.options.batch_size
            template = GradientTask(exchange, trial, round=state.round + 1, batch_size=batch)
            idle = LossTask(exchange, trial) if state.full_batch else None
            return Exchange("gradient", masked_tasks(template, setup, turn, idle))
        task: Task
        match state.ask:
            case "hessian":
                task = HessianTask(exchange, trial, hessian_batch=self.options.hessian_batch)
            case "full":
                task = GradientTask(exchange, trial)
            case _:
                task = LossTask(exchange, trial)
        asked = setup.everyone() if state.gathered is None else np.flatnonzero(self._wanted(state))
        kind = "gradient" if state.ask == "full" else state.ask
        return Exchange(kind, {int(worker): task for worker in asked})

    def absorb(self, state: SafeguardedState, replies: Replies, setup: Setup) -> tuple[SafeguardedState, Info]:
        state = self._heard(state, replies)
        if state.status is not None:
            return state, Info()
        if state.ask == "gradient":
            return self._masked_round(state, replies, setup), Info()
        gathered = state.gathered or Gathered.nothing(setup.n_workers, setup.n_features)
        state = replace(state, gathered=gathered.with_replies(replies, setup.weights))
        if self._wanted(state).any():
            return state, Info()  # ask those missing again, for the same model
        return self._everyone_answered(state, setup), Info()

    # Who is there.

    def _heard(self, state: SafeguardedState, replies: Replies) -> SafeguardedState:
        """Count absences; a member that is gone changes the objective, one that is back will change it again."""
        missed = state.missed.copy()
        missed[list(replies.failures)] += 1
        missed[list(replies.received)] = 0
        state = replace(state, missed=missed)
        alive = missed < self.options.patience
        if alive.mean() < self.options.quorum or not alive.any():
            return replace(state, status="quorum_lost")
        if state.memory is None or state.ask == "hessian":
            return state  # members are those that answer this question
        left = state.members & ~alive
        back = ~state.members & (missed == 0) & np.isin(np.arange(len(missed)), list(replies.received))
        if left.any() or back.any():
            return restart(replace(state, members=state.members & alive))
        return state

    def _wanted(self, state: SafeguardedState) -> Mask:
        """Whom a question that needs everyone still waits for."""
        assert state.gathered is not None
        alive = state.missed < self.options.patience
        who = alive if state.ask == "hessian" else state.members & alive
        return np.asarray(who & ~state.gathered.answered)

    # What the answers say.

    def _everyone_answered(self, state: SafeguardedState, setup: Setup) -> SafeguardedState:
        gathered = state.gathered
        assert gathered is not None
        state = replace(state, gathered=None)
        if not self._low_enough(state, gathered.losses, setup):
            return self._refuse(state, gathered.losses)
        if state.ask == "loss":
            return replace(state, ask="hessian")  # where the step ends, curvature has changed: it was a long one
        accepted = replace(state, w=state.trial, losses=gathered.losses, direction=None, length=1.0)
        if state.ask == "hessian":
            members = gathered.answered
            counted = np.where(members, setup.weights, 0.0)
            hessian = unpack(np.asarray(gathered.packed_hessian) / counted.sum(), setup.n_features)
            mu = setup.strong_convexity if self.options.mu is None else self.options.mu
            accepted = replace(
                accepted,
                members=members,
                weights=counted / counted.sum(),
                curvature=project(hessian, mu),
                decrements=(),
            )
        memory = Memory.fresh(gathered.gradients, accepted.w, setup.regions.n_regions, stamp=state.round)
        accepted = replace(
            accepted, memory=memory, fresh=state.ask == "hessian", anchor=Anchor(accepted.w, gathered.losses)
        )
        return self._step(accepted, memory.mean_all(accepted.weights), setup, exact=True)

    def _masked_round(self, state: SafeguardedState, replies: Replies, setup: Setup) -> SafeguardedState:
        """Lines 15-21 of Algorithm 1, if the losses allow."""
        memory, curvature = state.memory, state.curvature
        assert memory is not None and curvature is not None
        state = replace(state, round=state.round + 1)
        losses = np.full(setup.n_workers, np.nan)
        for worker, reply in replies.received.items():
            losses[worker] = loss_of(reply)
        if not self._low_enough(state, losses, setup):
            return self._refuse(state, losses)
        w = state.trial
        fragments = Replies({i: reply for i, reply in replies.received.items() if isinstance(reply, GradientReply)})
        memory = memory.refreshed(of_kind(fragments, GradientReply), w, state.round, setup.regions)
        known = bool(np.isfinite(losses[state.members]).all()) and state.full_batch
        trained = trained_pairs(fragments, setup.n_workers, setup.regions.n_regions)
        accepted = replace(
            state,
            w=w,
            losses=losses,
            direction=None,
            memory=memory,
            fresh=False,
            anchor=Anchor(w, losses) if known else state.anchor,
        )
        if self.options.memory == "corrected":
            gradient = memory.corrected(state.weights, curvature.hessian, w, setup.regions)
        else:
            gradient = memory.mean_all(state.weights)
        return self._step(accepted, gradient, setup, exact=known and bool(trained[state.members].all()))

    def _low_enough(self, state: SafeguardedState, losses: Array, setup: Setup) -> bool:
        """Whether the trial's losses allow to take it."""
        if state.anchor is None or state.direction is None:
            return True
        if not (losses[state.members] < np.inf).any() or np.isposinf(losses[state.members]).any():
            return not np.isposinf(losses[state.members]).any()
        if state.ask == "gradient" and not state.full_batch:
            return self._no_gross_rise(state, losses)
        told = np.isfinite(losses) & state.members
        if not told[state.members].all():
            size = float(np.nansum(state.weights * np.abs(state.anchor.losses)))
            return low_enough(size, size + self._estimated_change(state, losses, setup))
        common = told & np.isfinite(state.anchor.losses)  # a worker that has just come back is not in the anchor
        before, after = (float(state.weights[common] @ each[common]) for each in (state.anchor.losses, losses))
        return low_enough(before, after, state.length * state.slope if state.fresh else 0.0)

    def _no_gross_rise(self, state: SafeguardedState, losses: Array) -> bool:
        assert state.anchor is not None
        told = np.isfinite(losses) & state.members & np.isfinite(state.anchor.losses)
        share = state.weights[told] / state.weights[told].sum()
        before, after = (float(share @ each[told]) for each in (state.anchor.losses, losses))
        return after <= before + GROSS_RISE * abs(before) - state.slope

    def _estimated_change(self, state: SafeguardedState, losses: Array, setup: Setup) -> float:
        """The objective's change from w to the trial, where only some workers told their loss at both.

        The memory predicts every worker's change as  grad_i . step + (1/2) step^T Pi step; how far off that is for the
        workers that told is taken for how far off it is for all of them (a difference estimator: Cochran, 7.5).
        """
        assert state.memory is not None and state.curvature is not None
        step, hessian = state.length * state.direction, state.curvature.hessian
        predicted = state.memory.slopes(hessian, state.w, step, setup.regions) + 0.5 * float(step @ hessian @ step)
        measured = losses - state.losses
        told = np.isfinite(measured) & state.members
        error = 0.0
        if told.any():
            share = state.weights[told] / state.weights[told].sum()
            error = float(share @ (measured[told] - predicted[told]))
        return float(state.weights @ predicted) + error

    def _refuse(self, state: SafeguardedState, losses: Array) -> SafeguardedState:
        """A shorter step where the curvature is that of w, else exchange it: there, or at the anchor if w is no better."""
        assert state.anchor is not None
        if state.fresh and state.length > SMALLEST_STEP:
            return replace(state, length=state.length / 2, ask="loss")
        if state.fresh:
            # The direction is one of descent, so only rounding of the loss can hide its decrease at every length.
            return replace(state, direction=None, status="converged")
        everyone_told = np.isfinite(losses[state.members]).all()
        return restart(replace(state, w=state.anchor.w, losses=state.anchor.losses) if everyone_told else state)

    def _step(self, state: SafeguardedState, gradient: Array, setup: Setup, *, exact: bool) -> SafeguardedState:
        """Line 21's direction, and what to ask about the model it leads to."""
        assert state.curvature is not None and state.anchor is not None
        direction = -state.curvature.solve(gradient)
        slope = float(gradient @ direction)
        norm, decrement = float(np.linalg.norm(gradient)), -slope / 2
        known = np.isfinite(state.anchor.losses) & state.members
        nothing_left = at_rounding(decrement, float(state.weights[known] @ state.anchor.losses[known]))
        if exact:
            # At rounding level go on only while the gradient still falls.
            if norm <= setup.tol or (nothing_left and norm >= state.exact_norm / 2):
                return replace(state, status="converged")
            state = replace(state, exact_norm=norm)
        state = replace(state, direction=direction, slope=slope, decrements=(*state.decrements, decrement))
        if norm <= setup.tol or nothing_left:
            return replace(state, ask="full")
        if state.fresh and not state.full_batch:
            state = self._noise_floor(state, decrement)
        return replace(state, ask="hessian" if self._curvature_due(state) else "gradient")

    def _curvature_due(self, state: SafeguardedState) -> bool:
        """Whether the next trial gets a Hessian exchange: every k rounds, or when the decrements contract too slowly."""
        options, decrements = self.options, state.decrements
        if isinstance(options.curvature, int):
            return len(decrements) >= options.curvature
        if len(decrements) <= options.window or (not state.full_batch and state.exact_decrement == 0.0):
            return False
        return decrements[-1] > options.contraction**options.window * decrements[-1 - options.window]

    def _noise_floor(self, state: SafeguardedState, decrement: float) -> SafeguardedState:
        """With mini-batches: where a new Hessian no longer helps, noise is what is left; finish on whole shards if asked."""
        if decrement <= self.options.contraction * state.exact_decrement:
            return replace(state, exact_decrement=decrement)
        return replace(state, exact_decrement=0.0, full_batch=self.options.finish)


def restart(state: SafeguardedState) -> SafeguardedState:
    """Exchange Hessians at the accepted model and go on from there."""
    return replace(state, ask="hessian", direction=None, length=1.0, fresh=False, gathered=None)


def loss_of(reply: Reply) -> float:
    """The loss every reply to a question of this loop carries; a nan of the worker's counts as infinite."""
    assert not isinstance(reply, SmoothnessReply)
    return reply.loss if not np.isnan(reply.loss) else np.inf
