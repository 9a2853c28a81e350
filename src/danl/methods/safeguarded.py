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

STILL_HELPS = 0.9
"""With mini-batches, a Hessian exchange helped when the exact decrement fell at least to this share since the last."""
NOISY_REFUSALS = 3
"""With mini-batches, this many refused steps in a row are more than noise, and the curvature is exchanged."""


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
                with np.errstate(invalid="ignore", over="ignore"):  # at a model that blew up: its loss refuses it
                    packed = packed + weights[worker] * reply.packed_hessian
            elif isinstance(reply, GradientReply):
                gradients[worker] = reply.fragment
        return Gathered(answered, losses, gradients, packed)


@dataclass(frozen=True)
class Known:
    """What the server has learnt once Phase I is over."""

    curvature: Curvature
    memory: Memory
    anchor: Array  # the newest accepted model whose loss every member told: where a run goes back to
    anchor_losses: Array  # (N,)


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
    known: Known | None = None
    fresh: bool = False  # curvature and gradient were exchanged at w itself
    decrements: tuple[float, ...] = ()  # since the last Hessian exchange
    exact_norm: float = np.inf  # of the last gradient everyone sent in full
    gathered: Gathered | None = None
    full_batch: bool = True
    refusals: int = 0  # steps refused in a row, with mini-batches
    exact_decrement: float = np.inf  # at the last Hessian exchange, for the noise floor of mini-batches

    @property
    def trial(self) -> Array:
        return self.w if self.direction is None else self.w + self.length * self.direction

    @property
    def notes(self) -> tuple[str, ...]:
        gone = np.flatnonzero(~self.members)
        if self.known is None or not gone.size:
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
            template = GradientTask(exchange, trial, round=state.round + 1, batch_size=batch, whole_loss=True)
            return Exchange("gradient", masked_tasks(template, setup, turn, idle=LossTask(exchange, trial)))
        task: Task
        match state.ask:
            case "hessian":
                task = HessianTask(exchange, trial, hessian_batch=self.options.hessian_batch)
            case "full":
                task = GradientTask(exchange, trial)
            case _:
                task = LossTask(exchange, trial)
        gathered = state.gathered
        asked = setup.everyone() if gathered is None else np.flatnonzero(self._wanted(state, gathered))
        kind = "gradient" if state.ask == "full" else state.ask
        return Exchange(kind, {int(worker): task for worker in asked})

    def absorb(self, state: SafeguardedState, replies: Replies, setup: Setup) -> tuple[SafeguardedState, Info]:
        heard = self._heard(state, replies)
        if heard.status is not None or heard.ask != state.ask:
            return heard, Info()  # no quorum, or other workers: what was asked is of no use any more
        state = heard
        if state.ask == "gradient":
            assert state.known is not None
            return self._masked_round(state, state.known, replies, setup), Info()
        gathered = state.gathered or Gathered.nothing(setup.n_workers, setup.n_features)
        gathered = gathered.with_replies(replies, setup.weights)
        if self._wanted(state, gathered).any():
            return replace(state, gathered=gathered), Info()  # ask those missing again, for the same model
        return self._everyone_answered(state, gathered, setup), Info()

    # Who is there.

    def _heard(self, state: SafeguardedState, replies: Replies) -> SafeguardedState:
        """Count absences; a member that is gone changes the objective, one that is back will change it again."""
        missed = state.missed.copy()
        missed[list(replies.failures)] += 1
        missed[list(replies.received)] = 0
        state = replace(state, missed=missed)
        alive = missed < self.options.patience
        if alive.sum() <= self.options.quorum * len(alive):
            return replace(state, status="quorum_lost")
        if state.known is None or state.ask == "hessian":
            return state  # members are those that answer this question
        left = state.members & ~alive
        back = ~state.members & (missed == 0) & np.isin(np.arange(len(missed)), list(replies.received))
        if left.any() or back.any():
            return restart(replace(state, members=state.members & alive))
        return state

    def _wanted(self, state: SafeguardedState, gathered: Gathered) -> Mask:
        """Whom a question that needs everyone still waits for."""
        alive = state.missed < self.options.patience
        who = alive if state.ask == "hessian" else state.members & alive
        return np.asarray(who & ~gathered.answered)

    # What the answers say.

    def _everyone_answered(self, state: SafeguardedState, gathered: Gathered, setup: Setup) -> SafeguardedState:
        """A question that needed everyone is answered."""
        state = replace(state, gathered=None)
        if state.known is not None and not self._low_enough(state, state.known, gathered.losses, setup):
            return self._refuse(state, state.known, gathered.losses)
        if state.ask == "loss":
            return replace(state, ask="hessian")  # where the step ends, curvature has changed: it was a long one
        w, weights, members, decrements = state.trial, state.weights, state.members, state.decrements
        memory = Memory.fresh(gathered.gradients, w, setup.regions.n_regions, stamp=state.round)
        if state.ask == "hessian":
            members, decrements = gathered.answered, ()
            total = float(setup.weights[members].sum())
            weights = setup.weights if members.all() else np.where(members, setup.weights / total, 0.0)
            hessian = unpack(np.asarray(gathered.packed_hessian) / total, setup.n_features)
            if not np.isfinite(hessian).all():
                return replace(state, status="diverged")
            curvature = project(hessian, setup.strong_convexity if self.options.mu is None else self.options.mu)
        else:
            assert state.known is not None
            curvature = state.known.curvature
        known = Known(curvature, memory, w, gathered.losses)
        state = replace(
            state, w=w, losses=gathered.losses, weights=weights, members=members, decrements=decrements, length=1.0
        )
        state = replace(state, fresh=state.ask == "hessian")
        return self._step(state, known, memory.mean_all(weights), setup, exact=True)

    def _masked_round(self, state: SafeguardedState, known: Known, replies: Replies, setup: Setup) -> SafeguardedState:
        """Lines 15-20 of Algorithm 1, if the losses allow."""
        state = replace(state, round=state.round + 1)
        losses = np.full(setup.n_workers, np.nan)
        for worker, reply in replies.received.items():
            losses[worker] = loss_of(reply)
        allowed = self._low_enough(state, known, losses, setup)
        if not allowed and (state.full_batch or state.fresh):
            return self._refuse(state, known, losses)
        fragments = Replies({i: reply for i, reply in replies.received.items() if isinstance(reply, GradientReply)})
        memory = known.memory.refreshed(of_kind(fragments, GradientReply), state.trial, state.round, setup.regions)
        known = replace(known, memory=memory)
        if not allowed:
            return self._refuse_noise(state, known, setup)
        everyone_told = bool(np.isfinite(losses[state.members]).all())
        if everyone_told:
            known = replace(known, anchor=state.trial, anchor_losses=losses)
        trained = trained_pairs(fragments, setup.n_workers, setup.regions.n_regions)
        exact = everyone_told and state.full_batch and bool(trained[state.members].all())
        state = replace(state, w=state.trial, losses=losses, fresh=False, length=min(1.0, 2 * state.length), refusals=0)
        return self._step(state, known, self._estimate(state, known, setup), setup, exact=exact)

    def _estimate(self, state: SafeguardedState, known: Known, setup: Setup) -> Array:
        """The gradient at w that the memory makes up."""
        if self.options.memory == "raw":
            return known.memory.mean_all(state.weights)
        return known.memory.corrected(state.weights, known.curvature.hessian, state.w, setup.regions)

    def _low_enough(self, state: SafeguardedState, known: Known, losses: Array, setup: Setup) -> bool:
        """Whether the trial's losses allow to take it."""
        if state.direction is None and state.w is known.anchor:
            return True  # it is the anchor itself
        if np.isposinf(losses[state.members]).any():
            return False
        told = np.isfinite(losses) & state.members
        common = told & np.isfinite(known.anchor_losses)  # a worker that has just come back is not in the anchor
        if not common.any():
            return True  # nobody to compare with: the anchor stands
        share = state.weights[common] / state.weights[common].sum()
        before, after = float(share @ known.anchor_losses[common]), float(share @ losses[common])
        if state.direction is not None and not told[state.members].all():
            return low_enough(before, before + self._estimated_change(state, known, state.direction, losses, setup))
        return low_enough(before, after, state.length * state.slope if state.fresh else 0.0)

    def _estimated_change(
        self, state: SafeguardedState, known: Known, direction: Array, losses: Array, setup: Setup
    ) -> float:
        """The objective's change from w to the trial, where only some workers told their loss at both.

        The memory predicts every worker's change as  grad_i . step + (1/2) step^T Pi step; how far off that is for the
        workers that told is taken for how far off it is for all of them (a difference estimator: Cochran, 7.5).
        """
        step, hessian = state.length * direction, known.curvature.hessian
        predicted = known.memory.slopes(hessian, state.w, step, setup.regions) + 0.5 * float(step @ hessian @ step)
        measured = losses - state.losses
        told = np.isfinite(measured) & state.members
        error = 0.0
        if told.any():
            share = state.weights[told] / state.weights[told].sum()
            error = float(share @ (measured[told] - predicted[told]))
        return float(state.weights @ predicted) + error

    def _refuse(self, state: SafeguardedState, known: Known, losses: Array) -> SafeguardedState:
        """A shorter step where the curvature is that of w; else exchange it there, or at the anchor if all told."""
        if state.fresh and state.length > SMALLEST_STEP:
            return replace(state, length=state.length / 2, ask="loss")
        if state.fresh:
            # The direction is one of descent, so only rounding of the loss can hide its decrease at every length.
            return replace(state, direction=None, status="converged")
        if np.isfinite(losses[state.members]).all():
            state = replace(state, w=known.anchor, losses=known.anchor_losses)
        return restart(state)

    def _refuse_noise(self, state: SafeguardedState, known: Known, setup: Setup) -> SafeguardedState:
        """With mini-batches a rise may be noise: half a step, from a memory that has learnt what the trial showed."""
        state = replace(state, refusals=state.refusals + 1, length=state.length / 2)
        if state.refusals >= NOISY_REFUSALS and state.exact_decrement > 0.0:
            return restart(replace(state, refusals=0))
        return self._step(state, known, self._estimate(state, known, setup), setup, exact=False)

    def _step(
        self, state: SafeguardedState, known: Known, gradient: Array, setup: Setup, *, exact: bool
    ) -> SafeguardedState:
        """Line 20's direction from the new model, and what to ask about the model it leads to."""
        direction = -known.curvature.solve(gradient)
        slope = float(gradient @ direction)
        norm, decrement = float(np.linalg.norm(gradient)), -slope / 2
        state = replace(state, known=known, direction=direction, slope=slope, decrements=(*state.decrements, decrement))
        told = np.isfinite(known.anchor_losses) & state.members
        nothing_left = at_rounding(decrement, float(state.weights[told] @ known.anchor_losses[told]))
        if exact and norm <= setup.tol:
            return replace(state, status="converged")
        if exact and nothing_left and norm >= state.exact_norm / 2:
            # At rounding level go on only while the gradient still falls; a Newton step has the last word.
            return replace(state, status="converged") if state.fresh else replace(state, ask="hessian")
        if exact:
            state = replace(state, exact_norm=norm)
        if state.fresh and not state.full_batch:
            state = self._noise_floor(state, decrement)
        if isinstance(self.options.curvature, int) and len(state.decrements) >= self.options.curvature:
            return replace(state, ask="hessian")
        if norm <= setup.tol or nothing_left:
            return replace(state, ask="full")
        return replace(state, ask="hessian" if self._curvature_due(state, known) else "gradient")

    def _curvature_due(self, state: SafeguardedState, known: Known) -> bool:
        """Whether progress asks for a Hessian exchange at the next trial."""
        options, decrements = self.options, state.decrements
        newest = known.memory.stamps[state.members].max(axis=0)
        if state.round - newest.min() > options.gamma_max:  # a region nobody sent anything about for too long
            return True
        at_the_floor = not state.full_batch and state.exact_decrement == 0.0
        if isinstance(options.curvature, int) or len(decrements) <= options.window or at_the_floor:
            return False
        return decrements[-1] > options.contraction**options.window * decrements[-1 - options.window]

    def _noise_floor(self, state: SafeguardedState, decrement: float) -> SafeguardedState:
        """With mini-batches, where a new Hessian no longer helps, noise is left: on to whole shards if asked."""
        if decrement <= STILL_HELPS * state.exact_decrement:
            return replace(state, exact_decrement=decrement)
        return replace(state, exact_decrement=0.0, full_batch=self.options.finish)


def restart(state: SafeguardedState) -> SafeguardedState:
    """Exchange Hessians at the accepted model and go on from there."""
    return replace(state, ask="hessian", direction=None, length=1.0, fresh=False, gathered=None)


def loss_of(reply: Reply) -> float:
    """The loss every reply to a question of this loop carries; a nan of the worker's counts as infinite."""
    assert not isinstance(reply, SmoothnessReply)
    return reply.loss if not np.isnan(reply.loss) else np.inf
