"""What the default method's loop keeps from exchange to exchange, and the small moves it makes on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from danl.evolve import evolve
from danl.methods.base import Status
from danl.methods.ending import Origin, Remark, margins_of, size_of, verdict
from danl.objective.regions import IntArray
from danl.protocol.messages import Array, Mask
from danl.protocol.replies import Replies
from danl.server.aggregation import losses_by_worker
from danl.server.memory import Memory
from danl.server.partial_curvature import Curved
from danl.server.quasi_newton import Secant
from danl.storage.serialize import storable

Ask = Literal["hessian", "gradient", "full", "loss"]


@storable
@dataclass(frozen=True)
class Gathered:
    """Answers to a question that needs everyone, collected over as many exchanges as it takes."""

    answered: Mask  # (N,)
    losses: Array  # (N,), nan where there is no answer
    gradients: Array  # (N, d), 0 where there is no answer
    packed_hessian: Array | float = 0.0  # sum of weight_i times the packed Hessians so far, or parts of them

    @classmethod
    def nothing(cls, n_workers: int, d: int) -> Gathered:
        return cls(np.zeros(n_workers, dtype=bool), np.full(n_workers, np.nan), np.zeros((n_workers, d)))

    def with_replies(self, replies: Replies, weights: Array) -> Gathered:
        answered, losses, gradients = self.answered.copy(), self.losses.copy(), self.gradients
        answered[replies.workers] = True
        losses[replies.workers] = losses_by_worker(replies, len(losses))[replies.workers]
        if replies.gradients is not None:
            gradients = _placed(gradients, replies.senders, replies.gradients)
        added = replies.curvature_sum
        packed = self.packed_hessian if added is None else self.packed_hessian + added
        return Gathered(answered, losses, gradients, packed)


@storable
@dataclass(frozen=True)
class Known:
    """What the server has learnt once Phase I is over."""

    curvature: Curved
    memory: Memory
    anchor: Array  # the newest accepted model whose loss every member told: where a run goes back to
    anchor_losses: Array  # (N,), nan for workers that were not members then
    scale: float  # sum_i weight_i |F_i| there: what losses are rounded relative to
    largest: float = 0.0  # the largest of these so far
    origin: Origin | None = None  # where some coefficients have no penalty: to see those that have no end


@storable
@dataclass(frozen=True)
class Step:
    """A step that is being tried from the base: trial = base + length * direction."""

    direction: Array
    slope: float  # gradient . direction < 0
    length: float
    hidden: float = 0.0  # what the projection hides of the way to the optimum

    @property
    def decrement(self) -> float:
        """What the full step would gain on a quadratic: (1/2) grad^T [Pi]_mu^-1 grad."""
        return -self.slope / 2

    @property
    def left(self) -> float:
        """What is left to gain on a quadratic, as far as it is known."""
        return self.decrement if np.isinf(self.hidden) else self.decrement + self.hidden / 2


@storable
@dataclass(frozen=True)
class Noise:
    """How a run with mini-batches stands towards the noise of its gradients."""

    length: float = 1.0  # of the steps: halved when one is refused, doubled when one is taken
    refusals: int = 0  # in a row
    decrement: float = np.inf  # at the last Hessian exchange, where the gradient is exact
    at_floor: bool = False  # new curvature does not help any more


@storable
@dataclass(frozen=True)
class Seen:
    """Everyone's whole gradient at a model, and what everyone counted in it."""

    model: Array
    gradient: Array
    weights: Array


@storable
@dataclass(frozen=True)
class Stretch:
    """Masked rounds since everyone's whole gradient was known, and what they gained; nan where not everyone told."""

    objective: float  # the newest
    whole: float = np.nan  # what the step from that gradient gained
    begin: float = np.nan  # the objective where the stretch begins: after that step, and every few rounds again
    rounds: int = -1  # since then
    number: int = 0  # of the stretch

    def after(self, objective: float) -> Stretch:
        """One round more; the first one tells what the step from the whole gradient gained."""
        if self.rounds < 0:
            return Stretch(objective, whole=self.objective - objective, begin=objective, rounds=0)
        return evolve(self, objective=objective, rounds=self.rounds + 1)

    def next(self) -> Stretch:
        return evolve(self, begin=self.objective, rounds=0, number=self.number + 1)

    @property
    def gained(self) -> float:
        return self.begin - self.objective


@storable
@dataclass(frozen=True)
class Pace:
    """What a run with structured curvature knows of its own progress (`danl.methods.structured`)."""

    wait: int  # steps from one curvature exchange to the next, if progress is slow
    length: float = 1.0  # of steps that are not exact: halved when one is refused, grown carefully when one is taken
    seen: Seen | None = None  # the newest whole gradient that everyone sent
    sketches: int = 0  # curvature exchanges so far
    decrement: float = np.inf  # at the newest of them
    rate: float = np.inf  # how the decrements shrank a step before it
    stretch: Stretch = Stretch(np.nan)  # since that gradient
    slow: int = 0  # stretches of masked rounds in a row that were too slow
    lowest: float = np.inf  # of the exact gradients' decrements; halved at least from one to the next
    idle: int = 0  # exact gradients since


@storable
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
    exact_decrement: float = np.inf  # relative, of the same
    decrement: float = np.nan  # relative, the newest, from whatever gradient there was
    reached: float = np.inf  # the reach of the newest step from everyone's whole gradient
    remark: Remark | None = None  # what the end of the run says of the model
    refused: int = 0  # steps from the memory that were refused since one was taken
    detour: int = 0  # Newton steps to take before masked rounds are tried again
    secant: Secant | None = None  # what gradients tell of the curvature since the last Hessian exchange
    round: int = 0  # masked rounds so far, the paper's t
    status: Status | None = None
    pace: Pace | None = None  # with structured curvature
    turned_down: bool = False  # the losses of the newest exchange refused the trial: for the record alone

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


def ask_at(state: SafeguardedState, step: Step) -> SafeguardedState:
    """Put the question about the model a step leads to."""
    return evolve(state, step=step, trial=state.base + step.length * step.direction)


def exchange_hessians(state: SafeguardedState) -> SafeguardedState:
    """Ask for Hessians at the accepted model itself and go on from there."""
    return evolve(state, ask="hessian", step=None, trial=state.base, fresh=False)


def ask_gradients(state: SafeguardedState) -> SafeguardedState:
    """Ask for everyone's whole gradient at the accepted model itself and go on from there."""
    return evolve(state, ask="full", step=None, trial=state.base, fresh=False)


def distrust(state: SafeguardedState) -> SafeguardedState:
    """A step from the memory was refused: after the second in a row, take 2, 4, 8, ... Newton steps before the next."""
    refused = state.refused + 1
    return evolve(state, refused=refused, detour=0 if refused < 2 else 2 ** min(refused - 1, 6))


def back_to_anchor(state: SafeguardedState, known: Known, losses: Array) -> SafeguardedState:
    """The anchor as the model, where every member told a loss: where only some did, w may still be the better one."""
    if np.isnan(losses[state.members]).any():
        return state
    return evolve(state, base=known.anchor, losses=known.anchor_losses, at_anchor=True)


def with_anchor(known: Known, model: Array, losses: Array, state: SafeguardedState) -> Known:
    """A new anchor, with the losses every member told there."""
    scale = scale_of(losses, state)
    largest = max(known.largest, scale)
    return evolve(known, anchor=model, anchor_losses=losses, scale=size_of(scale, largest), largest=largest)


def ended(state: SafeguardedState, status: Status, known: Known, step: Step, reached: float = 0.0) -> SafeguardedState:
    """The end of the run, "converged" only where the model is an optimum; without a status where it is to go on."""
    concluded, remark = verdict(
        status, known.origin, state.base, step.direction, -step.slope, step.hidden, known.scale, reached
    )
    return evolve(state, status=concluded, remark=remark)


def with_reach(state: SafeguardedState, known: Known, step: Step) -> SafeguardedState:
    """The reach of a step from everyone's whole gradient, for the next one."""
    return state if known.origin is None else evolve(state, reached=known.origin.reach(step.direction))


def with_size(known: Known, model: Array) -> Known:
    """The size of the objective is never below the rounding of the margins: w^T Pi w is about their square."""
    largest = max(known.largest, margins_of(known.curvature, model))
    return evolve(known, largest=largest, scale=size_of(known.scale, largest))


def told(losses: Array, members: Mask) -> Mask:
    """The members that told a loss, an infinite one included."""
    return np.asarray(members & ~np.isnan(losses))


def objective_of(state: SafeguardedState) -> float:
    """The members' objective at the model the run would return, as they told it; nan before Phase I is over."""
    if state.known is None:
        return np.nan
    losses = np.where(state.weights > 0, state.known.anchor_losses, 0.0)
    return float(state.weights @ losses)


def scale_of(losses: Array, state: SafeguardedState) -> float:
    """The size of the numbers the objective is made of."""
    return float(state.weights[state.members] @ np.abs(losses[state.members]))


def shares_of(members: Mask, weights: Array) -> Array:
    """What the members count in their own objective."""
    return weights if members.all() else np.where(members, weights / weights[members].sum(), 0.0)


def _placed(gradients: Array, workers: IntArray, new: Array) -> Array:
    """The gradients with those that came; they themselves where all came."""
    if len(workers) == len(gradients):
        return new
    gradients = gradients.copy()
    gradients[workers] = new
    return gradients
