import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from danl.server.curvature import _clearly_above, project, with_unit_diagonal
from tests import oracle

matrices = st.builds(
    lambda seed, d, scale: _symmetric(seed, d, scale), st.integers(0, 2**31), st.integers(1, 8), st.floats(1e-3, 1e3)
)


def _symmetric(seed, d, scale):
    A = np.random.default_rng(seed).normal(size=(d, d)) * scale
    return (A + A.T) / 2


@settings(deadline=None)
@given(matrices, st.floats(1e-6, 10))
def test_projection_equals_the_papers_definition(A, mu):
    np.testing.assert_allclose(project(A, mu).matrix(), oracle.project(A, mu), atol=1e-12 * (np.abs(A).max() + mu))


@settings(deadline=None)
@given(matrices, st.floats(1e-6, 10), st.integers(0, 2**31))
def test_lemma_1_and_closest_matrix_in_the_cone(A, mu, seed):
    """Lemma 1: |[A]_mu - B| <= |A - B| for every B in the cone; and [A]_mu is the closest to A among them."""
    P, rng, d = project(A, mu).matrix(), np.random.default_rng(seed), len(A)
    slack = 1e-10 * (np.abs(A).max() + mu)
    assert np.linalg.eigvalsh(P)[0] >= mu - slack
    candidates = [P + scale * (R @ R.T) for scale in (1e-3, 1.0) for R in rng.normal(size=(3, d, d))]
    candidates += [mu * np.eye(d) + R @ R.T for R in rng.normal(size=(3, d, d))]
    for B in candidates:
        assert np.linalg.norm(P - B) <= np.linalg.norm(A - B) + slack
        assert np.linalg.norm(P - A) <= np.linalg.norm(B - A) + slack
    # The optimality condition of a projection on a convex set: <A - P, B - P> <= 0 for every B in it.
    for B in candidates:
        assert np.sum((A - P) * (B - P)) <= slack * (1 + np.linalg.norm(B - P))


@settings(deadline=None)
@given(matrices, st.floats(1e-3, 10), st.integers(0, 2**31))
def test_solve_inverts_the_projection(A, mu, seed):
    curvature = project(A, mu)
    g = np.random.default_rng(seed).normal(size=len(A))
    residual = curvature.matrix() @ curvature.solve(g) - g
    assert np.linalg.norm(residual) <= 1e-11 * np.linalg.norm(g) * max(1.0, np.abs(A).max() * len(A) / mu)


def test_without_a_penalty_flat_directions_are_gone_along_like_the_steepest():
    curvature = project(np.diag([0.0, 4.0]), 0.0)
    np.testing.assert_allclose(curvature.solve(np.array([2.0, 8.0])), [2.0, 2.0])  # in units where the steepest is 1
    np.testing.assert_allclose(curvature.matrix(), np.diag([1.0, 4.0]))


@pytest.mark.parametrize("unit", [1e-8, 1.0, 1e8])
def test_without_a_penalty_units_do_not_make_a_direction_flat(unit):
    units = np.array([unit, 1.0])
    hessian = np.multiply.outer(units, units) * np.array([[2.0, 1.0], [1.0, 2.0]])
    step = project(hessian, 0.0).solve(units * np.array([3.0, 3.0]))
    np.testing.assert_allclose(step, 1.0 / units, rtol=1e-9)


def test_collinear_directions_are_found_in_any_units():
    units = np.array([1e-6, 1.0, 1e6])
    hessian = np.multiply.outer(units, units) * np.ones((3, 3))
    step = project(hessian, 0.0).solve(units)
    np.testing.assert_allclose(units @ step, 1.0, rtol=1e-9)
    assert np.abs(units * step).max() < 1.0


def test_a_zero_hessian_without_a_penalty_can_still_be_solved_with():
    assert np.isfinite(project(np.zeros((2, 2)), 0.0).solve(np.zeros(2))).all()


@settings(deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 12), st.floats(0, 9))
def test_the_factor_alone_proves_no_more_than_is_true(seed, d, digits):
    rng = np.random.default_rng(seed)
    turned, _ = np.linalg.qr(rng.normal(size=(d, d)))
    units = 10.0 ** rng.uniform(-3, 3, size=d)
    hessian = units * ((turned * 10.0 ** -rng.uniform(0, digits, size=d)) @ turned.T) * units[:, None]
    factor = np.linalg.cholesky(hessian).T
    lowest = np.linalg.eigvalsh(with_unit_diagonal(hessian)[0])[0]
    assert not _clearly_above(hessian, factor, lowest)
    assert _clearly_above(np.eye(d), np.eye(d), 1e-6)
