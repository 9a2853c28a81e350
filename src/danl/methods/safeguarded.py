r"""The default method's loop: Algorithm 1's rounds, looked at before they are trusted.

Every exchange asks the workers something about a trial model, and every reply tells the loss there as well:

    hessian    gradient, Hessian and loss of everyone: new curvature, fresh memory
    gradient   Algorithm 1's masked round: fragments of the regions each worker keeps, everyone's loss
    full       the whole gradient of everyone: the workers' word on the tolerance
    loss       the loss alone: backtracking

    1  the trial's loss is not low enough:    back to the anchor, the newest model whose loss everyone told;
         the curvature is from there        -> a shorter step (Armijo) on loss-only exchanges, Hessians where it ends
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
from danl.methods.armijo import at_rounding, given_up, low_enough, shorter
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
    anchor_losses: Array  # (N,), nan for workers that were not members then
    scale: float  # sum_i weight_i |F_i| there: what losses are rounded relative to


@dataclass(frozen=True)
class Step:
    """A step that is being tried from the base: trial = base + length * direction."""

    direction: Array
    slope: float  # gradient . direction < 0
    length: float

    @property
    def decrement(self) -> float:
        """What the full step would gain on a quadratic: (1/2) grad^T [Pi]_mu^-1 grad."""
        return -self.slope / 2


@dataclass(frozen=True)
class Noise:
    """How a run with mini-batches stands towards the noise of its gradients."""

    length: float = 1.0  # of the steps: halved when one is refused, doubled when one is taken
    refusals: int = 0  # in a row
    decrement: float = np.inf  # at the last Hessian exchange, where the gradient is exact
    at_floor: bool = False  # new curvature does not help any more


@dataclass(frozen=True)
class SafeguardedState:
    """The model steps are taken from, what is being asked about the trial model, and what the server keeps."""

    base: Array  # the newest accepted model
    trial: Array  # the base itself where there is no step
    missed: IntArray  # (N,): exchanges in a row a worker was asked in and did not answer
    members: Mask  # (N,): the workers the objective is made of
    weights: Array  # (N,): what each counts in it; sums to 1
    losses: Array  # (N,): F_i(base), nan where a worker did not tell
    noise: Noise | None  # None: gradients are of whole shards
    hessian_batch: int | None
    ask: Ask = "hessian"
    step: Step | None = None
    known: Known | None = None
    gathered: Gathered | None = None
    at_anchor: bool = False  # the base is the anchor
    fresh: bool = False  # and curvature and gradient were exchanged there
    regroup: bool = False  # members left or are back: exchange Hessians at the next trial
    since_hessian: int = 0  # steps since the last Hessian exchange
    decrements: tuple[float, ...] = ()  # the newest of them
    exact_norm: float = np.inf  # of the last gradient everyone sent in full
    refused: int = 0  # steps from the memory that were refused since one was taken
    detour: int = 0  # Newton steps to take before masked rounds are tried again
    round: int = 0  # masked rounds so far, the paper's t
    status: Status | None = None

    @property
    def w(self) -> Array:
        """What the run returns if it ends here: the newest accepted model whose loss every member told."""
        return self.base if self.known is None else self.known.anchor

    @property
    def notes(self) -> tuple[str, ...]:
        gone, count = np.flatnonzero(~self.members), int(self.members.sum())
        if self.known is None or not gone.size:
            return ()
        who = "worker" if gone.size == 1 else "workers"
        rest = "the one worker that is" if count == 1 else f"the {count} workers that are"
        return (f"without {who} {', '.join(map(str, gone))}: the objective is that of {rest} left",)


@dataclass(frozen=True)
class Safeguarded:
    """The loop that looks first, with the options of a `DANL`."""

    options: DANL

    def begin(self, setup: Setup) -> SafeguardedState:
        return SafeguardedState(
            base=setup.w0,
            trial=setup.w0,
            missed=np.zeros(setup.n_workers, dtype=np.int64),
            members=np.ones(setup.n_workers, dtype=bool),
            weights=setup.weights,
            losses=np.full(setup.n_workers, np.nan),
            noise=None if self.options.batch_size is None else Noise(),
            hessian_batch=self.options.hessian_batch,
        )

    def plan(self, state: SafeguardedState, setup: Setup, turn: Turn) -> Exchange:
        exchange, trial, gathered = turn.exchange, state.trial, state.gathered
        if state.ask == "gradient":
            batch = None if state.noise is None else self.options.batch_size
            template = GradientTask(exchange, trial, round=state.round + 1, batch_size=batch, whole_loss=True)
            return Exchange("gradient", masked_tasks(template, setup, turn, idle=LossTask(exchange, trial)))
        task: Task
        match state.ask:
            case "hessian":
                task = HessianTask(exchange, trial, hessian_batch=state.hessian_batch)
            case "full":
                task = GradientTask(exchange, trial)
            case _:
                task = LossTask(exchange, trial)
        asked = setup.everyone() if gathered is None else np.flatnonzero(self._wanted(state, gathered))
        kind = "gradient" if state.ask == "full" else state.ask
        return Exchange(kind, {int(worker): task for worker in asked})

    def absorb(self, state: SafeguardedState, replies: Replies, setup: Setup) -> tuple[SafeguardedState, Info]:
        state = self._heard(state, replies, setup)
        if state.status is not None:
            return state, Info()
        if state.ask == "gradient":
            assert state.known is not None
            return self._masked_round(state, state.known, replies, setup), Info()
        gathered = state.gathered or Gathered.nothing(setup.n_workers, setup.n_features)
        gathered = gathered.with_replies(replies, setup.weights)
        if self._wanted(state, gathered).any():
            return replace(state, gathered=gathered), Info()  # ask those missing again, for the same model
        return self._everyone_answered(replace(state, gathered=None), gathered, setup), Info()

    # Who is there.

    def _heard(self, state: SafeguardedState, replies: Replies, setup: Setup) -> SafeguardedState:
        """Count absences; a member that is gone changes the objective, one that is back will do so again."""
        missed = state.missed.copy()
        missed[list(replies.failures)] += 1
        missed[list(replies.received)] = 0
        state = replace(state, missed=missed)
        alive = missed < self.options.patience
        if alive.sum() <= self.options.quorum * len(alive):
            return replace(state, status="quorum_lost")
        if state.known is None:
            return state  # members are those that answer in Phase I
        back = [worker for worker in replies.received if not state.members[worker]]
        if back and state.ask != "hessian":
            state = replace(state, regroup=True)
        if (state.members & ~alive).any():
            members = state.members & alive
            weights = shares_of(members, setup.weights)
            return replace(state, members=members, weights=weights, regroup=True, fresh=False, exact_norm=np.inf)
        return state

    def _wanted(self, state: SafeguardedState, gathered: Gathered) -> Mask:
        """Whom a question that needs everyone still waits for."""
        alive = state.missed < self.options.patience
        who = alive if state.ask == "hessian" else state.members & alive
        return np.asarray(who & ~gathered.answered)

    # What the answers say of the trial.

    def _everyone_answered(self, state: SafeguardedState, gathered: Gathered, setup: Setup) -> SafeguardedState:
        """A question that needed everyone is answered."""
        known, trial, losses = state.known, state.trial, gathered.losses
        if known is not None and not self._low_enough(state, known, losses, setup):
            return self._refuse(state, known, losses)
        if state.ask == "loss":
            return replace(state, ask="hessian")  # where the step ends, curvature has changed: it was a long one
        memory = Memory.fresh(gathered.gradients, trial, setup.regions.n_regions, stamp=state.round)
        newton = state.fresh and state.step is not None
        state = replace(state, base=trial, losses=losses, at_anchor=True, fresh=False)
        if state.ask == "hessian":
            members = gathered.answered
            weights = shares_of(members, setup.weights)
            total = float(setup.weights[members].sum())
            hessian = unpack(np.asarray(gathered.packed_hessian) / total, setup.n_features)
            if not np.isfinite(hessian).all():
                return replace(state, status="diverged")
            mu = float(weights @ setup.penalties) if self.options.mu is None else self.options.mu
            curvature = project(hessian, mu)
            if not np.array_equal(members, state.members):
                state = replace(state, members=members, weights=weights, exact_norm=np.inf)
            detour = max(state.detour - 1, 0)
            state = replace(state, fresh=True, regroup=False, since_hessian=0, decrements=(), detour=detour)
        else:
            assert known is not None
            curvature = known.curvature
        known = Known(curvature, memory, trial, losses, scale_of(losses, state))
        return self._next(state, known, memory.mean_all(state.weights), setup, exact=True, newton=newton)

    def _masked_round(self, state: SafeguardedState, known: Known, replies: Replies, setup: Setup) -> SafeguardedState:
        """Lines 15-20 of Algorithm 1, if the losses allow."""
        state = replace(state, round=state.round + 1)
        losses = np.full(setup.n_workers, np.nan)
        for worker, reply in replies.received.items():
            losses[worker] = loss_of(reply)
        if not told(losses, state.members).any():
            return state  # nobody to learn from: the same model again
        taken = self._low_enough(state, known, losses, setup)
        if not taken and (state.noise is None or state.fresh):
            return self._refuse(state, known, losses)
        fragments = Replies({i: reply for i, reply in replies.received.items() if isinstance(reply, GradientReply)})
        memory = known.memory.refreshed(of_kind(fragments, GradientReply), state.trial, state.round, setup.regions)
        known = replace(known, memory=memory)
        if not taken and state.noise is not None:
            return self._refuse_noise(state, state.noise, known, losses, setup)
        complete, newton = bool(told(losses, state.members)[state.members].all()), state.fresh
        if complete and not newton:  # what only some told is no proof
            state = replace(state, refused=0, detour=0)
        state = replace(state, base=state.trial, losses=losses, at_anchor=complete, fresh=False)
        if complete:
            known = replace(known, anchor=state.base, anchor_losses=losses, scale=scale_of(losses, state))
        if state.noise is not None:
            noise = replace(state.noise, length=min(1.0, 2 * state.noise.length), refusals=0)
            state = replace(state, noise=noise)
        trained = trained_pairs(fragments, setup.n_workers, setup.regions.n_regions)
        exact = complete and state.noise is None and bool(trained[state.members].all())
        return self._next(state, known, self._estimate(state, known, setup), setup, exact=exact, newton=newton)

    def _low_enough(self, state: SafeguardedState, known: Known, losses: Array, setup: Setup) -> bool:
        """Whether the trial's losses allow to take it."""
        if state.step is None and state.at_anchor:
            return True  # it is the anchor itself
        heard = told(losses, state.members)
        if np.isposinf(losses[heard]).any():
            return False
        common = heard & ~np.isnan(known.anchor_losses)
        if not common.any():
            return True  # nobody of the anchor is left to compare with
        share = state.weights[common] / state.weights[common].sum()
        before, after = float(share @ known.anchor_losses[common]), float(share @ losses[common])
        if state.step is not None and not heard[state.members].all():
            change = self._estimated_change(state, known, losses, setup)
            return low_enough(before, before + change, known.scale)
        promised = state.step.length * state.step.slope if state.fresh and state.step is not None else 0.0
        return low_enough(before, after, known.scale, promised)

    def _estimated_change(self, state: SafeguardedState, known: Known, losses: Array, setup: Setup) -> float:
        """The objective's change from w to the trial, where only some workers told their loss at both.

        The memory predicts every worker's change as  grad_i . step + (1/2) step^T Pi step; how far off that is for the
        workers that told is taken for how far off it is for all of them (a difference estimator: Cochran, 7.5).
        """
        step, hessian = state.trial - state.base, known.curvature.hessian
        predicted = known.memory.slopes(hessian, state.base, step, setup.regions) + 0.5 * float(step @ hessian @ step)
        measured = losses - state.losses
        heard = told(measured, state.members)
        error = 0.0
        if heard.any():
            share = state.weights[heard] / state.weights[heard].sum()
            error = float(share @ (measured[heard] - predicted[heard]))
        return float(state.weights @ predicted) + error

    # What to do where it is not low enough.

    def _refuse(self, state: SafeguardedState, known: Known, losses: Array) -> SafeguardedState:
        """A shorter step where the curvature is that of w; else exchange it there, or at the anchor if all told."""
        if not (state.fresh and state.step is not None):
            return exchange_hessians(back_to_anchor(distrust(state), known, losses))
        if state.hessian_batch is not None:  # a sample of the rows proposed it: ask all of them
            return exchange_hessians(replace(state, hessian_batch=None))
        step = state.step
        if at_rounding(-step.length * step.slope, known.scale):
            return replace(state, status=given_up(step.decrement, known.scale))
        return ask_at(replace(state, ask="loss"), replace(step, length=shorter(step.length)))

    def _refuse_noise(
        self, state: SafeguardedState, noise: Noise, known: Known, losses: Array, setup: Setup
    ) -> SafeguardedState:
        """With mini-batches a rise may be noise: half a step, from a memory that has learnt what the trial showed."""
        noise = replace(noise, refusals=noise.refusals + 1, length=noise.length / 2)
        state = back_to_anchor(replace(state, noise=noise), known, losses)
        if noise.refusals >= NOISY_REFUSALS and not noise.at_floor:
            return exchange_hessians(replace(state, noise=replace(noise, refusals=0)))
        return self._next(state, known, self._estimate(state, known, setup), setup)

    # Where to go next.

    def _estimate(self, state: SafeguardedState, known: Known, setup: Setup) -> Array:
        """The gradient at w that the memory makes up."""
        if self.options.memory == "raw":
            return known.memory.mean_all(state.weights)
        return known.memory.corrected(state.weights, known.curvature.hessian, state.base, setup.regions)

    def _next(
        self,
        state: SafeguardedState,
        known: Known,
        gradient: Array,
        setup: Setup,
        *,
        exact: bool = False,  # the gradient is everyone's, whole, and of w
        newton: bool = False,  # the step that led to w was a Newton step: curvature and gradient of where it began
    ) -> SafeguardedState:
        """Line 20's step from the new model, the end of the run, or what to ask about the model it leads to."""
        direction = -known.curvature.solve(gradient)
        length = 1.0 if state.noise is None or state.fresh else state.noise.length
        step = Step(direction, float(gradient @ direction), length)
        norm, nothing_left = float(np.linalg.norm(gradient)), at_rounding(step.decrement, known.scale)
        newest = (*state.decrements, step.decrement)[-self.options.window - 1 :]
        state = replace(state, known=known, since_hessian=state.since_hessian + 1, decrements=newest)
        if exact and norm <= setup.tol:
            return replace(state, status="converged")
        stalled = exact and nothing_left and norm >= state.exact_norm / 2
        if stalled and newton:  # at rounding level, where not even a Newton step makes the gradient smaller
            return replace(state, status="converged")
        if exact:
            state = replace(state, exact_norm=norm)
        if state.fresh and state.noise is not None:
            state = replace(state, noise=self._noise_after(state.noise, step.decrement))
        settled = norm <= setup.tol or nothing_left
        if stalled or self._curvature_due(state, known, settled):
            return ask_at(replace(state, ask="hessian"), step)
        return ask_at(replace(state, ask="full" if settled else "gradient"), step)

    def _curvature_due(self, state: SafeguardedState, known: Known, settled: bool) -> bool:
        """Whether the next trial gets a Hessian exchange."""
        options, decrements = self.options, state.decrements
        if state.regroup:
            return True
        if isinstance(options.curvature, int):
            return state.since_hessian >= options.curvature
        if state.fresh and state.detour > 0 and not settled:
            return True
        newest = known.memory.stamps[state.members].max(axis=0)
        if state.round - newest.min() > options.gamma_max:  # a region nobody sent anything about for too long
            return True
        if settled or len(decrements) <= options.window or state.noise is not None:
            return False  # with mini-batches decrements tell little: refused steps ask for curvature
        return decrements[-1] > options.contraction**options.window * decrements[0]

    def _noise_after(self, noise: Noise, decrement: float) -> Noise | None:
        """After a Hessian exchange: where it no longer helped, noise is what is left; None: on to whole shards."""
        if decrement <= STILL_HELPS * noise.decrement:
            return Noise(decrement=decrement)
        return None if self.options.finish else replace(noise, at_floor=True)


def ask_at(state: SafeguardedState, step: Step) -> SafeguardedState:
    """Put the question about the model a step leads to."""
    return replace(state, step=step, trial=state.base + step.length * step.direction)


def exchange_hessians(state: SafeguardedState) -> SafeguardedState:
    """Ask for Hessians at the accepted model itself and go on from there."""
    return replace(state, ask="hessian", step=None, trial=state.base, fresh=False)


def distrust(state: SafeguardedState) -> SafeguardedState:
    """A step from the memory was refused: after the second in a row, take 2, 4, 8, ... Newton steps before the next."""
    refused = state.refused + 1
    return replace(state, refused=refused, detour=0 if refused < 2 else 2 ** min(refused - 1, 6))


def back_to_anchor(state: SafeguardedState, known: Known, losses: Array) -> SafeguardedState:
    """The anchor as the model, where every member told a loss: where only some did, w may still be the better one."""
    if np.isnan(losses[state.members]).any():
        return state
    return replace(state, base=known.anchor, losses=known.anchor_losses, at_anchor=True)


def told(losses: Array, members: Mask) -> Mask:
    """The members that told a loss, an infinite one included."""
    return np.asarray(members & ~np.isnan(losses))


def scale_of(losses: Array, state: SafeguardedState) -> float:
    """The size of the numbers the objective is made of."""
    return float(state.weights[state.members] @ np.abs(losses[state.members]))


def shares_of(members: Mask, weights: Array) -> Array:
    """What the members count in their own objective."""
    return weights if members.all() else np.where(members, weights / weights[members].sum(), 0.0)


def loss_of(reply: Reply) -> float:
    """The loss every reply to a question of this loop carries; a nan of the worker's counts as infinite."""
    assert not isinstance(reply, SmoothnessReply)
    return reply.loss if not np.isnan(reply.loss) else np.inf
