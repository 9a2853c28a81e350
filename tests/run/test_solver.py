"""The loop: reproducibility, endings, checks, absences."""

import numpy as np
import pytest

import danl
from danl.engines import Local
from danl.methods import PRESETS
from danl.policies import Coverage, Profile, ResourceAware
from tests.problems import random_problem
from tests.tools import Absent, Reordered, iterates

FIELDS = [name for name in danl.Row.__dataclass_fields__ if name != "seconds"]


def rows_without_time(result):
    return [[repr(getattr(row, name)) for name in FIELDS] for row in result.history]


RANDOM = ("danl:masks=always", "danl:curvature_from=2", "danl-masked", "danl-paper")


SAMPLED = ("danl-paper:batch_size=3,hessian_batch=4", "fedavg:batch_size=3")


@pytest.mark.parametrize("name", [*PRESETS, *RANDOM[:2], *SAMPLED])
def test_same_seed_same_run_to_the_bit(name):
    runs = [
        danl.solve(random_problem(), method=name, policy=Coverage(psi=2, keep=0.3), max_rounds=15, tol=0.0, seed=seed)
        for seed in (7, 7, 8)
    ]
    assert runs[0].w.tobytes() == runs[1].w.tobytes()
    assert rows_without_time(runs[0]) == rows_without_time(runs[1])
    draws_at_random = name in RANDOM or "batch" in name  # by default masks are not worth their price here
    assert (runs[0].w.tobytes() != runs[2].w.tobytes()) == draws_at_random


@pytest.mark.parametrize("name", [*PRESETS, "danl:masks=always"])
def test_the_order_of_the_replies_does_not_matter(name):
    problem = random_problem()
    settings = {"policy": Coverage(psi=2), "max_rounds": 15, "seed": 1}
    one = iterates(problem, name, engine="local", **settings)
    other = iterates(problem, name, engine=Reordered(), **settings)
    # Once the gradient is 1e-17, rounding decides when a run without a tolerance ends.
    assert min(len(one), len(other)) >= 6
    for a, b in zip(one, other, strict=False):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=0)


def test_the_global_random_state_is_left_alone():
    np.random.seed(0)  # noqa: NPY002
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    danl.solve(random_problem(), method="danl-paper:batch_size=3", policy="random:keep=0.5", max_rounds=5)
    np.testing.assert_array_equal(before, np.random.get_state()[1])  # noqa: NPY002


def test_max_rounds_counts_every_exchange_after_the_first():
    for rounds in (0, 1, 5):
        result = danl.solve(random_problem(), method="gd", max_rounds=rounds, tol=0.0)
        assert (result.status, len(result.history), result.n_rounds) == ("max_rounds", rounds + 1, rounds)


def test_converged_means_the_workers_said_so():
    """The memory of a masked run only estimates the gradient: a full one is asked for, counted, and not used."""
    problem = random_problem(l2=5.0)
    result = danl.solve(problem, method="danl-masked", regions=3, policy=Coverage(psi=1), max_rounds=400, tol=1e-8)
    assert result.status == "converged"
    last = result.history[-1]
    assert (last.kind, last.active, last.step_norm) == ("check", 4, 0.0)
    assert (last.bytes_down, last.bytes_up) == (4 * 8 * 7, 4 * 8 * 8)
    assert np.linalg.norm(problem.value_and_gradient(result.w)[1]) <= 1e-8
    # The checks leave no trace in the iterates: without a tolerance the run takes the same path.
    free = danl.solve(problem, method="danl-masked", regions=3, policy=Coverage(psi=1), max_rounds=400, tol=0.0)
    path = [row.objective for row in result.history if row.kind != "check"]
    np.testing.assert_array_equal(path, free.history.column("objective")[: len(path)])


def test_a_small_memory_is_not_taken_for_convergence():
    """danl-paper's memory can settle where the gradient is not small: checks fail and are not asked again and again."""
    problem = random_problem(l2=20.0)
    masks = np.zeros((60, 4, 7), dtype=bool)
    masks[:, :, ::2] = True  # the other coordinates keep the gradient of w0
    policy = danl.policies.Schedule(masks)
    with pytest.warns(danl.DanlWarning) as warned:
        result = danl.solve(problem, method="danl-paper", regions=7, policy=policy, max_rounds=60, tol=1e-6)
    assert [str(each.message) for each in warned] == [
        "region 1 was trained by nobody for 50 masked rounds; use a policy that covers it, such as coverage:psi=1"
    ]
    checks = [row for row in result.history if row.kind == "check"]
    assert result.status in ("max_rounds", "diverged")
    assert result.history[-1].grad_norm > 1e-6
    assert len(checks) < 12


def test_a_run_that_blows_up_is_diverged_and_keeps_a_finite_model():
    result = danl.solve(random_problem(), method="gd:learning_rate=1e3", max_rounds=10_000)
    assert result.status == "diverged"
    assert len(result.history) < 100
    assert np.isfinite(result.w).all()


@pytest.mark.parametrize("loss", ["squared", "logistic"])
@pytest.mark.parametrize("batched", [True, False])
@pytest.mark.parametrize("method", ["gd:learning_rate=1e155", "fedavg:learning_rate=1e80,steps=3"])
def test_numbers_that_overflow_end_a_run_without_a_warning_of_numpys(method, batched, loss):
    problem = random_problem(loss)
    reference = danl.reference_optimum(problem)
    result = danl.solve(problem, method=method, engine=danl.engines.Local(batched=batched), reference=reference)
    assert result.status == "diverged"
    wild = np.full(problem.n_coefficients, 1e200)
    problem.hessian(wild), problem.value_and_gradient(wild), problem.local_objectives[0].hessian(wild)


def test_a_poisson_step_into_infinity_is_diverged():
    result = danl.solve(random_problem("poisson"), method="gd:learning_rate=1e3", max_rounds=50)
    assert result.status == "diverged"
    assert np.isfinite(result.w).all()


def test_a_run_that_ends_far_above_its_start_is_diverged():
    result = danl.solve(random_problem(), method="gd:learning_rate=60", max_rounds=12, tol=0.0)
    f0 = random_problem().objective(np.zeros(7))
    assert result.history[-1].objective > 1e3 * (1 + f0)
    assert result.status == "diverged"


def test_ctrl_c_ends_a_run_with_what_it_has():
    def stop(row):
        if row.exchange == 4:
            raise KeyboardInterrupt

    full = danl.solve(random_problem(), method="gd", max_rounds=20, tol=0.0)
    result = danl.solve(random_problem(), method="gd", max_rounds=20, tol=0.0, callback=stop)
    assert (result.status, len(result.history)) == ("interrupted", 5)
    np.testing.assert_array_equal(result.history.column("objective"), full.history.column("objective")[:5])
    assert result.history[-1].objective == pytest.approx(random_problem().objective(result.w), rel=1e-14)


# Workers that are not there.


@pytest.mark.parametrize("name", ["danl-paper", "danl-masked"])
def test_a_worker_missing_from_a_round_counts_as_untrained(name):
    problem = random_problem()
    result = danl.solve(problem, method=name, regions=3, engine=Absent([2], since=3), max_rounds=8, tol=0.0)
    masks = np.ones((8, 4, 3), dtype=bool)
    masks[2:, 2] = False  # exchange 3 is round 3, the third mask
    explicit = danl.solve(problem, method=name, regions=3, policy=danl.policies.Schedule(masks), max_rounds=8, tol=0.0)
    np.testing.assert_allclose(result.w, explicit.w, rtol=1e-12)
    assert result.history[-1].max_staleness == 6
    assert (result.history[-1].active, result.history[-1].failed) == (3, 1)
    assert [(failure.worker, failure.kind) for failure in result.failures] == [(2, "died")] * 6


def test_phase_one_needs_everyone():
    result = danl.solve(random_problem(), method="danl-paper", engine=Absent([0]))
    assert (result.status, len(result.history)) == ("quorum_lost", 1)
    np.testing.assert_array_equal(result.w, np.zeros(7))


@pytest.mark.parametrize("name", PRESETS)
def test_nobody_there_is_a_lost_quorum(name):
    result = danl.solve(random_problem(), method=name, engine=Absent(range(4)), max_rounds=20)
    assert result.status == "quorum_lost"


@pytest.mark.parametrize(
    "method",
    ["gd:learning_rate=0.3", "fedavg:learning_rate=0.3,steps=1", danl.methods.NewtonZero(mu=0.05)],
    ids=["gd", "fedavg", "newton-zero"],
)
def test_averages_go_over_those_who_are_there(method):
    """With the same mu, which newton-zero would otherwise take from the shards that are there."""
    problem = random_problem()
    rest = danl.Problem([shard for i, shard in enumerate(problem.shards) if i != 1], l2=0.5)
    there, alone = iterates(problem, method, engine=Absent([1]), max_rounds=6), iterates(rest, method, max_rounds=6)
    np.testing.assert_allclose(there, alone, rtol=1e-11)


def test_a_worker_that_raises_is_a_typed_failure(monkeypatch):
    problem = random_problem()
    broken = problem.local_objectives[3]
    monkeypatch.setattr(type(broken), "value", lambda self, w: 1 / 0)
    engine = Local(batched=False)
    engine.open(problem, regions=danl.Regions.make(2, 7), policy=None, seed=0)
    from danl.protocol.messages import Exchange, LossTask

    replies = engine.exchange(Exchange("loss", LossTask(0, np.zeros(7)), np.array([3])))
    assert replies.workers.tolist() == []
    assert replies.failures[3].kind == "error"
    assert replies.failures[3].detail == "ZeroDivisionError: division by zero"


def test_a_deadline_that_has_passed_is_a_timeout():
    engine, problem = Local(), random_problem()
    engine.open(problem, regions=danl.Regions.make(2, 7), policy=None, seed=0)
    from danl.protocol.messages import Exchange, LossTask

    replies = engine.exchange(Exchange("loss", LossTask(0, np.zeros(7)), np.arange(4)), deadline=-1.0)
    assert [failure.kind for failure in replies.failures.values()] == ["timeout"] * 4


# Profiles.


def test_simulated_seconds_are_those_of_the_slowest_worker():
    problem = random_problem()
    profiles = [
        Profile(rows_per_second=10, uplink=100, downlink=1000),
        Profile(),
        Profile(rows_per_second=1),
        Profile(),
    ]
    result = danl.solve(problem, method="gd:learning_rate=0.1", profiles=profiles, max_rounds=1, tol=0.0)
    slowest = max(56 / 1000 + 9 / 10 + 64 / 100, 5 / 1)
    np.testing.assert_allclose(result.history.column("simulated_seconds"), slowest)
    assert result.summary()["simulated_seconds"] == pytest.approx(2 * slowest)
    assert danl.solve(problem, method="gd", max_rounds=1).summary()["simulated_seconds"] is None


def test_resource_aware_keeps_its_deadline_in_every_round():
    problem = random_problem(d=12, sizes=(40, 10, 25, 5))
    profiles = [Profile(rows_per_second=100, uplink=1e3, downlink=1e4), *[Profile(rows_per_second=60)] * 3]
    policy = ResourceAware(profiles, deadline=0.32)
    result = danl.solve(problem, method="danl-masked", regions=6, policy=policy, max_rounds=30, tol=0.0)
    rounds = result.history.column("simulated_seconds")[1:]
    assert (rounds <= 0.32).all()
    assert rounds.max() > 0.16
    assert result.history[-1].max_staleness <= 5


def test_monitor_off_measures_nothing_and_changes_nothing():
    watched = danl.solve(random_problem(), method="newton-zero", max_rounds=50, tol=1e-8)
    blind = danl.solve(random_problem(), method="newton-zero", max_rounds=50, tol=1e-8, monitor=False)
    assert np.isnan(blind.history.column("objective")).all()
    assert blind.status == watched.status == "converged"
    np.testing.assert_array_equal(blind.w, watched.w)


# The reference.


def test_reference_optimum_reaches_1e_13_and_rows_have_gap_and_distance():
    problem = random_problem(alpha=1e-4)
    reference = danl.reference_optimum(problem)
    assert reference.grad_norm <= 1e-13
    result = danl.solve(problem, method="newton", reference=reference, tol=1e-10)
    assert abs(result.history[-1].gap) < 1e-15
    assert result.history[-1].distance < 1e-8
    assert result.history[0].gap == pytest.approx(problem.objective(np.zeros(7)) - reference.objective)


def test_an_interrupted_reference_is_none(monkeypatch):
    count, exchange = [], Local.exchange

    def third_is_interrupted(self, *arguments, **options):
        count.append(1)
        if len(count) == 3:
            raise KeyboardInterrupt
        return exchange(self, *arguments, **options)

    monkeypatch.setattr(Local, "exchange", third_is_interrupted)
    with pytest.raises(KeyboardInterrupt):
        danl.reference_optimum(random_problem())


SEPARATION = (
    "the data is separable and there is no penalty: the coefficients grow without end and the objective has no "
    "optimum (perfect separation: some coefficients classify every row); set alpha or l2 > 0, or C of an estimator"
)


@pytest.mark.parametrize("method", ["danl", "newton", "gd"])
def test_an_unpenalised_separable_problem_ends_and_says_so(method):
    """There is no optimum: the run stays finite, and one line names the reason."""
    X = np.array([[1.0, 0.0], [2.0, 1.0], [-1.0, 0.5], [-2.0, 0.0]])
    shards = [danl.Shard.of(X, np.array([1.0, 1.0, 0.0, 0.0]))]
    with pytest.warns(danl.DanlWarning) as warned:
        result = danl.solve(danl.Problem(shards, l2=0.0), method=method, max_rounds=200, tol=1e-12)
    assert [str(each.message) for each in warned] == [SEPARATION]
    assert np.isfinite(result.w).all()
    assert result.status in ("max_rounds", "diverged")
    assert SEPARATION in result.notes
    danl.solve(danl.Problem(shards, l2=1e-3), method=method, max_rounds=200)  # with a penalty there is nothing to say


def test_a_hessian_that_does_not_fit_is_refused(monkeypatch):
    monkeypatch.setattr("danl.run.prepared.total_memory", lambda: 700)
    with pytest.raises(
        danl.InputError, match=r"7 coefficients make a Hessian of 0.0 GB, more than half of this machine's"
    ):
        danl.solve(random_problem(), max_rounds=1)
    monkeypatch.setattr("danl.run.prepared.total_memory", lambda: None)
    danl.solve(random_problem(), max_rounds=1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"max_rounds": -1}, "max_rounds=-1: must be a whole number >= 0"),
        ({"tol": -1e-3}, "tol=-0.001: must be a finite number >= 0"),
        ({"tol": float("nan")}, "tol=nan: must be a finite number >= 0"),
        ({"seed": -1}, "seed=-1: must be a whole number >= 0"),
        ({"engine": "spark"}, "engine='spark': must be one of local, ray, flower"),
        ({"w0": np.zeros(3)}, "w0: must have shape (7,), a number for every coefficient, got (3,)"),
        ({"w0": np.array([0, 0, np.nan, 0, 0, 0, 0])}, "w0: must be finite, and w0[2] is not"),
        (
            {"w0": "newton"},
            "w0='newton': a method that makes the start must say how far it goes; use 'fedavg:rounds=10', an array, or "
            "leave it out for zeros",
        ),
        (
            {"profiles": [Profile()]},
            "profiles: must be one for each of the 4 workers, got 1; danl.Profile() is a machine without limits",
        ),
        (
            {"policy": "coverage:psi=5"},
            "psi=5: must be between 1 and 4, the number of workers; lower psi or use more workers",
        ),
    ],
)
def test_wrong_arguments(arguments, message):
    with pytest.raises(danl.InputError) as error:
        danl.solve(random_problem(), **arguments)
    assert str(error.value) == message


def test_a_custom_policys_wrong_mask_is_the_callers_mistake():
    with pytest.raises(danl.InputError, match=r"worker 0 in round 1.*one boolean per region"):
        danl.solve(random_problem(), method="danl:masks=always", regions=3, policy=lambda w, worker, round, rng: [0, 2])


def test_a_model_that_did_not_move_is_not_measured_again(monkeypatch):
    """Asking the missing ones again, refused steps and loss-only exchanges cost no pass over the data to record."""
    problem, calls = random_problem(), []
    whole = danl.Problem.value_and_gradient
    monkeypatch.setattr(danl.Problem, "value_and_gradient", lambda *a, **k: calls.append(1) or whole(*a, **k))
    result = danl.solve(problem, engine=Local(away={1: (0, 5)}), policy=Coverage(psi=1))
    assert len(calls) <= 1 + np.sum(result.history.column("step_norm") > 0)
    assert result.history[-1].objective == pytest.approx(problem.objective(result.w), rel=1e-14)


def test_the_start_is_made_whole_however_few_rounds_the_run_has():
    problem = random_problem()
    starts = [danl.solve(problem, w0="fedavg:rounds=5", max_rounds=rounds).start for rounds in (0, 20)]
    np.testing.assert_array_equal(starts[0].w, starts[1].w)
    assert len(starts[0].history) == 6  # the smoothness constants, then five averages
