"""How far off the curvature may be at the end of a run."""

import numpy as np
import pytest
from benchmarks.ending import decrement

import danl
from danl.methods import DANL
from danl.methods.rates import MOST_OFF, off, steps_with


def test_after_whole_steps_on_a_quadratic_it_is_the_error_of_the_curvature():
    """B = H / (1 - e): every step leaves e of the gradient, in every direction."""
    hessian, error, w, gains = np.diag([1.0, 4.0, 9.0]), 0.3, np.array([1.0, -2.0, 0.5]), []
    curvature = hessian / (1 - error)
    for count in range(4):
        assert off(gains, everyone=True) == pytest.approx(error if count > 1 else 0.0)
        gradient = hessian @ w
        gains.append(float(gradient @ np.linalg.solve(curvature, gradient)) / 2)
        w = w - np.linalg.solve(curvature, gradient)
    assert off([1.0, 0.25, 1e-20], everyone=True) == 0.5  # the worse of two
    assert off([1.0, 1e-8, 1e-12], everyone=True) == pytest.approx(1e-2)
    assert off([9.0, 1.0, 1e-8, 1e-12], everyone=True) == pytest.approx(1e-2)
    assert off([1.0, 2.0], everyone=True) == off([1.0, 1.0], everyone=True) == MOST_OFF
    assert off([0.0, 0.0], everyone=True) == 0.0


@pytest.mark.slow
@pytest.mark.parametrize("pairs", [0, 1, 2])
@pytest.mark.parametrize("alpha", [1e-1, 1e-2, 1e-3])
def test_converged_is_said_where_it_is_true_however_old_the_curvature_is(alpha, pairs):
    """The Hessian at zero is above that at the optimum, and shows a decrement that is too small."""
    data = danl.load_dataset("a1a")
    problem = danl.Problem(danl.partition(data.X, data.y, workers=10, seed=0), alpha=alpha)
    method = DANL(curvature="full", pairs=pairs, contraction=0.99)  # which asks for no other one, or for one
    for tol in (1e-4, 1e-6, 1e-8):
        result = danl.solve(problem, method=method, tol=tol, max_rounds=500)
        assert result.status == "converged"
        assert decrement(problem, result.w) <= tol


def test_with_a_new_hessian_every_step_leaves_the_share_that_is_left_here():
    assert steps_with(1e-3, 1e-9, sampled=False) == pytest.approx(2.0)  # 1e-6, 1e-9
    assert steps_with(1e-3, 1e-9, sampled=True) == pytest.approx(6.0)  # a sample leaves a tenth
    assert steps_with(1e-10, 1e-9, sampled=False) == 0.0
    assert (
        steps_with(5.0, 1e-9, sampled=False) < steps_with(5.0, 0.0, sampled=False) < np.inf
    )  # far off, and to rounding


def test_nothing_is_known_of_the_curvature_of_some_before_the_first_step():
    assert off([1.0], everyone=True) == 0.0
    assert off([1.0], everyone=False) == MOST_OFF
    assert off([1.0, 0.25], everyone=False) == 0.5


def test_where_the_old_curvature_hides_directions_a_new_one_is_worth_every_step():
    assert steps_with(np.inf, 1e-9, sampled=False) == 0.0
