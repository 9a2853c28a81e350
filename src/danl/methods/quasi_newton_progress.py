r"""Which question comes next where only a part of the Hessian is exchanged, for many coefficients.

The curvature is a block for every region, a low-rank sketch or a diagonal (`danl.protocol.hessian_form`), exchanged at
the start and again where that helps. Every whole gradient that everyone sent makes it better: it is the initial matrix
of limited-memory BFGS (`danl.server.quasi_newton`), which costs nothing on the wire. What the loop of
`danl.methods.safeguarded` asks of Hessians is asked of whole gradients here, which are far smaller:

    1  a step from everyone's whole gradient is one of descent, and is tried at length 1; one that is rejected is
       shortened, to where the parabola through both losses and the slope is lowest, and asked about again
    2  a step from the memory that is rejected: whole gradients at the anchor; the next such step is half as long, and
       grows by GROWTH with every one that is accepted
    3  masked rounds that gain less than WORTH of what a step from a whole gradient gained, or that were rejected twice
       in a row: 1, 2, 4, ... steps from whole gradients before the next masked round
    4  the decrements have contracted slower than promised since curvature was exchanged: it is exchanged again, after
       as many steps as it has numbers of gradients; after twice as many where the last exchange has not helped

Without pairs (`pairs=0`) steps from whole gradients have a remembered length, too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

import numpy as np

from danl.methods.acceptance import Step, objective_at_anchor
from danl.methods.base import Setup
from danl.methods.questions import Progress, Sampling, nobody_sent
from danl.storage.serialize import storable

if TYPE_CHECKING:
    from danl.methods.danl import DANL
    from danl.methods.safeguarded_state import Known, Question, SafeguardedState

GROWTH = 1.1
"""By how much a remembered length grows with every step that is accepted."""
WORTH = 0.5
"""Masked rounds go on while they gain this share of what a step from everyone's whole gradient gained."""
HELPED = 0.9
"""New curvature helped when the decrements shrink to this share, at most, of what they shrank to a step before."""
MOST_DETOURS = 6
"""After so many stretches of slow masked rounds, 2^5 steps from whole gradients are taken between two of them."""
MOST_WITHOUT_HALVING = 20
"""At rounding level, a gradient that has not halved over so many exact ones will not."""


@storable
@dataclass(frozen=True)
class Stretch:
    """Masked rounds since everyone's whole gradient was known, and their gain; nan where not everyone reported."""

    objective: float  # the newest
    whole: float = np.nan  # what the step from that gradient gained
    begin: float = np.nan  # the objective where the stretch begins: after that step, and every few rounds again
    rounds: int = -1  # since then
    number: int = 0  # of the stretch

    def after(self, objective: float) -> Stretch:
        """One round more; the first one tells what the step from the whole gradient gained."""
        if self.rounds < 0:
            return Stretch(objective, whole=self.objective - objective, begin=objective, rounds=0)
        return replace(self, objective=objective, rounds=self.rounds + 1)

    def next(self) -> Stretch:
        return replace(self, begin=self.objective, rounds=0, number=self.number + 1)

    def gained_enough(self) -> bool:
        """Whether its rounds gained enough; where not everyone reported, nobody knows."""
        return self.begin - self.objective >= WORTH * self.rounds * self.whole


@storable
@dataclass(frozen=True)
class QuasiNewtonProgress(Progress):
    """With parts of Hessians and the pairs of whole gradients."""

    probe = "full"

    shortest_wait: int = 1  # steps whose gradients are as many numbers as the curvature
    wait: int = 1  # steps from one curvature exchange to the next, if progress is slow
    length: float = 1.0  # of steps that are not exact: halved when one is rejected, grown when one is accepted
    gain: float = np.inf  # of the step at the newest curvature exchange
    rate: float = np.inf  # how the gains shrank a step before it
    stretch: Stretch = Stretch(np.nan)  # since everyone's whole gradient was known
    slow: int = 0  # stretches of masked rounds in a row that were too slow
    lowest: float = np.inf  # the decrement at the last exact gradient that halved it
    n_without_halving: int = 0  # exact gradients since

    @classmethod
    def start(cls, sampling: Sampling, options: DANL, setup: Setup) -> QuasiNewtonProgress:
        """Curvature costs as many numbers as the gradients, up and down, of so many steps."""
        numbers = options.hessian_form.numbers(setup.regions)
        wait = max(options.window, numbers // (2 * setup.n_coefficients))
        return cls(sampling, shortest_wait=wait, wait=wait)

    def after(
        self, step: Step, state: SafeguardedState, known: Known, options: DANL, tol: float, *, exact: bool, newton: bool
    ) -> tuple[Progress, Step, Question | None]:
        progress = replace(self, since_hessian=self.since_hessian + 1, decrement=step.decrement)
        if state.trial.step is not None:
            progress = replace(progress, length=min(1.0, GROWTH * self.length))
        length = progress.length if exact or self.sampling.batch_size is None else self.sampling.length
        step = replace(step, length=1.0 if exact and options.pairs > 0 else length)
        objective = objective_at_anchor(known, state.weights) if state.base.at_anchor else np.nan
        progress = replace(progress, stretch=Stretch(objective) if exact else self.stretch.after(objective))
        if exact:
            progress = progress._after_exact(step, first=self.since_hessian == 0)
            if step.decrement <= tol or (step.negligible and progress.n_without_halving >= MOST_WITHOUT_HALVING):
                return progress, step, None
            progress = replace(progress, sampling=self.sampling.after_hessians(step.gain, finish=options.finish))
        settled = step.decrement <= tol or step.negligible
        progress, question = progress._question(state, known, options, step, settled=settled)
        return progress, step, question

    def _after_exact(self, step: Step, *, first: bool) -> QuasiNewtonProgress:
        """After everyone's whole gradient; `first`: with new curvature."""
        halved = step.decrement <= self.lowest / 2
        progress = replace(
            self,
            detour=max(self.detour - 1, 0),
            lowest=step.decrement if halved else self.lowest,
            n_without_halving=0 if halved else self.n_without_halving + 1,
        )
        return replace(progress, gain=step.gain) if first else progress

    def _question(
        self, state: SafeguardedState, known: Known, options: DANL, step: Step, *, settled: bool
    ) -> tuple[QuasiNewtonProgress, Question]:
        since = max(self.since_hessian - 1, 1)
        rate = float((step.gain / self.gain) ** (1.0 / since)) if self.gain > 0 else 0.0
        slow = self.since_hessian > self.wait and rate > options.contraction
        if state.membership.regroup:
            return self, "hessian"
        if state.base.fresh and slow and not settled:
            # If the newest curvature exchange did not help, double the wait.
            wait = self.shortest_wait if rate <= HELPED * self.rate else 2 * self.wait
            return replace(self, rate=rate, wait=wait), "hessian"
        if settled or self.detour > 0 or nobody_sent(state, known, options.gamma_max):
            return self, "full"
        if self.stretch.rounds != options.window:
            return self, "gradient"
        if self.stretch.gained_enough():
            return replace(self, slow=0, stretch=self.stretch.next()), "gradient"
        times = min(self.slow + 1, MOST_DETOURS) if self.stretch.number == 0 else 0
        return replace(self, slow=times, detour=2 ** max(times - 1, 0)), "full"

    def after_rejection(self) -> Self:
        return replace(super().after_rejection(), length=self.length / 2)

    def backtracked(self, step: Step, rise: float) -> tuple[Progress, Step | None]:
        """Where the parabola through both losses and the slope is lowest, between a tenth and half of the step."""
        shorter = step.shorter()
        if shorter is None:
            return self, None
        if np.isfinite(rise):  # else somebody did not report
            second_derivative = (rise - step.length * step.slope) / step.length**2
            best = -step.slope / (2 * second_derivative) if second_derivative > 0 else step.length
            shorter = replace(step, length=float(np.clip(best, 0.1 * step.length, 0.5 * step.length)))
        return replace(self, length=min(self.length, shorter.length)), shorter
