"""The quadratic model of an objective: its products are those of the Hessian, on all rows and on batches."""

import numpy as np
import pytest
from scipy import sparse

from danl.objective.local_objective import LocalObjective
from danl.objective.losses import make_loss
from danl.objective.quadratic_model import QuadraticModel


def objective(loss="logistic", *, intercept=False, as_sparse=False, weighted=False, rows=40, d=5, penalty=0.3):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, d)) * (rng.random((rows, d)) < 0.7)
    made = make_loss(loss)
    y = rng.integers(0, getattr(made, "n_outputs", 2), size=rows).astype(float)
    weights = rng.uniform(0.5, 2.0, rows) if weighted else None
    return LocalObjective(sparse.csr_matrix(X) if as_sparse else X, y, weights, made, penalty, intercept)


@pytest.mark.parametrize("loss", ["logistic", "squared", "poisson", "multinomial:classes=3"])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("as_sparse", [False, True])
def test_products_are_those_of_hessian_and_gradient(loss, intercept, as_sparse):
    local = objective(loss, intercept=intercept, as_sparse=as_sparse, weighted=True)
    w, v = np.random.default_rng(1).normal(size=(2, local.layout.n_coefficients)) * 0.3
    model, hessian = QuadraticModel.of(local, w), local.hessian(w)
    value, gradient = local.value_and_gradient(w)
    assert model.loss == pytest.approx(value, rel=1e-13)
    np.testing.assert_allclose(model.gradient(), gradient, atol=1e-13)
    np.testing.assert_allclose(model.times(v), hessian @ v, atol=1e-13)
    np.testing.assert_allclose(model.gradient_at(v), gradient + hessian @ v, atol=1e-13)


@pytest.mark.parametrize("as_sparse", [False, True])
def test_a_part_is_the_model_of_its_rows(as_sparse):
    local = objective(as_sparse=as_sparse)
    w, v = np.random.default_rng(1).normal(size=(2, 5))
    batch = QuadraticModel.of(local, w).part(10, 20, 4.0)  # 10 of 40 rows
    few = LocalObjective(local.X[10:20], local.y[10:20], None, local.loss, local.penalty)
    np.testing.assert_allclose(batch.times(v), few.hessian(w) @ v, atol=1e-13)
    np.testing.assert_allclose(batch.gradient_at(np.zeros(5)), few.value_and_gradient(w)[1], atol=1e-13)


@pytest.mark.parametrize("loss", ["logistic", "multinomial:classes=4"])
def test_curvature_of_rows_bounds_that_of_every_row(loss):
    local = objective(loss)
    w = np.random.default_rng(1).normal(size=local.layout.n_coefficients)
    model = QuadraticModel.of(local, w)
    second = model.second.reshape(local.n_rows, *[local.layout.n_outputs] * 2)
    assert (model.curvature_of_rows() >= np.linalg.eigvalsh(second)[:, -1] - 1e-15).all()
