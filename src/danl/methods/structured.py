r"""The safeguarded loop for many coefficients: curvature that is a part of the Hessian, bent by the gradients seen.

The curvature is a block for every region, a low-rank sketch or a diagonal (`danl.core.structure`), made at the start and
again where that helps. From then on every whole gradient that everyone sent makes it better: it is the initial matrix
of a limited-memory BFGS direction (`danl.core.structured.QuasiNewton`), which costs nothing on the wire. What the loop of
`danl.methods.safeguarded` asks of Hessians is asked of whole gradients first, which are far smaller:

    1  a step from everyone's whole gradient is one of descent: tried at length 1; refused, a shorter one (where the
       parabola through both losses and the slope is lowest) is asked about, with whole gradients
    2  a step from the memory that is refused: back to the anchor, whole gradients there; the next such step is half as
       long, and grows by GROWTH with every one that is taken
    3  masked rounds whose decrements contract slower than promised, or that were refused twice in a row: 1, 2, 4, ...
       steps from whole gradients before the next masked round
    4  curvature is exchanged again when the decrements have contracted slower than promised since it was exchanged, after
       as many steps as its numbers are worth in gradients; after twice as many each time it has not helped
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from danl.core.messages import Array, CurvatureTask, Replies
from danl.core.streams import SKETCH, stream
from danl.core.structure import Structure
from danl.core.structured import Curved, QuasiNewton, build
from danl.methods.armijo import at_rounding, given_up, shorter
from danl.methods.base import Setup
from danl.methods.safeguarded import Safeguarded
from danl.methods.safeguarded_state import (
    Known,
    Pace,
    SafeguardedState,
    Step,
    ask_at,
    ask_gradients,
    back_to_anchor,
    distrust,
    exchange_hessians,
)

GROWTH = 1.1
"""By how much a remembered length grows with every step that is taken."""
HELPED = 0.9
"""New curvature helped when the decrements shrink at least this much faster with it than before."""
IDLE = 20
"""At rounding level, a gradient that has not halved over so many exact ones will not."""


@dataclass(frozen=True)
class Structured(Safeguarded):
    """The loop that looks first, with structured curvature."""

    structure: Structure = Structure("diag")

    def begin(self, setup: Setup) -> SafeguardedState:
        return replace(super().begin(setup), pace=Pace(self._shortest_wait(setup)))

    def _shortest_wait(self, setup: Setup) -> int:
        """Steps whose gradients are as many numbers as the curvature, and `window` at least."""
        return max(self.options.window, self.structure.numbers(setup.regions) // (2 * setup.n_features))

    # Curvature.

    def _curvature_task(self, state: SafeguardedState, setup: Setup, exchange: int) -> CurvatureTask:
        return CurvatureTask(
            exchange,
            state.trial,
            self.structure.kind,
            self.structure.rank,
            _sketch_number(state, setup),
            hessian_batch=state.hessian_batch,
            dtype=self.options.hessian_dtype,
        )

    def _read(self, replies: Replies) -> Replies:
        return replies

    def _curvature(self, state: SafeguardedState, numbers: Array, weights: Array, setup: Setup) -> Curved | None:
        """New curvature, bent by the pairs there are; those of other members are let go when they are looked at."""
        if not np.isfinite(numbers).all():
            return None
        mu = setup.floor(self.options.mu, weights)
        made = build(
            self.structure, numbers, setup.regions, mu, _sketch_number(state, setup), self.options.hessian_dtype
        )
        if state.known is None:
            return QuasiNewton.start(made, setup.n_features)
        return replace(_bent(state.known), initial=made)

    # What to do with a trial that is not low enough.

    def _refuse(self, state: SafeguardedState, known: Known, losses: Array) -> SafeguardedState:
        """A shorter step from a whole gradient; from the memory none, but whole gradients at the anchor."""
        pace = _pace(state)
        if not (state.fresh and state.step is not None):
            state = replace(state, pace=replace(pace, length=pace.length / 2))
            return ask_gradients(back_to_anchor(distrust(state), known, losses))
        if state.hessian_batch is not None:  # a sample of the rows proposed it: ask all of them
            return exchange_hessians(replace(state, hessian_batch=None))
        step = state.step
        if at_rounding(-step.length * step.slope, known.scale):
            return replace(state, status=given_up(step.decrement, known.scale))
        length = _lowest(state, losses, step)
        state = replace(state, pace=replace(pace, length=min(pace.length, length)))
        return ask_at(replace(state, ask="full"), replace(step, length=length))

    # Where to go next.

    def _next(
        self,
        state: SafeguardedState,
        known: Known,
        gradient: Array,
        setup: Setup,
        *,
        exact: bool = False,
        newton: bool = False,
    ) -> SafeguardedState:
        """A step from the new model, the end of the run, or what to ask about the model it leads to."""
        options, pace, norm = self.options, _pace(state), float(np.linalg.norm(gradient))
        exchanged = state.since_hessian == 0 and exact
        if state.step is not None:
            pace = replace(pace, length=min(1.0, GROWTH * pace.length))
        if exact:
            known, pace = self._learnt(state, known, pace, gradient)
            halved = norm <= pace.lowest / 2
            pace = replace(pace, lowest=min(norm, pace.lowest) if halved else pace.lowest, idle=0 if halved else pace.idle + 1)
            state = replace(state, exact_norm=norm, detour=max(state.detour - 1, 0), decrements=())
        direction = -known.curvature.solve(gradient)
        step = Step(direction, float(gradient @ direction), self._length(state, pace, exact))
        nothing_left = at_rounding(step.decrement, known.scale)
        if exchanged:
            pace = replace(pace, sketches=pace.sketches + 1, decrement=step.decrement)
        newest = (*state.decrements, step.decrement)[-options.window - 1 :]
        state = replace(
            state, known=known, pace=pace, fresh=exact, since_hessian=state.since_hessian + 1, decrements=newest
        )
        if exact and (norm <= setup.tol or (nothing_left and pace.idle >= IDLE)):
            return replace(state, status="converged")
        if exact and state.noise is not None:
            state = replace(state, noise=self._noise_after(state.noise, step.decrement))
        settled = norm <= setup.tol or nothing_left
        if state.regroup:
            return ask_at(replace(state, ask="hessian"), step)
        if exact and not settled and self._too_slow(state, pace):
            return ask_at(replace(state, ask="hessian", pace=self._waited(pace, _rate(state, pace), setup)), step)
        if settled or state.detour > 0 or self._stale(state, known):
            return ask_at(replace(state, ask="full"), step)
        if len(newest) > options.window and state.noise is None:  # a stretch of masked rounds is over
            if newest[-1] > options.contraction**options.window * newest[0]:
                slow = min(pace.slow + 1, 6)
                state = replace(state, detour=2 ** (slow - 1), pace=replace(pace, slow=slow))
                return ask_at(replace(state, ask="full"), step)
            state = replace(state, pace=replace(pace, slow=0))
        return ask_at(replace(state, ask="gradient"), step)

    def _learnt(self, state: SafeguardedState, known: Known, pace: Pace, gradient: Array) -> tuple[Known, Pace]:
        """The pair of this model's exact gradient and the one before it; pairs of other members are let go."""
        bent = _bent(known)
        if pace.point is not None and pace.gradient is not None:
            if np.array_equal(pace.weights, state.weights):
                bent = bent.with_pair(state.base - pace.point, gradient - pace.gradient, self.options.pairs)
            else:
                bent = QuasiNewton.start(bent.initial, gradient.size)
        pace = replace(pace, point=state.base, gradient=gradient, weights=state.weights)
        return replace(known, curvature=bent), pace

    def _length(self, state: SafeguardedState, pace: Pace, exact: bool) -> float:
        if exact and self.options.pairs > 0:
            return 1.0
        return pace.length if exact or state.noise is None else state.noise.length

    def _too_slow(self, state: SafeguardedState, pace: Pace) -> bool:
        """Whether the decrements shrank too slowly since curvature was exchanged, and long enough ago."""
        since = state.since_hessian - 1
        return since >= pace.wait and _rate(state, pace) > self.options.contraction

    def _waited(self, pace: Pace, rate: float, setup: Setup) -> Pace:
        """Where the newest curvature exchange has not helped, the next but one waits twice as long."""
        helped = rate <= HELPED * pace.rate
        return replace(pace, rate=rate, wait=self._shortest_wait(setup) if helped else 2 * pace.wait)

    def _stale(self, state: SafeguardedState, known: Known) -> bool:
        """Whether nobody has sent a region for too long."""
        newest = known.memory.stamps[state.members].max(axis=0)
        return bool(state.round - newest.min() > self.options.gamma_max)


def _pace(state: SafeguardedState) -> Pace:
    assert state.pace is not None
    return state.pace


def _bent(known: Known) -> QuasiNewton:
    assert isinstance(known.curvature, QuasiNewton)
    return known.curvature


def _sketch_number(state: SafeguardedState, setup: Setup) -> int:
    """What everyone draws the sketch's random matrix from: the same for all who are asked about a model."""
    return int(stream(setup.seed, SKETCH, _pace(state).sketches).integers(2**62))


def _rate(state: SafeguardedState, pace: Pace) -> float:
    """By how much the decrements shrank a step since curvature was exchanged."""
    since = max(state.since_hessian - 1, 1)
    return float((state.decrements[-1] / pace.decrement) ** (1.0 / since)) if pace.decrement > 0 else 0.0


def _lowest(state: SafeguardedState, losses: Array, step: Step) -> float:
    """Where the parabola through both losses and the slope is lowest, between a tenth and half of the step."""
    used = state.weights > 0
    rise = float(state.weights[used] @ (losses[used] - state.losses[used]))
    if not np.isfinite(rise):  # or somebody did not tell
        return shorter(step.length)
    bend = (rise - step.length * step.slope) / step.length**2
    best = -step.slope / (2 * bend) if bend > 0 else step.length
    return float(np.clip(best, 0.1 * step.length, 0.5 * step.length))
