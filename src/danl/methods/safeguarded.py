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
    5  steps from the memory were refused twice in a row -> 2, 4, 8, ... Newton steps before the next masked round

Workers may be absent. A masked round goes on with the replies there are. The other questions need everyone who is
alive, so those missing are asked again for the same model; a worker that missed `patience` exchanges in a row counts as
gone, and the objective is that of the workers that remain, until it is back. A worker that the engine expects back has
missed nothing. Losses are compared over the same workers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from danl.evolve import evolve
from danl.methods.armijo import at_rounding, given_up, low_enough, shorter
from danl.methods.base import Info, Setup, Turn
from danl.methods.curvature_task import whole_hessian_task
from danl.methods.ending import Origin, relative
from danl.methods.masking import masked_round
from danl.methods.safeguarded_state import (
    Gathered,
    Known,
    Noise,
    SafeguardedState,
    Step,
    ask_at,
    back_to_anchor,
    distrust,
    ended,
    exchange_hessians,
    objective_of,
    scale_of,
    shares_of,
    told,
    with_anchor,
    with_reach,
    with_size,
)
from danl.protocol.messages import (
    FOR_GOOD,
    Array,
    Exchange,
    GradientTask,
    LossTask,
    Mask,
    Task,
    unpack,
)
from danl.protocol.replies import Replies
from danl.server.aggregation import losses_by_worker
from danl.server.carried import corrected, predicted_changes
from danl.server.curvature import project
from danl.server.memory import Memory
from danl.server.partial_curvature import Curved
from danl.server.quasi_newton import Secant

if TYPE_CHECKING:
    from danl.methods.danl import DANL

STILL_HELPS = 0.9
"""With mini-batches, a Hessian exchange helped when the exact decrement fell at least to this share since the last."""
NOISY_REFUSALS = 3
"""With mini-batches, this many refused steps in a row are more than noise, and the curvature is exchanged."""


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
            return masked_round(template, setup, turn, idle=LossTask(exchange, trial))
        task: Task
        match state.ask:
            case "hessian":
                task = self._curvature_task(state, setup, exchange)
            case "full":
                task = GradientTask(exchange, trial)
            case _:
                task = LossTask(exchange, trial)
        asked = setup.everyone() if gathered is None else np.flatnonzero(self._wanted(state, gathered))
        kind = "gradient" if state.ask == "full" else state.ask
        return Exchange(kind, task, np.asarray(asked))

    def absorb(self, state: SafeguardedState, replies: Replies, setup: Setup) -> tuple[SafeguardedState, Info]:
        after = self._absorb(state, replies, setup)
        norm = after.exact_norm if after.exact_norm != state.exact_norm else np.nan
        lost = np.flatnonzero(after.missed >= self.options.patience) if after.status == "quorum_lost" else ()
        info = Info(after.decrement, objective=objective_of(after), exact_norm=norm, refused=after.turned_down)
        return after, evolve(info, lost=tuple(map(int, lost)))

    def _absorb(self, state: SafeguardedState, replies: Replies, setup: Setup) -> SafeguardedState:
        state = self._heard(state, replies, setup)
        if state.status is not None:
            return state
        if state.ask == "gradient":
            assert state.known is not None
            return self._masked_round(state, state.known, replies, setup)
        gathered = state.gathered or Gathered.nothing(setup.n_workers, setup.n_features)
        gathered = gathered.with_replies(replies, setup.weights)
        if self._wanted(state, gathered).any():
            return evolve(state, gathered=gathered)  # ask those missing again, for the same model
        return self._everyone_answered(evolve(state, gathered=None), gathered, setup)

    # What is asked of the curvature, and what is made of it.

    def _curvature_task(self, state: SafeguardedState, setup: Setup, exchange: int) -> Task:
        return whole_hessian_task(self.options, exchange, state.trial, hessian_batch=state.hessian_batch)

    def _curvature(self, state: SafeguardedState, numbers: Array, weights: Array, setup: Setup) -> Curved | None:
        """The curvature of the numbers the members sent, their weighted mean; None where they are not finite."""
        hessian = unpack(numbers, setup.n_features)
        if not np.isfinite(hessian).all():
            return None
        return project(hessian, setup.floor(self.options.mu, weights), setup.strong_convexity_of(weights))

    # Who is there.

    def _heard(self, state: SafeguardedState, replies: Replies, setup: Setup) -> SafeguardedState:
        """Count absences; a member that is gone changes the objective, one that is back will do so again."""
        missed = state.missed.copy()
        missed[list(replies.absent)] += 1
        for worker, failure in replies.failures.items():
            if failure.kind in FOR_GOOD:
                missed[worker] = max(missed[worker], self.options.patience)
        here = replies.workers
        missed[here] = 0
        state = evolve(state, missed=missed, turned_down=False)
        alive = missed < self.options.patience
        if alive.sum() <= self.options.quorum * len(alive):
            return evolve(state, status="quorum_lost")
        if state.known is None:
            return state  # members are those that answer in Phase I
        if not state.members[here].all() and state.ask != "hessian":
            state = evolve(state, regroup=True)
        if (state.members & ~alive).any():
            members = state.members & alive
            weights = shares_of(members, setup.weights)
            state = evolve(state, members=members, weights=weights, regroup=True, fresh=False)
            # These are of another objective.
            return evolve(state, exact_norm=np.inf, exact_decrement=np.inf, secant=None)
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
            return self._refuse(evolve(state, turned_down=True), known, losses)
        if state.ask == "loss":
            return evolve(state, ask="hessian")  # where the step ends, curvature has changed: it was a long one
        memory = Memory.fresh(gathered.gradients, trial, setup.regions.n_regions, stamp=state.round)
        newton = state.fresh and state.step is not None
        state = evolve(state, base=trial, losses=losses, at_anchor=True, fresh=False)
        if state.ask == "hessian":
            members = gathered.answered
            weights = shares_of(members, setup.weights)
            total = float(setup.weights[members].sum())
            made = self._curvature(state, np.asarray(gathered.packed_hessian) / total, weights, setup)
            if made is None:
                return evolve(state, status="diverged")
            curvature = made
            if not np.array_equal(members, state.members):
                state = evolve(state, members=members, weights=weights, exact_norm=np.inf, exact_decrement=np.inf)
            detour = max(state.detour - 1, 0)
            state = evolve(state, fresh=True, regroup=False, since_hessian=0, decrements=(), detour=detour)
        else:
            assert known is not None
            curvature = known.curvature
        if known is None:
            scale = scale_of(losses, state)
            known = with_size(Known(curvature, memory, trial, losses, scale, largest=scale), trial)
            known = evolve(known, origin=Origin.of(curvature, known.scale, setup))
        else:
            known = with_anchor(evolve(known, curvature=curvature, memory=memory), trial, losses, state)
        return self._next(state, known, memory.mean_all(state.weights), setup, exact=True, newton=newton)

    def _masked_round(self, state: SafeguardedState, known: Known, replies: Replies, setup: Setup) -> SafeguardedState:
        """Lines 15-20 of Algorithm 1, if the losses allow."""
        state = evolve(state, round=state.round + 1)
        losses = losses_by_worker(replies, setup.n_workers)
        if not told(losses, state.members).any():
            return state  # nobody to learn from: the same model again
        taken = self._low_enough(state, known, losses, setup)
        if not taken:
            state = evolve(state, turned_down=True)
        if not taken and (state.noise is None or state.fresh):
            return self._refuse(state, known, losses)
        memory = known.memory.refreshed(replies, state.trial, state.round, setup.regions, state.weights)
        known = evolve(known, memory=memory)
        if not taken and state.noise is not None:
            return self._refuse_noise(state, state.noise, known, losses, setup)
        complete, newton = bool(told(losses, state.members)[state.members].all()), state.fresh
        if complete and not newton:  # what only some told is no proof
            state = evolve(state, refused=0, detour=0)
        state = evolve(state, base=state.trial, losses=losses, at_anchor=complete, fresh=False)
        if complete:
            known = with_anchor(known, state.base, losses, state)
        if state.noise is not None:
            noise = evolve(state.noise, length=min(1.0, 2 * state.noise.length), refusals=0)
            state = evolve(state, noise=noise)
        trained = replies.trained(setup.n_workers, setup.regions.n_regions)
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
        step = state.trial - state.base
        predicted = predicted_changes(known.memory, known.curvature, state.base, step, setup.regions)
        measured = losses - state.losses
        heard = told(measured, state.members)
        error = 0.0
        if heard.any():
            share = state.weights[heard] / state.weights[heard].sum()
            error = float(share @ (measured[heard] - predicted[heard]))
        return float(state.weights @ predicted) + error

    # What to do where it is not low enough.

    def _look_again(self, state: SafeguardedState) -> SafeguardedState:
        """Ask everyone about the accepted model itself."""
        return exchange_hessians(state)

    def _refuse(self, state: SafeguardedState, known: Known, losses: Array) -> SafeguardedState:
        """A shorter step where the curvature is that of w; else exchange it there, or at the anchor if all told."""
        if not (state.fresh and state.step is not None):
            return exchange_hessians(back_to_anchor(distrust(state), known, losses))
        if state.hessian_batch is not None:  # a sample of the rows proposed it: ask all of them
            return exchange_hessians(evolve(state, hessian_batch=None))
        step = state.step
        if at_rounding(-step.length * step.slope, known.scale):
            return ended(state, given_up(step.left, known.scale), known, step)
        return ask_at(evolve(state, ask="loss"), evolve(step, length=shorter(step.length)))

    def _refuse_noise(
        self, state: SafeguardedState, noise: Noise, known: Known, losses: Array, setup: Setup
    ) -> SafeguardedState:
        """With mini-batches a rise may be noise: half a step, from a memory that has learnt what the trial showed."""
        noise = evolve(noise, refusals=noise.refusals + 1, length=noise.length / 2)
        state = back_to_anchor(evolve(state, noise=noise), known, losses)
        if noise.refusals >= NOISY_REFUSALS and not noise.at_floor:
            return self._look_again(evolve(state, noise=evolve(noise, refusals=0)))
        return self._next(state, known, self._estimate(state, known, setup), setup)

    # Where to go next.

    def _estimate(self, state: SafeguardedState, known: Known, setup: Setup) -> Array:
        """The gradient at w that the memory makes up."""
        if self.options.memory == "raw":
            return known.memory.mean_all(state.weights)
        return corrected(known.memory, state.weights, known.curvature, state.base, setup.regions)

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
        state = self._with_secant(state, gradient, exact=exact)
        known, solve = with_size(known, state.base) if exact else known, known.curvature.solve
        direction = -(solve(gradient) if state.secant is None else state.secant.solve(solve, gradient))
        length = 1.0 if state.noise is None or state.fresh else state.noise.length
        step = Step(direction, float(gradient @ direction), length, known.curvature.hidden(gradient, known.scale))
        decrement = relative(step.hidden - step.slope, known.scale)
        nothing_left = at_rounding(step.left, known.scale)
        newest = (*state.decrements, step.decrement)[-self.options.window - 1 :]
        state = evolve(
            state, known=known, since_hessian=state.since_hessian + 1, decrements=newest, decrement=decrement
        )
        stalled = exact and nothing_left and decrement >= state.exact_decrement / 2
        if exact:
            state = evolve(state, exact_norm=float(np.linalg.norm(gradient)), exact_decrement=decrement)
        # At the tolerance; or at rounding level, where not even a Newton step makes the gradient smaller.
        done = exact and (decrement <= setup.tol or (stalled and newton))
        if done:
            state = ended(state, "converged", known, step, state.reached)
        if exact:
            state = with_reach(state, known, step)
        if done:
            return state if state.status is not None else ask_at(evolve(state, ask="hessian"), step)
        if state.fresh and state.noise is not None:
            state = evolve(state, noise=self._noise_after(state.noise, step.decrement))
        settled = decrement <= setup.tol or nothing_left
        if stalled or self._curvature_due(state, known, settled):
            return ask_at(evolve(state, ask="hessian"), step)
        return ask_at(evolve(state, ask="full" if settled else "gradient"), step)

    def _with_secant(self, state: SafeguardedState, gradient: Array, *, exact: bool) -> SafeguardedState:
        """What the change of the gradient tells of the curvature, where it is everyone's, whole."""
        if not self.options.secant or not exact:
            return state
        if state.fresh or state.secant is None:
            return evolve(state, secant=Secant.start(state.base, gradient))
        return evolve(state, secant=state.secant.moved(state.base, gradient, self.options.secant))

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
        return None if self.options.finish else evolve(noise, at_floor=True)
