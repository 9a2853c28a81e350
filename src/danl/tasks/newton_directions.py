r"""What local Hessians H_i make of a vector that all workers share: Newton directions, and those of least squares.

With g the gradient of the whole objective at w, which the server sends along,

    direction     H_i^-1 g                                                    GIANT (Wang et al., NeurIPS 2018)
    products      H_i g,   H_i^+ g,   z_i = (H_i^2 + phi^2 I)^-1 H_i g        DINGO (Crane & Roosta, NeurIPS 2019)
    corrected     p_i = -z_i - lambda_i y_i                                   DINGO, case 3

where for h = H g, the mean of the workers' H_i g,

    y_i = (H_i^2 + phi^2 I)^-1 h        lambda_i = max(0, theta |g|^2 - z_i . h) / (h . y_i)

so that p_i . h <= -theta |g|^2, with equality where lambda_i > 0. z_i is what least squares with damping phi, that is
min_p |H_i p - g|^2 + phi^2 |p|^2, has for its solution.

Up to EXACT coefficients a worker factors H_i; else, or where a number of `steps` is asked for, it iterates with
products alone: conjugate gradients for H_i^-1 g and y_i, MINRES for H_i^+ g, LSMR for z_i.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from danl._scipy import dpotrf, dpotrs
from danl.frozen import cached_property
from danl.objective.local_objective import LocalObjective
from danl.objective.quadratic_model import QuadraticModel
from danl.objective.threads import blas_held
from danl.protocol.messages import Array, Reply
from danl.protocol.own_tasks import OwnTask, Workplace, vectors_fault

EXACT = 2_000
"""Coefficients up to which a Hessian is factored where nothing else is asked for."""
SMALL = 500
"""Coefficients up to which the threads of BLAS would mostly wait for each other."""
STEPS = 100
"""Steps of an iteration above that."""
ENOUGH = 1e-14
"""An iteration ends early with a residual below this share of the right-hand side."""
REFINED = 8
"""Steps in which phi must have come into a least-squares solution; else it takes the eigenvalues."""
EPS = float(np.finfo(float).eps)


@dataclass(frozen=True)
class NewtonDirectionReply(Reply):
    """A direction, and the loss at w."""

    direction: Array
    loss: float


@dataclass(frozen=True)
class NewtonDirectionTask(OwnTask):
    """Send H_i^-1 gradient at w, exact or after `steps` conjugate gradients at most."""

    name, answer = "newton-direction", NewtonDirectionReply

    gradient: Array
    steps: int | None = None

    def work(self, place: Workplace) -> NewtonDirectionReply:
        with blas_held(self.w.size <= SMALL):
            hessian = local_hessian(place.objective, self.w, self.steps)
            return NewtonDirectionReply(place.worker, self.exchange, hessian.solve(self.gradient), hessian.loss)

    def fault(self, reply: Any, d: int) -> str | None:
        return vectors_fault(reply, {"direction": d})

    def work_rows(self, rows: int, entries_per_row: float) -> float:
        return hessian_work(rows, entries_per_row, self.steps)


@dataclass(frozen=True)
class HessianProductsReply(Reply):
    """H_i g, H_i^+ g and z_i, and the loss at w."""

    product: Array
    inverse: Array
    damped: Array
    loss: float


@dataclass(frozen=True)
class HessianProductsTask(OwnTask):
    """Send H_i gradient, H_i^+ gradient and (H_i^2 + phi^2 I)^-1 H_i gradient at w."""

    name, answer = "hessian-products", HessianProductsReply

    gradient: Array
    phi: float
    steps: int | None = None

    def work(self, place: Workplace) -> HessianProductsReply:
        with blas_held(self.w.size <= SMALL):
            hessian, g = local_hessian(place.objective, self.w, self.steps), self.gradient
            vectors = hessian.times(g), hessian.pseudo_inverse(g), hessian.least_squares(g, self.phi)
        return HessianProductsReply(place.worker, self.exchange, *vectors, hessian.loss)

    def fault(self, reply: Any, d: int) -> str | None:
        return vectors_fault(reply, {"product": d, "inverse": d, "damped": d})

    def work_rows(self, rows: int, entries_per_row: float) -> float:
        return hessian_work(rows, entries_per_row, self.steps, products=3)


@dataclass(frozen=True)
class CorrectedDirectionTask(OwnTask):
    """Send -z_i, corrected where need be so that its product with `hessian_gradient` is -theta |gradient|^2."""

    name, answer = "corrected-direction", NewtonDirectionReply

    gradient: Array
    hessian_gradient: Array
    theta: float
    phi: float
    steps: int | None = None

    def work(self, place: Workplace) -> NewtonDirectionReply:
        with blas_held(self.w.size <= SMALL):
            hessian, h = local_hessian(place.objective, self.w, self.steps), self.hessian_gradient
            direction = -hessian.least_squares(self.gradient, self.phi)
            missing = self.theta * float(self.gradient @ self.gradient) + float(direction @ h)
            if missing > 0 and h.any():
                y = hessian.damped_square(h, self.phi)
                direction = direction - missing / float(h @ y) * y
        return NewtonDirectionReply(place.worker, self.exchange, direction, hessian.loss)

    def fault(self, reply: Any, d: int) -> str | None:
        return vectors_fault(reply, {"direction": d})

    def work_rows(self, rows: int, entries_per_row: float) -> float:
        return hessian_work(rows, entries_per_row, self.steps, products=4)


def hessian_work(rows: int, entries_per_row: float, steps: int | None, products: int = 1) -> float:
    """Passes over a row: the margins, and outer products, or so many products in each of the steps."""
    return rows * (0.5 + (entries_per_row / 2 if steps is None else products * steps))


class LocalHessian(Protocol):
    """H_i at a model, to be multiplied with and divided by; and the loss there."""

    @property
    def loss(self) -> float:
        """F_i there."""
        ...

    @property
    def times(self) -> Callable[[Array], Array]:
        """H v of a vector v."""
        ...

    def solve(self, v: Array) -> Array:
        """H^-1 v; H^+ v where H has no inverse."""
        ...

    def pseudo_inverse(self, v: Array) -> Array:
        """H^+ v."""
        ...

    def least_squares(self, v: Array, phi: float) -> Array:
        """(H^2 + phi^2 I)^-1 H v."""
        ...

    def damped_square(self, v: Array, phi: float) -> Array:
        """(H^2 + phi^2 I)^-1 v."""
        ...


def local_hessian(objective: LocalObjective, w: Array, steps: int | None) -> LocalHessian:
    """The Hessian at w, whole where nothing else is asked for and it is not too large."""
    if steps is None and w.size <= EXACT:
        with np.errstate(over="ignore", invalid="ignore"):  # at a model that blew up: the loss shows it
            return Factored(objective.value(w), objective.hessian(w))
    model = QuadraticModel.of(objective, w)
    return Iterated(model.loss, model.times, STEPS if steps is None else steps)


@dataclass(frozen=True)
class Factored:
    """A dense H: by its Cholesky factor, and by its eigenvalues where it may have no inverse."""

    loss: float
    hessian: Array

    @cached_property
    def parts(self) -> tuple[Array, Array]:
        """Eigenvalues and eigenvectors; nan where the Hessian is not finite."""
        if not np.isfinite(self.hessian).all():
            return np.full(len(self.hessian), np.nan), self.hessian
        values, vectors = np.linalg.eigh(self.hessian)
        return values, vectors

    @cached_property
    def factor(self) -> Array | None:
        """That of Cholesky; None where some direction may be rounding alone."""
        return factored(self.hessian)

    def times(self, v: Array) -> Array:
        return np.asarray(self.hessian @ v)

    def solve(self, v: Array) -> Array:
        return self.pseudo_inverse(v) if self.factor is None else np.asarray(dpotrs(self.factor, v)[0])

    def pseudo_inverse(self, v: Array) -> Array:
        if self.factor is not None:
            return np.asarray(dpotrs(self.factor, v)[0])
        values = self.parts[0]
        there = ~(np.abs(values) <= len(values) * EPS * np.abs(values).max(initial=0.0))  # nan stays
        return self._scaled(v, np.divide(1.0, values, out=np.zeros_like(values), where=there))

    def least_squares(self, v: Array, phi: float) -> Array:
        found = self._refined(v, phi)
        if found is not None:
            return found
        values = self.parts[0]
        return self._scaled(v, values / (np.square(values) + phi**2))

    def damped_square(self, v: Array, phi: float) -> Array:
        found = None if self.factor is None else self._refined(self.solve(v), phi)
        return self._scaled(v, 1.0 / (np.square(self.parts[0]) + phi**2)) if found is None else found

    def _refined(self, v: Array, phi: float) -> Array | None:
        """(H^2 + phi^2 I)^-1 H v by  x <- H^-1 (v - phi^2 H^-1 x)  where phi is far below H; else None."""
        if self.factor is None:
            return None
        x = self.solve(v)
        for _ in range(REFINED):
            before, x = x, self.solve(v - phi**2 * self.solve(x))
            if np.abs(x - before).max(initial=0.0) <= EPS * np.abs(x).max(initial=0.0):
                return x
        return None

    def _scaled(self, v: Array, scale: Array) -> Array:
        vectors = self.parts[1]
        return np.asarray(vectors @ (scale * (v @ vectors)))


def factored(matrix: Array) -> Array | None:
    """The factor of Cholesky; None where a pivot is nothing that rounding could not be all of."""
    factor, failed = dpotrf(matrix.T, clean=0)
    pivots = np.square(factor.diagonal())
    return factor if not failed and pivots.min() > len(matrix) * EPS * pivots.max() else None


@dataclass(frozen=True)
class Iterated:
    """H as its products, and so many steps of an iteration for whatever divides by it."""

    loss: float
    times: Callable[[Array], Array]
    steps: int

    def solve(self, v: Array) -> Array:
        return conjugate_gradients(self.times, v, self.steps)

    def pseudo_inverse(self, v: Array) -> Array:
        from scipy.sparse.linalg import minres

        return np.asarray(minres(self._operator(v.size), v, rtol=ENOUGH, maxiter=self.steps)[0])

    def least_squares(self, v: Array, phi: float) -> Array:
        from scipy.sparse.linalg import lsmr

        options = {"damp": phi, "atol": ENOUGH, "btol": ENOUGH, "conlim": 0.0, "maxiter": self.steps}
        return np.asarray(lsmr(self._operator(v.size), v, **options)[0])

    def damped_square(self, v: Array, phi: float) -> Array:
        return conjugate_gradients(lambda u: self.times(self.times(u)) + phi**2 * u, v, self.steps)

    def _operator(self, d: int) -> Any:
        from scipy.sparse.linalg import LinearOperator

        return LinearOperator((d, d), matvec=self.times, rmatvec=self.times, dtype=float)


def conjugate_gradients(times: Callable[[Array], Array], b: Array, steps: int) -> Array:
    """At most so many steps towards the solution of a positive definite system, from zero."""
    x, residual = np.zeros_like(b), b
    direction, square = b, float(b @ b)
    least = ENOUGH**2 * square
    for _ in range(steps):
        product = times(direction)
        curvature = float(direction @ product)
        if not curvature > 0 or not square > least:  # nan is not >
            break
        length = square / curvature
        x, residual = x + length * direction, residual - length * product
        square, before = float(residual @ residual), square
        direction = residual + (square / before) * direction
    return x
