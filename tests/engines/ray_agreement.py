"""The Ray engine gives what the local one gives. `test_ray.py` runs this file where there is only loopback."""

import os
import time
from dataclasses import dataclass

import numpy as np
import pytest

import danl
from danl.engines import Local, Ray
from danl.errors import InputError
from danl.protocol.messages import Array, Exchange, HessianTask, LossTask, Reply, packed_size
from danl.protocol.own_tasks import StatefulTask, vectors_fault
from tests.engines import conformance
from tests.engines.ray_tools import MARKS, Kept, actors_of, assert_same, opened, shards_of

pytestmark = [*MARKS, pytest.mark.usefixtures("cluster")]


@pytest.fixture(scope="module")
def problem(a1a):
    return danl.Problem(shards_of(a1a, 6), alpha=1e-3)


@pytest.fixture(scope="module")
def engine(cluster):
    engine = Kept(fan_in=2)  # six workers: three leaves and two levels above
    yield engine
    engine.end()


@pytest.mark.parametrize("check", conformance.CHECKS, ids=lambda check: check.__name__)
def test_conformance(check):
    check(lambda: Ray(fan_in=2))


@pytest.mark.parametrize(
    ("method", "policy"),
    [
        ("danl", "coverage:psi=3"),
        ("danl", "random:keep=0.5"),  # chosen where the data is
        ("danl-masked", "coverage:psi=3"),
        ("danl:batch-size=20", "coverage:psi=3"),
        ("fednl", None),
        ("fednl:pp=3,compressor=topk:200", None),
        ("pruned-sgd", "coverage:psi=3"),
        ("newton", None),
        ("fedavg:steps=5", None),
        ("gd", None),
    ],
)
def test_in_memory(problem, engine, method, policy):
    options = {"method": method, "policy": policy, "max_rounds": 25, "seed": 3}
    assert_same(danl.solve(problem, engine=engine, **options), danl.solve(problem, engine=Local(), **options))


def test_a_task_that_danl_does_not_have(problem, engine):
    """It is nowhere but in this function, and goes to the actors as a policy of one's own does."""

    @dataclass(frozen=True)
    class CountReply(Reply):
        numbers: Array

    @dataclass(frozen=True)
    class CountTask(StatefulTask):
        name, answer = "test-count", CountReply

        def work_with(self, place, kept):
            counts = np.append(kept["counts"] if kept else [], place.objective.n_rows)
            return CountReply(place.worker, self.exchange, counts), {"counts": counts}

        def fault(self, reply, d):
            return vectors_fault(reply, {"numbers": self.version + 1})

    opened(problem, engine)
    for version in range(3):
        task = CountTask(version, np.zeros(problem.n_features), "counts", version)
        replies = engine.exchange(Exchange("test-count", task, np.arange(6)))
        assert replies.failures == {}
        for who, reply in replies.messages.items():
            assert reply.numbers.tolist() == [problem.local_objectives[who].n_rows] * (version + 1)
    task = CountTask(3, np.zeros(problem.n_features), "counts", 7)
    failures = engine.exchange(Exchange("test-count", task, np.arange(6))).failures
    assert {failure.kind for failure in failures.values()} == {"forgot"}
    assert len(failures) == 6


def test_a_start_made_by_a_method_keeps_the_actors(problem, engine):
    opened(problem, engine)
    before = actors_of(engine)
    options = {"w0": "fedavg:rounds=3", "policy": "coverage:psi=3", "max_rounds": 30}
    ours, local = danl.solve(problem, engine=engine, **options), danl.solve(problem, **options)
    assert_same(ours, local)
    assert_same(ours.start, local.start)
    assert actors_of(engine) == before


def test_weights(a1a):
    weights = np.random.default_rng(0).uniform(0.5, 2.0, size=600)
    shards = danl.partition(a1a.X[:600], a1a.y[:600], workers=3, weights=weights, seed=0)
    problem = danl.Problem(shards, alpha=1e-2, weighting="samples")
    options = {"policy": "coverage:psi=2", "max_rounds": 40}
    assert_same(danl.solve(problem, engine="ray", **options), danl.solve(problem, **options))


def test_the_loss(problem, engine):
    opened(problem, engine)
    task = LossTask(0, np.zeros(problem.n_features))
    replies = engine.exchange(Exchange("loss", task, np.arange(6)))
    assert replies.losses.tolist() == [local.value(task.w) for local in problem.local_objectives]


def test_a_large_model_is_put_once():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 9000))  # 72 kB: too large to travel inside the call
    shards = danl.partition(X, (X[:, 0] > 0).astype(float), workers=2, seed=0)
    problem = danl.Problem(shards, alpha=0.1)
    options = {"method": "fedavg:steps=2", "max_rounds": 3}
    assert_same(danl.solve(problem, engine="ray", **options), danl.solve(problem, **options))


def test_the_driver_holds_no_workers_hessian(problem, engine):
    opened(problem, engine)
    task = HessianTask(0, np.zeros(problem.n_features))
    replies = engine.exchange(Exchange("hessian", task, np.arange(6)))
    assert replies.workers.tolist() == list(range(6))
    assert replies.curvatures == {}
    some = {2: 0.25, 5: 0.75}
    total = replies.add_up(some)
    expected = sum(share * problem.local_objectives[who].hessian(task.w) for who, share in some.items())
    np.testing.assert_allclose(total.packed, expected[np.triu_indices(problem.n_features)], rtol=1e-13, atol=1e-16)
    assert (total.faults, total.lost) == ({}, {})
    everyone = dict.fromkeys(range(6), 0.2)
    assert np.array_equal(replies.add_up(everyone).packed, replies.add_up(everyone).packed)


def test_only_the_hessians_of_those_that_send_one_are_added_up(problem, engine):
    opened(problem, engine)
    d = problem.n_features
    whole, w = packed_size(d), np.full(d, 0.1)
    pieces = np.array([[0, 0], [0, whole], [0, 0], [0, 0], [0, whole], [0, whole]])
    replies = engine.exchange(Exchange("hessian", HessianTask(0, w), np.arange(6), pieces=pieces))
    assert replies.curvatures == {}
    assert (replies.curvature_senders.tolist(), replies.senders.tolist()) == ([1, 4, 5], list(range(6)))
    total = replies.add_up({1: 0.25, 5: 0.75})
    expected = 0.25 * problem.local_objectives[1].hessian(w) + 0.75 * problem.local_objectives[5].hessian(w)
    np.testing.assert_allclose(total.packed, expected[np.triu_indices(d)], rtol=1e-13, atol=1e-16)
    pieces[2] = 3, 9  # a piece of one: all of them come here
    replies = engine.exchange(Exchange("hessian", HessianTask(1, w), np.arange(6), pieces=pieces))
    assert replies.add_up is None
    assert {who: each.size for who, each in replies.curvatures.items()} == {1: whole, 2: 6, 4: whole, 5: whole}


def test_rows_by_reference_of_every_kind(a1a, tmp_path):
    d = a1a.X.shape[1]
    dense = a1a.X[:300].toarray()
    with open(tmp_path / "0.libsvm", "w") as libsvm:
        for x, y in zip(dense[:100], a1a.y[:100], strict=True):
            libsvm.write(f"{2 * y - 1:+g} " + " ".join(f"{k + 1}:{x[k]:g}" for k in np.flatnonzero(x)) + "\n")
    with open(tmp_path / "1.csv", "w") as csv:
        csv.write(",".join(map(str, range(d + 1))) + "\n")  # a table without names, as the others are
        for x, y in zip(dense[100:200], a1a.y[100:200], strict=True):
            csv.write(",".join(f"{value:g}" for value in x) + f",{y:g}\n")

    def load():
        data = danl.load_dataset("a1a")
        return data.X[200:300], data.y[200:300]

    references = [
        danl.ShardReference(path=str(tmp_path / "0.libsvm"), n_features=d),
        danl.ShardReference(path=str(tmp_path / "1.csv")),
        danl.ShardReference(load=load),
    ]
    problem = danl.RemoteProblem(references, alpha=1e-2)
    options = {"policy": "coverage:psi=1", "max_rounds": 30}
    local = danl.solve(problem, **options)
    assert local.status == "converged"
    assert_same(danl.solve(problem, engine="ray", **options), local)


def test_the_driver_does_not_read(tmp_path):
    def load():
        (tmp_path / f"read-by-{os.getpid()}").touch()
        rng = np.random.default_rng(0)
        X = rng.normal(size=(30, 2))
        return X, (X[:, 0] > 0).astype(float)

    problem = danl.RemoteProblem([danl.ShardReference(load=load)], alpha=0.1)
    assert danl.solve(problem, engine="ray").status == "converged"
    readers = [path.name for path in tmp_path.iterdir()]
    assert len(readers) == 1
    assert readers != [f"read-by-{os.getpid()}"]


def test_rows_that_cannot_be_read(tmp_path):
    def broken():
        raise OSError("the disk is gone")

    for reference, message in [
        (danl.ShardReference(path=str(tmp_path / "none.csv")), "worker 0 .*none.csv: there is no such file"),
        (danl.ShardReference(load=broken), "worker 0 cannot use its rows where it runs: OSError at .*; its text stays"),
    ]:
        with pytest.raises(InputError, match=message):
            danl.solve(danl.RemoteProblem([reference]), engine="ray")


def test_rows_that_take_too_long():
    def never():
        while True:
            time.sleep(1)

    problem = danl.RemoteProblem([danl.ShardReference(load=never)])
    with pytest.raises(InputError, match=r"start_timeout=0.2: workers 0 \(no reply within 0.2 s\) were not ready"):
        danl.solve(problem, engine=Ray(start_timeout=0.2))
