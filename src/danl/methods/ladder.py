r"""The ladder: which question comes next, the cheapest one that has lately paid for itself.

Questions have prices (`danl.methods.prices`); from below

    masked      gradients on the policy's masks
    gradient    whole gradients
    curvature   of some workers, with everyone's whole gradient: rung by rung more senders (`danl.methods.senders`)

After every step that was accepted, the first of these that holds decides:

    1  workers have left or are back: curvature, of those that are there
    2  what is left to gain seems below the tolerance, or many workers have gone on for `gamma_max` rounds without the
       word of everyone, or everyone refused what some had accepted: whole gradients of everyone, who decide
    3  PATIENCE times the price of the next rung was spent on this one: one rung up; from parts of Hessians to whole
       ones once as many exchanges have passed as these would cost (`whole_after`), and as many are still to come
    4  curvature costs hardly more than the gradients alone (a fast machine's Hessian is there before a slow one's
       gradient): it is asked for every time, unless masks are "always" wanted
    5  curvature is due: what is left costs more, at the rate of the last `window` steps, than new curvature and what
       would be left with it; from the memory, where the gains fell by less than `contraction` a step and what is left
       costs more than PAYS of its price; and the gradients of those who would send it changed in another way than their
       last curvature said: it is old, and not only that of others
    6  a step from the memory was refused, masked rounds were slow, or nobody has sent a region for long: whole
       gradients of everyone
    7  masks do not bind, masked rounds cost at most MASKS_PAY of whole gradients and gain at least half as much: a
       masked round
    8  else whole gradients; where masks bind they are gathered in portions, at a model that is held: few steps from
       whole gradients beat many from parts

A step that was refused, where the rest's gradients changed in another way than what stands in for their curvature said:
one rung up at once if nothing was gained on this rung yet, as a wrong step far from the optimum leads to where every
later one is short. Else, where the curvature is not that of the base and not dear, new curvature there; else a shorter
step, and the next ones grow to twice its length with each that is accepted. A rung down comes when curvature has kept
its promise for twice its wait, after the second climb for four times that wait, and so on.

Of more than MANY workers somebody is always missing. There, curvature and gradients of those who answer will do, in
place of everyone's, in rule 6 and after a refusal, until too many steps were refused or everyone's losses refused one;
and in rule 2 only the tolerance asks for everyone's word, as long as steps still get shorter.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np

from danl.frozen import at_once, replace
from danl.methods.acceptance import Step, objective_at_anchor
from danl.methods.base import Setup
from danl.methods.membership import MANY
from danl.methods.prices import Prices
from danl.methods.questions import Question, Sampling, Stretch
from danl.methods.rates import off, pays, shrinkage, steps_left
from danl.methods.senders import Rung, rungs_of
from danl.protocol.hessian_form import WHOLE, HessianForm
from danl.protocol.messages import Dtype, Mask
from danl.server.some_hessians import Mismatch
from danl.storage.serialize import storable

if TYPE_CHECKING:
    from danl.methods.danl import DANL
    from danl.methods.safeguarded_state import Known, SafeguardedState

NEARLY_FREE = 1.1
"""Curvature is asked for every time where it costs at most this many times the gradients alone."""
PAYS = 2.0
"""Curvature is worth its price where the rest of the run, at the present rate, costs more than this share of it."""
MASKS_PAY = 0.5
"""Masked rounds are tried where they cost at most this share of whole gradients."""
PATIENCE = 16.0
"""A rung has failed once this many times the price of the next one was spent on it."""
MISSING = 1.0
"""More senders, where the rest's gradients were off by more than this share of a step that was refused at the start."""
BACKTRACKING, GROWTH = 6.0, 1.1
"""Shorter steps are tried, rather than new curvature, where it costs more than so many whole gradients each; a length
that is remembered grows by so much with every step that is accepted."""
SLOW_MEMORY, SLOW_WINDOW = 0.5, 3
"""Steps from the memory fall short where the decrements shrink by less than this a step, over so many of them."""
LONG_WINDOW, HELPED = 8, 0.9
"""At rounding level, many workers go on without the word of everyone while the decrement halves over so many steps; new
parts of Hessians helped when the decrements shrink to this share, at most, of what they shrank to before."""
MOST_DETOURS = 6
"""After so many stretches of slow masked rounds, 2^5 steps from whole gradients are taken between two of them."""
NEARBY, MOST_REFUSED = 0.1, 4
"""Of many workers, curvature from before is added to new where it is of a model with a smaller relative decrement; and
after more refused steps in a row, whole gradients of everyone."""
STALLED, STALLED_PARTS = 3, 20
"""At rounding level, a gradient that has not halved over so many exact ones, of whole Hessians or parts, will not."""


@storable
@at_once
@dataclass(frozen=True)
class Ladder:
    """How a run gets on, and what it asks next for that."""

    sampling: Sampling
    rungs: tuple[Rung, ...]
    gradient_price: float
    masked_price: float
    binds: bool = False  # whether masks bind
    many: bool = False  # whether there are so many workers that somebody is always missing
    rung: int = 0
    climbed: int = 0  # how often a rung up was taken
    why: str = "the start needs curvature"  # the newest decision
    spent: float = 0.0  # since this rung was taken
    began: int = 0  # curvature exchanges before this rung was taken
    moved: bool = False  # whether a step with curvature of this rung was accepted
    n_exchanged: int = 0  # curvature exchanges so far, that of Phase I included
    since_hessian: int = 0  # steps since the last one
    gains: tuple[float, ...] = ()  # of the newest steps since then
    first_gain: float = np.inf  # of the step at that exchange
    mismatch: Mismatch | None = None  # of the newest step
    wait: int = 1  # steps from one exchange of curvature to the next, if progress is slow
    rate: float = np.inf  # how the gains shrank a step before the newest of these
    decrement: float = np.nan  # relative, the newest, from whatever gradient there was
    length: float = 1.0  # of steps that are not exact: halved when one is rejected, grown when one is accepted
    n_rejected: int = 0  # of these since one was accepted
    n_refused: int = 0  # exact steps from the same base
    certain: bool = False  # everyone refused what some had accepted: they are asked, until an exact step is settled
    detour: int = 0  # exact steps to take before masked rounds are tried again
    stretch: Stretch = field(default_factory=lambda: Stretch(np.nan))  # of masked rounds
    slow: int = 0  # stretches in a row that were too slow
    lowest: float = np.inf  # the decrement at the last exact gradient that halved it
    n_without_halving: int = 0  # exact gradients since

    @classmethod
    def start(cls, options: DANL, setup: Setup) -> Ladder:
        """On the lowest rung."""
        prices = Prices.of(options, setup)
        sampling, rungs = Sampling(options.batch_size, options.hessian_batch), rungs_of(options, setup, prices)
        masked, binds = prices.together(prices.masked), setup.limits is not None
        many = setup.n_workers > MANY and not binds
        ladder = cls(sampling, rungs, prices.gradient, masked, binds, many)
        return replace(ladder, wait=ladder.shortest_wait(options))

    # What it costs, and who sends.

    def price_of(self, question: Question) -> float:
        if question in ("hessian", "curvature"):
            return self.rungs[self.rung].price
        return self.masked_price if question == "masked" else self.gradient_price

    def paid(self, question: Question) -> Ladder:
        return replace(self, spent=self.spent + self.price_of(question))

    def senders(self, setup: Setup, alive: Mask) -> Mask:
        """Who is to send curvature in the next exchange of it, (N,)."""
        chosen = self.rungs[self.rung].of_turn(self.n_exchanged, setup) & alive
        return chosen if np.count_nonzero(chosen) else alive

    def form(self, options: DANL) -> HessianForm:
        """What is exchanged of a Hessian."""
        return WHOLE if self.rungs[self.rung].whole else options.hessian_form

    @property
    def dtype(self) -> Dtype:
        return self.rungs[self.rung].dtype

    @property
    def hessian_rows(self) -> int | None:
        """Rows of a worker that curvature is of; None: all."""
        rung = self.rungs[self.rung]
        return self.sampling.hessian_batch if rung.rows is None else rung.rows

    @property
    def free(self) -> bool:
        return self.rungs[self.rung].price <= NEARLY_FREE * self.gradient_price

    @property
    def at_top(self) -> bool:
        return self.rung == len(self.rungs) - 1

    def shortest_wait(self, options: DANL) -> int:
        """Steps from one exchange of curvature to the next; parts wait for as many as half of their price would pay."""
        if self.form(options).whole:
            return options.window
        return max(options.window, round(self.rungs[self.rung].price / (2 * self.gradient_price)))

    def on_rung(self, rung: int, options: DANL, why: str) -> Ladder:
        if rung == self.rung:
            return replace(self, why=why)
        changes = {"climbed": self.climbed + (rung > self.rung), "began": self.n_exchanged, "mismatch": None}
        ladder = replace(self, rung=rung, spent=0.0, moved=False, why=why, **changes)
        return replace(ladder, wait=ladder.shortest_wait(options))

    # What happened.

    def with_curvature(self, options: DANL) -> Ladder:
        kept = not self.form(options).whole  # pairs on a part go on
        return replace(self, n_exchanged=self.n_exchanged + 1, since_hessian=0, gains=self.gains if kept else ())

    def after_rejection(self, options: DANL, *, everyone: bool) -> tuple[Ladder, Question]:
        """A step from the memory was rejected: after the second in a row, 2, 4, 8, ... exact steps before the next.

        Of many workers more are asked for their curvature; `everyone` has reported its loss.
        """
        n_rejected = self.n_rejected + 1
        detour = 0 if n_rejected < 2 else 2 ** min(n_rejected - 1, 6)
        why, certain = "refused: a step from the memory", self.certain or (self.many and everyone)
        ladder = replace(self, n_rejected=n_rejected, detour=detour, certain=certain, length=self.length / 2, why=why)
        if self.many and not self.at_top:
            return ladder.on_rung(self.rung + 1, options, why), ladder.of_these("hessian")
        return ladder, ladder.of_these("full")

    def after_refusal(self, known: Known, options: DANL) -> Ladder | None:
        """An exact step was refused: on which rung to ask for curvature at its base; None to try a shorter step."""
        seen = self.mismatch
        if seen is not None and seen.rest > MISSING and not self.moved and not self.at_top:
            return self.on_rung(self.rung + 1, options, "refused at the start: others curve more")
        if self.since_hessian > 1 and self.helps(known, options):
            return replace(self, why="refused: curvature from elsewhere")
        return None

    def nearby(self, known: Known) -> bool:
        """Whether the last curvature, of others, is of a model near the newest one."""
        return self.many and 2 * self.first_gain <= NEARBY**2 * known.scale

    def of_these(self, question: Literal["hessian", "full"]) -> Question:
        """Of many workers those who answer will do, unless that was refused again and again."""
        if not self.many or self.certain or self.n_rejected + self.n_refused > MOST_REFUSED:
            return question
        return "curvature" if question == "hessian" else "gradient"

    def helps(self, known: Known, options: DANL) -> bool:
        """Whether new curvature is asked for after a refusal: it is not dear, and not the rest's that is missing."""
        if self.sampling.batch_size is not None:
            return False
        if not self.form(options).whole:
            return self.free and self.since_hessian > self.wait
        if self.mismatch is not None and known.hessians is not None and not self.free and not self.mismatch.of_age:
            return False
        return self.rungs[self.rung].price <= (self.n_refused + 1) * BACKTRACKING * self.gradient_price

    def after_memory_step(self) -> Ladder:
        """A step from the memory was accepted, and everyone said so; of many workers, those who answered."""
        return self if not (self.n_rejected or self.detour) else replace(self, n_rejected=0, detour=0)

    def backtracked(self, step: Step, rise: float) -> tuple[Ladder, Step | None]:
        """A shorter step after an exact one was refused, with the rise of the objective; None where none would do."""
        shorter = step.interpolated(rise)
        if shorter is None:
            return self, None
        length = min(self.length, shorter.length)
        return replace(self, length=length, n_refused=self.n_refused + 1, why="refused: too long a step"), shorter

    def regrouped(self) -> Ladder:
        return replace(self, lowest=np.inf, n_without_halving=0, mismatch=None)

    def reopened(self) -> Ladder:
        """For a run that had ended and goes on."""
        return replace(self, decrement=np.inf, lowest=np.inf, n_without_halving=0)

    # What comes next.

    def after(
        self, step: Step, state: SafeguardedState, known: Known, options: DANL, setup: Setup, *, exact: bool
    ) -> tuple[Ladder, Step, Question | None]:
        """The ladder after a step was found, the step with its length, and what to ask where it leads; None: the end.

        `exact`: the gradient is everyone's, whole, and of the base.
        """
        objective = objective_at_anchor(known, state.weights) if state.base.at_anchor else np.nan
        moved = state.trial.step is not None
        length = min(1.0, GROWTH * self.length) if moved else self.length
        if exact and self.since_hessian == 0 and self.form(options).whole:
            length = 1.0  # new curvature knows nothing of the steps that were too long
        halved = exact and step.decrement <= self.lowest / 2
        ladder = replace(
            self,
            decrement=step.decrement,
            since_hessian=self.since_hessian + 1,
            gains=(*self.gains, step.gain)[-max(options.window, LONG_WINDOW) - 1 :],
            first_gain=self.first_gain if self.since_hessian else step.gain,
            stretch=Stretch(objective) if exact else self.stretch.after(objective),
            moved=self.moved or (moved and self.n_exchanged - (self.since_hessian == 0) > self.began),
            n_refused=0 if moved else self.n_refused,
            length=length,
            detour=max(self.detour - exact, 0),
            lowest=step.decrement if halved else self.lowest,
            n_without_halving=0 if halved else self.n_without_halving + exact,
            sampling=self.sampling.after_exact(step.gain, finish=options.finish) if exact else self.sampling,
        )
        length = length if exact or self.sampling.batch_size is None else self.sampling.length
        if exact and options.pairs > 0 and not self.rungs[self.rung].whole:  # pairs see to the length, but late
            alike = ladder.moved and options.curvature_when_needed and not self._masked(options)  # to the step before
            length = min(step.length, state.trial.step.longest_next) if alike and state.trial.step else step.length
        step = replace(step, length=length)
        enough = (1.0 - off(ladder.gains, everyone=known.of_everyone)) * setup.tol
        if exact and (step.decrement <= enough or ladder._stalled(step, options)):
            return replace(ladder, why="the tolerance is reached"), step, None
        ladder, question = ladder._question(step, state, known, options, setup.tol, exact=exact)
        return ladder, step, question

    def _stalled(self, step: Step, options: DANL) -> bool:
        """Rounding hides what is left: not even the best curvature there is makes the gradient smaller."""
        parts, full = np.inf if self.rungs[-1].whole else STALLED_PARTS, self.form(options).whole
        return step.negligible and self.n_without_halving >= (2 * STALLED if full else parts)

    def _question(
        self, step: Step, state: SafeguardedState, known: Known, options: DANL, tol: float, *, exact: bool
    ) -> tuple[Ladder, Question]:
        settled = step.decrement <= tol or (step.negligible and not (self.many and self._may_fall()))

        def ask(question: Question, why: str, **changes: object) -> tuple[Ladder, Question]:
            return replace(self, why=why, **changes), question

        if state.membership.regroup:
            return ask("hessian", "workers left or are back")
        every = options.curvature if isinstance(options.curvature, int) else 0
        if every and self.since_hessian >= every:
            return ask("hessian", f"curvature every {every} rounds")
        if settled:
            stalled = STALLED if self.form(options).whole else STALLED_PARTS
            if exact and self.n_without_halving == stalled and (stalled == STALLED or self.rungs[-1].whole):
                return self.on_rung(len(self.rungs) - 1, options, "rounding: a look with all curvature"), "hessian"
            return ask("full", "little left to gain: everyone's word")
        if self.certain or (self.many and self.stretch.rounds >= options.gamma_max):
            return ask("full", "everyone's word, for certain")
        if not every and self.sampling.batch_size is None:  # with mini-batches gains tell little: refused steps ask
            if not self.at_top and self._rung_has_failed(step, options, tol):
                why = "whole Hessians pay" if self.rungs[self.rung + 1].whole else "these senders have not paid"
                return self.on_rung(self.rung + 1, options, why), "hessian"
            curvature: Question = "curvature" if self.many else "hessian"
            if self.free and options.masks == "auto":
                return ask(curvature, "curvature costs no more here")
            slow = "slower than promised"
            if not self.form(options).whole:
                rate = self._parts_due(step, exact=exact)
                if rate is not None:  # if the newest exchange has not helped, twice the wait
                    wait = self.shortest_wait(options) if rate <= HELPED * self.rate else 2 * self.wait
                    return ask(curvature, slow, rate=rate, wait=wait)
            elif self._due(step, known, options, tol, exact=exact):
                kept = self.since_hessian > 2**self.climbed * self.wait and self._slow(step, options, tol, exact)
                down = kept and self.rung > 0 and not self.rungs[self.rung].whole
                return self.on_rung(self.rung - down, options, slow), curvature
        if self.binds:
            return ask("full", "gradients pay, gathered in portions")
        if self.detour > 0:
            return ask(self.of_these("full"), "before the memory is trusted again")
        if state.round - known.memory.oldest(state.membership.members) > options.gamma_max:
            return ask("full", "a region was not sent for long")
        if not (masked := self._masked(options)):
            masks = "" if math.isinf(self.masked_price) else "; masks would save too little"
            someone_missed = not self.many and not state.membership.steady
            return ask("full" if someone_missed else "gradient", f"gradients pay{masks}")
        if self.stretch.rounds != SLOW_WINDOW:
            return ask("masked", masked)
        if self.stretch.gained_enough():
            return ask("masked", "masks pay", slow=0, stretch=self.stretch.next())
        times = min(self.slow + 1, MOST_DETOURS) if self.stretch.number == 0 else 0
        return ask("full", "masks were slow", slow=times, detour=2 ** max(times - 1, 0))

    def _masked(self, options: DANL) -> str:
        """Why masked rounds are tried; empty where they are not."""
        if options.masks == "always" or self.sampling.batch_size is not None:  # the memory averages noise away
            return "masks are wanted"
        return "masks are cheap" if self.masked_price <= MASKS_PAY * self.gradient_price else ""

    def _rung_has_failed(self, step: Step, options: DANL, tol: float) -> bool:
        """Rule 3."""
        if not self.rungs[self.rung + 1].whole:
            return self.spent > PATIENCE * self.rungs[self.rung + 1].price
        worth = float(options.whole_after or 0)
        if self.spent < worth * self.gradient_price or len(self.gains) <= LONG_WINDOW:
            return False
        long = self.spent > 2 * worth * self.gradient_price  # refused steps are spent as well, and rates are rough
        return steps_left(step, self.gains, LONG_WINDOW, tol) > (worth / 4 if long else worth)

    def _may_fall(self) -> bool:
        """Whether the decrement has halved over the newest steps, or these are too few since all was known to tell."""
        few = len(self.gains) <= LONG_WINDOW or self.stretch.rounds < LONG_WINDOW
        return few or self.gains[-1] <= self.gains[-1 - LONG_WINDOW] / 4

    def _due(self, step: Step, known: Known, options: DANL, tol: float, *, exact: bool) -> bool:
        """Rule 5."""
        window = options.window if exact else max(options.window, SLOW_WINDOW)
        if self.since_hessian <= self.wait or len(self.gains) <= window:
            return False
        price, sampled = self.rungs[self.rung].price / self.gradient_price, self.hessian_rows is not None
        worth = pays(step, self.gains, window, tol, price, sampled) if exact else self._slow(step, options, tol, False)
        return worth and (self.mismatch is None or known.hessians is None or self.mismatch.of_age)

    def _slow(self, step: Step, options: DANL, tol: float, exact: bool) -> bool:
        """Whether gains shrink by less than curvature promised, and what is left costs more than PAYS of its price."""
        window = options.window if exact else max(options.window, SLOW_WINDOW)
        promised = options.contraction if exact else max(options.contraction, SLOW_MEMORY)
        slow, left = shrinkage(step, self.gains, window) > promised**window, steps_left(step, self.gains, window, tol)
        return slow and left * self.gradient_price > PAYS * self.rungs[self.rung].price

    def _parts_due(self, step: Step, *, exact: bool) -> float | None:
        """Rule 5 for parts of Hessians: the rate at which the gains shrank since the last ones, where it is slow."""
        since = max(self.since_hessian - 1, 1)
        rate = float((step.gain / self.first_gain) ** (1.0 / since)) if self.first_gain else 0.0
        return rate if exact and self.since_hessian > self.wait and rate > SLOW_MEMORY else None
