r"""Theorem 1: its conditions as printed, and the theorem that its proof supports.

As printed: if

    (i)    mu >= 4 kappa
    (ii)   rho >= 0
    (iii)  low <= mu / (4 iota_h)
    (iv)   low <= |w0 - w*| <= min(mu / (4 iota_h), high)

with low, high = (b -+ sqrt(rho)) / (2 a) and

    a   = iota_h^2 / 2
    b   = mu^2 / 16 - kappa^2
    c   = (N / psi*) (2 iota_g^2 delta^2 + Lambda^2) + gamma^2 8 (L^2 + Lambda^2) iota_g^2 / mu^2
          + 4 iota_g^2 delta^2 + Lambda^2
    rho = b^2 - 4 a c

then |w_t - w*|^2 <= 2^-t |w0 - w*|^2.

As its proof supports it (docs/theory.md has the proof): with

    error      = sqrt(n) (Lambda + iota_g delta) + gamma iota_g s,      n = min(Q, gamma + 1)
    s          = the longest step, at most sqrt(n) (L + Lambda) / mu
    radius^2   = 8 error^2 / mu^2

if

    (1)    mu >= 4 kappa
    (2)    |w0 - w*| <= mu / (4 iota_h)
    (3)    max(|w0 - w*|^2, radius^2) <= b / a

then |w_t - w*|^2 <= 2^-t |w0 - w*|^2 + (1 - 2^-t) radius^2: linear convergence to a neighbourhood. Here Lambda and
kappa are what no sample exceeds, so that it is about every run, not about the mean of many.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from danl.run.result import Result
from danl.theory.constants import Constants, Deviations
from danl.wording import known

ALGORITHM_1 = ("danl-paper", "danl-masked", "newton-zero")
"""Methods that are Algorithm 1, by the names of their runs: as printed, with gradients at w, with full masks."""


@dataclass(frozen=True)
class Condition:
    """One of Theorem 1's conditions on this problem and run."""

    name: str
    statement: str
    numbers: str
    holds: bool


def printed_conditions(k: Constants) -> tuple[Condition, ...]:
    """(i) to (iv)."""
    undefined = "" if k.rho >= 0 else ", not defined where rho < 0"
    upper = min(k.reach, k.high) if k.rho >= 0 else math.nan
    return (
        Condition("(i)", "mu >= 4 kappa", f"{k.mu:.3g} vs {4 * k.kappa:.3g}", k.mu >= 4 * k.kappa),
        Condition("(ii)", "rho >= 0", f"rho = {k.rho:.3g}", k.rho >= 0),
        Condition("(iii)", "low <= mu / (4 iota_h)", f"{k.low:.3g} vs {k.reach:.3g}{undefined}", k.low <= k.reach),
        Condition(
            "(iv)",
            "low <= |w0 - w*| <= min(mu / (4 iota_h), high)",
            f"{k.low:.3g} vs {k.initial_distance:.3g} vs {upper:.3g}{undefined}",
            k.low <= k.initial_distance <= upper,
        ),
    )


def first_above(squares: tuple[float, ...], bound: tuple[float, ...], rounding: float) -> int | None:
    """The first t whose |w_t - w*|^2 is above the bound by more than a rounding of the squares; None: there is none."""
    for t, (measured, allowed) in enumerate(zip(squares, bound, strict=True)):
        if not measured <= allowed + rounding:
            return t
    return None


@dataclass(frozen=True)
class Corrected:
    """Theorem 1 as its proof supports it, on a run."""

    constants: Constants
    deviations: Deviations
    """What no sample of the rows exceeds."""
    n_regions: int
    """Q."""
    squared_distances: tuple[float, ...]
    """|w_t - w*|^2 for t = 0, 1, 2, ...: the models of the run, each once."""
    measured_step: float = math.inf
    """The longest step of the run."""
    other: str = ""
    """Why it is not about the method of this run; empty where it is."""
    unknown: float = 0.0
    """How far w* itself may be off."""

    @property
    def b(self) -> float:
        """mu^2 / 16 - kappa^2, with the kappa that no sample exceeds."""
        return self.constants.mu**2 / 16 - self.deviations.hessian**2

    @property
    def different_rounds(self) -> int:
        """n: how many rounds the fragments of one worker can be from at a time."""
        return min(self.n_regions, self.constants.gamma + 1)

    @property
    def longest_step(self) -> float:
        """s: as measured, or what the bound of the gradients allows."""
        k, noise = self.constants, self.deviations.gradient
        allowed = math.sqrt(self.different_rounds) * (k.L + noise) / k.mu if k.mu > 0 else math.inf
        return min(self.measured_step, allowed)

    @property
    def error(self) -> float:
        """Bound of |grad F^t - grad f(w_t)|: sampling, pruning and staleness together."""
        k = self.constants
        pruned = k.iota_g * k.delta if k.delta > 0 else 0.0
        stale = k.gamma * k.iota_g * self.longest_step if k.gamma > 0 else 0.0
        return math.sqrt(self.different_rounds) * (self.deviations.gradient + pruned) + stale

    @property
    def squared_radius(self) -> float:
        """Of the neighbourhood: 8 error^2 / mu^2."""
        if self.error == 0:
            return 0.0
        return 8 * (self.error / self.constants.mu) ** 2 if self.constants.mu > 0 else math.inf

    @property
    def squared_limit(self) -> float:
        """The ratio b / a: up to there the factor of a round is 1/2; infinite for a quadratic loss."""
        a = self.constants.a
        return self.b / a if a > 0 else math.inf

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """(1) to (3)."""
        k, kappa = self.constants, self.deviations.hessian
        largest = max(k.initial_distance**2, self.squared_radius)
        return (
            Condition("(1)", "mu >= 4 kappa", f"{k.mu:.3g} vs {4 * kappa:.3g}", 0 < k.mu >= 4 * kappa),
            Condition(
                "(2)",
                "|w0 - w*| <= mu / (4 iota_h)",
                f"{k.initial_distance:.3g} vs {k.reach:.3g}",
                k.initial_distance <= k.reach,
            ),
            Condition(
                "(3)",
                "max(|w0 - w*|^2, radius^2) <= b / a",
                f"{largest:.3g} vs {self.squared_limit:.3g}",
                largest <= self.squared_limit,
            ),
        )

    @property
    def conditions_met(self) -> bool:
        """Whether the three conditions hold."""
        return all(condition.holds for condition in self.conditions)

    @property
    def applies(self) -> bool:
        """Whether the theorem applies: the conditions hold, and the method is Algorithm 1."""
        return self.conditions_met and not self.other

    @property
    def bound(self) -> tuple[float, ...]:
        """2^-t |w0 - w*|^2 + (1 - 2^-t) radius^2 for t = 0, 1, 2, ..."""
        first, radius = self.squared_distances[0], self.squared_radius
        shares = (0.5**t for t in range(len(self.squared_distances)))
        return tuple(share * first + ((1 - share) * radius if share < 1 else 0.0) for share in shares)

    @property
    def first_violation(self) -> int | None:
        """The first t whose distance is above the bound, by more than rounding and what is unknown of w*."""
        off = 1e-14 * max(1.0, math.sqrt(self.squared_distances[0])) + self.unknown
        squares = tuple(max(math.sqrt(square) - off, 0.0) ** 2 for square in self.squared_distances)
        return first_above(squares, self.bound, 0.0)

    @property
    def violated(self) -> bool:
        """Whether the theorem applies and the run breaks it."""
        return self.applies and self.first_violation is not None

    @property
    def sentence(self) -> str:
        """What the theorem says of the run."""
        last, failed = len(self.squared_distances) - 1, [each.name for each in self.conditions if not each.holds]
        if not self.applies:
            reason = f"conditions not met: {', '.join(failed)}" if failed else self.other
            return f"The corrected Theorem 1 says nothing about this run: {reason}."
        bound = "2^-t |w0 - w*|^2"
        if self.squared_radius > 0:
            bound += f" + (1 - 2^-t) {self.squared_radius:.3g}"
        first = self.first_violation
        if first is None:
            return f"The corrected Theorem 1 applies, and holds: |w_t - w*|^2 <= {bound} for all t up to {last}."
        return f"The corrected Theorem 1 applies, and is violated: |w_t - w*|^2 > {bound} at t = {first}."

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain numbers and words; what is not finite becomes None."""
        numbers = {
            "gradient_deviation": self.deviations.gradient,
            "hessian_deviation": self.deviations.hessian,
            "longest_step": self.longest_step,
            "error": self.error,
            "squared_radius": self.squared_radius,
            "squared_limit": self.squared_limit,
        }
        return {
            **{name: known(value) for name, value in numbers.items()},
            "conditions": [asdict(condition) for condition in self.conditions],
            "conditions_met": self.conditions_met,
            "applies": self.applies,
            "first_violation": self.first_violation,
            "bound": [known(value) for value in self.bound],
        }


def other_than_algorithm_1(result: Result) -> str:
    """Why a run is not one of Algorithm 1 as the proof needs it; empty where it is."""
    options = result.settings.get("method_options", {})
    if result.method not in ALGORITHM_1:
        return f"{result.method} is not Algorithm 1"
    if options.get("aggregate", "all") != "all":
        return "it averages over those who trained a region, not over all workers"
    if options.get("mu") is not None:
        return "its mu is not the penalty's"
    if options.get("hessian_dtype") == "float32":
        return "its Hessians are rounded"
    if result.method == "newton-zero" and result.failures:
        return "newton-zero has no memory of those who did not answer"
    return ""
