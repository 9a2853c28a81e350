"""Theorem 1's constants on problems where they are known, and its conditions both ways."""

import math

import numpy as np
import pytest

import danl
from danl.methods import DANL
from danl.objective.losses import LOSSES
from danl.theory import Constants
from tests.problems import random_problem


def certificate(problem, **arguments):
    reference = danl.reference_optimum(problem)
    result = danl.solve(problem, reference=reference, **arguments)
    return danl.certify(problem, result, reference=reference), result, reference


def test_a_quadratic_with_full_masks_meets_every_condition_and_the_bound():
    """Newton Zero solves a quadratic in one step; iota_h = 0, so that low = c / b = 0 and high is infinite."""
    problem = random_problem("squared", alpha=0.3)
    cert, _, _ = certificate(problem, method="danl-paper", max_rounds=10)
    assert cert.constants.iota_h == 0.0
    assert cert.constants.high == math.inf
    assert cert.conditions_met
    assert cert.first_violation is None
    assert cert.verdict.startswith("Theorem 1 applies: all four conditions hold. Measured: |w_t - w*|^2 stayed below")
    assert cert.squared_distances[0] == pytest.approx(cert.constants.initial_distance**2)
    np.testing.assert_allclose(cert.bound, cert.squared_distances[0] * 0.5 ** np.arange(len(cert.bound)))


@pytest.mark.parametrize("method", ["danl-paper", "danl-masked", "newton-zero", "danl", "newton", "gd"])
def test_the_theorem_is_about_algorithm_1(method):
    cert, _, _ = certificate(random_problem("squared", alpha=0.3), method=method, max_rounds=10)
    assert cert.conditions_met
    assert cert.applies == cert.to_dict()["applies"] == (method in ("danl-paper", "danl-masked", "newton-zero"))
    other = f"all four conditions hold, but {method} is not Algorithm 1; Theorem 1 says nothing about this run."
    assert cert.verdict.startswith("Theorem 1 applies: all four conditions hold. Measured" if cert.applies else other)


def test_conditions_that_fail_are_named():
    cert, result, _ = certificate(random_problem(), method="danl-paper", policy="coverage:psi=2", max_rounds=10)
    failed = [condition.name for condition in cert.conditions if not condition.holds]
    assert failed == ["(ii)", "(iii)", "(iv)"]
    assert cert.verdict.startswith("conditions not met: (ii), (iii), (iv); Theorem 1 says nothing about this run.")
    assert cert.constants.psi == result.history[-1].min_coverage == 2
    assert cert.constants.gamma == result.history[-1].max_staleness > 0
    assert cert.constants.delta == pytest.approx(math.sqrt(result.history[-1].pruning_error))
    assert cert.to_dict()["conditions_met"] is False


def test_a_start_next_to_the_optimum_meets_the_conditions_for_logistic_regression():
    problem = random_problem(alpha=5.0)
    w = danl.reference_optimum(problem).w
    constants = certificate(problem, method="danl-paper", max_rounds=0)[0].constants
    radius, step = min(constants.high, constants.reach), np.eye(7)[0]
    near, _, _ = certificate(problem, method="danl-paper", w0=w + 0.5 * radius * step, max_rounds=8)
    far, _, _ = certificate(problem, method="danl-paper", w0=w + 2.0 * radius * step, max_rounds=8)
    assert near.conditions_met
    assert near.first_violation is None
    assert [condition.name for condition in far.conditions if not condition.holds] == ["(iv)"]


def test_a_violated_bound_is_found_at_its_round():
    cert, result, _ = certificate(random_problem(l2=0.01), method="gd:learning_rate=0.01", max_rounds=12, tol=0.0)
    distances = np.array([cert.constants.initial_distance, *result.history.column("distance")]) ** 2
    bound = distances[0] * 0.5 ** np.arange(14)
    assert cert.first_violation == int(np.flatnonzero(distances > bound)[0]) == 1


@pytest.mark.parametrize("loss", ["logistic", "squared", "squared_hinge"])
def test_lipschitz_constants_bound_what_they_should(loss):
    problem = random_problem(loss, weighted=True)
    cert, result, _ = certificate(problem, method="danl-masked", max_rounds=5, tol=0.0)
    k, rng = cert.constants, np.random.default_rng(0)
    radius = result.history.column("model_norm").max()
    for local in problem.local_objectives:
        for _ in range(20):
            u, v = (rng.normal(size=7) for _ in range(2))
            gap = np.linalg.norm(u - v)
            assert np.linalg.norm(local.value_and_gradient(u)[1] - local.value_and_gradient(v)[1]) <= k.iota_g * gap
            assert np.linalg.norm(local.hessian(u) - local.hessian(v), 2) <= k.iota_h * gap + 1e-12
            inside = u * radius / np.linalg.norm(u) * rng.random()
            assert np.linalg.norm(local.value_and_gradient(inside)[1]) <= k.L


@pytest.mark.slow
def test_sampling_constants_are_the_measured_deviations():
    problem = random_problem(sizes=(30, 25), weighted=True)
    method = DANL(batch_size=6, hessian_batch=8, memory="raw", curvature="once")
    cert, _, reference = certificate(problem, method=method, max_rounds=3, tol=0.0)
    rng = np.random.default_rng(0)

    def deviation(local, w, size, of):
        whole = of(local, w, None)
        draws = [of(local, w, rng.choice(local.n_rows, size=size, replace=False)) - whole for _ in range(4000)]
        return math.sqrt(np.mean([np.sum(draw**2) for draw in draws]))

    def gradient(local, w, rows):
        return local.sample(rows).value_and_gradient(w)[1]

    def hessian(local, w, rows):
        return local.sample(rows).hessian(w)

    points = (np.zeros(7), reference.w)
    measured = max(deviation(local, w, 6, gradient) for local in problem.local_objectives for w in points)
    assert cert.constants.Lambda == pytest.approx(measured, rel=0.03)
    measured = max(deviation(local, points[0], 8, hessian) for local in problem.local_objectives)
    assert cert.constants.kappa == pytest.approx(measured, rel=0.03)


def test_whole_shards_have_no_sampling_noise():
    cert, _, _ = certificate(random_problem(), method="danl-paper", max_rounds=2)
    assert (cert.constants.Lambda, cert.constants.kappa) == (0.0, 0.0)


def test_a_b_c_and_rho_are_the_papers():
    k = Constants(
        mu=0.5,
        iota_g=2.0,
        iota_h=3.0,
        L=1.5,
        Lambda=0.1,
        kappa=0.05,
        delta=0.2,
        psi=2,
        gamma=3,
        n_workers=10,
        initial_distance=1.0,
    )
    assert k.a == 4.5
    assert k.b == pytest.approx(0.25 / 16 - 0.0025)
    c = 5 * (2 * 4 * 0.04 + 0.01) + 9 * 8 * (2.25 + 0.01) * 4 / 0.25 + 4 * 4 * 0.04 + 0.01
    assert k.c == pytest.approx(c)
    assert k.rho == pytest.approx(k.b**2 - 4 * 4.5 * c)
    assert math.isnan(k.low)


def test_low_and_high_are_the_roots():
    k = Constants(
        mu=4.0,
        iota_g=1e-3,
        iota_h=0.5,
        L=1.0,
        Lambda=1e-2,
        kappa=0.1,
        delta=0.1,
        psi=2,
        gamma=0,
        n_workers=4,
        initial_distance=1.0,
    )
    for root in (k.low, k.high):
        assert k.a * root**2 - k.b * root + k.c == pytest.approx(0.0, abs=1e-12)
    assert 0 < k.low < k.high


@pytest.mark.parametrize("loss", LOSSES)
def test_every_loss_gets_an_answer(loss):
    cert, _, _ = certificate(random_problem(loss), method="danl-masked", policy="coverage:psi=2", max_rounds=5)
    assert not cert.conditions_met
    if loss in ("poisson", "squared_hinge"):  # Assumption 2 fails: no Lipschitz Hessian
        full, _, _ = certificate(random_problem(loss), method="danl-masked", max_rounds=5)
        assert not full.conditions[1].holds
    import json

    json.dumps(cert.to_dict(), allow_nan=False)


def test_a_result_without_distances_is_refused():
    problem = random_problem()
    with pytest.raises(danl.InputError) as error:
        danl.certify(problem, danl.solve(problem, max_rounds=2))
    assert str(error.value) == (
        "result: has no distances to the optimum; solve with reference=danl.reference_optimum(problem) first"
    )
