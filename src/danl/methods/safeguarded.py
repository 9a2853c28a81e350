r"""The default method's loop: Algorithm 1's rounds, whose steps are looked at before they are trusted.

Every exchange asks the workers something about a trial model, and every reply has the worker's loss there as well:

    hessian    gradient, Hessian and loss of everyone: new curvature, fresh memory
    gradient   Algorithm 1's masked round: fragments of the regions each worker keeps, everyone's loss
    full       the whole gradient of everyone: it decides on the tolerance
    loss       the loss alone: backtracking

    1  the trial's loss is not low enough:    back to the anchor, the newest model whose loss everyone reported;
         the curvature is from there        -> a shorter step (Armijo) on loss-only exchanges, Hessians where it ends
         it is not                          -> exchange Hessians there
    2  it is: the trial is the new model; refresh the memory and step  -[Pi]_mu^-1 (corrected gradient)
    3  the decrements (1/2) grad^T [Pi]_mu^-1 grad contract slower than promised -> exchange Hessians at the next trial
    4  the gradient, or the decrease left to gain, seems small enough -> ask for the full gradient; it decides
    5  steps from the memory were rejected twice in a row -> 2, 4, 8, ... Newton steps before the next masked round

Each decision has its file:

    who is there                       danl.methods.membership
    whether a trial is accepted        danl.methods.acceptance
    what is asked next                 danl.methods.questions; with parts of Hessians danl.methods.quasi_newton_progress
    what the curvature is              danl.methods.curvature_exchange

A masked round goes on with the replies there are. The other questions need everyone who is alive, so those missing are
asked again for the same model. Losses are compared over the same workers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from danl.methods.acceptance import Step, anchored, objective_at_anchor, trial_accepted, with_margins
from danl.methods.base import Info, Setup, Turn
from danl.methods.curvature_exchange import hessian_task, new_curvature, sketch_number, without_pairs
from danl.methods.membership import Membership, weights_among
from danl.methods.quasi_newton_progress import QuasiNewtonProgress
from danl.methods.questions import NewtonProgress, Progress, Sampling, masked_round
from danl.methods.safeguarded_state import Answers, Known, Point, Question, SafeguardedState, Trial
from danl.methods.stopping import InitialCurvature, final_status
from danl.protocol.messages import Array, Exchange, GradientTask, LossTask, Mask, Task
from danl.protocol.replies import Replies
from danl.server.curvature import Curvature
from danl.server.memory import Memory
from danl.server.quasi_newton import QuasiNewton

if TYPE_CHECKING:
    from danl.methods.danl import DANL

NOISY_REJECTIONS = 3
"""With mini-batches, this many rejected steps in a row are more than noise, and the curvature is exchanged."""

Absorbed = tuple[SafeguardedState, Info]


@dataclass(frozen=True)
class Safeguarded:
    """The loop that looks first, with the options of a `DANL`."""

    options: DANL

    def begin(self, setup: Setup) -> SafeguardedState:
        options, w0, count = self.options, setup.w0, setup.n_workers
        sampling, whole = Sampling(options.batch_size, options.hessian_batch), options.hessian_form.kind == "full"
        return SafeguardedState(
            w=w0,
            weights=setup.weights,
            base=Point(w0, np.full(count, np.nan)),
            trial=Trial("hessian", w0),
            membership=Membership.everyone(count),
            progress=NewtonProgress(sampling) if whole else QuasiNewtonProgress.start(sampling, options, setup),
        )

    def plan(self, state: SafeguardedState, setup: Setup, turn: Turn) -> Exchange:
        exchange, trial, progress = turn.exchange, state.trial, state.progress
        if trial.question == "gradient":
            batch, number = progress.sampling.batch_size, state.round + 1
            template = GradientTask(exchange, trial.w, round=number, batch_size=batch, whole_loss=True)
            return masked_round(template, setup, turn, idle=LossTask(exchange, trial.w))
        task: Task
        match trial.question:
            case "hessian":
                sketch = sketch_number(self.options, setup, progress.n_exchanged)
                batch = progress.sampling.hessian_batch
                task = hessian_task(self.options, exchange, trial.w, sketch=sketch, hessian_batch=batch)
            case "full":
                task = GradientTask(exchange, trial.w)
            case "loss":
                task = LossTask(exchange, trial.w)
        asked = np.arange(setup.n_workers) if trial.answers is None else np.flatnonzero(_awaited(state, trial.answers))
        return Exchange("gradient" if trial.question == "full" else trial.question, task, asked)

    def absorb(self, state: SafeguardedState, replies: Replies, setup: Setup) -> Absorbed:
        if replies.failures or not state.membership.complete:
            state = self._with_members(state, replies, setup)
        if state.status is not None:
            return _recorded(state)
        if state.trial.question == "gradient":
            assert state.known is not None
            return self._masked_round(state, state.known, replies, setup)
        answers = state.trial.answers or Answers.none(setup.n_workers, setup.n_coefficients)
        answers = answers.with_replies(replies)
        if _awaited(state, answers).any():  # ask those missing again, for the same model
            return _recorded(replace(state, trial=replace(state.trial, answers=answers)))
        state = replace(state, trial=replace(state.trial, answers=None))
        return self._everyone_answered(state, answers, setup)

    def _with_members(self, state: SafeguardedState, replies: Replies, setup: Setup) -> SafeguardedState:
        """Who is there: a member that is gone changes the objective, one that is back will do so again."""
        before, options, known = state.membership, self.options, state.known
        all_asked = state.trial.question == "hessian"
        membership = before.after(
            replies, options.patience, options.quorum, starting=known is None, all_asked=all_asked
        )
        state = replace(state, membership=membership, status=None if membership.quorate else "quorum_lost")
        if known is None or membership.members is before.members:
            return state
        progress, base = state.progress.regrouped(), replace(state.base, fresh=False)
        if progress.probe == "hessian":  # the pairs are of another objective
            known = replace(known, curvature=without_pairs(known.curvature))
        weights = weights_among(membership.members, setup.weights)
        return replace(state, weights=weights, base=base, progress=progress, known=known)

    def _everyone_answered(self, state: SafeguardedState, answers: Answers, setup: Setup) -> Absorbed:
        """A question that needed everyone is answered."""
        known, trial, losses = state.known, state.trial, answers.losses
        if known is not None and not trial_accepted(state, known, losses, setup):
            return self._rejected(state, known, losses)
        if trial.question == "loss":  # where the step ends, curvature has changed: it was a long one
            return _recorded(replace(state, trial=replace(trial, question="hessian")))
        newton = state.base.fresh and trial.step is not None
        curvature = None if known is None else known.curvature
        if trial.question == "hessian":
            state, curvature = self._with_hessians(state, answers, setup)
        fresh = state.progress.probe in (trial.question, "full")
        state = replace(state, base=Point(trial.w, losses, at_anchor=True, fresh=fresh))
        if curvature is None:
            return _recorded(replace(state, status="diverged"))
        memory = Memory.fresh(answers.gradients, trial.w, setup.regions.n_regions, stamp=state.round)
        now = known or Known(curvature, memory, losses, scale=0.0)
        now = replace(now, curvature=curvature, memory=memory)
        now = anchored(now, losses, state.weights, state.membership.members)
        if known is None:
            now = with_margins(now, trial.w)
            now = replace(now, initial=InitialCurvature.of(curvature, now.scale, setup))
        gradient = memory.mean_all(state.weights)
        return self._next(replace(state, w=trial.w), now, gradient, setup, exact=True, newton=newton)

    def _with_hessians(
        self, state: SafeguardedState, answers: Answers, setup: Setup
    ) -> tuple[SafeguardedState, Curvature | None]:
        """The objective is that of those who sent Hessians, and its curvature theirs; None where it is not finite."""
        options, progress, weights, here = self.options, state.progress, state.weights, answers.answered
        if not np.array_equal(here, state.membership.members):
            weights, progress = weights_among(here, setup.weights), progress.regrouped()
        sketch = sketch_number(options, setup, progress.n_exchanged)
        before = None if state.known is None else state.known.curvature
        numbers = np.asarray(answers.hessian) / float(setup.weights[here].sum())
        curvature = new_curvature(options, numbers, weights, setup, sketch, before)
        membership, progress = state.membership.of(here), progress.with_hessians()
        return replace(state, weights=weights, membership=membership, progress=progress), curvature

    def _masked_round(self, state: SafeguardedState, known: Known, replies: Replies, setup: Setup) -> Absorbed:
        """Lines 15-20 of Algorithm 1, if the losses allow."""
        members, base, progress, trial = state.membership.members, state.base, state.progress, state.trial
        losses, number, sampling = replies.losses_of_all(len(members)), state.round + 1, progress.sampling
        reported, noisy = members & ~np.isnan(losses), sampling.batch_size is not None
        state = replace(state, round=number)
        if not reported.any():
            return _recorded(state)  # nobody to learn from: the same model again
        accepted = trial_accepted(state, known, losses, setup)
        if not accepted and (not noisy or base.fresh):
            return self._rejected(state, known, losses)
        memory = known.memory.refreshed(replies, trial.w, number, setup.regions, state.weights)
        known = replace(known, memory=memory)
        if not accepted:
            return self._rejected_with_noise(state, known, losses, setup)
        complete = bool(reported[members].all())
        if noisy:
            sampling = replace(sampling, length=min(1.0, 2 * sampling.length), n_rejected=0)
            progress = replace(progress, sampling=sampling)
        if complete:  # what only some reported is no proof
            if not base.fresh and (progress.n_rejected or progress.detour):
                progress = replace(progress, n_rejected=0, detour=0)
            known = anchored(known, losses, state.weights, members)
        exact = complete and not noisy and bool(replies.trained(*memory.stamps.shape)[members].all())
        state = replace(
            state,
            w=trial.w if complete else state.w,
            base=Point(trial.w, losses, at_anchor=complete, fresh=exact and progress.probe == "full"),
            progress=progress,
        )
        gradient = self._estimated_gradient(state, known, setup)
        return self._next(state, known, gradient, setup, exact=exact, newton=base.fresh)

    # Rule 1.

    def _rejected(self, state: SafeguardedState, known: Known, losses: Array) -> Absorbed:
        """A shorter step where gradient and curvature are those of the base; else they are asked for, at the anchor."""
        progress, base, step, weights = state.progress, state.base, state.trial.step, state.weights
        if step is None or not base.fresh:
            return _ask_base(_back_to_anchor(state, known, losses), progress.after_rejection(), progress.probe)
        if progress.sampling.hessian_batch is not None:  # a sample of the rows proposed it: ask all of them
            all_rows = replace(progress.sampling, hessian_batch=None)
            return _ask_base(state, replace(progress, sampling=all_rows), "hessian")
        used = weights > 0
        progress, shorter = progress.backtracked(step, float(weights[used] @ (losses[used] - base.losses[used])))
        if shorter is not None:
            question: Question = "loss" if progress.probe == "hessian" else "full"
            return _recorded(replace(state, progress=progress, trial=_trial(question, base, shorter)), rejected=True)
        curvature = known.curvature
        if isinstance(curvature, QuasiNewton) and len(curvature.steps):  # the pairs may be what rounding has spoilt
            known = replace(known, curvature=without_pairs(curvature))
            return _ask_base(replace(state, known=known), progress, progress.probe)
        status, remark = final_status(step.given_up(), known.initial, base.w, step, final=True)
        return _recorded(replace(state, status=status, remark=remark), rejected=True)

    def _rejected_with_noise(self, state: SafeguardedState, known: Known, losses: Array, setup: Setup) -> Absorbed:
        """With mini-batches a rise may be noise: half a step, from a memory that has learnt what the trial showed."""
        sampling = state.progress.sampling
        sampling = replace(sampling, n_rejected=sampling.n_rejected + 1, length=sampling.length / 2)
        state = _back_to_anchor(state, known, losses)
        if sampling.n_rejected >= NOISY_REJECTIONS and not sampling.at_floor:
            progress = replace(state.progress, sampling=replace(sampling, n_rejected=0))
            return _ask_base(state, progress, progress.probe)
        state = replace(state, progress=replace(state.progress, sampling=sampling))
        return self._next(state, known, self._estimated_gradient(state, known, setup), setup, rejected=True)

    # Rules 2 to 5.

    def _estimated_gradient(self, state: SafeguardedState, known: Known, setup: Setup) -> Array:
        """The gradient at the base that the memory makes up."""
        if self.options.memory == "raw":
            return known.memory.mean_all(state.weights)
        return known.memory.corrected(state.weights, known.curvature, state.base.w, setup.regions)

    def _next(
        self,
        state: SafeguardedState,
        known: Known,
        gradient: Array,
        setup: Setup,
        *,
        exact: bool = False,  # the gradient is everyone's, whole, and of the base
        newton: bool = False,  # the step that led to the base was exact as well
        rejected: bool = False,
    ) -> Absorbed:
        """Line 20's step from the base, and what to ask about the model it leads to; or the end of the run."""
        base, norm = state.base, np.nan
        if exact:
            known, norm = with_margins(known, base.w), float(np.linalg.norm(gradient))
        curvature = known.curvature
        if exact and isinstance(curvature, QuasiNewton):
            curvature = curvature.with_gradient(base.w, gradient, state.weights, self.options.n_pairs)
            known = replace(known, curvature=curvature)
        step = Step.down(curvature, gradient, known.scale)
        progress, step, question = state.progress.after(
            step, state, known, self.options, setup.tol, exact=exact, newton=newton
        )
        status, remark = (None, None) if question else final_status("converged", known.initial, base.w, step)
        if exact and known.initial is not None:
            known = replace(known, initial=known.initial.after(step.direction))
        trial = _trial(question or progress.probe, base, step) if status is None else state.trial
        state = replace(state, trial=trial, progress=progress, known=known, status=status, remark=remark)
        return _recorded(state, exact_norm=norm, rejected=rejected)


def _awaited(state: SafeguardedState, answers: Answers) -> Mask:
    """Whom a question that needs everyone still waits for."""
    membership = state.membership
    who = membership.alive if state.trial.question == "hessian" else membership.members & membership.alive
    return np.asarray(who & ~answers.answered)


def _back_to_anchor(state: SafeguardedState, known: Known, losses: Array) -> SafeguardedState:
    """The anchor as the base, where every member reported: where only some did, the base may be the better one."""
    if np.isnan(losses[state.membership.members]).any():
        return state
    return replace(state, base=replace(state.base, w=state.w, losses=known.losses, at_anchor=True))


def _trial(question: Question, base: Point, step: Step) -> Trial:
    return Trial(question, base.w + step.length * step.direction, step)


def _ask_base(state: SafeguardedState, progress: Progress, question: Question) -> Absorbed:
    """Ask about the base itself, after a trial was rejected, and go on from there."""
    base = replace(state.base, fresh=False)
    return _recorded(replace(state, base=base, trial=Trial(question, base.w), progress=progress), rejected=True)


def _recorded(state: SafeguardedState, *, exact_norm: float = np.nan, rejected: bool = False) -> Absorbed:
    """The state, and what the exchange showed."""
    lost = np.flatnonzero(~state.membership.alive).tolist() if state.status == "quorum_lost" else ()
    objective = np.nan if state.known is None else objective_at_anchor(state.known, state.weights)
    return state, Info(
        state.progress.decrement, objective=objective, exact_norm=exact_norm, trial_rejected=rejected, lost=tuple(lost)
    )
