"""What the safeguarded loop keeps from exchange to exchange."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from danl.methods.acceptance import Step
from danl.methods.base import Status
from danl.methods.membership import Membership
from danl.methods.stopping import InitialCurvature, Remark
from danl.protocol.messages import Array, Mask
from danl.protocol.replies import Replies
from danl.server.curvature import Curvature
from danl.server.memory import Memory
from danl.storage.serialize import storable

if TYPE_CHECKING:
    from danl.methods.questions import Progress

Question = Literal["hessian", "gradient", "full", "loss"]


@storable
@dataclass(frozen=True)
class Answers:
    """Answers to a question that needs everyone, collected over as many exchanges as it takes."""

    answered: Mask  # (N,)
    losses: Array  # (N,), nan where there is no answer
    gradients: Array  # (N, d), 0 where there is no answer
    hessian: Array | float = 0.0  # sum of weight_i times the packed Hessians so far, or parts of them

    @classmethod
    def none(cls, n_workers: int, d: int) -> Answers:
        return cls(np.zeros(n_workers, dtype=bool), np.full(n_workers, np.nan), np.zeros((n_workers, d)))

    def with_replies(self, replies: Replies) -> Answers:
        here, hessian, gradients = replies.workers, self.hessian, self.gradients
        answered, losses = self.answered.copy(), self.losses.copy()
        answered[here], losses[here] = True, replies.losses_of_all(len(losses))[here]
        if replies.gradients is not None and len(here) == len(gradients):
            gradients = replies.gradients
        elif replies.gradients is not None:
            gradients = gradients.copy()
            gradients[replies.senders] = replies.gradients
        if replies.curvature_sum is not None:
            hessian = hessian + replies.curvature_sum
        return Answers(answered, losses, gradients, hessian)


@storable
@dataclass(frozen=True)
class Point:
    """An accepted model that steps are taken from."""

    w: Array
    losses: Array  # (N,): F_i(w), nan where a worker did not report it
    at_anchor: bool = False  # every member reported its loss: it is the anchor
    fresh: bool = False  # and the step from it is exact: from everyone's gradient, and the curvature, of this model


@storable
@dataclass(frozen=True)
class Trial:
    """What is being asked, and about which model."""

    question: Question
    w: Array
    step: Step | None = None  # that leads there; None: the model is the base
    answers: Answers | None = None  # so far


@storable
@dataclass(frozen=True)
class Known:
    """What the server has learnt once Phase I is over."""

    curvature: Curvature
    memory: Memory
    losses: Array  # (N,): at the anchor, nan for workers that were not members then
    scale: float  # of the objective there: sum_i weight_i |F_i|
    largest: float = 0.0  # of these so far
    initial: InitialCurvature | None = None  # where some coefficients have no penalty: to see those that have no end


@storable
@dataclass(frozen=True)
class SafeguardedState:
    """The anchor, the model steps are taken from, what is asked about the trial model, and what the server keeps."""

    w: Array  # the anchor, which the run returns: the newest accepted model whose loss every member reported
    weights: Array  # (N,): what each worker counts in the objective; sums to 1
    base: Point
    trial: Trial
    membership: Membership
    progress: Progress
    known: Known | None = None
    round: int = 0  # masked rounds so far, the paper's t
    status: Status | None = None
    remark: Remark | None = None  # what the end of the run says of the model

    @property
    def notes(self) -> tuple[str, ...]:
        return () if self.known is None else self.membership.notes

    def reopened(self) -> SafeguardedState:
        """For a run that had ended and goes on: workers may be back, a smaller tolerance is to be reached."""
        return replace(self, status=None, membership=self.membership.reopened(), progress=self.progress.reopened())
