"""Which question comes next, and what questions cost."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import danl
from danl.data import Shard
from danl.engines import Local
from danl.methods import DANL
from danl.methods.ladder import Ladder
from danl.methods.prices import Prices
from danl.methods.safeguarded import Safeguarded
from danl.objective.losses import LOSSES
from tests.methods.test_safeguarded import hard_problem
from tests.methods.test_senders import FAST, SLOW, setup_of
from tests.problems import EXPONENTIAL, random_problem
from tests.run.test_checkpoint import goes_on_to_the_bit


@pytest.fixture
def ladders(monkeypatch):
    """The ladder after every exchange of a run."""
    seen, absorb = [], Safeguarded.absorb

    def listening(self, state, replies, setup):
        state, info = absorb(self, state, replies, setup)
        seen.append(state.ladder)
        return state, info

    monkeypatch.setattr(Safeguarded, "absorb", listening)
    return seen


# Prices.


@pytest.mark.parametrize("curvature_from", ["everyone", "able", 2])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_prices_in_seconds_are_those_of_the_history(curvature_from, dtype, ladders):
    problem = random_problem(sizes=(40, 30, 50, 20), d=12, as_sparse=True)
    options, fleet = DANL(curvature_from=curvature_from, hessian_dtype=dtype), [SLOW, FAST, FAST, SLOW]
    setup = setup_of(problem, options, profiles=fleet)
    prices = Prices.of(options, setup)
    assert prices.in_seconds
    result = danl.solve(problem, method=options, profiles=fleet, max_rounds=12, tol=1e-12)
    start = Ladder.start(options, setup)
    before = [start, *ladders[:-1]]
    for row, ladder in zip(result.history, before, strict=True):
        if row.kind == "gradient":
            assert row.simulated_seconds == pytest.approx(prices.gradient, rel=1e-12)
            continue
        senders = ladder.senders(setup, np.ones(4, dtype=bool))
        named = 0.0 if senders.all() else 16 / 1e5  # which numbers are asked for: the slowest machine's line
        taken = prices.curvature(senders, ladder.dtype)
        assert taken * (1 - 1e-12) <= row.simulated_seconds <= (taken + named) * (1 + 1e-12)
        assert ladder.rungs[ladder.rung].price >= taken - 1e-12
    assert "hessian" in result.history.column("kind")


def test_masked_rounds_cost_the_share_of_the_gradient_and_of_the_line():
    problem, fleet = random_problem(sizes=(40, 40, 40, 40), d=12), [SLOW] * 4
    masks = np.zeros((1, 4, 4), dtype=bool)
    masks[0, :, 1] = True
    policy, options = danl.policies.Schedule(masks, cycle=True), DANL(masks="always")
    setup = setup_of(problem, options, policy=policy, profiles=fleet, regions=4)
    prices = Prices.of(options, setup)
    result = danl.solve(problem, method=options, policy=policy, profiles=fleet, regions=4, max_rounds=2, tol=0.0)
    row = result.history[1]
    assert min(row.coverage) == 0
    masked = prices.together(prices.masked)
    assert masked < row.simulated_seconds <= masked + 1 / 2e4 + 1 / 1e5 + 1e-12  # and the bits of the mask
    assert masked < prices.gradient
    assert np.isinf(Prices.of(options, setup_of(problem, options, profiles=fleet)).masked).all()


# What is asked.


def test_curvature_that_is_nearly_free_is_asked_for_every_time():
    """Of the fast machines; on 12 coefficients and slow ones that send gradients meanwhile."""
    problem = random_problem(sizes=(40,) * 4, d=12, alpha=1e-3)
    result = danl.solve(problem, profiles=[SLOW, FAST, FAST, SLOW], tol=1e-6)
    kinds = list(result.history.column("kind"))
    assert result.status == "converged"
    assert set(kinds[:-1]) == {"hessian"}
    alone = danl.solve(problem, profiles=[SLOW, FAST, FAST, SLOW], method="gd", max_rounds=1)
    assert np.median(result.history.column("simulated_seconds")) <= 1.1 * alone.history[-1].simulated_seconds


def test_dear_curvature_is_asked_for_where_progress_is_slow_and_pays(ladders):
    data = danl.load_dataset("a1a")
    problem = danl.Problem(danl.partition(data.X, data.y, workers=10, seed=0), alpha=1e-3)
    result = danl.solve(problem, tol=1e-8)
    kinds = list(result.history.column("kind"))
    assert result.status == "converged"
    assert 2 <= kinds.count("hessian") <= 4
    assert kinds.count("gradient") > kinds.count("hessian")
    assert not any(ladder.free for ladder in ladders)
    asked = [ladder for ladder, kind in zip(ladders, kinds[1:], strict=False) if kind == "hessian"]
    assert all(ladder.since_hessian > 2 for ladder in asked)  # a window's steps were looked at


def lacking(count=6, able=3, rows=60, seed=0):
    """The senders' rows have nothing of the last feature, which is most of what the others' have."""
    rng, shards = np.random.default_rng(seed), []
    for number in range(count):
        X = rng.normal(size=(rows, 5))
        X[:, 4] *= 0.0 if number < able else 30.0
        y = rng.poisson(np.exp(np.clip(0.3 * X[:, 0] + 0.05 * X[:, 4], -4, 4))).astype(float)
        shards.append(Shard.of(X, y))
    return danl.Problem(shards, loss="poisson", alpha=1e-3)


def test_more_send_at_the_start_where_the_rests_curvature_is_missing(ladders):
    problem, fleet = lacking(), [FAST] * 3 + [SLOW] * 3
    result = danl.solve(problem, profiles=fleet, tol=1e-9)
    assert result.status == "converged"
    np.testing.assert_allclose(result.w, danl.reference_optimum(problem).w, atol=1e-6)
    assert ladders[0].rung == 0
    assert ladders[0].rungs[0].senders.tolist() == [True] * 3 + [False] * 3
    assert result.history[1].refused
    assert result.history[1].step_norm == 0.0
    assert ladders[1].rung == 1  # at once, rather than by shorter steps
    assert ladders[1].rungs[1].count == 6
    assert result.history[2].kind == "hessian"
    assert (np.diff(result.history.column("objective")) <= 1e-12).all()


def test_where_nothing_is_missing_nobody_else_is_asked(ladders):
    problem = random_problem("squared", sizes=(200,) * 6, d=5, alpha=1e-3)
    result = danl.solve(problem, profiles=[FAST] * 3 + [SLOW] * 3, tol=1e-7)
    assert result.status == "converged"
    assert all(ladder.rung == 0 for ladder in ladders)


def test_a_rung_that_has_not_paid_is_left(ladders):
    """One sender in turn of shards that have nothing in common."""
    rng = np.random.default_rng(0)
    shards = []
    for number in range(12):
        X = np.zeros((20, 12))
        X[:, number] = rng.normal(size=20) * 10.0 ** (number % 3)
        shards.append(Shard.of(X, (rng.random(20) < 0.5).astype(float)))
    problem = danl.Problem(shards, alpha=1e-6)
    result = danl.solve(problem, method=DANL(curvature_from=1), max_rounds=200, tol=1e-9)
    assert result.status == "converged"
    climbed = [ladder.rung for ladder in ladders]
    assert max(climbed) > 0
    assert problem.objective(result.w) - danl.reference_optimum(problem).objective < 1e-12


def test_a_question_is_paid_for_once_however_many_exchanges_it_takes(ladders):
    problem = random_problem(sizes=(9, 14, 5, 12, 8, 11))
    runs = []
    for engine in (Local(), Local(away={1: (0, 4)})):
        ladders.clear()
        danl.solve(problem, method=DANL(curvature_from=2), engine=engine, max_rounds=30, tol=1e-3)
        runs.append((ladders[-1].rung, ladders[-1].spent, len(ladders)))
    assert runs[0][:2] == runs[1][:2]
    assert runs[1][2] == runs[0][2] + 4 + 1


@pytest.mark.parametrize("start", [1e-9, 1e-8, 1e-7])
@pytest.mark.parametrize("workers", [2, 4])
def test_where_no_length_shows_a_decrease_all_curvature_is_asked_for_before_a_run_gives_up(workers, start, ladders):
    """One sends curvature, of rows that are all zero; what is left to gain, beside the last one's, is rounding.

    The senders' curvature promises much more than that, which no step along it shows.
    """
    y, X = np.tile([1.0, -1.0], 10), np.zeros((20, 1))
    problem = danl.Problem([*[Shard.of(X, y)] * (workers - 1), Shard.of(X + 1, y)], loss="squared", l2=1e-10)
    method = DANL(curvature_from=1, pairs=0)
    setups = {seed: setup_of(problem, method, seed=seed) for seed in range(20)}
    lowest = Ladder.start(method, setups[0]).rungs[0]
    seed = next(seed for seed, setup in setups.items() if not lowest.of_turn(0, setup)[-1])
    result = danl.solve(problem, method=method, w0=np.array([start]), max_rounds=200, seed=seed, tol=1e-10)
    assert result.status == "converged"
    assert abs(result.w[0]) < 1e-9
    asked = "refused at any length: all curvature"
    (number,) = (number for number, row in enumerate(result.history) if row.why == asked)
    assert result.history[number - 1].refused
    assert result.history[number].kind == "hessian"
    assert result.history[number].senders == workers
    assert (ladders[number - 2].rung, ladders[number - 1].at_top) == (0, True)


# Runs with profiles.


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["local", "local:dropout=0.3,seed=5"])
@pytest.mark.parametrize("kind", ["alike", "lacking", "a deadline", "masks"])
def test_a_run_with_profiles_that_is_taken_up_at_any_exchange_ends_the_same_to_the_bit(kind, engine, tmp_path):
    problem, fleet = (lacking(), [FAST] * 3 + [SLOW] * 3) if kind == "lacking" else (random_problem(alpha=1e-4), None)
    fleet = fleet or [SLOW, FAST, FAST, SLOW]
    arguments = {"engine": engine, "profiles": fleet, "regions": 3, "max_rounds": 120, "tol": 1e-9, "seed": 3}
    if kind == "a deadline":
        needed = Prices.of(DANL(), setup_of(problem, profiles=fleet, regions=3)).gradient
        arguments["policy"] = danl.policies.ResourceAware(fleet, deadline=0.9 * needed)
    elif kind == "masks":
        arguments |= {"policy": "coverage:psi=1", "method": "danl:masks=always"}
    whole = danl.solve(problem, **arguments)
    assert whole.status == "converged"
    goes_on_to_the_bit(
        problem, arguments, whole, range(0, len(whole.history) - 1, 1 + len(whole.history) // 25), tmp_path
    )


# Must hold 4, whoever sends curvature.


def fleet_of(kind, n_workers, seed):
    if kind == "none":
        return None
    rng = np.random.default_rng(seed)
    if kind == "alike":
        return [SLOW] * n_workers
    return [danl.Profile(*(10.0 ** rng.uniform(low, low + 3) for low in (2, 3, 3))) for _ in range(n_workers)]


@pytest.mark.filterwarnings("ignore:nobody trained any region")
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:region .* was trained by nobody")
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    seed=st.integers(0, 10**6),
    n_workers=st.one_of(st.integers(1, 30), st.just(120)),
    d=st.integers(1, 12),
    condition=st.floats(1, 1e12),
    loss=st.sampled_from(sorted(LOSSES)),
    weighting=st.sampled_from(["uniform", "samples"]),
    alpha=st.sampled_from([1e-12, 1e-8, 1e-4, 1e-1]),
    policy=st.sampled_from(["random:keep=0.3", "coverage:psi=1", "subset:S=1", "full"]),
    masks=st.sampled_from(["auto", "always"]),
    curvature_from=st.sampled_from(["auto", "everyone", "able", 1, 2, 5]),
    pairs=st.sampled_from([0, 3, 20]),
    dtype=st.sampled_from(["auto", "float64", "float32"]),
    profiles=st.sampled_from(["none", "alike", "many kinds"]),
    dropout=st.sampled_from([0.0, 0.0, 0.2]),
    start=st.sampled_from([0.0, 1.0, 30.0]),
    data=st.data(),
)
def test_hard_problems_whoever_sends_curvature(
    seed,
    n_workers,
    d,
    condition,
    loss,
    weighting,
    alpha,
    policy,
    masks,
    curvature_from,
    pairs,
    dtype,
    profiles,
    dropout,
    start,
    data,
):
    """Nothing rises, nothing diverges, converged means converged; where somebody is lost, it is said."""
    problem = hard_problem(seed, n_workers, d, condition, loss, False, weighting, alpha)
    w0 = (start / 30 if loss in EXPONENTIAL else start) * np.random.default_rng(seed).normal(size=d)
    method = DANL(masks=masks, curvature_from=curvature_from, pairs=pairs, hessian_dtype=dtype)
    result = danl.solve(
        problem,
        method=method,
        regions=data.draw(st.integers(1, d)),
        policy=policy,
        profiles=fleet_of(profiles, n_workers, seed),
        engine=Local(dropout=dropout, seed=seed),
        w0=w0,
        max_rounds=300,
        tol=1e-10,
        seed=seed,
    )
    assert result.status in ("converged", "max_rounds")
    assert not any("without" in note for note in result.notes)  # ten misses in a row are too unlikely
    assert dropout or not result.failures
    assert np.isfinite(result.w).all()
    f = np.array([problem.objective(w0), *result.history.column("objective")])
    # Measured apart from the losses that the workers report: its rounding is covered as well.
    assert (np.diff(f) <= 256 * np.finfo(float).eps * np.maximum(np.abs(f[:-1]), 1e-300)).all()
    if result.status == "converged":
        best = danl.solve(problem, method="newton", w0=result.w, regions=1, max_rounds=30, tol=0.0)
        drop = result.history[-1].objective - best.history[-1].objective
        # Of a perfect fit nothing is left; residuals that are small beside their targets are differences, rounded.
        rounding = 1e-28 * abs(f[0]) + np.finfo(float).eps * np.sqrt(abs(f[0] * f[-1]))
        assert drop <= 1e-12 * abs(f[-1]) + rounding


def test_a_hessian_too_large_for_float32_is_no_fault():
    problem = hard_problem(0, 4, 3, 1.0, "poisson", False, "uniform", 1e-12)
    method = DANL(curvature_from=1, pairs=0, hessian_dtype="float32")
    result = danl.solve(problem, method=method, regions=1, max_rounds=40, tol=1e-10)
    assert not result.failures


def test_new_curvature_of_everyone_is_worth_whole_steps():
    problem = hard_problem(0, 4, 3, 1.0, "poisson", False, "uniform", 1e-12)
    result = danl.solve(problem, method=DANL(curvature_from=1, pairs=0), regions=1, max_rounds=100, tol=1e-9)
    assert result.status == "converged"


def test_options_of_the_ladder_are_part_of_what_a_run_is():
    problem = random_problem(sizes=(9,) * 8)
    runs = [danl.solve(problem, method=replace(DANL(), curvature_from=k), tol=1e-9) for k in ("everyone", 2)]
    assert runs[0].history[0].bytes_up > runs[1].history[0].bytes_up
    np.testing.assert_allclose(runs[0].w, runs[1].w, atol=1e-7)
