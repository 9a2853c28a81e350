r"""Theorem 1 on a run: the constants of Assumptions 1-4 for this problem, the conditions (i)-(iv), and the bound.

Theorem 1: if

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

then |w_t - w*|^2 <= 2^-t |w0 - w*|^2. "Conditions not met" is a proper answer: the theorem then says nothing about the
run, and the measured distances stand for themselves.

Differs from the paper: with a ridge penalty no F_i is Lipschitz on all of R^d, so L is taken on the smallest ball
around 0 that holds every model of the run. Lambda and kappa are measured, at w0 and w* and at w0, for the batch sizes
of the run (0 for whole shards), where the paper asks for a bound over all w.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from danl.errors import InputError, bad_argument
from danl.objective.local_objective import LocalObjective
from danl.objective.problem import Problem
from danl.protocol.messages import Array
from danl.run.result import Reference, Result
from danl.run.solver import reference_optimum
from danl.wording import known

ALGORITHM_1 = ("danl-paper", "danl-masked", "newton-zero")
"""Methods that are Algorithm 1, by the names of their runs: as printed, with gradients at w, with full masks."""


@dataclass(frozen=True)
class Constants:
    """The constants of Assumptions 1 to 4 and of Theorem 1."""

    mu: float
    """Strong convexity of f (Assumption 1): what the penalty guarantees."""
    iota_g: float
    """Lipschitz constant of the gradients, the largest over workers (Assumption 2)."""
    iota_h: float
    """Lipschitz constant of the Hessians, the largest over workers (Assumption 2)."""
    L: float
    """Bound of |grad F_i| on the ball that holds the run's models (Assumption 2)."""
    Lambda: float
    """Standard deviation of a mini-batch gradient (Assumption 3 i)."""
    kappa: float
    """Standard deviation of a sampled Hessian, Frobenius norm (Assumption 3 ii)."""
    delta: float
    """Largest pruning error |w - w_i| of the run (Assumption 4)."""
    psi: int
    """psi*: the fewest workers on a trained region."""
    gamma: int
    """The longest run of rounds a (worker, region) pair went untrained."""
    n_workers: int
    initial_distance: float
    """|w0 - w*|."""

    @property
    def a(self) -> float:
        return self.iota_h**2 / 2

    @property
    def b(self) -> float:
        return self.mu**2 / 16 - self.kappa**2

    @property
    def c(self) -> float:
        pruned = self.iota_g**2 * self.delta**2 if self.delta > 0 else 0.0
        noise = self.Lambda**2
        stale = 0.0
        if self.gamma > 0:
            stale = self.gamma**2 * 8 * (self.L**2 + noise) * self.iota_g**2 / self.mu**2 if self.mu > 0 else math.inf
        return self.n_workers / self.psi * (2 * pruned + noise) + stale + 4 * pruned + noise

    @property
    def rho(self) -> float:
        if self.a == 0:  # a quadratic loss, whatever the delays
            return self.b**2
        if math.isinf(self.a):  # no Lipschitz Hessian: Assumption 2 fails
            return -math.inf
        return self.b**2 - 4 * self.a * self.c

    @property
    def low(self) -> float:
        """(b - sqrt(rho)) / (2 a), written as 2 c / (b + sqrt(rho)) so that a = 0 has its limit c / b."""
        if not self.rho >= 0:
            return math.nan
        bottom = self.b + math.sqrt(self.rho)
        return 2 * self.c / bottom if bottom > 0 else math.inf

    @property
    def high(self) -> float:
        """(b + sqrt(rho)) / (2 a)."""
        if not self.rho >= 0:
            return math.nan
        return (self.b + math.sqrt(self.rho)) / (2 * self.a) if self.a > 0 else math.inf

    @property
    def reach(self) -> float:
        """How far w0 may be from w* by (iv): mu / (4 iota_h)."""
        return self.mu / (4 * self.iota_h) if self.iota_h > 0 else math.inf


@dataclass(frozen=True)
class Condition:
    """One of Theorem 1's conditions on this problem and run."""

    name: str
    statement: str
    numbers: str
    holds: bool


@dataclass(frozen=True)
class Certificate:
    """What Theorem 1 has to say about a run, and what the run did."""

    constants: Constants
    conditions: tuple[Condition, ...]
    squared_distances: tuple[float, ...]
    """|w_t - w*|^2 for t = 0, 1, 2, ..."""
    method: str = "danl-paper"
    """What the run was made with: the theorem is about Algorithm 1."""

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
        for t, (measured, bound) in enumerate(zip(self.squared_distances, self.bound, strict=True)):
            if not measured <= bound + rounding:
                return t
        return None

    @property
    def verdict(self) -> str:
        """One sentence on the theorem, one on the measurement."""
        failed = [condition.name for condition in self.conditions if not condition.holds]
        last = len(self.squared_distances) - 1
        theorem = "Theorem 1 applies: all four conditions hold"
        if not self.applies:
            other = f"all four conditions hold, but {self.method} is not Algorithm 1"
            reason = f"conditions not met: {', '.join(failed)}" if failed else other
            theorem = f"{reason}; Theorem 1 says nothing about this run"
        if self.first_violation is None:
            return f"{theorem}. Measured: |w_t - w*|^2 stayed below 2^-t |w0 - w*|^2 for all t up to {last}."
        where = f"first at t = {self.first_violation} (of {last})"
        return f"{theorem}. Measured: |w_t - w*|^2 was above 2^-t |w0 - w*|^2 {where}."

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
            "verdict": self.verdict,
        }


def certify(problem: Problem, result: Result, *, reference: Reference | None = None) -> Certificate:
    """Check Theorem 1 on a run that was measured against a reference.

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
    rounds = [row for row in result.history if row.kind != "check"]
    if not rounds or any(math.isnan(row.distance) for row in rounds):
        raise InputError(
            "result: has no distances to the optimum; solve with reference=danl.reference_optimum(problem) first"
        )
    reference = reference or reference_optimum(problem)
    constants = _constants(problem, result, reference)
    distances = [constants.initial_distance, *(row.distance for row in rounds)]
    return Certificate(constants, _conditions(constants), tuple(distance**2 for distance in distances), result.method)


def _constants(problem: Problem, result: Result, reference: Reference) -> Constants:
    objectives, last = problem.local_objectives, result.history[-1]
    options = result.settings.get("method_options", {})
    w0 = result.w0
    radius = max(float(np.linalg.norm(w0)), *(row.model_norm for row in result.history))
    batch, hessian_batch = options.get("batch_size"), options.get("hessian_batch")
    return Constants(
        mu=problem.strong_convexity,
        iota_g=max(local.smoothness() for local in objectives),
        iota_h=max(_hessian_lipschitz(local) for local in objectives),
        L=max(_gradient_bound(local, radius) for local in objectives),
        Lambda=max(_gradient_deviation(local, w, batch) for local in objectives for w in (w0, reference.w)),
        kappa=max(_hessian_deviation(local, w0, hessian_batch) for local in objectives),
        delta=math.sqrt(last.pruning_error),
        psi=last.min_coverage,
        gamma=last.max_staleness,
        n_workers=problem.n_workers,
        initial_distance=float(np.linalg.norm(w0 - reference.w)),
    )


def _conditions(k: Constants) -> tuple[Condition, ...]:
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


def _hessian_lipschitz(local: LocalObjective) -> float:
    """third_bound |X^T S X| max_j |a_j|: |Hess F(u) - Hess F(v)| <= that |u - v|."""
    if local.loss.third_bound == 0:
        return 0.0
    return local.loss.third_bound * local.gram_norm * float(local.row_norms.max())


def _gradient_bound(local: LocalObjective, radius: float) -> float:
    """Bound of |grad F_i| where |w| <= radius: `first` of a convex loss is largest at an end of the interval."""
    reach = radius * local.row_norms
    steepest = np.maximum(np.abs(local.loss.first(local.y, reach)), np.abs(local.loss.first(local.y, -reach)))
    return float(local.row_weights @ (steepest * local.row_norms)) + local.penalty * radius


def _gradient_deviation(local: LocalObjective, w: Array, batch: int | None) -> float:
    """Standard deviation of the gradient on `batch` rows drawn without replacement, at w."""
    if batch is None or batch >= local.n_rows:
        return 0.0
    coefficients = local.n_rows * local.row_weights * local.loss.first(local.y, local.margins(w))
    mean = local.transpose_product(coefficients) / local.n_rows
    return _sampling_deviation(np.square(coefficients * local.row_norms), float(mean @ mean), batch)


def _hessian_deviation(local: LocalObjective, w: Array, batch: int | None) -> float:
    """Standard deviation, in Frobenius norm, of the Hessian on `batch` rows drawn without replacement, at w."""
    if batch is None or batch >= local.n_rows:
        return 0.0
    coefficients = local.n_rows * local.row_weights * local.loss.second(local.y, local.margins(w))
    mean = local.hessian(w) - np.eye(len(w)) * local.penalties
    return _sampling_deviation(np.square(coefficients * local.row_norms**2), float(np.sum(mean**2)), batch)


def _sampling_deviation(squared_norms: Array, squared_mean: float, batch: int) -> float:
    """Sqrt of E|mean of a sample - mean|^2 for a sample without replacement (Cochran, Sampling Techniques, 2.2)."""
    n = squared_norms.size
    spread = max(float(squared_norms.sum()) - n * squared_mean, 0.0) / (n - 1)
    return math.sqrt(spread / batch * (1 - batch / n))
