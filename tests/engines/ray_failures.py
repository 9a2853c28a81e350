"""Workers of the Ray engine that are late, wrong or killed. `test_ray.py` runs this where there is only loopback."""

import itertools
import os
import random
import signal
import threading
import time

import numpy as np
import pytest

import danl
from danl.core.messages import Exchange, HessianTask
from danl.engines import Ray
from danl.errors import InputError
from tests.engines.ray_tools import MARKS, Kept, actors_of, gradients, made_of, opened, shards_of

pytestmark = [*MARKS, pytest.mark.usefixtures("cluster")]


@pytest.fixture
def problem(a1a):
    return danl.Problem(shards_of(a1a, 3, 300), alpha=1e-2)


def test_a_slow_worker_is_left_out_and_its_late_reply_counted(problem, tmp_path):
    import ray

    from danl.engines.ray_actor import Site

    class Slow(Site):
        def answer(self, number, opening, shard, data, w):
            for held in (0, 2) if self.index == 1 else ():
                if b'"exchange": %d' % held in data:
                    for _ in range(3000):  # until the test lets it go
                        if (tmp_path / str(held)).exists():
                            break
                        time.sleep(0.01)
            return super().answer(number, opening, shard, data, w)

    engine = opened(problem, made_of(Slow)())
    try:
        assert engine.exchange(gradients(9, problem), deadline=30.0).failures == {}  # all have begun
        replies = engine.exchange(gradients(0, problem), deadline=2.0)
        assert sorted(replies.received) == [0, 2]
        assert replies.failures[1].kind == "timeout"
        assert replies.failures[1].detail == "no reply within 2 s"
        assert replies.dropped == 0
        # Asked again when the late reply has come: nothing piles up, and it answers the newer task.
        (tmp_path / "0").touch()
        replies = engine.exchange(gradients(1, problem), deadline=30.0)
        assert replies.dropped == 1
        assert {reply.exchange for reply in replies.received.values()} == {1}
        assert sorted(replies.received) == [0, 1, 2]
        # Counted, too, where it is not asked again.
        assert engine.exchange(gradients(2, problem), deadline=0.5).failures[1].kind == "timeout"
        (tmp_path / "2").touch()
        assert ray.wait([engine._places[1].late], timeout=30)[0]
        replies = engine.exchange(gradients(3, problem, who=[0, 2]), deadline=30.0)
        assert sorted(replies.received) == [0, 2]
        assert replies.dropped >= 1  # those of the others, where half a second was not enough for them
        assert engine.exchange(gradients(4, problem), deadline=30.0).dropped == 0
    finally:
        engine.close()


def test_typed_failures(problem):
    from danl.engines.ray_actor import Site

    class Odd(Site):
        def answer(self, number, opening, shard, data, w):
            if self.index == 0:
                return b"DNL1 but no more"
            if self.index == 1:
                self.worker = None  # breaks what is inside
                self._open = lambda *_: 1 / 0
            return super().answer(number, opening, shard, data, w)

    engine = opened(problem, made_of(Odd)())
    try:
        replies = engine.exchange(gradients(0, problem))
        assert sorted(replies.received) == [2]
        assert replies.failures[0].kind == "invalid"
        assert "cannot be read" in replies.failures[0].detail
        assert replies.failures[1].kind == "error"
        assert replies.failures[1].detail == "ZeroDivisionError: division by zero"
    finally:
        engine.close()


def test_a_reply_for_another_exchange_is_dropped(problem):
    from danl.engines.ray_actor import Site

    class Behind(Site):
        def answer(self, number, opening, shard, data, w):
            reply = super().answer(number, opening, shard, data, w)
            return reply.replace(b'"exchange": 2', b'"exchange": 1') if self.index == 1 else reply

    result = danl.solve(problem, policy="coverage:psi=1", max_rounds=4, tol=0, engine=made_of(Behind)())
    assert result.dropped == 1
    assert [(failure.worker, failure.kind) for failure in result.failures] == [(1, "timeout")]


def test_a_policy_that_is_wrong_is_the_callers_mistake(problem):
    engine, lock = Kept(), threading.Lock()
    try:
        with pytest.raises(InputError, match="must"):
            danl.solve(problem, policy=lambda w, worker, number, rng: [True], max_rounds=3, engine=engine)
        with pytest.raises(InputError, match="cannot be sent to the workers"):
            danl.solve(problem, policy=lambda *_: lock, max_rounds=3, engine=engine)
    finally:
        engine.end()


def test_faulty_hessians_quarantine_their_workers(a1a):
    from danl.engines.ray_actor import Site

    class Faulty(Site):
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


def _with_pid():
    from danl.engines.ray_actor import Site

    class Known(Site):
        def pid(self):
            return os.getpid()

    return Known


def _pids(engine):
    import ray

    return ray.get([actor.pid.remote() for actor in actors_of(engine)], timeout=30)


@pytest.mark.parametrize("options", [{"restarts": 1}, {"restarts": 0, "replacements": 1}])
def test_one_that_is_killed_comes_back_once(problem, options):
    engine = opened(problem, made_of(_with_pid())(**{"replacements": 0, **options}))
    numbers = itertools.count(1)

    def answer():
        """What worker 1 says at last, or None if it is dead for good; how soon Ray notices, and restarts, is Ray's."""
        until = time.monotonic() + 40
        while time.monotonic() < until:
            gone = engine._places[1].replacements == 0
            replies = engine.exchange(gradients(next(numbers), problem))
            assert {0, 2} <= set(replies.received)
            if 1 in replies.received:
                return replies.received[1]
            assert replies.failures[1].kind == "died"
            if gone and replies.failures[1].detail.startswith("ActorDiedError"):
                return None
            time.sleep(0.05)
        pytest.fail("neither back nor dead for good")

    try:
        expected = engine.exchange(gradients(0, problem)).received[1]
        os.kill(_pids(engine)[1], signal.SIGKILL)
        back = answer()  # it has its rows again, and knows the run
        assert np.array_equal(back.fragment, expected.fragment)
        os.kill(_pids(engine)[1], signal.SIGKILL)
        assert answer() is None
        assert 1 not in engine.exchange(gradients(next(numbers), problem)).received
    finally:
        engine.close()


def test_ten_kills_at_random_moments(a1a):
    problem = danl.Problem(shards_of(a1a, 3, 300), alpha=1e-2)
    engine = made_of(_with_pid())(restarts=3, replacements=20)
    draw, killed, over = random.Random(0), [], threading.Event()

    def kill():
        import ray

        while len(killed) < 10 and not over.wait(draw.uniform(0.05, 0.8)):
            try:
                pid = ray.get(draw.choice(actors_of(engine)).pid.remote(), timeout=10)
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)
            except (IndexError, ProcessLookupError, ray.exceptions.RayError):
                pass  # not there yet, or on its way back

    def slowly(row):
        if len(killed) < 10:
            time.sleep(0.3)

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        # One run is slowed down to last for ten kills; should it end before, the next one takes the rest.
        results = []
        while len(killed) < 10:
            results.append(
                danl.solve(problem, policy="coverage:psi=2", max_rounds=200, tol=1e-10, engine=engine, callback=slowly)
            )
    finally:
        over.set()
        thread.join(30)
    assert not thread.is_alive()
    assert len(killed) == 10
    best = danl.reference_optimum(problem)
    assert {failure.kind for result in results for failure in result.failures} <= {"died"}
    assert any(result.failures for result in results)
    for result in results:
        assert result.status == "converged"
        assert np.linalg.norm(result.w - best.w) <= 1e-7 * np.linalg.norm(best.w)


def test_all_but_one_gone_for_good_loses_the_quorum(problem):
    engine = made_of(_with_pid())(restarts=0, replacements=0)

    def kill(row):
        if row.exchange == 1:
            for pid in _pids(engine)[1:]:
                os.kill(pid, signal.SIGKILL)

    result = danl.solve(problem, policy="coverage:psi=1", tol=0, max_rounds=200, engine=engine, callback=kill)
    assert result.status == "quorum_lost"
    assert {failure.worker for failure in result.failures} == {1, 2}
    assert {failure.kind for failure in result.failures} == {"died"}


def test_hessians_that_are_lost_on_the_way(problem, monkeypatch):
    import ray

    engine = opened(problem, Ray(fan_in=2))
    try:
        task = HessianTask(0, np.zeros(problem.n_features))
        replies = engine.exchange(Exchange("hessian", dict.fromkeys(range(3), task)))
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
