r"""The safeguarded loop for many coefficients: curvature that is a part of the Hessian, bent by the gradients seen.

The curvature is a block for every region, a low-rank sketch or a diagonal (`danl.protocol.hessian_form`), made at the
start and again where that helps. Every whole gradient that everyone sent makes it better: it is the initial matrix of a
limited-memory BFGS direction (`danl.server.partial_curvature`), which costs nothing on the wire. What the loop of
`danl.methods.safeguarded` asks of Hessians is asked of whole gradients here, which are far smaller:

    1  a step from everyone's whole gradient is one of descent, and is tried at length 1; one that is refused is
       shortened, to where the parabola through both losses and the slope is lowest, and asked about again
    2  a step from the memory that is refused: whole gradients at the anchor; the next such step is half as long, and
       grows by GROWTH with every one that is taken
    3  masked rounds that gain less than WORTH of what a step from a whole gradient gained, or that were refused twice
       in a row: 1, 2, 4, ... steps from whole gradients before the next masked round
    4  the decrements have contracted slower than promised since curvature was exchanged: it is exchanged again, after
       as many steps as it has numbers of gradients; after twice as many where the last exchange has not helped

Without pairs (`pairs=0`) steps from whole gradients have a remembered length, too.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from danl.methods.armijo import at_rounding, given_up, shorter
from danl.methods.base import Setup
from danl.methods.ending import relative
from danl.methods.safeguarded import Safeguarded
from danl.methods.safeguarded_state import (
    Known,
    Pace,
    SafeguardedState,
    Seen,
    Step,
    Stretch,
    ask_at,
    ask_gradients,
    back_to_anchor,
    distrust,
    ended,
    exchange_hessians,
    objective_of,
    with_reach,
    with_size,
)
from danl.protocol.messages import Array, CurvatureTask
from danl.protocol.streams import SKETCH, stream
from danl.server.partial_curvature import Curved, QuasiNewton, build

GROWTH = 1.1
"""By how much a remembered length grows with every step that is taken."""
WORTH = 0.5
"""Masked rounds go on while they gain this share of what a step from everyone's whole gradient gained."""
HELPED = 0.9
"""New curvature helped when the decrements shrink to this share, at most, of what they shrank to a step before."""
MOST_DETOURS = 6
"""After so many stretches of slow masked rounds, 2^5 steps from whole gradients are taken between two of them."""
IDLE = 20
"""At rounding level, a gradient that has not halved over so many exact ones will not."""


class Structured(Safeguarded):
    """The loop that looks first, with structured curvature."""

    def begin(self, setup: Setup) -> SafeguardedState:
        return replace(super().begin(setup), pace=Pace(self._shortest_wait(setup)))

    # Curvature.

    def _curvature_task(self, state: SafeguardedState, setup: Setup, exchange: int) -> CurvatureTask:
        options = self.options
        return CurvatureTask(
            exchange,
            state.trial,
            options.structure.kind,
            options.structure.rank,
            _sketch_number(state, setup),
            hessian_batch=state.hessian_batch,
            dtype=options.hessian_dtype,
        )

    def _curvature(self, state: SafeguardedState, numbers: Array, weights: Array, setup: Setup) -> Curved | None:
        """New curvature, bent by the pairs there are."""
        if not np.isfinite(numbers).all():
            return None
        options, sketch = self.options, _sketch_number(state, setup)
        mu = setup.floor(options.mu, weights)
        least = setup.strong_convexity_of(weights)
        made = build(options.structure, numbers, setup.regions, mu, sketch, options.hessian_dtype, least)
        if state.known is None:
            return QuasiNewton.start(made, setup.n_features)
        return replace(_bent(state.known), initial=made)

    # What to do with a trial that is not low enough.

    def _look_again(self, state: SafeguardedState) -> SafeguardedState:
        return ask_gradients(state)

    def _refuse(self, state: SafeguardedState, known: Known, losses: Array) -> SafeguardedState:
        """A shorter step from a whole gradient; from the memory none, but whole gradients at the anchor."""
        pace, step, bent = _pace(state), state.step, _bent(known)
        if not state.fresh or step is None:
            state = replace(state, pace=replace(pace, length=pace.length / 2))
            return ask_gradients(back_to_anchor(distrust(state), known, losses))
        if state.hessian_batch is not None:  # a sample of the rows proposed it: ask all of them
            return exchange_hessians(replace(state, hessian_batch=None))
        if at_rounding(-step.length * step.slope, known.scale):
            if not len(bent.steps):
                return ended(state, given_up(step.left, known.scale), known, step)
            plain = QuasiNewton.start(bent.initial, step.direction.size)  # the pairs may be what rounding has spoilt
            return ask_gradients(replace(state, known=replace(known, curvature=plain), pace=replace(pace, seen=None)))
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
        pace = _pace(state)
        if state.step is not None:
            pace = replace(pace, length=min(1.0, GROWTH * pace.length))
        if exact:
            known, pace = self._learnt(state, with_size(known, state.base), pace, gradient)
            norm = float(np.linalg.norm(gradient))
            state = replace(state, exact_norm=norm, detour=max(state.detour - 1, 0))
        direction = -known.curvature.solve(gradient)
        hidden = known.curvature.hidden(gradient, known.scale)
        step = Step(direction, float(gradient @ direction), self._length(state, pace, exact), hidden)
        decrement = relative(hidden - step.slope, known.scale)
        if exact:
            halved = decrement <= pace.lowest / 2
            pace = replace(pace, lowest=decrement if halved else pace.lowest, idle=0 if halved else pace.idle + 1)
        if exact and state.since_hessian == 0:
            pace = replace(pace, sketches=pace.sketches + 1, decrement=step.decrement)
        state = replace(state, known=known, fresh=exact, since_hessian=state.since_hessian + 1)
        objective = objective_of(state) if state.at_anchor else np.nan
        pace = replace(pace, stretch=Stretch(objective) if exact else pace.stretch.after(objective))
        state = replace(state, pace=pace, decrement=decrement)
        nothing_left = at_rounding(step.left, known.scale)
        done = exact and (decrement <= setup.tol or (nothing_left and pace.idle >= IDLE))
        if done:
            state = ended(state, "converged", known, step, state.reached)
        if exact:
            state = with_reach(state, known, step)
        if done:
            return state if state.status is not None else ask_at(replace(state, ask="full"), step)
        if exact and state.noise is not None:
            state = replace(state, noise=self._noise_after(state.noise, step.decrement))
        return ask_at(self._question(state, known, step, setup, settled=decrement <= setup.tol or nothing_left), step)

    def _question(
        self, state: SafeguardedState, known: Known, step: Step, setup: Setup, *, settled: bool
    ) -> SafeguardedState:
        """What to ask about the next model."""
        options, pace = self.options, _pace(state)
        rate = _rate(state, pace, step)
        slow = state.since_hessian > pace.wait and rate > options.contraction
        if state.regroup or (state.fresh and slow and not settled):
            # Where the newest curvature exchange has not helped, the next but one waits twice as long.
            wait = self._shortest_wait(setup) if rate <= HELPED * pace.rate else 2 * pace.wait
            pace = pace if state.regroup else replace(pace, rate=rate, wait=wait)
            return replace(state, ask="hessian", pace=pace)
        if settled or state.detour > 0 or self._stale(state, known):
            return replace(state, ask="full")
        stretch = pace.stretch
        if stretch.rounds == options.window:
            if not stretch.gained >= WORTH * options.window * stretch.whole:  # nan: not everyone told, nobody knows
                times = min(pace.slow + 1, MOST_DETOURS) if stretch.number == 0 else 0
                pace = replace(pace, slow=times)
                return replace(state, ask="full", detour=2 ** max(times - 1, 0), pace=pace)
            state = replace(state, pace=replace(pace, slow=0, stretch=stretch.next()))
        return replace(state, ask="gradient")

    def _learnt(self, state: SafeguardedState, known: Known, pace: Pace, gradient: Array) -> tuple[Known, Pace]:
        """What everyone's whole gradient adds: a pair with the one before it; pairs of other members are let go."""
        bent, seen = _bent(known), pace.seen
        if seen is not None and np.array_equal(seen.weights, state.weights):
            bent = bent.with_pair(state.base - seen.model, gradient - seen.gradient, self.options.pairs)
        elif seen is not None:
            bent = QuasiNewton.start(bent.initial, gradient.size)
        return replace(known, curvature=bent), replace(pace, seen=Seen(state.base, gradient, state.weights))

    def _length(self, state: SafeguardedState, pace: Pace, exact: bool) -> float:
        if exact and self.options.pairs > 0:
            return 1.0
        return pace.length if exact or state.noise is None else state.noise.length

    def _shortest_wait(self, setup: Setup) -> int:
        """Steps whose gradients, up and down, are as many numbers as the curvature; `window` at least."""
        numbers = self.options.structure.numbers(setup.regions)
        return max(self.options.window, numbers // (2 * setup.n_features))

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


def _rate(state: SafeguardedState, pace: Pace, step: Step) -> float:
    """By how much the decrements shrank a step since curvature was exchanged."""
    since = max(state.since_hessian - 1, 1)
    return float((step.decrement / pace.decrement) ** (1.0 / since)) if pace.decrement > 0 else 0.0


def _lowest(state: SafeguardedState, losses: Array, step: Step) -> float:
    """Where the parabola through both losses and the slope is lowest, between a tenth and half of the step."""
    used = state.weights > 0
    rise = float(state.weights[used] @ (losses[used] - state.losses[used]))
    if not np.isfinite(rise):  # or somebody did not tell
        return shorter(step.length)
    bend = (rise - step.length * step.slope) / step.length**2
    best = -step.slope / (2 * bend) if bend > 0 else step.length
    return float(np.clip(best, 0.1 * step.length, 0.5 * step.length))
