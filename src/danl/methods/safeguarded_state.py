"""What the safeguarded loop keeps from exchange to exchange."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from danl.frozen import at_once, replace
from danl.methods.acceptance import Step
from danl.methods.base import Status
from danl.methods.ladder import Ladder
from danl.methods.membership import Membership
from danl.methods.questions import Question
from danl.methods.stopping import InitialCurvature, Remark
from danl.objective.regions import Regions
from danl.protocol.messages import Array, Mask, pack
from danl.protocol.replies import Replies
from danl.server.curvature import Curvature
from danl.server.memory import Memory
from danl.server.some_hessians import SomeHessians
from danl.storage.serialize import storable

UNCONFIRMED = "a newer model is known, but not everyone has reported its loss: more rounds would confirm it"


@storable
@at_once
@dataclass(frozen=True)
class Answers:
    """Answers to a question that needs everyone, collected over as many exchanges as it takes."""

    losses: Array  # (N,), nan where there is no answer
    gradients: Array  # (N, d), 0 where there is no answer
    came: Mask  # (N, Q): the regions of each worker's gradient that have come
    sent: Mask  # (N,): who has sent all of its curvature
    kept: Mask  # (N,): who has the margins of this model: one that missed an exchange may have been started anew
    hessian: Array | float = 0.0  # sum of weight_i times their packed Hessians, or parts of them
    portions: Mapping[int, Array] = field(default_factory=dict)  # of the curvature of those who have not yet sent all

    @classmethod
    def none(cls, n_workers: int, regions: Regions) -> Answers:
        came = np.zeros((n_workers, regions.n_regions), dtype=bool)
        zeros = np.zeros((n_workers, regions.n_coefficients))
        nobody = np.zeros(n_workers, dtype=bool)
        return cls(np.full(n_workers, np.nan), zeros, came, nobody, nobody)

    @classmethod
    def of(cls, replies: Replies, regions: Regions, weights: Array, numbers: int) -> Answers:
        """What the first exchange brought: all there is, as a rule."""
        n_workers, sent = len(weights), replies.curvature_senders
        at_once = replies.gradients is not None and replies.masks is None and len(replies.senders) == n_workers
        if not at_once or (replies.curvatures and replies.curvature_sum is None):
            return cls.none(n_workers, regions).with_replies(replies, regions, weights, numbers)
        everyone, curved = np.ones(n_workers, dtype=bool), np.zeros(n_workers, dtype=bool)
        came, hessian = np.ones((n_workers, regions.n_regions), dtype=bool), replies.curvature_sum
        if hessian is not None:
            curved[sent] = True
        gradients, total = np.asarray(replies.gradients), 0.0 if hessian is None else hessian
        return cls(replies.losses_of_all(n_workers), gradients, came, curved, everyone, total)

    @property
    def complete(self) -> bool:
        """Whether everyone has sent everything."""
        return bool(np.count_nonzero(self.came) == self.came.size and np.count_nonzero(self.sent) == self.sent.size)

    @property
    def answered(self) -> Mask:
        """Whose whole gradient has come, (N,)."""
        return np.asarray(self.came.all(axis=1))

    def with_replies(self, replies: Replies, regions: Regions, weights: Array, numbers: int) -> Answers:
        """With what an exchange brought; `numbers` is how many a worker's curvature has."""
        here, came = replies.workers, self.came | replies.trained(*self.came.shape)
        losses, gradients, kept = self.losses.copy(), self.gradients, self.kept.copy()
        kept[list(replies.failures)], kept[here] = False, True
        losses[here] = replies.losses_of_all(len(losses))[here]
        if replies.gradients is not None and replies.masks is None and len(here) == len(gradients):
            gradients = replies.gradients
        elif replies.gradients is not None:
            gradients = gradients.copy()
            if replies.masks is None:
                gradients[replies.senders] = replies.gradients
            else:
                fresh = replies.masks[np.searchsorted(here, replies.senders)][:, regions.of_coefficient]
                gradients[replies.senders] = np.where(fresh, replies.gradients, gradients[replies.senders])
        made = replace(self, losses=losses, gradients=gradients, came=came, kept=kept)
        if replies.curvature_sum is not None:
            sent = self.sent.copy()
            sent[replies.curvature_senders] = True
            return replace(made, hessian=_added(self.hessian, replies.curvature_sum), sent=sent)
        return made._with_portions(replies, weights, numbers) if replies.curvatures else made

    def _with_portions(self, replies: Replies, weights: Array, numbers: int) -> Answers:
        portions, sent, hessian = dict(self.portions), self.sent.copy(), self.hessian
        for worker, piece in replies.curvatures.items():
            whole = np.concatenate([portions.pop(worker, np.zeros(0)), np.asarray(piece, dtype=float)])
            if len(whole) < numbers:
                portions[worker] = whole
                continue
            sent[worker], hessian = True, _added(hessian, weights[worker] * whole)
        return replace(self, portions=portions, sent=sent, hessian=hessian)


def _added(total: Array | float, numbers: Array) -> Array:
    """The sum of curvature so far and more of it: packed, where one of them is packed and the other a whole matrix."""
    if isinstance(total, np.ndarray) and total.ndim != numbers.ndim:
        total, numbers = (each if each.ndim == 1 else pack(each) for each in (total, numbers))
    return np.asarray(total + numbers)


@storable
@at_once
@dataclass(frozen=True)
class Point:
    """An accepted model that steps are taken from."""

    w: Array
    losses: Array  # (N,): F_i(w), nan where a worker did not report it
    at_anchor: bool = False  # every member reported its loss: it is the anchor
    fresh: bool = False  # and the step from it is exact: from everyone's whole gradient at this model


@storable
@at_once
@dataclass(frozen=True)
class Trial:
    """What is being asked, and about which model."""

    question: Question
    w: Array
    step: Step | None = None  # that leads there; None: the model is the base
    answers: Answers | None = None  # so far


@storable
@at_once
@dataclass(frozen=True)
class Known:
    """What the server has learnt once Phase I is over."""

    curvature: Curvature
    memory: Memory
    losses: Array  # (N,): at the anchor, nan for workers that were not members then
    scale: float  # of the objective there: sum_i weight_i |F_i|
    largest: float = 0.0  # of these so far
    owed: float = 0.0  # length * slope of the exact step from the anchor: its decrease is asked of the next anchor
    hessians: SomeHessians | None = None  # what the curvature is made of, where Hessians are whole
    initial: InitialCurvature | None = None  # where some coefficients have no penalty: to see those that have no end

    @property
    def of_everyone(self) -> bool:
        """Whether curvature is that of everyone, not of some who stand in for the others."""
        return self.hessians is None or self.hessians.everyone


@storable
@at_once
@dataclass(frozen=True)
class SafeguardedState:
    """The anchor, the model steps are taken from, what is asked about the trial model, and what the server keeps."""

    w: Array  # the anchor, which the run returns: the newest accepted model whose loss every member reported
    weights: Array  # (N,): what each worker counts in the objective; sums to 1
    base: Point
    trial: Trial
    membership: Membership
    ladder: Ladder
    known: Known | None = None
    round: int = 0  # masked rounds so far, the paper's t
    status: Status | None = None
    remark: Remark | None = None  # what the end of the run says of the model

    @property
    def notes(self) -> tuple[str, ...]:
        if self.known is None:
            return ()
        older = () if self.base.at_anchor else (UNCONFIRMED,)
        return (*self.membership.notes, *older)

    @property
    def why(self) -> str:
        """Why the next question is asked."""
        return self.ladder.why if self.trial.answers is None else "what was missing"

    def reopened(self) -> SafeguardedState:
        """For a run that had ended and goes on: workers may be back, a smaller tolerance is to be reached."""
        return replace(self, status=None, membership=self.membership.reopened(), ladder=self.ladder.reopened())
