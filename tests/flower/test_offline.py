"""Sites that are offline for a while: waited for as at the start, on a clock that only waiting moves."""

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install danl[flower]")

import danl
from danl.engines.flower.clientapp import app
from danl.engines.flower.engine import GridEngine
from danl.objective.problem import RemoteProblem
from danl.objective.regions import Regions
from danl.protocol.messages import Exchange, LossTask
from tests.flower.fake_grid import FakeGrid, error_reply
from tests.flower.federations import same_run, without_rules, written
from tests.problems import random_problem


@pytest.fixture(scope="module")
def problem():
    return random_problem(alpha=1e-2)


@pytest.fixture(scope="module")
def configs(problem, tmp_path_factory):
    return without_rules(written(problem.shards, tmp_path_factory.mktemp("sites")))


@pytest.fixture(params=["an error", "no message"])
def federation(request, configs, clock):
    """The engine, and how to take nodes off line until a moment of the clock."""
    until = {}

    def offline(message):
        return clock.now < until.get(message.metadata.dst_node_id, -np.inf)

    class Grid(FakeGrid):
        def push_messages(self, messages):
            taken = [each for each in messages if request.param == "an error" or not offline(each)]
            names = super().push_messages(taken)
            for each in messages:
                if not each.metadata.message_id:
                    each.metadata.__dict__["_message_id"] = f"refused {id(each)}"
            return names

    def spoil(message, replies):
        return [error_reply(message, 5)] if offline(message) else replies

    grid = Grid(app, configs, spoil=spoil)
    return grid, until


def opened(grid, **options):
    engine = GridEngine(grid, sites=4, **options)
    problem = RemoteProblem(alpha=1e-2)
    engine.open(problem.described(engine.connect(problem)), regions=Regions.make(3, 7), policy=None, seed=0)
    return engine


def losses(number):
    return Exchange("loss", LossTask(number, np.zeros(7)), np.arange(4))


def test_one_that_comes_back_is_asked_again(federation, clock):
    grid, until = federation
    engine = opened(grid, wait=100.0, deadline=300.0)
    begun = clock.now
    until[1007] = begun + 60.0
    replies = engine.exchange(losses(0))
    assert replies.workers.tolist() == [0, 1, 2, 3]
    assert (replies.failures, replies.dropped) == ({}, 0)
    assert 60.0 <= clock.now - begun < 70.0
    assert sum(message.metadata.dst_node_id == 1000 for message in grid.pushed) == 2  # facts, and once its task


def test_it_is_waited_for_once_and_no_longer_than_at_the_start(federation, clock):
    grid, until = federation
    engine = opened(grid, wait=100.0, deadline=70.0)
    until[1007] = np.inf
    reported = [engine.exchange(losses(number)) for number in range(4)]
    assert [replies.failures[1].kind for replies in reported] == ["restarting", "died", "died", "died"]
    assert reported[0].failures[1].detail == "site site-1: offline for 70 s, expected back"
    assert reported[1].failures[1].detail == "site site-1: offline, and not back within 100 s"
    assert all(replies.workers.tolist() == [0, 2, 3] for replies in reported)
    begun = clock.now
    engine.exchange(losses(4))
    assert clock.now - begun < 1.0
    until.clear()  # and it is taken back
    assert engine.exchange(losses(5)).failures == {}
    until[1007] = clock.now + 30.0  # and waited for again
    assert engine.exchange(losses(6)).failures == {}


@pytest.mark.parametrize("method", ["danl", "newton"])
def test_the_run_goes_on_when_most_were_offline_for_long(federation, clock, problem, method):
    """Three of four are away for many exchanges' time; nothing is lost but time."""
    grid, until = federation
    gone = []

    def leave(row):
        if not gone:
            gone.append(True)
            until.update(dict.fromkeys((1000, 1007, 1014), clock.now + 100.0))

    engine = GridEngine(grid, sites=4, wait=120.0, deadline=300.0)
    options = {"method": method, "max_rounds": 8}
    result = danl.solve(RemoteProblem(alpha=1e-2), engine=engine, callback=leave, **options)
    same_run(result, danl.solve(problem, engine=danl.engines.Local(batched=False), **options), problem)
    assert not result.failures


def test_most_of_them_gone_is_a_lost_quorum_that_names_the_sites(federation, clock):
    grid, until = federation
    engine = GridEngine(grid, sites=4, wait=120.0, deadline=300.0)

    def leave(row):
        until.update(dict.fromkeys((1007, 1014), np.inf))

    begun = clock.now
    result = danl.solve(RemoteProblem(alpha=1e-2), engine=engine, callback=leave, max_rounds=100)
    assert result.status == "quorum_lost"
    why = "offline, and not back within 120 s"
    assert result.notes[-1].endswith(
        f"without worker 1 (died: site site-1: {why}) and worker 2 (died: site site-2: {why})"
    )
    assert 120.0 <= clock.now - begun < 200.0
