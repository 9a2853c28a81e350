"""Whom the Ray engine waits for, and how long: with actors that live, die and come back on a clock of the test's."""

import numpy as np
import pytest

pytest.importorskip("ray")

import danl
from danl.protocol.messages import Exchange
from danl.tasks import LearnTask
from tests.engines import conformance
from tests.engines.fake_ray import NOTICED, FakeRay, Life
from tests.engines.ray_tools import assert_same, gradients, opened
from tests.problems import random_problem

DIED = "ActorDiedError: The actor died unexpectedly before finishing this task."


@pytest.fixture
def problem():
    return random_problem(sizes=(9, 14, 11))


@pytest.fixture
def world(monkeypatch):
    return FakeRay(monkeypatch, {who: Life() for who in range(4)})  # no problem here has more workers


def kinds(replies):
    return {who: failure.kind for who, failure in replies.failures.items()}


def test_one_that_died_is_waited_for_and_asked_again(world, problem):
    engine = opened(problem, world.engine())
    world.lives[1] = Life(kills=1, away=30.0)
    begun = world.clock.now
    replies = engine.exchange(gradients(0, problem))
    assert replies.workers.tolist() == [0, 1, 2]
    assert kinds(replies) == {}
    assert replies.dropped == 0
    expected = opened(problem, danl.engines.Local(batched=False), None).exchange(gradients(0, problem)).gradients[1]
    assert np.array_equal(replies.gradients[1], expected)
    assert 30.0 <= world.clock.now - begun < 40.0
    asked = [name for who, name in world.asked if who == 1 and name != "shard_info"]
    assert asked[0] == asked[-1] == "answer"
    assert set(asked[1:-1]) == {"ready"}  # its task is not sent to who is not there
    assert len(asked) <= 2 + 30.0 / NOTICED + 1  # and it is not asked without end


def test_replies_that_came_are_kept_while_another_is_waited_for(world, problem):
    engine = opened(problem, world.engine(start_timeout=20))
    world.lives[1] = Life(kills=1, away=1e9)
    replies = engine.exchange(gradients(0, problem))
    assert replies.workers.tolist() == [0, 2]
    assert kinds(replies) == {1: "died"}
    assert "not back within 20 s" in replies.failures[1].detail
    assert [who for who, name in world.asked if name == "answer"] == [0, 1, 2]  # the others were asked once
    # It was waited for; from now on it holds nobody up.
    begun = world.clock.now
    replies = engine.exchange(gradients(1, problem))
    assert kinds(replies) == {1: "died"}
    assert world.clock.now - begun < 1.0


def test_one_that_was_given_up_is_taken_back(world, problem):
    engine = opened(problem, world.engine(start_timeout=20))
    world.lives[1] = Life(kills=1, away=100.0)
    assert kinds(engine.exchange(gradients(0, problem))) == {1: "died"}
    world.clock.now += 100.0
    for number in (1, 2):  # a call that is under way still fails, the next one finds it
        replies = engine.exchange(gradients(number, problem))
    assert kinds(replies) == {}
    assert replies.workers.tolist() == [0, 1, 2]


def test_with_a_deadline_it_is_restarting_until_its_start_timeout(world, problem):
    engine = opened(problem, world.engine(deadline=5.0, start_timeout=12))
    world.lives[1] = Life(kills=1, away=1e9)
    seen = [kinds(engine.exchange(gradients(number, problem)))[1] for number in range(5)]
    assert seen == ["restarting", "restarting", "died", "died", "died"]


def test_nobody_is_asked_twice_at_the_same_time(world, problem):
    engine = opened(problem, world.engine(deadline=1.0, start_timeout=100))
    world.lives[1] = Life(kills=1, away=50.0)
    for number in range(10):
        assert kinds(engine.exchange(gradients(number, problem)))[1] in ("timeout", "restarting")
    asked = [name for who, name in world.asked if who == 1 and name == "ready"]
    assert len(asked) <= 10.0 / NOTICED + 1


def test_a_slow_worker_is_asked_again_when_its_late_reply_has_come(world, problem):
    engine = opened(problem, world.engine())
    engine.exchange(gradients(9, problem))
    world.lives[1].takes = 3.0
    replies = engine.exchange(gradients(0, problem), deadline=2.0)
    assert replies.workers.tolist() == [0, 2]
    assert (kinds(replies), replies.dropped) == ({1: "timeout"}, 0)
    assert replies.failures[1].detail == "no reply within 2 s"
    world.lives[1].takes = 0.1
    replies = engine.exchange(gradients(1, problem), deadline=2.0)
    assert (replies.workers.tolist(), replies.dropped) == ([0, 1, 2], 1)
    # Counted, too, where it is not asked again.
    world.lives[1].takes = 3.0
    assert kinds(engine.exchange(gradients(2, problem), deadline=2.0)) == {1: "timeout"}
    world.clock.now += 3.0
    assert engine.exchange(gradients(3, problem, who=[0, 2])).dropped == 1
    assert engine.exchange(gradients(4, problem)).dropped == 0


def test_without_restarts_a_new_actor_takes_the_place_and_then_nobody(world, problem):
    engine = opened(problem, world.engine(replacements=1))
    world.lives[1] = Life(kills=1, away=30.0, restarts=0)
    assert kinds(engine.exchange(gradients(0, problem))) == {}
    world.lives[1].kills = 1
    replies = engine.exchange(gradients(1, problem))
    assert replies.workers.tolist() == [0, 2]
    assert kinds(replies) == {1: "gone"}
    assert replies.failures[1].detail == DIED + "; no restarts and no replacements are left"


def test_a_task_that_kills_twice_is_a_miss(world, problem):
    engine = opened(problem, world.engine())
    world.lives[1] = Life(kills=2)
    replies = engine.exchange(gradients(0, problem))
    assert kinds(replies) == {1: "died"}
    assert "it died of this exchange 2 times" in replies.failures[1].detail
    assert kinds(engine.exchange(gradients(1, problem))) == {}


@pytest.mark.parametrize("method", ["danl", "danl-masked", "newton", "gd", "fedavg", "danl:curvature=diag"])
def test_a_run_with_deaths_is_the_run_without(world, problem, method):
    options = {"method": method, "policy": "coverage:psi=2", "regions": 3, "max_rounds": 12}
    world.lives |= {1: Life(kills=1, away=200.0), 2: Life(kills=1, away=50.0, restarts=0)}

    def kill(row):
        world.lives[row.exchange % 3].kills = int(row.exchange < 5)

    found = danl.solve(problem, engine=world.engine(replacements=5), callback=kill, **options)
    assert_same(found, danl.solve(problem, engine=danl.engines.Local(batched=False), **options))


@pytest.mark.parametrize("options", [{"restarts": 10}, {"restarts": 0}])
def test_one_that_died_forgot_what_it_kept_and_is_begun_anew(world, problem, options):
    world.lives[1] = Life(away=30.0, **options)

    def kill(row):
        world.lives[1].kills = int(row.exchange in (2, 5))

    run = {"method": "fednl", "max_rounds": 100, "tol": 1e-10}
    result = danl.solve(problem, engine=world.engine(replacements=5), callback=kill, **run)
    assert [(failure.worker, failure.kind) for failure in result.failures] == [(1, "forgot"), (1, "forgot")]
    assert result.failures[0].detail == "keeps nothing as fednl rankr:1 hessian, and version 3 is asked for"
    assert result.status == "converged"
    best = danl.reference_optimum(problem)
    assert np.linalg.norm(result.w - best.w) <= 1e-7 * np.linalg.norm(best.w)


def test_a_late_reply_of_a_task_with_a_state_is_forgotten(world, problem):
    """The worker is one version further than the server knows: it is begun anew."""
    engine = opened(problem, world.engine())

    def learn(number, versions, deadline=None):
        task = LearnTask(number, np.zeros(problem.n_features), "learned", 0, "topk:3", 1.0)
        exchange = Exchange("learn", task, np.arange(3), own={"version": np.array(versions)})
        return kinds(engine.exchange(exchange, deadline=deadline))

    assert learn(0, [0, 0, 0]) == {}
    world.lives[1].takes = 3.0
    assert learn(1, [1, 1, 1], deadline=2.0) == {1: "timeout"}
    world.lives[1].takes = 0.1
    assert learn(2, [2, 1, 2]) == {1: "forgot"}
    assert learn(3, [3, 0, 3]) == {}


def test_a_large_model_of_each_ones_own_goes_beside_the_task(world, problem, monkeypatch):
    monkeypatch.setattr("danl.engines.ray.engine.INLINE", 8)
    conformance.has_models_of_their_own(world.engine)
    conformance.keeps_what_tasks_go_on_from(world.engine)
    conformance.compresses(world.engine)


@pytest.mark.parametrize("method", ["danl", "danl:curvature=diag", "newton", "danl-paper"])
def test_with_a_deadline_the_run_waits_for_those_that_come_back(world, problem, method):
    """Two of three are down for far more exchanges than `patience`, from Phase I on."""
    world.lives |= {who: Life(kills=1, away=100.0) for who in (1, 2)}
    engine = world.engine(deadline=2.0)
    result = danl.solve(problem, method=method, engine=engine, max_rounds=500, tol=1e-10)
    assert {failure.kind for failure in result.failures} <= {"timeout", "restarting"}
    assert sum(failure.kind == "restarting" for failure in result.failures) > 50
    assert result.status == "converged"
    best = danl.reference_optimum(problem)
    assert np.linalg.norm(result.w - best.w) <= 1e-7 * np.linalg.norm(best.w)


def test_one_that_never_comes_back_costs_its_start_timeout_once(world, problem):
    world.lives |= {who: Life(kills=1, away=1e9) for who in (1, 2)}
    begun = world.clock.now
    result = danl.solve(problem, engine=world.engine(start_timeout=40), max_rounds=500)
    assert result.status == "quorum_lost"
    assert 40.0 <= world.clock.now - begun < 60.0
    assert len(result.history) == 10  # `patience`
    (note,) = result.notes
    assert note.startswith("quorum lost in exchange 9, without workers 1 and 2 (died: ActorUnavailableError: ")
    assert note.endswith("not back within 40 s)")


def test_dead_for_good_needs_no_patience(world, problem):
    world.lives |= {who: Life(kills=1, restarts=0) for who in (1, 2)}
    result = danl.solve(problem, engine=world.engine(replacements=0), max_rounds=500)
    assert (result.status, len(result.history)) == ("quorum_lost", 1)
    assert [(failure.worker, failure.kind) for failure in result.failures] == [(1, "gone"), (2, "gone")]
    assert any(f"workers 1 and 2 died for good in exchange 0: {DIED}" in note for note in result.notes)
    assert any("quorum lost in exchange 0, without workers 1 and 2 (gone: " in note for note in result.notes)
