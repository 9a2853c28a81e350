"""The constants of Assumptions 1 to 4 and of Theorem 1, for a problem and a run.

Differs from the paper: with a ridge penalty no F_i is Lipschitz on all of R^d, so L is taken on the smallest ball
around 0 that holds every model of the run. Lambda and kappa are measured, at w0 and w* and at w0, for the batch sizes
of the run (0 for whole shards), where the paper asks for a bound over all w. They are standard deviations; `Deviations`
has what no sample exceeds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from danl.objective.local_objective import LocalObjective
from danl.objective.problem import Problem
from danl.protocol.messages import Array
from danl.run.result import Reference, Result


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
class Deviations:
    """How far the gradient and the Hessian of a sample of rows can be from those of the shard, whatever is drawn."""

    gradient: float = 0.0
    """On the ball that holds the run's models."""
    hessian: float = 0.0
    """At w0, spectral norm."""

    @classmethod
    def largest(cls, problem: Problem, result: Result) -> Deviations:
        """Over the workers of a run; 0 for whole shards."""
        batch, hessian_batch = batches_of(result)
        objectives, radius = problem.local_objectives, radius_of(result)
        return cls(
            max(_largest_gradient_deviation(local, radius, batch) for local in objectives),
            max(_largest_hessian_deviation(local, result.w0, hessian_batch) for local in objectives),
        )


def constants_of(problem: Problem, result: Result, reference: Reference) -> Constants:
    """Of a run that was measured against a reference."""
    objectives, last = problem.local_objectives, result.history[-1]
    w0, radius, (batch, hessian_batch) = result.w0, radius_of(result), batches_of(result)
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


def largest_curvature(problem: Problem, result: Result) -> float:
    """Bound of the Hessians that workers sent: iota_g, or for samples of the rows that of the largest row."""
    batch = batches_of(result)[1]
    return max(_largest_hessian(local, batch) for local in problem.local_objectives)


def batches_of(result: Result) -> tuple[int | None, int | None]:
    """How many rows of a shard were sampled, for gradients and for Hessians; None for all of them."""
    options = result.settings.get("method_options", {})
    return options.get("batch_size"), options.get("hessian_batch")


def radius_of(result: Result) -> float:
    """Of the smallest ball around 0 that holds every model of the run."""
    return max(float(np.linalg.norm(result.w0)), *(row.model_norm for row in result.history))


def _hessian_lipschitz(local: LocalObjective) -> float:
    """third_bound |X^T S X| max_j |a_j|: |Hess F(u) - Hess F(v)| <= that |u - v|."""
    if local.loss.third_bound == 0:
        return 0.0
    return local.loss.third_bound * local.gram_norm * float(local.row_norms.max())


def _largest_hessian(local: LocalObjective, batch: int | None) -> float:
    if batch is None or batch >= local.n_rows:
        return local.smoothness()
    rows = local.n_rows * local.row_weights * local.row_norms**2
    return local.loss.second_bound * float(rows.max()) + local.penalty


def _gradient_bound(local: LocalObjective, radius: float) -> float:
    """Bound of |grad F_i| where |w| <= radius: `first` of a convex loss is largest at an end of the interval."""
    return float(local.row_weights @ _row_gradient_bounds(local, radius)) + local.penalty * radius


def _row_gradient_bounds(local: LocalObjective, radius: float) -> Array:
    reach, about = radius * local.row_norms, 0.0 if local.offset is None else local.offset
    ends = (np.abs(local.loss.first(local.y, about + sign * reach)) for sign in (1.0, -1.0))
    steepest = np.maximum(*ends)
    return np.asarray(steepest * local.row_norms)


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


def _largest_gradient_deviation(local: LocalObjective, radius: float, batch: int | None) -> float:
    """What no sample exceeds where |w| <= radius: its mean - that of all = (1 - b/n) (its mean - that of the rest)."""
    if batch is None or batch >= local.n_rows:
        return 0.0
    norms = local.n_rows * local.row_weights * _row_gradient_bounds(local, radius)
    n = local.n_rows
    return (1 - batch / n) * (_largest_mean(norms, batch) + _largest_mean(norms, n - batch))


def _largest_hessian_deviation(local: LocalObjective, w: Array, batch: int | None) -> float:
    """The same at w; both means are positive semi-definite, so the norm of their difference is at most the larger's."""
    if batch is None or batch >= local.n_rows:
        return 0.0
    norms = local.n_rows * local.row_weights * local.loss.second(local.y, local.margins(w)) * local.row_norms**2
    n = local.n_rows
    return (1 - batch / n) * _largest_mean(norms, min(batch, n - batch))


def _largest_mean(values: Array, count: int) -> float:
    """Of any `count` of them."""
    return float(np.sort(values)[-count:].mean())
