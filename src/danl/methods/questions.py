"""What is asked: the masks of a round, and which question comes next where Hessians are exchanged whole."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal, Self

import numpy as np

from danl.methods.acceptance import Step
from danl.methods.base import Setup, Turn
from danl.policies.base import Round
from danl.policies.masks import validated_masks, with_a_region
from danl.policies.planned import Full
from danl.protocol.messages import Exchange, GradientTask, Task
from danl.protocol.streams import PLANNED_MASKS, stream
from danl.storage.serialize import storable

if TYPE_CHECKING:
    from danl.methods.danl import DANL
    from danl.methods.safeguarded_state import Known, Question, SafeguardedState

STILL_HELPS = 0.9
"""With mini-batches, a Hessian exchange helped when the exact decrement fell at least to this share since the last."""


def masked_round(template: GradientTask, setup: Setup, turn: Turn, idle: Task | None = None) -> Exchange:
    """Line 11 of Algorithm 1: the template with every worker's mask, planned here or left to a policy of the worker.

    A worker without a region this round gets `idle`, or is not bothered at all.
    """
    everyone = np.arange(len(setup.weights))
    if setup.policy.side == "worker":
        return Exchange("gradient", replace(template, choose=True), everyone)
    if isinstance(setup.policy, Full):  # without the generator, which takes longer to make than a small gradient
        return Exchange("gradient", template, everyone, np.ones(turn.staleness.shape, dtype=bool), idle)
    rng = stream(setup.seed, PLANNED_MASKS, template.round)
    view = Round(setup.setting, template.round, template.w, turn.staleness, rng, setup.regions)
    masks = validated_masks(setup.policy.masks(view), policy=setup.policy, round=view)
    if idle is None:
        busy = with_a_region(masks)
        everyone, masks = everyone[busy], masks[busy]
    return Exchange("gradient", template, everyone, masks, idle)


@storable
@dataclass(frozen=True)
class Sampling:
    """Which rows are sampled, and how a run with mini-batches stands towards the noise of its gradients."""

    batch_size: int | None = None  # of gradients; None: they are of whole shards
    hessian_batch: int | None = None
    length: float = 1.0  # of the steps: halved when one is rejected, doubled when one is accepted
    n_rejected: int = 0  # in a row
    gain: float = np.inf  # at the last Hessian exchange, where the gradient is exact
    at_floor: bool = False  # new curvature does not help any more

    def after_hessians(self, gain: float, *, finish: bool) -> Sampling:
        """Where they no longer helped, noise is what is left: on to whole shards, to finish."""
        if self.batch_size is None:
            return self
        if gain <= STILL_HELPS * self.gain:
            return Sampling(self.batch_size, self.hessian_batch, gain=gain)
        return replace(self, batch_size=None) if finish else replace(self, at_floor=True)


@dataclass(frozen=True)
class Progress:
    """How a run gets on, and what it asks next for that."""

    probe: ClassVar[Literal["hessian", "full"]]
    """What is asked where the next step is to be exact: Hessians, or everyone's whole gradient."""

    sampling: Sampling
    n_exchanged: int = 0  # Hessian exchanges so far, that of Phase I included
    decrement: float = np.nan  # relative, the newest, from whatever gradient there was
    since_hessian: int = 0  # steps since the last Hessian exchange
    n_rejected: int = 0  # steps from the memory that were rejected since one was accepted
    detour: int = 0  # exact steps to take before masked rounds are tried again

    def after(
        self, step: Step, state: SafeguardedState, known: Known, options: DANL, tol: float, *, exact: bool, newton: bool
    ) -> tuple[Progress, Step, Question | None]:
        """The progress after a step was found, the step with its length, and what to ask where it leads; None: the end.

        `exact`: the gradient is everyone's, whole, and of the base. `newton`: so was that of the step to the base.
        """
        raise NotImplementedError

    def after_rejection(self) -> Self:
        """A step from the memory was rejected: after the second in a row, 2, 4, 8, ... exact steps before the next."""
        n_rejected = self.n_rejected + 1
        return replace(self, n_rejected=n_rejected, detour=0 if n_rejected < 2 else 2 ** min(n_rejected - 1, 6))

    def with_hessians(self) -> Self:
        """Curvature was exchanged."""
        detour = max(self.detour - 1, 0)
        return replace(self, n_exchanged=self.n_exchanged + 1, since_hessian=0, detour=detour)

    def backtracked(self, step: Step, rise: float) -> tuple[Progress, Step | None]:
        """A shorter step after an exact one was rejected, with the rise of the objective; None where none would do."""
        return self, step.shorter()

    def regrouped(self) -> Self:
        """The objective is that of other workers."""
        return self

    def reopened(self) -> Self:
        """For a run that had ended and goes on."""
        return replace(self, decrement=np.inf)


@storable
@dataclass(frozen=True)
class NewtonProgress(Progress):
    """With whole Hessians: they are exchanged where the decrements contract slower than promised."""

    probe = "hessian"

    gains: tuple[float, ...] = ()  # of the newest steps since the last Hessian exchange
    exact_decrement: float = np.inf  # of the last gradient everyone sent in full

    def after(
        self, step: Step, state: SafeguardedState, known: Known, options: DANL, tol: float, *, exact: bool, newton: bool
    ) -> tuple[Progress, Step, Question | None]:
        stalled = exact and step.negligible and step.decrement >= self.exact_decrement / 2
        # At the tolerance; or at rounding level, where not even a Newton step makes the gradient smaller.
        done = exact and (step.decrement <= tol or (stalled and newton))
        sampling, fresh = self.sampling, state.base.fresh
        if not fresh and sampling.batch_size is not None:
            step = replace(step, length=sampling.length)
        progress = replace(
            self,
            sampling=sampling.after_hessians(step.gain, finish=options.finish) if fresh and not done else sampling,
            decrement=step.decrement,
            since_hessian=self.since_hessian + 1,
            gains=(*self.gains, step.gain)[-options.window - 1 :],
            exact_decrement=step.decrement if exact else self.exact_decrement,
        )
        if done:
            return progress, step, None
        settled = step.decrement <= tol or step.negligible
        if stalled or progress._hessians_due(state, known, options, settled):
            return progress, step, "hessian"
        return progress, step, "full" if settled else "gradient"

    def _hessians_due(self, state: SafeguardedState, known: Known, options: DANL, settled: bool) -> bool:
        if state.membership.regroup:
            return True
        if isinstance(options.curvature, int):
            return self.since_hessian >= options.curvature
        if state.base.fresh and self.detour > 0 and not settled:
            return True
        if nobody_sent(state, known, options.gamma_max):
            return True
        if settled or len(self.gains) <= options.window or self.sampling.batch_size is not None:
            return False  # with mini-batches decrements tell little: rejected steps ask for curvature
        return self.gains[-1] > options.contraction**options.window * self.gains[0]

    def with_hessians(self) -> Self:
        return replace(super().with_hessians(), gains=())

    def regrouped(self) -> Self:
        return replace(self, exact_decrement=np.inf)

    def reopened(self) -> Self:
        return replace(super().reopened(), exact_decrement=np.inf)


def nobody_sent(state: SafeguardedState, known: Known, rounds: int) -> bool:
    """Whether there is a region that no member has sent anything about for more than so many rounds."""
    newest = known.memory.stamps[state.membership.members].max(axis=0)
    return bool(state.round - newest.min() > rounds)
