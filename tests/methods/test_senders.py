"""Who sends curvature: the able by their machines, some by turns, more where that has not paid."""

from dataclasses import replace

import numpy as np
import pytest

import danl
from danl.methods import DANL
from danl.methods.ladder import Ladder
from danl.methods.prices import EXCHANGE_BYTES, Prices
from danl.methods.senders import MANY_SEND, MORE, able, rungs_of
from danl.protocol.messages import packed_size
from danl.run.solver import _prepare
from danl.server.some_hessians import Mismatch
from tests.problems import random_problem

FAST, SLOW = danl.Profile(20_000, 1e6, 1e6), danl.Profile(200, 2e4, 1e5)


def setup_of(problem, method="danl", *, policy=None, profiles=None, regions=None, seed=0):
    """What a method is told of a run."""
    return _prepare(problem, method, regions, policy, 100, 1e-9, seed, profiles, None, True, None).setup


def prices(gradient, hessian, in_seconds=True):
    gradient, hessian = np.asarray(gradient, dtype=float), np.asarray(hessian, dtype=float)
    return Prices(gradient, np.full(len(gradient), np.inf), {"float64": hessian, "float32": hessian}, in_seconds)


# The able.


def test_the_able_are_those_whose_hessians_come_in_the_time_of_the_slowest_gradient():
    equal = np.full(5, 0.2)
    chosen = able(prices([0.1, 1.0, 0.1, 0.2, 0.1], [0.9, 60.0, 0.8, 1.0, 0.7]), equal, "float64")
    assert chosen.tolist() == [True, False, True, True, True]


def test_machines_that_are_alike_are_all_able():
    assert able(prices([1.0] * 5, [40.0] * 5), np.full(5, 0.2), "float64").all()


def test_who_holds_most_rows_is_worth_waiting_for():
    """A machine that is a little slower and holds nearly everything; and one that holds nearly nothing."""
    gradient, hessian = [1.0, 1.0, 1.0], [1.0, 1.0, 4.0]
    assert able(prices(gradient, hessian), np.array([0.05, 0.05, 0.9]), "float64").all()
    assert able(prices(gradient, hessian), np.array([0.45, 0.45, 0.1]), "float64").tolist() == [True, True, False]


@pytest.mark.parametrize("seed", range(5))
def test_no_other_number_of_the_fastest_has_much_more_curvature_for_the_price(seed):
    rng = np.random.default_rng(seed)
    weights, made = rng.dirichlet(np.ones(12)), prices(rng.uniform(0.1, 1, 12), rng.uniform(0.5, 80, 12))
    chosen = able(made, weights, "float64")
    order = np.argsort(made.hessian["float64"])
    worth = [
        weights[order[: k + 1]].sum() / made.curvature(np.isin(np.arange(12), order[: k + 1]), "float64")
        for k in range(12)
    ]
    got = weights[chosen].sum() / made.curvature(chosen, "float64")
    assert got >= 0.8 * max(worth) - 1e-12


def test_by_profiles_the_fast_machines_send():
    problem = random_problem(sizes=(40, 40, 40, 40), d=12)
    setup = setup_of(problem, profiles=[SLOW, FAST, FAST, SLOW])
    rungs = rungs_of(DANL(), setup, Prices.of(DANL(), setup))
    assert rungs[0].senders.tolist() == [False, True, True, False]
    assert [rung.count for rung in rungs] == [2, 4, 4]
    assert [rung.dtype for rung in rungs][1:] == ["float32", "float64"]
    assert rungs[0].dtype == "float64"  # the slowest gradient takes longer than all their digits
    assert rungs[0].price < rungs[1].price < rungs[2].price


# The rungs.


def test_without_profiles_everyone_sends_up_to_100():
    # 7 coefficients: 20 rows for each are in 32 workers with 5 rows, and in 47 with 3.
    for count, rows, expected in ((100, 5, [100]), (101, 5, [MANY_SEND, MANY_SEND * MORE, 101]), (101, 3, [47, 101])):
        setup = setup_of(random_problem(sizes=(rows,) * count))
        rungs = rungs_of(DANL(), setup, Prices.of(DANL(), setup))
        assert [rung.count for rung in rungs] == expected
        assert all(rung.dtype == "float64" for rung in rungs)
        assert (np.diff([rung.price for rung in rungs]) > 0).all()
        assert rungs[-1].senders.all()


@pytest.mark.parametrize(("asked", "expected"), [(1, [1, 3, 9, 10]), (4, [4, 10]), (10, [10]), (99, [10])])
def test_a_number_of_senders_grows_to_everyone(asked, expected):
    setup = setup_of(random_problem(sizes=(5,) * 10))
    options = DANL(curvature_from=asked)
    assert [rung.count for rung in rungs_of(options, setup, Prices.of(options, setup))] == expected


def test_everyone_is_one_rung_and_so_are_the_able_where_machines_are_alike():
    problem = random_problem(sizes=(5,) * 6)
    options = DANL(curvature_from="everyone", hessian_dtype="float32")
    setup = setup_of(problem)
    (rung,) = rungs_of(options, setup, Prices.of(options, setup))
    assert (rung.count, rung.dtype) == (6, "float32")
    setup, options = setup_of(problem, profiles=[SLOW] * 6), DANL(curvature_from="able", hessian_dtype="float64")
    (rung,) = rungs_of(options, setup, Prices.of(options, setup))
    assert (rung.count, rung.dtype) == (6, "float64")


def test_a_part_of_the_hessian_is_sent_by_everyone_whatever_the_machines():
    options = DANL(curvature="diag")
    setup = setup_of(random_problem(sizes=(40, 40, 40, 40), d=12), profiles=[SLOW, FAST, FAST, SLOW])
    assert all(rung.count == 4 for rung in rungs_of(options, setup, Prices.of(options, setup)))


def test_in_bytes_a_round_trip_is_not_free():
    problem, options, d = random_problem(), DANL(), 7
    made = Prices.of(options, setup_of(problem))
    assert made.gradient == 4 * (8 * d + 8 * d + 8 + EXCHANGE_BYTES)
    one = np.array([True, False, False, False])
    assert made.curvature(one, "float64") - made.gradient == 8 * packed_size(d)
    assert made.curvature(one, "float32") - made.gradient == 4 * packed_size(d)
    assert not made.in_seconds


def test_another_rung_is_a_start():
    """At a start more senders are asked at once, where the rest's curvature is missing; later steps get shorter.

    A rung down as well: where that was wrong, steps with the curvature of too few are refused by the dozen.
    """
    options = DANL(curvature_from=1)
    ladder = Ladder.start(options, setup_of(random_problem(sizes=(5,) * 10), options))
    missing = Mismatch(rest=2.0)
    assert len(ladder.rungs) == 4
    assert not ladder.moved
    assert replace(ladder, mismatch=missing).after_refusal(None, options).rung == 1
    up = replace(ladder, moved=True).on_rung(1, options, "up")
    assert (up.moved, up.climbed) == (False, 1)
    assert replace(up, mismatch=missing).after_refusal(None, options).rung == 2
    down = replace(up, moved=True).on_rung(0, options, "down")
    assert (down.moved, down.climbed) == (False, 1)
    assert replace(down, mismatch=missing).after_refusal(None, options).rung == 1
    assert replace(down, mismatch=missing, moved=True).after_refusal(None, options) is None


# Turns.


def test_senders_take_turns_by_the_seed():
    problem, options = random_problem(sizes=(3,) * 50), DANL(curvature_from=7)
    turns = {}
    for seed in (0, 1):
        setup = setup_of(problem, seed=seed)
        rung = rungs_of(options, setup, Prices.of(options, setup))[0]
        turns[seed] = [rung.of_turn(turn, setup) for turn in range(40)]
        again = [rung.of_turn(turn, setup_of(problem, seed=seed)) for turn in range(40)]
        np.testing.assert_array_equal(turns[seed], again)
        assert all(chosen.sum() == 7 for chosen in turns[seed])
        assert len({chosen.tobytes() for chosen in turns[seed]}) == 40
        assert np.any(turns[seed], axis=0).all()  # everyone has a turn
    assert not np.array_equal(turns[0], turns[1])


def test_who_has_more_rows_sends_more_often():
    problem, options = random_problem(sizes=(2,) * 20 + (40,) * 20, weighting="samples"), DANL(curvature_from=5)
    setup = setup_of(problem)
    rung = rungs_of(options, setup, Prices.of(options, setup))[0]
    often = np.sum([rung.of_turn(turn, setup) for turn in range(200)], axis=0)
    assert often[20:].sum() > 5 * often[:20].sum()


@pytest.mark.parametrize("engine", ["local", "local:dropout=0.1,seed=2"])
def test_of_200_never_all_send_curvature(engine):
    rng = np.random.default_rng(0)
    w, d = rng.normal(size=6), 6
    X = rng.normal(size=(1000, d))
    y = (X @ w + rng.normal(size=1000) > 0).astype(float)
    problem = danl.Problem(danl.partition(X, y, workers=200, seed=0), alpha=1e-3)
    result = danl.solve(problem, engine=engine, tol=1e-9)
    assert result.status == "converged"
    np.testing.assert_allclose(result.w, danl.reference_optimum(problem).w, atol=1e-6)
    exchanged = [row for row in result.history if row.kind == "hessian"]
    assert exchanged
    for row in exchanged:
        curvature = row.bytes_up - row.active * (8 * d + 8)
        assert 0 <= curvature <= MANY_SEND * (8 * packed_size(d) + 16)
        assert engine != "local" or curvature >= MANY_SEND * 8 * packed_size(d)
