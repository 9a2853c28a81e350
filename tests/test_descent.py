"""The default's theorem on runs, and on rows and numbers made to break it."""

import json
from dataclasses import replace

import numpy as np
import pytest

import danl
from danl.methods.acceptance import SUFFICIENT_DECREASE
from danl.server.curvature import project
from danl.server.quasi_newton import QuasiNewton
from danl.theory.descent import LEAST_SHARE, Descent, ExactStep, exact_steps
from tests.problems import random_problem


def descent(problem, **arguments):
    reference = danl.reference_optimum(problem)
    result = danl.solve(problem, reference=reference, **arguments)
    return danl.certify(problem, result, reference=reference), result


RUNS = {
    "full": {"method": "danl"},
    "masked": {"method": "danl", "policy": "coverage:psi=1"},
    "secant": {"method": "danl-secant"},
    "sampled": {"method": "danl:batch_size=4,hessian_batch=4", "policy": "coverage:psi=2"},
    "every other": {"method": "danl:curvature=2", "policy": "coverage:psi=2"},
    "absences": {"method": "danl", "policy": "coverage:psi=2", "engine": "local:dropout=0.2"},
}


@pytest.mark.parametrize("loss", ["logistic", "squared", "poisson", "squared_hinge"])
@pytest.mark.parametrize("kind", RUNS)
def test_it_holds_on_runs_of_the_default(kind, loss):
    problem = random_problem(loss, l2=1e-3)
    cert, result = descent(problem, w0=np.full(7, 0.5), max_rounds=60, **RUNS[kind])
    found = cert.descent
    assert found.applies
    assert found.first_violation is None
    assert not cert.violated
    assert len(found.objectives) == len(found.bound) == len(result.history)
    assert found.steps or kind == "absences"
    for step in found.steps:
        assert found.least_curvature <= step.curvature * (1 + 1e-6)
        assert step.curvature <= found.largest_curvature * (1 + 1e-6)
    if found.steps:
        assert found.rate > 0
        assert found.least_rate <= found.rate
        steps = len(found.steps)
        assert found.bound[-1] == pytest.approx((1 - found.rate) ** steps * (found.objectives[0] - found.optimum))
    json.dumps(cert.to_dict(), allow_nan=False)


def test_exact_steps_are_those_from_everyones_whole_gradient():
    cert, result = descent(random_problem(l2=1e-3), method="danl", policy="coverage:psi=1", w0=np.full(7, 2.0))
    whole = [row.exchange for row in result.history if min(row.coverage) == 4]
    found = cert.descent
    assert found.steps
    assert {step.exchange for step in found.steps} <= set(whole)
    for step in found.steps:
        assert step.squared_norm == pytest.approx(result.history[step.exchange].grad_norm ** 2)
        assert result.history[step.settled].step_norm > 0
    problem = random_problem(l2=1e-3)
    value, gradient = problem.value_and_gradient(np.full(7, 2.0))
    promised = gradient @ np.linalg.solve(problem.hessian(np.full(7, 2.0)), gradient)
    assert found.objectives[0] == pytest.approx(value)
    share = 1.0 if found.pairs_of_the_rest == 0 else 0.25
    assert found.steps[0].promised == pytest.approx(share * promised, rel=1e-6)


def test_refused_steps_are_counted():
    """Far out the logistic loss is a straight line, and Newton's step is too long."""
    problem = random_problem(l2=1e-6)
    cert, result = descent(problem, method="danl", w0=np.full(7, 12.0), max_rounds=100)
    assert result.history.column("refused").any()
    longest = max(step.refusals for step in cert.descent.steps)
    assert longest >= 1
    assert cert.descent.length == min(step.begun * LEAST_SHARE**step.refusals for step in cert.descent.steps)
    assert cert.descent.length <= LEAST_SHARE**longest
    assert not cert.violated


# --- rows made up ---


def row(exchange, kind="gradient", *, moved=True, **columns):
    values = {"active": 4, "failed": 0, "objective": 2.0, "grad_norm": 3.0, "decrement": 0.5, "coverage": (4, 1)}
    values |= {"exchange": exchange, "kind": kind, "step_norm": float(moved)} | columns
    blank = dict.fromkeys(danl.Row.__dataclass_fields__, 0)
    return danl.Row(**(blank | values))


def test_a_step_is_settled_where_the_model_moves():
    rows = [row(0, "hessian", moved=False), row(1), row(2), row(3, "hessian"), row(4, refused=1, moved=False)]
    rows += [row(5, "loss", refused=1, moved=False), row(6, "loss", moved=False), row(7, "hessian")]
    assert exact_steps(rows, 4) == (ExactStep(0, 1, 0, 9.0, 0.5), ExactStep(3, 7, 2, 9.0, 0.5))


def test_a_question_that_took_several_exchanges_counts_once_everyone_has_answered():
    rows = [row(0, "hessian", moved=False, active=3, failed=1), row(1, "hessian", moved=False, active=1), row(2)]
    assert [(step.exchange, step.settled) for step in exact_steps(rows, 4)] == [(1, 2)]
    assert exact_steps([replace(rows[0], failed=0), *rows[1:]], 4) == ()  # only some were asked
    assert exact_steps(rows[::2], 4) == ()


def test_whole_gradients_of_everyone_are_exact_unless_they_are_sampled():
    rows = [row(0, moved=False, coverage=(4, 4)), row(1)]
    assert [(step.exchange, step.settled) for step in exact_steps(rows, 4)] == [(0, 1)]
    assert exact_steps(rows, 4, sampled=True) == ()
    assert exact_steps([replace(rows[0], active=3, coverage=(3, 3)), rows[1]], 4) == ()
    assert exact_steps([replace(rows[0], refused=1), rows[1]], 4) == ()


def test_a_decrement_of_those_who_sent_curvature_counts_for_their_share():
    rows = [row(0, "hessian", moved=False), row(1)]
    assert exact_steps(rows, 4, share=0.25)[0].promised == pytest.approx(0.25 * 0.5**2 * 2.0)


def test_what_somebody_missed_settles_nothing():
    rows = [row(0, "hessian", moved=False), row(1, active=3, failed=1, moved=False), row(2)]
    assert exact_steps(rows, 4) == ()
    assert exact_steps([rows[0], rows[2]], 4) != ()


def test_a_refused_hessian_exchange_is_no_exact_gradient():
    rows = [row(0, "hessian", moved=False), row(1, "hessian", refused=1, moved=False), row(2, "hessian")]
    assert [(step.exchange, step.settled, step.refusals) for step in exact_steps(rows, 4)] == [(0, 2, 1)]


def test_after_refused_steps_the_next_begin_shorter_and_grow():
    rows = [row(0, "hessian", moved=False), row(1, refused=1, moved=False)]
    rows += [row(2, "hessian"), row(3, "hessian"), row(4)]
    first, second, third = exact_steps(rows, 4)
    assert (first.begun, first.length) == (1.0, LEAST_SHARE)
    assert second.begun == pytest.approx(1.1 * LEAST_SHARE)
    assert third.length == pytest.approx(1.1**2 * LEAST_SHARE)


# --- a theorem that can be violated ---

STEPS = (ExactStep(0, 1, 0, 4.0, 2.0), ExactStep(2, 3, 0, 1.0, 0.5))
HOLDS = Descent(
    mu=1.0,
    smoothness=4.0,
    initial=4.0,
    pairs=0,
    pairs_of_the_rest=0,
    objectives=(5.0, 4.0, 4.0, 3.0),
    optimum=1.0,
    steps=STEPS,
)


def test_it_holds_on_numbers_that_fall():
    assert HOLDS.first_violation is None
    assert HOLDS.curvature == 2.0
    assert HOLDS.rate == pytest.approx(SUFFICIENT_DECREASE)  # 2 c1 mu eta / M
    assert HOLDS.longest_wait == 2
    assert HOLDS.bound == pytest.approx([4.0, 4.0 * (1 - 1e-4), 4.0 * (1 - 1e-4), 4.0 * (1 - 1e-4) ** 2])
    assert HOLDS.sentence == (
        "The default's theorem holds: the objective never rose in 3 exchanges, and f - f* stayed below (1 - q)^n of "
        "what it was, q = 0.0001, n = 2 exact steps, one in any 2 exchanges at least."
    )


@pytest.mark.parametrize(
    ("changes", "exchange", "words"),
    [
        ({"objectives": (5.0, 4.0, 4.0 + 1e-12, 3.0)}, 2, "the objective rose"),
        ({"objectives": (5.0, 5.0 - 1e-5, 4.0, 3.0)}, 1, "decreased it by less than Armijo's rule asks"),
        (
            {"steps": (ExactStep(0, 1, 0, 1e-4, 0.5),), "objectives": (5.0, 4.9, 4.9, 4.9)},
            1,
            "f - f* is above (1 - q)^n",
        ),
    ],
)
def test_it_is_violated_in_three_ways(changes, exchange, words):
    broken = replace(HOLDS, **changes)
    assert broken.violated
    assert broken.first_violation == exchange
    assert broken.sentence.startswith(f"The default's theorem is violated at exchange {exchange}: ")
    assert words in broken.sentence


def test_rounding_is_no_rise():
    assert replace(HOLDS, objectives=(5.0, 4.0, 4.0 * (1 + 1e-15), 3.0)).first_violation is None


def test_a_run_whose_steps_are_taken_unseen_is_found():
    """Undamped Newton overshoots; called the default, it breaks its theorem."""
    problem = random_problem(l2=1e-4)
    reference = danl.reference_optimum(problem)
    arguments = {"w0": np.full(7, 12.0), "max_rounds": 4, "reference": reference}
    real = danl.solve(problem, method="danl", **arguments)
    wild = danl.solve(problem, method="newton-undamped", **arguments)
    assert not danl.certify(problem, real, reference=reference).violated
    called = replace(wild, method="danl", settings=real.settings)
    assert danl.certify(problem, called, reference=reference).descent.violated


def test_without_an_exact_step_or_a_penalty_it_says_nothing_of_the_rate():
    assert replace(HOLDS, steps=()).sentence.endswith("of how fast it fell, because there was no exact step.")
    flat = replace(HOLDS, mu=0.0)
    assert (flat.rate, flat.least_rate) == (0.0, 0.0)
    assert flat.sentence.endswith("of how fast it fell, because mu is 0.")


def test_members_that_leave_end_what_is_certified():
    problem = random_problem(l2=1e-3)
    away = danl.engines.Local(away={1: (2, None)})
    cert, result = descent(problem, method="danl:patience=3", policy="coverage:psi=2", engine=away, max_rounds=30)
    gone = int(np.flatnonzero(np.isnan(result.history.column("gap")))[0])
    assert 0 < gone < len(result.history)
    assert len(cert.descent.objectives) == gone
    assert not cert.violated


@pytest.mark.parametrize("pairs", [1, 3, 6])
def test_curvature_with_pairs_is_within_the_bounds_that_hold_before_a_run(pairs):
    rng, d = np.random.default_rng(pairs), 5
    mu, most = 0.2, 3.0

    def between():
        vectors, _ = np.linalg.qr(rng.normal(size=(d, d)))
        return (vectors * rng.choice([mu, most], size=d)) @ vectors.T

    bounds = replace(HOLDS, mu=mu, smoothness=most, initial=most, pairs=pairs)
    for _ in range(50):
        curvature = QuasiNewton.start(project(between(), mu), d)
        w, gradient, weights = np.zeros(d), np.zeros(d), np.ones(1)
        for _ in range(pairs + 1):
            curvature = curvature.with_gradient(w, gradient, weights, pairs)
            step = rng.normal(size=d)
            w, gradient = w + step, gradient + between() @ step
        eigenvalues = 1 / np.linalg.eigvalsh(np.column_stack([curvature.solve(column) for column in np.eye(d)]))
        assert bounds.least_curvature <= eigenvalues.min() * (1 + 1e-9)
        assert eigenvalues.max() <= bounds.largest_curvature * (1 + 1e-9)
