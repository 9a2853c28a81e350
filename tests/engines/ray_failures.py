"""Workers of the Ray engine that are late, wrong or killed. `test_ray.py` runs this where there is only loopback."""

import os
import re
import signal
import threading
import time
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import danl
from danl.engines import Ray
from danl.errors import InputError
from danl.protocol.messages import Exchange, HessianTask
from tests.engines.ray_tools import MARKS, Kept, assert_same, gradients, made_of, opened, shards_of

pytestmark = [*MARKS, pytest.mark.usefixtures("cluster")]


@pytest.fixture
def problem(a1a):
    return danl.Problem(shards_of(a1a, 3, 300), alpha=1e-2)


def until(path):
    """Wait, in an actor, until the test says so."""
    while not path.exists():
        time.sleep(0.01)


@pytest.fixture
def passes_after(monkeypatch):
    """Have the deadline of the next exchange pass when so many workers have answered, however long they take."""
    import ray

    wait = ray.wait

    def arrange(count):
        def until_then(refs, *, num_returns, timeout):
            monkeypatch.setattr(ray, "wait", wait)
            ready, left = wait(refs, num_returns=count, timeout=None)
            after = time.monotonic() + timeout
            monkeypatch.setattr("danl.engines.ray.calls.time", SimpleNamespace(monotonic=lambda: after))
            return ready, left

        monkeypatch.setattr("danl.engines.ray.calls.time", time)
        monkeypatch.setattr(ray, "wait", until_then)
        return 1000.0

    yield arrange
    monkeypatch.undo()


def test_a_slow_worker_is_left_out_and_its_late_reply_counted(problem, tmp_path, passes_after):
    import ray

    from danl.engines.ray.actor import WorkerActor

    class Slow(WorkerActor):
        def answer(self, number, terms, shard, data, w):
            for held in (0, 2) if self.index == 1 else ():
                if b'"exchange": %d' % held in data:
                    until(tmp_path / str(held))
            return super().answer(number, terms, shard, data, w)

    engine = opened(problem, made_of(Slow)())
    try:
        replies = engine.exchange(gradients(0, problem), deadline=passes_after(2))
        assert replies.workers.tolist() == [0, 2]
        assert replies.failures[1].kind == "timeout"
        assert replies.failures[1].detail == "no reply within 1000 s"
        assert replies.dropped == 0
        # Asked again when the late reply has come: nothing piles up, and it answers the newer task.
        (tmp_path / "0").touch()
        replies = engine.exchange(gradients(1, problem))
        assert replies.dropped == 1
        assert replies.workers.tolist() == [0, 1, 2]
        # Counted, too, where it is not asked again.
        assert engine.exchange(gradients(2, problem), deadline=passes_after(2)).failures[1].kind == "timeout"
        (tmp_path / "2").touch()
        assert ray.wait([engine._slots[1].late])[0]
        replies = engine.exchange(gradients(3, problem, who=[0, 2]))
        assert replies.workers.tolist() == [0, 2]
        assert replies.dropped == 1
        assert engine.exchange(gradients(4, problem)).dropped == 0
    finally:
        engine.close()


def test_typed_failures(problem):
    from danl.engines.ray.actor import WorkerActor

    class Odd(WorkerActor):
        def answer(self, number, terms, shard, data, w):
            if self.index == 0:
                return b"DNL1 but no more"
            if self.index == 1:
                self.worker = None  # breaks what is inside
                self._open = lambda *_: 1 / 0
            return super().answer(number, terms, shard, data, w)

    engine = opened(problem, made_of(Odd)())
    try:
        replies = engine.exchange(gradients(0, problem))
        assert replies.workers.tolist() == [2]
        assert replies.failures[0].kind == "invalid"
        assert "cannot be read" in replies.failures[0].detail
        assert replies.failures[1].kind == "error"
        assert replies.failures[1].detail == "ZeroDivisionError: division by zero"
    finally:
        engine.close()


def test_a_reply_for_another_exchange_is_dropped(problem):
    from danl.engines.ray.actor import WorkerActor

    class Behind(WorkerActor):
        def answer(self, number, terms, shard, data, w):
            reply = super().answer(number, terms, shard, data, w)
            return reply.replace(b'"exchange": 2', b'"exchange": 1') if self.index == 1 else reply

    result = danl.solve(problem, policy="coverage:psi=1", max_rounds=4, tol=0, engine=made_of(Behind)())
    assert result.dropped == 1
    assert [(failure.worker, failure.kind) for failure in result.failures] == [(1, "timeout")]


def test_a_policy_that_is_wrong_is_the_callers_mistake(problem):
    engine, lock = Kept(), threading.Lock()
    wrong = {"policy": lambda w, worker, number, rng: [True], "method": "danl:masks=always"}
    try:
        with pytest.raises(InputError, match="must"):
            danl.solve(problem, max_rounds=3, engine=engine, **wrong)
        with pytest.raises(InputError, match="cannot be sent to the workers"):
            danl.solve(problem, policy=lambda *_: lock, max_rounds=3, engine=engine)
    finally:
        engine.end()


def test_faulty_hessians_quarantine_their_workers(a1a):
    from danl.engines.ray.actor import WorkerActor

    class Faulty(WorkerActor):
        def hessian(self, *arguments):
            reply, packed = super().hessian(*arguments)
            return reply, {3: -packed, 4: np.full_like(packed, np.nan)}.get(self.index, packed)

    shards = shards_of(a1a, 5, 500)
    result = danl.solve(danl.Problem(shards, alpha=1e-2), engine=made_of(Faulty)(fan_in=2))
    assert [(failure.worker, failure.kind) for failure in result.failures] == [(3, "invalid"), (4, "invalid")]
    assert "indefinite" in result.failures[0].detail
    assert result.failures[1].detail == "its Hessian is not finite"
    assert result.status == "converged"
    alone = danl.solve(danl.Problem(shards[:3], alpha=1e-2))
    assert np.linalg.norm(result.w - alone.w) <= 1e-8 * np.linalg.norm(alone.w)


def kill(engine, *workers):
    """Kill the processes of these workers, as a machine does that is out of memory."""
    import ray

    for worker in workers:
        os.kill(ray.get(engine._slots[worker].actor.pid.remote()), signal.SIGKILL)


def known():
    """Actors whose processes can be found."""
    from danl.engines.ray.actor import WorkerActor

    class Known(WorkerActor):
        def pid(self):
            return os.getpid()

    return Known


@pytest.mark.parametrize("options", [{"restarts": 1}, {"restarts": 0, "replacements": 1}])
def test_one_that_is_killed_comes_back_once(problem, options):
    engine = opened(problem, made_of(known())(**{"replacements": 0, **options}))
    try:
        expected = engine.exchange(gradients(0, problem)).gradients[1]
        kill(engine, 1)
        replies = engine.exchange(gradients(1, problem))  # it has its rows again, and knows the run
        assert replies.workers.tolist() == [0, 1, 2]
        assert np.array_equal(replies.gradients[1], expected)
        kill(engine, 1)
        for number in (2, 3):
            replies = engine.exchange(gradients(number, problem))
            assert replies.workers.tolist() == [0, 2]
            assert replies.failures[1].kind == "gone"
            assert replies.failures[1].detail.startswith("ActorDiedError: ")
    finally:
        engine.close()


def test_ten_kills(problem, tmp_path):
    """At work, with an answer that is not sent yet, between two exchanges: the run is the one without them."""
    deaths = {(0, 0): "at work", (0, 2): "after", (1, 1): "after", (1, 2): "at work"}
    deaths |= {(2, 0): "after", (2, 1): "at work", (3, 1): "at work", (3, 2): "after"}

    class Mortal(known()):
        def answer(self, *arguments):
            return self._mortally(super().answer, arguments)

        def hessian(self, *arguments):
            return self._mortally(super().hessian, arguments)

        def _mortally(self, answer, arguments):
            exchange = int(re.search(rb'"exchange": (\d+)', arguments[3])[1])
            once = tmp_path / f"{exchange}-{self.index}"
            when = None if once.exists() else deaths.get((exchange, self.index))
            if when is not None:
                once.touch()
            if when == "at work":
                os.kill(os.getpid(), signal.SIGKILL)
            given = answer(*arguments)
            if when == "after":
                os.kill(os.getpid(), signal.SIGKILL)
            return given

    engine = made_of(Mortal)(restarts=1, replacements=20)

    def watch(row):
        if row.exchange in (4, 5):
            kill(engine, row.exchange % 3)

    options = {"policy": "coverage:psi=2", "max_rounds": 8}
    result = danl.solve(problem, engine=engine, callback=watch, **options)
    assert len(list(tmp_path.iterdir())) == len(deaths) == 8
    assert_same(result, danl.solve(problem, **options))


@pytest.mark.parametrize("options", [{"restarts": 1}, {"restarts": 0, "replacements": 1}])
def test_one_that_is_killed_forgot_what_it_learned_and_is_begun_anew(problem, options):
    engine = made_of(known())(**options)

    def watch(row):
        if row.exchange == 2:
            kill(engine, 1)

    result = danl.solve(problem, method="fednl", engine=engine, callback=watch, max_rounds=300, tol=1e-9)
    (failure,) = result.failures
    assert (failure.worker, failure.kind) == (1, "forgot")
    assert failure.detail == "keeps nothing as fednl rankr:1 hessian, and version 3 is asked for"
    assert result.status == "converged"
    best = danl.reference_optimum(problem)
    assert np.linalg.norm(result.w - best.w) <= 1e-6 * np.linalg.norm(best.w)


def test_two_of_three_that_take_long_to_restart_are_waited_for(problem, tmp_path):
    """More exchanges than `patience` go by before they are back, and no quorum is lost."""

    class Held(known()):
        def __init__(self, index, reference):
            super().__init__(index, reference)
            if index and (tmp_path / f"begun-{index}").exists():
                until(tmp_path / "go")
            (tmp_path / f"begun-{index}").touch()

    killed = []

    class Brief(made_of(Held)):
        """While they are held, only they have a deadline: nobody else can be late."""

        def exchange(self, exchange, *, deadline=None):
            held = [who for who in exchange.workers.tolist() if who in killed]
            if not held or (tmp_path / "go").exists():
                return super().exchange(exchange)
            there = [who for who in exchange.workers.tolist() if who not in held]
            replies = super().exchange(exchange.without(held))
            away = super().exchange(exchange.without(there), deadline=3.0)
            while any(failure.kind == "timeout" for failure in away.failures.values()):  # until Ray has noticed
                away = super().exchange(exchange.without(there), deadline=3.0)
            assert not len(away.workers)
            return replace(replies, failures={**replies.failures, **away.failures})

    engine = Brief(restarts=1, replacements=20)

    def watch(row):
        if row.exchange == 1:
            kill(engine, 1, 2)
            killed.extend((1, 2))
        if row.exchange == 5:
            (tmp_path / "go").touch()

    method = danl.methods.DANL(patience=3)
    result = danl.solve(problem, method=method, policy="coverage:psi=1", tol=1e-10, engine=engine, callback=watch)
    assert (result.status, result.notes) == ("converged", ())
    assert {(failure.worker, failure.kind) for failure in result.failures} == {(1, "restarting"), (2, "restarting")}
    best = danl.reference_optimum(problem)
    assert np.linalg.norm(result.w - best.w) <= 1e-7 * np.linalg.norm(best.w)


@pytest.mark.parametrize("method", ["danl", "danl:curvature=diag", "newton"])
def test_all_but_one_gone_for_good_loses_the_quorum_at_once(problem, method):
    engine = made_of(known())(restarts=0, replacements=0)

    def watch(row):
        if row.exchange == 1:
            kill(engine, 1, 2)

    result = danl.solve(problem, method=method, tol=0, max_rounds=200, engine=engine, callback=watch)
    assert (result.status, len(result.history)) == ("quorum_lost", 3)
    assert [(failure.worker, failure.kind) for failure in result.failures] == [(1, "gone"), (2, "gone")]
    assert result.notes[-1].startswith("quorum lost in exchange 2, without workers 1 and 2 (gone: ActorDiedError: ")


def test_hessians_that_are_lost_on_the_way(problem, monkeypatch):
    import ray

    engine = opened(problem, Ray(fan_in=2))
    try:
        task = HessianTask(0, np.zeros(problem.n_features))
        replies = engine.exchange(Exchange("hessian", task, np.arange(3)))
        leaves, d = replies.add_up.args

        @ray.remote(num_cpus=0, max_retries=0)
        def gone():
            os._exit(1)

        broken = {**leaves, 1: type(leaves[1])(1, 1e-2, False, False, gone.remote())}
        total = engine._tree.add_up(broken, d, {0: 0.5, 1: 0.3, 2: 0.2})
        assert total.faults == {}
        assert list(total.lost) == [1]
        np.testing.assert_allclose(total.packed, replies.add_up({0: 0.5, 2: 0.2}).packed, rtol=1e-13)
        # And the actors that add up: Ray restarts them.
        for adder in engine._tree._adders:
            ray.kill(adder, no_restart=False)
        again = replies.add_up({0: 0.5, 2: 0.2})
        assert np.array_equal(again.packed, replies.add_up({0: 0.5, 2: 0.2}).packed)
        assert again.lost == {}
    finally:
        engine.close()
