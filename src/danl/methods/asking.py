"""The exchange that puts a question of the safeguarded loop: what is asked of whom.

masked, gradient     everyone, on the policy's masks or for all of it
curvature            everyone's whole gradient, and the curvature of the senders
full, hessian        the same, at first of everyone, then again of those missing; where masks bind, of each what it
manages in one exchange (`danl.methods.portions`)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from danl.frozen import at_once, cached_property
from danl.methods.base import Setup, Turn
from danl.methods.curvature_exchange import hessian_task, sketch_number
from danl.methods.portions import Portions
from danl.methods.questions import masked_round
from danl.methods.safeguarded_state import Answers, SafeguardedState
from danl.objective.regions import IntArray
from danl.protocol.messages import CurvatureTask, Exchange, GradientTask, HessianTask, LossTask, Mask

if TYPE_CHECKING:
    from danl.methods.danl import DANL


@at_once
@dataclass(frozen=True)
class Asking:
    """What the state of a run wants to know."""

    options: DANL
    setup: Setup
    state: SafeguardedState

    def exchange(self, turn: Turn) -> Exchange:
        """The next exchange."""
        setup, trial, number = self.setup, self.state.trial, turn.exchange
        everyone = np.arange(setup.n_workers)
        if trial.question == "curvature":
            return self._with_curvature(number, everyone)
        if trial.question in ("masked", "gradient"):
            batch, of_round = self.state.ladder.sampling.batch_size, self.state.round + 1
            template = GradientTask(number, trial.w, round=of_round, batch_size=batch, whole_loss=True)
            if trial.question == "masked":
                return masked_round(template, setup, turn, idle=LossTask(number, trial.w))
            return setup.ask_everyone("gradient", template)
        if setup.limits is not None:
            return self._portions(number)
        asked = everyone if trial.answers is None else np.flatnonzero(self.awaited)
        if trial.question == "full":
            return Exchange("gradient", GradientTask(number, trial.w), asked)
        return self._with_curvature(number, asked)

    @cached_property
    def awaited(self) -> Mask:
        """Whom a question that needs everyone still waits for, (N,)."""
        return self.awaited_after(self._answers)

    def awaited_after(self, answers: Answers) -> Mask:
        """The same when these answers have come."""
        membership, here = self.state.membership, answers.answered
        if self.state.trial.question == "full":
            return np.asarray(membership.members & membership.alive & ~here)
        return np.asarray(membership.alive & ~(here & (answers.sent | ~self._senders)))

    @cached_property
    def _answers(self) -> Answers:
        return self.state.trial.answers or Answers.none(self.setup.n_workers, self.setup.regions)

    @cached_property
    def _senders(self) -> Mask:
        return self.state.ladder.senders(self.setup, self.state.membership.alive)

    @property
    def _numbers(self) -> int:
        """Of a worker's curvature."""
        return self.state.ladder.form(self.options).numbers(self.setup.regions)

    def _hessian_task(self, number: int) -> HessianTask | CurvatureTask:
        ladder, options = self.state.ladder, self.options
        sketch, batch, w = (
            sketch_number(ladder.form(options), self.setup, ladder.n_exchanged),
            ladder.hessian_rows,
            self.state.trial.w,
        )
        by_leverage = batch is not None and self.setup.limits is None
        return hessian_task(
            ladder.form(options),
            number,
            w,
            dtype=ladder.dtype,
            sketch=sketch,
            hessian_batch=batch,
            leverage=by_leverage,
        )

    def _with_curvature(self, number: int, asked: IntArray) -> Exchange:
        """Whole gradients of some workers, and the curvature of the senders among them."""
        senders, task = self._senders[asked], self._hessian_task(number)
        if np.count_nonzero(senders) == len(senders):
            return Exchange("hessian", task, asked)
        numbers = np.where(senders, self._numbers, 0)
        return Exchange("hessian", task, asked, pieces=np.stack([np.zeros_like(numbers), numbers], axis=1))

    def _portions(self, number: int) -> Exchange:
        """Of what is still missing, what each worker manages in one exchange."""
        trial, ladder, answers, count = self.state.trial, self.state.ladder, self._answers, self.setup.n_workers
        awaited = np.ones(count, dtype=bool) if trial.answers is None else self.awaited
        missing, first = ~answers.came & awaited[:, None], np.zeros(count, dtype=np.int64)
        unsent = np.zeros(count, dtype=np.int64)
        if trial.question == "hessian":
            first[list(answers.portions)] = [len(own) for own in answers.portions.values()]
            unsent = np.where(self._senders & ~answers.sent & awaited, self._numbers - first, 0)
        portions = Portions(self.options, self.setup, ladder.dtype, ladder.hessian_rows)
        masks, more = portions.next(missing, unsent, answers.kept)
        asked = np.flatnonzero(awaited)
        masks, pieces, kept = masks[asked], np.stack([first, first + more], axis=1)[asked], answers.kept[asked]
        if not more.any():
            idle = LossTask(number, trial.w)
            return Exchange("gradient", GradientTask(number, trial.w), asked, masks, idle=idle, kept=kept)
        return Exchange("hessian", self._hessian_task(number), asked, masks, pieces=pieces, kept=kept)
