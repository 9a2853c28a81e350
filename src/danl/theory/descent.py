r"""The theorem of the default method, on a run: the objective never rises, and falls linearly in exact steps.

With m I <= B <= M I for the curvature B of the exact steps, c1 Armijo's constant, and eta the shortest of their lengths
that was taken,

    q = 2 c1 mu eta / M
    f(w_k) - f* <= (1 - q)^n (f(w_0) - f*)          n exact steps up to exchange k, at least floor(k / K)

An exact step is one from everyone's whole gradient at the anchor that everyone's losses have settled. The proof, in
docs/theory.md, uses of B only that  |g|^2 <= M g^T B^-1 g  for the gradients g of these steps. So M can be read off the
rows: g^T B^-1 g = decrement^2 * scale, and |g| is the gradient norm. Where a step was refused j times, its length is
16^-j at least of what it was tried with first, which is 1 at least, or grows to 1 again after steps that were refused.
Where some sent curvature for all, the decrement is one of their share of the objective, g^T B^-1 g = share decrement^2
scale; the share is taken to be the smallest there is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from danl.methods.acceptance import ROUNDING, SUFFICIENT_DECREASE
from danl.methods.ladder import GROWTH
from danl.objective.problem import Problem
from danl.run.history import Row
from danl.run.result import Result
from danl.theory.constants import Constants, largest_curvature
from danl.wording import known

DEFAULT = ("danl", "danl-secant")
"""The default method, by the names of its runs."""
LEAST_SHARE = 1 / 16
"""A refused step is shortened to no less than this share of its length."""
ROUNDINGS = 4.0
"""By how many roundings of the objective an exchange may seem to raise it: the rule's own, and those of measuring."""


@dataclass(frozen=True)
class ExactStep:
    """A step from everyone's whole gradient, and what came of it."""

    exchange: int
    """The exchange with the gradient."""
    settled: int
    """The exchange that accepted the step, or a shorter one."""
    refusals: int
    """How often it was refused before."""
    squared_norm: float
    """|g|^2."""
    promised: float
    """g^T B^-1 g."""
    begun: float = 1.0
    """What the length that was tried first is not below: steps after refused ones begin shorter."""

    @property
    def length(self) -> float:
        """What the length is not below."""
        return float(self.begun * LEAST_SHARE**self.refusals)

    @property
    def curvature(self) -> float:
        """|g|^2 / g^T B^-1 g, between m and M."""
        return self.squared_norm / self.promised if self.promised > 0 else 0.0


def exact_steps(
    rows: Sequence[Row], n_workers: int, *, sampled: bool = False, share: float = 1.0
) -> tuple[ExactStep, ...]:
    """The exact steps of a run that everyone settled; a step counts only where the rows leave no doubt.

    A Hessian exchange needs everyone and may take several: each but the last has failures, and every worker answers
    once. Gradients are whole where everyone trained every region, and exact unless they are `sampled`. A round that
    somebody missed settles nothing. `share`: what those who sent curvature count in the objective, at least.
    """
    steps, answered = list[ExactStep](), 0
    gradient: Row | None = None  # of the step that is being tried
    refusals, begun, short = 0, 1.0, 1.0
    for row in rows:
        short *= LEAST_SHARE if row.refused else GROWTH if row.step_norm > 0 else 1.0  # whatever step it was of
        short = min(1.0, short)
        if gradient is not None and row.kind == "gradient" and row.active < n_workers:
            gradient = None
        if gradient is not None and row.step_norm > 0:
            promised = share * gradient.decrement**2 * abs(gradient.objective)  # the scale is at least that
            step = ExactStep(gradient.exchange, row.exchange, refusals, gradient.grad_norm**2, promised, begun)
            if math.isfinite(promised):
                steps.append(step)
            gradient = None
        refusals += row.refused
        answered = answered + row.active if row.kind == "hessian" else 0
        whole = row.kind == "gradient" and not sampled and min((row.active, *row.coverage)) == n_workers
        if (answered == n_workers or whole) and not row.refused:
            gradient, refusals, begun = row, 0, short
        if answered >= n_workers or not row.failed:
            answered = 0
    return tuple(steps)


@dataclass(frozen=True)
class Descent:
    """The default's theorem on a run."""

    mu: float
    """Strong convexity of f: what the penalty guarantees."""
    smoothness: float
    """Lipschitz constant of the gradients."""
    initial: float
    """The largest curvature that workers can have sent: the same, or more where it is that of a sample of the rows."""
    pairs: int
    """Limited-memory BFGS pairs that may correct the curvature."""
    pairs_of_the_rest: int
    """Those that may correct what stands in for the Hessians that were not sent."""
    objectives: tuple[float, ...]
    """f(w_k), k = 0, 1, 2, ...: the model after each exchange, while the members are the same."""
    optimum: float
    """f*, as the reference has it."""
    steps: tuple[ExactStep, ...]
    other: str = ""
    """Why it is not about the method of this run; empty where it is."""

    @property
    def applies(self) -> bool:
        """Whether the theorem is about this run."""
        return not self.other

    @property
    def curvature(self) -> float:
        """M as measured: the largest |g|^2 / g^T B^-1 g of the exact steps; nan without any."""
        return max((step.curvature for step in self.steps), default=math.nan)

    @property
    def length(self) -> float:
        """The eta of the theorem as measured: what no exact step was shorter than; nan without any."""
        return min((step.length for step in self.steps), default=math.nan)

    @property
    def longest_wait(self) -> int:
        """K as measured: in any so many exchanges an exact step was settled."""
        marks = [0, *(step.settled for step in self.steps), len(self.objectives)]
        return max(after - before for before, after in pairwise(marks))

    @property
    def rate(self) -> float:
        """The q of the theorem, 2 c1 mu eta / M, with M and eta measured; 0 without an exact step or a penalty."""
        if not self.curvature > 0:
            return 0.0
        return min(2 * SUFFICIENT_DECREASE * self.mu * self.length / self.curvature, 1.0)

    @property
    def largest_curvature(self) -> float:
        """The M that holds before a run: the largest of the workers' Hessians, and iota_g for every pair."""
        pairs = self.pairs + self.pairs_of_the_rest
        return self.initial + (pairs * self.smoothness if pairs else 0.0)

    @property
    def least_curvature(self) -> float:
        """The m that holds before a run: 1/m <- v^2/m + 1/mu for every pair, v^2 = (iota_g + mu)^2 / (4 iota_g mu)."""
        if not (self.mu > 0 and math.isfinite(self.smoothness)):
            return 0.0
        stretch = (self.smoothness + self.mu) ** 2 / (4 * self.smoothness * self.mu)
        inverse = 1 / self.mu
        for _ in range(self.pairs):
            inverse = stretch * inverse + 1 / self.mu
        return 1 / inverse

    @property
    def least_rate(self) -> float:
        """The q that holds before a run, from these bounds."""
        if self.least_curvature == 0:
            return 0.0
        accepted = 2 * (1 - SUFFICIENT_DECREASE) * self.least_curvature / self.smoothness
        return 2 * SUFFICIENT_DECREASE * self.mu * min(1.0, LEAST_SHARE * accepted) / self.largest_curvature

    @property
    def bound(self) -> tuple[float, ...]:
        """(1 - q)^n (f(w_0) - f*) with the n exact steps settled up to each exchange."""
        settled, first = [step.settled for step in self.steps], self.objectives[0] - self.optimum
        counts = (sum(each <= k for each in settled) for k in range(len(self.objectives)))
        return tuple((1 - self.rate) ** count * first for count in counts)

    @property
    def first_rise(self) -> int | None:
        """The first exchange after which the objective is higher than before it, by more than rounding."""
        rounding = ROUNDINGS * ROUNDING
        for k, (before, after) in enumerate(pairwise(self.objectives), 1):
            if not after <= before + rounding * abs(before):
                return k
        return None

    @property
    def first_short_step(self) -> int | None:
        """The first exchange that settled an exact step with less than Armijo's decrease."""
        for step in self.steps:
            before, after = self.objectives[step.exchange], self.objectives[step.settled]
            rounding = ROUNDINGS * ROUNDING * abs(before) * (step.settled - step.exchange)
            if not after <= before - SUFFICIENT_DECREASE * step.length * step.promised + rounding:
                return step.settled
        return None

    @property
    def first_above(self) -> int | None:
        """The first exchange after which f(w_k) - f* is above the bound."""
        for k, (objective, bound) in enumerate(zip(self.objectives, self.bound, strict=True)):
            rounding = ROUNDINGS * ROUNDING * (k + 1) * abs(self.objectives[0])
            if not objective - self.optimum <= bound + rounding:
                return k
        return None

    @property
    def first_violation(self) -> int | None:
        """The first exchange that breaks the theorem in any of these ways; None where there is none."""
        found = [each for each in (self.first_rise, self.first_short_step, self.first_above) if each is not None]
        return min(found, default=None)

    @property
    def violated(self) -> bool:
        """Whether the theorem applies and the run breaks it."""
        return self.applies and self.first_violation is not None

    @property
    def sentence(self) -> str:
        """What the theorem says of the run."""
        if not self.applies:
            return f"The default's theorem says nothing about this run: {self.other}."
        last, n = len(self.objectives) - 1, len(self.steps)
        if self.first_violation is not None:
            return f"The default's theorem is violated at exchange {self.first_violation}: {self._violation}."
        text = f"The default's theorem holds: the objective never rose in {last} exchange{'s' * (last != 1)}"
        if self.rate > 0:
            steps = f"n = {n} exact step{'s' * (n > 1)}, one in any {self.longest_wait} exchanges at least"
            return f"{text}, and f - f* stayed below (1 - q)^n of what it was, q = {self.rate:.3g}, {steps}."
        reason = "there was no exact step" if not n else "mu is 0"
        return f"{text}; it says nothing of how fast it fell, because {reason}."

    @property
    def _violation(self) -> str:
        if self.first_rise == self.first_violation:
            return "the objective rose"
        if self.first_short_step == self.first_violation:
            return "an exact step was taken that decreased it by less than Armijo's rule asks"
        return "f - f* is above (1 - q)^n of what it was"

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain numbers and words; what is not finite becomes None."""
        names = ("rate", "curvature", "length", "least_rate", "least_curvature", "largest_curvature")
        return {
            **{name: known(getattr(self, name)) for name in names},
            "longest_wait": self.longest_wait,
            "exact_steps": [asdict(step) for step in self.steps],
            "applies": self.applies,
            "first_rise": self.first_rise,
            "first_violation": self.first_violation,
            "gaps": [known(objective - self.optimum) for objective in self.objectives],
            "bound": [known(value) for value in self.bound],
        }


def descent_of(problem: Problem, result: Result, rows: Sequence[Row], constants: Constants, optimum: float) -> Descent:
    """The default's theorem on the rows of a run with the same members."""
    options = result.settings.get("method_options", {})
    pairs, everyone = int(options.get("pairs", 0)), curvature_of_everyone(options)
    share = 1.0 if everyone else float(problem.weights.min())
    return Descent(
        mu=constants.mu,
        smoothness=constants.iota_g,
        initial=largest_curvature(problem, result),
        pairs=pairs,
        pairs_of_the_rest=0 if everyone else pairs,
        objectives=tuple(row.objective for row in rows),
        optimum=optimum,
        steps=exact_steps(rows, constants.n_workers, sampled=options.get("batch_size") is not None, share=share),
        other=other_than_the_default(result),
    )


def curvature_of_everyone(options: Mapping[str, Any]) -> bool:
    """Whether all workers send curvature where any does."""
    return bool(options.get("curvature_from", "everyone") == "everyone")


def other_than_the_default(result: Result) -> str:
    """Why a run is not one of the default as the theorem needs it; empty where it is."""
    options = result.settings.get("method_options", {})
    curvature = options.get("curvature", "adaptive")
    if result.method not in DEFAULT or curvature == "once":
        return f"{result.method} is not the default method" + (" with curvature='once'" if curvature == "once" else "")
    if curvature not in ("adaptive", "full") and not isinstance(curvature, int):
        return "its curvature is a part of the Hessian"
    if options.get("mu") is not None:
        return "its mu is not the penalty's"
    if options.get("pairs") == 0:
        return "without pairs the length of a step is remembered, and the rows do not have it"
    return ""
