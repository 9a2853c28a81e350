"""A certificate: what the theorems have to say about a run, and what the run did."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from itertools import takewhile
from typing import Any

from danl.errors import InputError, bad_argument
from danl.objective.problem import Problem
from danl.run.result import Reference, Result
from danl.run.solver import reference_optimum
from danl.theory.constants import Constants, Deviations, constants_of
from danl.theory.descent import Descent, descent_of
from danl.theory.theorem1 import (
    ALGORITHM_1,
    Condition,
    Corrected,
    first_above,
    other_than_algorithm_1,
    printed_conditions,
)
from danl.wording import known


@dataclass(frozen=True)
class Certificate:
    """What Theorem 1, printed and corrected, and the default's theorem have to say about a run, and what the run did.

    `conditions`, `conditions_met`, `applies`, `bound` and `first_violation` are those of Theorem 1 as printed.
    """

    constants: Constants
    conditions: tuple[Condition, ...]
    squared_distances: tuple[float, ...]
    """|w_t - w*|^2 for t = 0, 1, 2, ..."""
    corrected: Corrected
    """Theorem 1 as its proof supports it."""
    descent: Descent
    """The theorem of the default method."""
    method: str = "danl-paper"
    """What the run was made with: each theorem is about some methods."""

    @property
    def conditions_met(self) -> bool:
        """Whether the four conditions hold."""
        return all(condition.holds for condition in self.conditions)

    @property
    def applies(self) -> bool:
        """Whether the theorem applies: the conditions hold, and the method is Algorithm 1."""
        return self.conditions_met and self.method in ALGORITHM_1

    @property
    def bound(self) -> tuple[float, ...]:
        """2^-t |w0 - w*|^2 for t = 0, 1, 2, ..."""
        return tuple(self.squared_distances[0] * 0.5**t for t in range(len(self.squared_distances)))

    @property
    def first_violation(self) -> int | None:
        """The first t whose distance is above the bound (by more than rounding); None where there is none."""
        rounding = (1e-14 * max(1.0, math.sqrt(self.squared_distances[0]))) ** 2
        return first_above(self.squared_distances, self.bound, rounding)

    @property
    def violated(self) -> bool:
        """Whether a theorem that applies to this run, the corrected Theorem 1 or the default's, is broken by it."""
        return self.corrected.violated or self.descent.violated

    @property
    def verdict(self) -> str:
        """One sentence on the theorem that is about the method, one on Theorem 1 as printed."""
        if self.descent.applies:
            return self.descent.sentence
        if self.method not in ALGORITHM_1:
            theorem = f"{self.method} is neither Algorithm 1 nor the default: neither theorem is about this run."
            if self.method == "danl":
                theorem = f"{self.descent.sentence} Theorem 1 is about Algorithm 1."
            return f"{theorem} Measured: {self._measured}."
        failed = [condition.name for condition in self.conditions if not condition.holds]
        printed = f"conditions not met: {', '.join(failed)}" if failed else "all four conditions hold"
        return f"{self.corrected.sentence} As printed, {printed}; measured: {self._measured}."

    @property
    def _measured(self) -> str:
        last = len(self.squared_distances) - 1
        if self.first_violation is None:
            return f"|w_t - w*|^2 stayed below 2^-t |w0 - w*|^2 for all t up to {last}"
        return f"|w_t - w*|^2 was above 2^-t |w0 - w*|^2 first at t = {self.first_violation} (of {last})"

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain numbers and words; what is not finite becomes None."""
        derived = {name: getattr(self.constants, name) for name in ("a", "b", "c", "rho", "low", "high", "reach")}
        constants = asdict(self.constants) | derived
        return {
            "constants": {name: value if isinstance(value, int) else known(value) for name, value in constants.items()},
            "conditions": [asdict(condition) for condition in self.conditions],
            "conditions_met": self.conditions_met,
            "applies": self.applies,
            "first_violation": self.first_violation,
            "squared_distances": [known(value) for value in self.squared_distances],
            "bound": [known(value) for value in self.bound],
            "corrected": self.corrected.to_dict(),
            "descent": self.descent.to_dict(),
            "violated": self.violated,
            "verdict": self.verdict,
        }


def certify(problem: Problem, result: Result, *, reference: Reference | None = None) -> Certificate:
    """Check Theorem 1, or the theorem of the default method, on a run that was measured against a reference.

    Where workers left for good, the objective is another one from there on: checked are the exchanges before that.

    Parameters
    ----------
    problem : Problem
        What was solved.
    result : Result
        Of `danl.solve(problem, ..., reference=danl.reference_optimum(problem))`: its rows have the distances.
    reference : Reference, optional
        The one the run was measured against. Default: computed anew.

    """
    if problem.layout.n_outputs > 1:
        raise bad_argument("loss", problem.loss.name, "a loss of one margin: Theorem 1's constants are known for those")
    rows = list(takewhile(lambda row: not math.isnan(row.distance), result.history))
    rounds = [row for row in rows if row.kind != "check"]
    if not rounds:
        raise InputError(
            "result: has no distances to the optimum; solve with reference=danl.reference_optimum(problem) first"
        )
    reference = reference or reference_optimum(problem)
    constants = constants_of(problem, result, reference)
    squares = tuple(distance**2 for distance in (constants.initial_distance, *(row.distance for row in rounds)))
    # The last exchange of a run that has converged makes no model: the gradient there was good enough.
    ended = result.status == "converged" and rounds[-1] is result.history[-1] and rounds[-1].step_norm == 0
    corrected = Corrected(
        constants=constants,
        deviations=Deviations.largest(problem, result),
        n_regions=len(rounds[-1].coverage),
        squared_distances=squares[:-1] if ended else squares,
        measured_step=max(row.step_norm for row in rounds),
        other=other_than_algorithm_1(result),
        unknown=reference.grad_norm / constants.mu if constants.mu > 0 else math.inf,
    )
    descent = descent_of(problem, result, rows, constants, reference.objective)
    return Certificate(constants, printed_conditions(constants), squares, corrected, descent, result.method)
