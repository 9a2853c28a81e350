r"""The default method's loop: Algorithm 1's rounds, whose steps are looked at before they are trusted.

Every exchange asks the workers something about a trial model, and every reply has the worker's loss there as well:

    masked     fragments of the regions each worker keeps: Algorithm 1's masked round
    gradient   whole gradients
    curvature  whole gradients, and the curvature of some
    full       whole gradients of everyone
    hessian    whole gradients of everyone, and the curvature of some: new curvature, fresh memory

    1  the trial's loss is not low enough:    back to the anchor, the newest model whose loss everyone reported;
         the step was exact there           -> a shorter one (Armijo); at the start, better curvature if that is missing
         it was not                         -> whole gradients of everyone there
    2  it is: the trial is the new model; refresh the memory and step  -[Pi]_mu^-1 (corrected gradient)
    3  the cheapest question that has lately paid for itself is asked about the model it leads to
    4  the gradient, or the decrease left to gain, seems small enough -> whole gradients of everyone; these decide

Each decision has its file:

    who is there                       danl.methods.membership
    whether a trial is accepted        danl.methods.acceptance
    what is asked next                 danl.methods.ladder
    what is asked of whom for that     danl.methods.asking
    who sends curvature                danl.methods.senders
    what the curvature is              danl.methods.curvature_exchange

A masked round goes on with the replies there are, and so do whole gradients. What needs everyone who is alive is asked
again of those missing, for the same model. Losses are compared over the same workers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from danl.errors import bad_argument
from danl.frozen import replace
from danl.methods.acceptance import Step, anchored, objective_at_anchor, trial_accepted, with_margins
from danl.methods.asking import Asking
from danl.methods.base import Info, Setup, Turn
from danl.methods.curvature_exchange import new_curvature, sketch_number, with_common_pair, without_pairs
from danl.methods.extrapolation import extrapolated_length, length_from_null
from danl.methods.ladder import Ladder
from danl.methods.membership import Membership, weights_among
from danl.methods.questions import Question
from danl.methods.rates import certain_share
from danl.methods.safeguarded_state import Answers, Known, Point, SafeguardedState, Trial
from danl.methods.stopping import InitialCurvature, final_status
from danl.protocol.messages import Array, Exchange, Mask
from danl.protocol.replies import Replies
from danl.server.curvature import Curvature
from danl.server.memory import Memory
from danl.server.quasi_newton import QuasiNewton, WholeGradient
from danl.server.some_hessians import SomeHessians

if TYPE_CHECKING:
    from danl.methods.danl import DANL

WHOLE_SHARE = 1e-12
"""Weights that add up to 1 within this are everyone's: a Hessian is large, and need not be copied for the rounding."""
NOISY_REJECTIONS = 3
"""With mini-batches, this many rejected steps in a row are more than noise, and the curvature is exchanged."""

Absorbed = tuple[SafeguardedState, Info]


@dataclass(frozen=True)
class Safeguarded:
    """The loop that looks first, with the options of a `DANL`."""

    options: DANL

    def begin(self, setup: Setup) -> SafeguardedState:
        w0, count = setup.w0, setup.n_workers
        if self.options.hessian_compressor is not None and setup.limits is not None:
            allowed = "left out where a deadline binds: Hessians then go in pieces, and a compressed one cannot"
            raise bad_argument("hessian_compressor", self.options.hessian_compressor, allowed, "or use binding=False")
        return SafeguardedState(
            w=w0,
            weights=setup.weights,
            base=Point(w0, np.full(count, np.nan)),
            trial=Trial("hessian", w0),
            membership=Membership.everyone(count),
            ladder=Ladder.start(self.options, setup),
        )

    def plan(self, state: SafeguardedState, setup: Setup, turn: Turn) -> Exchange:
        return Asking(self.options, setup, state).exchange(turn)

    def absorb(self, state: SafeguardedState, replies: Replies, setup: Setup) -> Absorbed:
        if state.trial.answers is None:  # those missing, and further portions, are in the price
            state = replace(state, ladder=state.ladder.paid(state.trial.question))
        if replies.failures or not state.membership.complete:
            state = self._with_members(state, replies, setup)
        if state.status is not None:
            return _recorded(state)
        if state.trial.question in ("masked", "gradient", "curvature"):
            assert state.known is not None
            return self._round(state, state.known, replies, setup)
        before, numbers = state.trial.answers, state.ladder.form(self.options).numbers(setup.regions)
        found = replies, setup.regions, setup.weights, numbers
        answers = Answers.of(*found) if before is None else before.with_replies(*found)
        if not answers.complete and Asking(self.options, setup, state).awaited_after(answers).any():  # ask them again
            state = replace(state, trial=replace(state.trial, answers=answers))
            return self._some_answered(state, answers, setup)
        if before is not None:
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
        known = replace(known, curvature=without_pairs(known.curvature), owed=0.0)  # these are of another objective
        weights = weights_among(membership.members, setup.weights)
        base, ladder = replace(state.base, fresh=False), state.ladder.regrouped()
        return replace(state, weights=weights, base=base, ladder=ladder, known=known)

    def _some_answered(self, state: SafeguardedState, answers: Answers, setup: Setup) -> Absorbed:
        """Not all has come yet; where everyone's loss has, a trial that is too high is given up."""
        known = state.known
        if known is None or setup.limits is None or not _all_reported(state, answers.losses):
            return _recorded(state)
        if trial_accepted(state, known, answers.losses, setup):
            return _recorded(state)
        state = replace(state, trial=replace(state.trial, answers=None))
        return self._rejected(state, known, answers.losses, answers.gradients if answers.answered.all() else None)

    def _everyone_answered(self, state: SafeguardedState, answers: Answers, setup: Setup) -> Absorbed:
        """A question that needed everyone is answered."""
        known, trial, losses = state.known, state.trial, answers.losses
        if known is not None and not trial_accepted(state, known, losses, setup):
            return self._rejected(state, known, losses, answers.gradients)
        state = self._compared(state, answers.gradients)
        if trial.step is not None and state.ladder.certain:
            state = replace(state, ladder=replace(state.ladder, certain=False))
        known = state.known
        curvature, hessians = (None, None) if known is None else (known.curvature, known.hessians)
        if trial.question == "hessian":
            state, made = self._with_hessians(state, answers, setup)
            if made is None:
                return _recorded(replace(state, base=Point(trial.w, losses, at_anchor=True), status="diverged"))
            curvature, hessians = made
            if hessians is not None:  # their rest may be another one: it begins here
                hessians = hessians.with_gradients(trial.w, answers.gradients, state.weights, self.options.pairs)
        assert curvature is not None
        state = replace(state, w=trial.w, base=Point(trial.w, losses, at_anchor=True, fresh=True))
        memory = Memory.fresh(answers.gradients, trial.w, setup.regions.n_regions, stamp=state.round)
        now, members = known or Known(curvature, memory, losses, scale=0.0), state.membership.members
        now = anchored(now, losses, state.weights, members, curvature=curvature, hessians=hessians, memory=memory)
        if known is None:
            now = with_margins(now, trial.w)
            now = replace(now, initial=InitialCurvature.of(curvature, now.scale, setup))
        return self._next(state, now, memory.mean_all(state.weights), setup, exact=True)

    def _with_hessians(
        self, state: SafeguardedState, answers: Answers, setup: Setup
    ) -> tuple[SafeguardedState, tuple[Curvature, SomeHessians | None] | None]:
        """The objective is that of those who answered, and its curvature that of those who sent theirs."""
        ladder, weights, here = state.ladder, state.weights, answers.answered
        if np.count_nonzero(here != state.membership.members):
            weights, ladder = weights_among(here, setup.weights), ladder.regrouped()
            state = replace(state, weights=weights, ladder=ladder)
        numbers, share = np.asarray(answers.hessian), float(setup.weights[here].sum())
        if abs(share - 1.0) > WHOLE_SHARE:
            numbers = numbers / share
        made = self._curvature(state, numbers, answers.sent, setup)
        membership, ladder = state.membership.of(here), ladder.with_curvature(self.options)
        return replace(state, weights=weights, membership=membership, ladder=ladder), made

    def _curvature(
        self, state: SafeguardedState, numbers: Array, sent: Mask, setup: Setup
    ) -> tuple[Curvature, SomeHessians | None] | None:
        options, ladder = self.options, state.ladder
        form, known = ladder.form(options), state.known
        nearby = known is not None and state.trial.question == "curvature" and ladder.nearby(known)
        sketch, weights, dtype = sketch_number(form, setup, ladder.n_exchanged), state.weights, ladder.dtype
        return new_curvature(
            options, form, numbers, sent, weights, setup, sketch=sketch, dtype=dtype, before=known, nearby=nearby
        )

    def _round(self, state: SafeguardedState, known: Known, replies: Replies, setup: Setup) -> Absorbed:
        """Lines 15-20 of Algorithm 1, if the losses allow."""
        members, base, ladder, trial = state.membership.members, state.base, state.ladder, state.trial
        losses, number, sampling = replies.losses_of_all(len(members)), state.round + 1, ladder.sampling
        reported, noisy = members & ~np.isnan(losses), sampling.batch_size is not None
        state = replace(state, round=number)
        if not reported.any():
            return _recorded(state)  # nobody to learn from: the same model again
        complete = bool(reported[members].all())
        trained = replies.trained(*known.memory.stamps.shape)
        exact = complete and not noisy and bool(trained[members].all())
        accepted = trial_accepted(state, known, losses, setup)
        memory = known.memory.refreshed(replies, trial.w, number, setup.regions, state.weights)
        if not accepted and (not noisy or base.fresh):
            return self._rejected(state, known, losses, memory.fragments if exact else None)
        if exact and accepted:
            state = self._compared(state, memory.fragments)
            known = state.known or known
        if accepted and ladder.many and not exact and not noisy:
            known = with_common_pair(known, memory, state.weights, self.options.pairs)
        known, ladder = replace(known, memory=memory), state.ladder
        if accepted and replies.curvature_sum is not None:
            known, ladder = self._newer(replace(state, known=known), known, replies, setup, exact=exact)
        if not accepted:
            return self._rejected_with_noise(state, known, losses, setup)
        if noisy:
            sampling = replace(sampling, length=min(1.0, 2 * sampling.length), n_rejected=0)
            ladder = replace(ladder, sampling=sampling)
        if complete or (ladder.many and trial.step is not None):
            ladder = ladder if base.fresh else ladder.after_memory_step()
        if complete:  # what only some reported is no proof
            known = anchored(known, losses, state.weights, members)
        state = replace(
            state,
            w=trial.w if complete else state.w,
            base=Point(trial.w, losses, at_anchor=complete, fresh=exact),
            ladder=ladder,
        )
        return self._next(state, known, self._estimated_gradient(state, known, setup), setup, exact=exact)

    def _newer(
        self, state: SafeguardedState, known: Known, replies: Replies, setup: Setup, *, exact: bool
    ) -> tuple[Known, Ladder]:
        """With the curvature of the senders that answered."""
        members = state.membership.members
        sent = np.isin(np.arange(len(members)), replies.curvature_senders) & members
        numbers = np.asarray(replies.curvature_sum) / float(setup.weights[members].sum())
        made = self._curvature(state, numbers, sent, setup) if sent[replies.curvature_senders].all() else None
        if made is None:
            return known, state.ladder
        curvature, hessians = made
        if exact and hessians is not None:
            options, fragments = self.options, known.memory.fragments
            hessians = hessians.with_gradients(state.trial.w, fragments, state.weights, options.pairs)
        return replace(known, curvature=curvature, hessians=hessians), state.ladder.with_curvature(self.options)

    # Rule 1.

    def _rejected(self, state: SafeguardedState, known: Known, losses: Array, gradients: Array | None) -> Absorbed:
        """A shorter step where the gradient is that of the base; else it is asked for, at the anchor.

        `gradients`: everyone's at the trial, (N, d), where all of them came.
        """
        ladder, base, step, weights = state.ladder, state.base, state.trial.step, state.weights
        all_reported = _all_reported(state, losses)
        if step is None or not base.fresh:
            state = _back_to_anchor(state, known) if all_reported else state
            return _ask_base(state, *ladder.after_rejection(self.options, everyone=all_reported))
        if ladder.sampling.hessian_batch is not None:  # a sample of the rows proposed it: ask all of them
            all_rows = replace(ladder.sampling, hessian_batch=None)
            return _ask_base(state, replace(ladder, sampling=all_rows, why="refused: a step of a sample"), "hessian")
        if gradients is not None:
            ladder = self._compared(state, gradients).ladder
        elif known.hessians is not None and all_reported:
            changes = np.where(weights > 0, losses - base.losses, 0.0)
            seen = known.hessians.mismatch_of_losses(known.curvature, state.trial.w, changes, weights)
            ladder = replace(ladder, mismatch=seen)
        better = ladder.after_refusal(known, self.options)
        if better is not None:
            return _ask_base(state, better, better.of_these("hessian"))
        used = weights > 0
        ladder, shorter = ladder.backtracked(step, float(weights[used] @ (losses[used] - base.losses[used])))
        if shorter is not None:
            question = ladder.of_these("hessian" if ladder.helps(known, self.options) else "full")
            known = replace(known, owed=shorter.length * shorter.slope)
            state = replace(state, ladder=ladder, known=known, trial=_trial(question, base, shorter))
            return _recorded(state, rejected=True)
        curvature = known.curvature
        if isinstance(curvature, QuasiNewton) and len(curvature.pairs):  # the pairs may be what rounding has spoilt
            known = replace(known, curvature=without_pairs(curvature))
            return _ask_base(replace(state, known=known), ladder, "full")
        if not ladder.at_top and step.given_up() != "converged":  # what more senders would do
            ladder = ladder.on_rung(len(ladder.rungs) - 1, self.options, "refused at any length: all curvature")
            return _ask_base(state, ladder, "hessian")
        status, remark = final_status(step.given_up(), known.initial, base.w, step, final=True)
        return _recorded(replace(state, status=status, remark=remark), rejected=True)

    def _rejected_with_noise(self, state: SafeguardedState, known: Known, losses: Array, setup: Setup) -> Absorbed:
        """With mini-batches a rise may be noise: half a step, from a memory that has learnt what the trial showed."""
        sampling = state.ladder.sampling
        sampling = replace(sampling, n_rejected=sampling.n_rejected + 1, length=sampling.length / 2)
        state = _back_to_anchor(state, known) if _all_reported(state, losses) else state
        if sampling.n_rejected >= NOISY_REJECTIONS and not sampling.at_floor:
            ladder = replace(state.ladder, sampling=replace(sampling, n_rejected=0), why="refused: more than noise")
            return _ask_base(state, ladder, "hessian")
        state = replace(state, ladder=replace(state.ladder, sampling=sampling))
        return self._next(state, known, self._estimated_gradient(state, known, setup), setup, rejected=True)

    def _compared(self, state: SafeguardedState, gradients: Array) -> SafeguardedState:
        """With what everyone's gradients at the trial say: how far off the curvature was, and a pair of the rest."""
        known, trial = state.known, state.trial
        if known is None or known.hessians is None:
            return state
        hessians, exact = known.hessians, trial.step is not None and state.base.fresh
        seen = hessians.mismatch(known.curvature, trial.w, gradients, state.weights) if exact else None
        hessians = hessians.with_gradients(trial.w, gradients, state.weights, self.options.pairs)
        if hessians is known.hessians and seen is state.ladder.mismatch:
            return state  # there is no rest
        return replace(state, ladder=replace(state.ladder, mismatch=seen), known=replace(known, hessians=hessians))

    # Rules 2 to 4.

    def _may_extrapolate(self, state: SafeguardedState, known: Known, setup: Setup) -> bool:
        """Whether curvature is that of everyone, exchanged when progress asks for it, and steps were not too long."""
        refused = state.trial.step is not None and state.trial.step.length < 1
        return known.of_everyone and self.options.curvature_when_needed and not (refused or setup.curvature_jumps)

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
        rejected: bool = False,
    ) -> Absorbed:
        """Line 20's step from the base, and what to ask about the model it leads to; or the end of the run."""
        base, curvature, norm = state.base, known.curvature, np.nan
        if exact:
            if isinstance(curvature, QuasiNewton):
                curvature = curvature.with_gradient(base.w, gradient, state.weights, self.options.pairs)
            known, norm = with_margins(known, base.w, curvature=curvature), math.sqrt(gradient @ gradient)
        share = certain_share(state.ladder.form(self.options), state.ladder.hessian_rows)
        share *= 1.0 if known.hessians is None else known.hessians.share
        if isinstance(curvature, QuasiNewton):  # what the pairs have not seen may be as flat as the part says
            share *= min(curvature.scales[0], 1.0)
        step = Step.down(curvature, gradient, known.scale).with_curvature_of(share)
        if exact and self._may_extrapolate(state, known, setup):
            last, age = _last(state), state.ladder.since_hessian
            if last is None and setup.log_odds_from_null and np.array_equal(base.w, setup.w0):
                length = length_from_null(-step.slope)
            else:
                length = extrapolated_length(last, curvature, base.w, gradient, age)
            step = replace(step, length=length)
        ladder, step, question = state.ladder.after(step, state, known, self.options, setup, exact=exact)
        status, remark = (None, None) if question else final_status("converged", known.initial, base.w, step)
        if exact:
            initial = None if known.initial is None else known.initial.after(step.direction)
            known = replace(known, owed=step.length * step.slope, initial=initial)
        trial = _trial(question or "full", base, step) if status is None else state.trial
        state = replace(state, trial=trial, ladder=ladder, known=known, status=status, remark=remark)
        return _recorded(state, exact_norm=norm, rejected=rejected)


def _last(state: SafeguardedState) -> WholeGradient | None:
    """The whole gradient before the newest one, of the same workers."""
    curvature = None if state.known is None else state.known.curvature
    last = curvature.pairs.newest if isinstance(curvature, QuasiNewton) else None
    return last if last is not None and last.same_workers(state.weights) else None


def _all_reported(state: SafeguardedState, losses: Array) -> bool:
    """Whether every member reported its loss."""
    return not np.isnan(losses[state.membership.members]).any()


def _back_to_anchor(state: SafeguardedState, known: Known) -> SafeguardedState:
    """The anchor as the base; not where only some reported, as the base may be the better one."""
    return replace(state, base=replace(state.base, w=state.w, losses=known.losses, at_anchor=True))


def _trial(question: Question, base: Point, step: Step) -> Trial:
    return Trial(question, base.w + step.length * step.direction, step)


def _ask_base(state: SafeguardedState, ladder: Ladder, question: Question) -> Absorbed:
    """Ask about the base itself, after a trial was rejected, and go on from there."""
    base = replace(state.base, fresh=False)
    return _recorded(replace(state, base=base, trial=Trial(question, base.w), ladder=ladder), rejected=True)


def _recorded(state: SafeguardedState, *, exact_norm: float = np.nan, rejected: bool = False) -> Absorbed:
    """The state, and what the exchange showed."""
    lost = np.flatnonzero(~state.membership.alive).tolist() if state.status == "quorum_lost" else ()
    objective = np.nan if state.known is None else objective_at_anchor(state.known, state.weights)
    return state, Info(
        state.ladder.decrement, objective=objective, exact_norm=exact_norm, trial_rejected=rejected, lost=tuple(lost)
    )
