"""The length of the next step: as long as curvature that goes on falling as it fell makes it."""

import numpy as np
import pytest

import danl
from danl.methods.extrapolation import LONGEST, extrapolated_length
from danl.server.curvature import project
from danl.server.partial_curvature import Diagonal
from danl.server.quasi_newton import QuasiNewton, WholeGradient


def made(hessian):
    return QuasiNewton.start(project(np.diag(hessian), 1e-9), len(hessian))


def length(here, gradient_before, gradient, hessian, age):
    last = WholeGradient(np.zeros(len(here)), np.array(gradient_before), np.ones(1))
    return extrapolated_length(last, made(hessian), np.array(here), np.array(gradient), age)


def test_on_a_quadratic_it_is_newtons_step():
    H = np.array([3.0, 0.5])
    for age in (0, 1):
        assert length([0.7, -0.2], H * [-1.0, 1.0], H * ([-0.3, 0.8]), H, age) == pytest.approx(1.0)


@pytest.mark.parametrize("age", [0, 1])
def test_a_curvature_that_falls_evenly_is_followed(age):
    """f'' = exp(-x) along a line: the step of the extrapolated curvature is nearer to the end than Newton's."""

    def first(x):
        return 0.9 - np.exp(-x) - 0.85  # f' with f'' = exp(-x); its root is at -log(0.05)

    root, x0, x1 = -np.log(0.05), 1.0, 1.5
    hessian = np.exp(-(x1 if age == 0 else x0))
    last = WholeGradient(np.array([x0]), np.array([first(x0)]), np.ones(1))
    found = extrapolated_length(last, made([hessian]), np.array([x1]), np.array([first(x1)]), age)
    used = np.exp(-x1) if age == 0 else (first(x1) - first(x0)) / (x1 - x0)  # the pair has corrected it
    newton = -first(x1) / used
    assert 1 < found <= LONGEST
    assert x1 + newton < root
    assert abs(x1 + found * newton - root) < 0.8 * abs(x1 + newton - root)


def test_never_longer_than_the_longest_and_never_shorter_than_newtons():
    assert length([1.0], [-10.0], [-1.0], [0.01], 0) == LONGEST  # nothing is left of the curvature
    assert length([1.0], [-10.0], [-1.0], [50.0], 0) == 1.0  # there is more of it than before
    assert length([1.0], [-10.0], [3.0], [0.01], 0) == 1.0  # the next step goes back


def test_what_is_not_known_is_not_extrapolated():
    last, w, g = WholeGradient(np.zeros(1), np.array([-2.0]), np.ones(1)), np.ones(1), np.array([-1.0])
    assert extrapolated_length(None, made([0.1]), w, g, 0) == 1.0
    assert extrapolated_length(last, made([0.1]), w, g, 2) == 1.0  # the Hessian is older than the step
    assert extrapolated_length(last, QuasiNewton.start(Diagonal(np.array([0.1])), 1), w, g, 0) == 1.0
    assert extrapolated_length(last, project(np.array([[0.1]]), 1e-9), w, g, 0) == 1.0
    assert extrapolated_length(last, made([0.1]), w, np.array([-2.5]), 0) == 1.0  # s.y < 0: rounding


def test_it_saves_exchanges(monkeypatch):
    """Hessians of so few coefficients are asked for every time: 62 exchanges with it, 78 without."""

    def exchanges(longest):
        monkeypatch.setattr("danl.methods.extrapolation.LONGEST", longest)
        results = []
        for seed in range(8):
            rng = np.random.default_rng(seed)
            X = rng.standard_normal((300, 6))
            y = (rng.random(300) < 1 / (1 + np.exp(-3 * X @ rng.standard_normal(6)))).astype(float)
            problem = danl.Problem(danl.partition(X, y, workers=5, seed=0), alpha=1e-3, intercept=True)
            results.append(danl.solve(problem))
        assert {each.status for each in results} == {"converged"}
        return sum(len(each.history) for each in results)

    assert exchanges(LONGEST) < 0.9 * exchanges(1.0)


def test_with_a_hessian_in_every_round_it_is_newtons_method():
    data = danl.load_dataset("a1a")
    problem = danl.Problem(danl.partition(data.X, data.y, workers=10, seed=0), alpha=1e-3)
    newton, every_round = (danl.solve(problem, method=each, max_rounds=3) for each in ("newton", "danl:curvature=1"))
    np.testing.assert_allclose(every_round.w, newton.w, rtol=0, atol=1e-9)
