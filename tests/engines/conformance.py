"""What every engine must do, whatever carries its messages: each engine's tests run these on an engine of theirs.

`make()` gives an engine that has not been opened. The reference is `danl.engines.Local`.
"""

from __future__ import annotations

import numpy as np

import danl
from danl.engines import Local
from danl.objective.regions import Regions
from danl.protocol.message_bytes import bytes_down, bytes_up
from danl.protocol.messages import CurvatureTask, Exchange, GradientTask, HessianTask, LossTask, packed_size, unpack
from danl.protocol.replies import ReplyRules
from danl.protocol.wire import decode, encode, most_bytes
from danl.tasks import LearnTask
from tests.problems import random_problem

SAMPLED = "danl-paper:batch_size=4,hessian_batch=5"
METHODS = ("danl", "danl:masks=always", "danl-masked", "newton", "gd", "fedavg", SAMPLED)
OWN_METHODS = ("fednl", "fednl:pp=2,compressor=topk:5", "pruned-sgd")
COMPRESSED = ("rankr:2", "topk:5", "natural", "identity,curvature_from=2", "randk:9,hessian_dtype=float32")
POLICIES = ("coverage:psi=2", "random:keep=0.6")
SAME = (
    *("exchange", "kind", "active", "failed", "coverage", "min_coverage", "max_staleness", "min_trained"),
    *("bytes_up", "bytes_down", "refused"),
)
CLOSE = ("objective", "model_norm", "step_norm")


class ThroughBytes(Local):
    """The in-process engine whose tasks and replies are bytes on their way."""

    def open(self, problem, *, regions, policy, seed):
        super().open(problem, regions=regions, policy=policy, seed=seed)
        most = most_bytes(problem.n_coefficients, regions.n_regions)
        self._batch = None
        self._workers = [_Carried(worker, most) for worker in self._workers]


class _Carried:
    def __init__(self, worker, most):
        self._worker, self._most = worker, most

    def answer(self, task):
        arrived = decode(encode(task), most_bytes=self._most)
        return decode(encode(self._worker.answer(arrived)), most_bytes=self._most)


def same_trace(expected, found):
    """The same workers asked, the same regions trained, the same bytes, worker by worker."""
    assert len(expected) == len(found) > 0
    for name in ("exchanges", "asked", "trained", "bytes_up", "bytes_down"):
        np.testing.assert_array_equal(getattr(expected, name), getattr(found, name))


def same_run(make, *, method="danl", policy="coverage:psi=2", problem=None, **arguments):
    """The same exchanges, masks, coverage and bytes exactly; models and objectives to 1e-12."""
    problem = problem or random_problem()
    arguments = {
        "method": method,
        "policy": policy,
        "regions": 3,
        "max_rounds": 12,
        "tol": 1e-11,
        "seed": 4,
    } | arguments
    traces = danl.Trace(), danl.Trace()
    expected = danl.solve(problem, engine="local", trace=traces[0], **arguments)
    found = danl.solve(problem, engine=make(), trace=traces[1], **arguments)
    same_trace(*traces)
    assert found.status == expected.status
    assert len(found.history) == len(expected.history)
    for ours, theirs in zip(found.history, expected.history, strict=True):
        assert [getattr(ours, name) for name in SAME] == [getattr(theirs, name) for name in SAME]
        for name in CLOSE:
            np.testing.assert_allclose(getattr(ours, name), getattr(theirs, name), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found.w, expected.w, rtol=0, atol=1e-12 * max(1.0, float(np.abs(expected.w).max())))
    assert abs(found.history[-1].objective - expected.history[-1].objective) <= 1e-12


def open_engine(engine, problem, policy=None):
    engine.open(problem, regions=Regions.make(3, problem.n_features), policy=policy, seed=0)
    return engine


def answers_the_task_it_was_given(make):
    """Only those asked answer, each in its own name and for this exchange; some may be asked and others not."""
    problem = random_problem()
    engine = open_engine(make(), problem)
    try:
        w = np.zeros(problem.n_features)
        replies = engine.exchange(Exchange("loss", LossTask(7, w), np.array([0, 3])))
        assert replies.workers.tolist() == [0, 3]
        assert (replies.failures, replies.gradients, replies.dropped) == ({}, None, 0)
        for worker, loss in zip(replies.workers, replies.losses, strict=True):
            assert abs(loss - problem.local_objectives[worker].value(w)) < 1e-14
        assert engine.exchange(Exchange("loss", LossTask(8, w), np.zeros(0, dtype=int))).workers.tolist() == []
    finally:
        engine.close()


def answers_twice_alike(make):
    """A worker is pure: the same task, mini-batch and all, gets the same reply, to the bit."""
    problem = random_problem()
    engine = open_engine(make(), problem)
    try:
        task = GradientTask(3, np.ones(problem.n_features), np.array([True, False, True]), batch_size=3)
        exchange = Exchange("gradient", task, np.array([1]))
        first, second = (engine.exchange(exchange).gradients for _ in range(2))
        assert first.any()
        assert first.tobytes() == second.tobytes()
    finally:
        engine.close()


def mixed_exchanges(n_workers, n_regions, w):
    """Exchanges that ask some workers for curvature, or for pieces of it, and others for gradients or losses."""
    rng = np.random.default_rng(0)
    everyone, numbers, d = np.arange(n_workers), packed_size(w.size), w.size
    masks = rng.random((n_workers, n_regions)) < 0.6
    masks[0], masks[-1] = True, False
    some = np.where((everyone % 2 == 0)[:, None], [0, numbers], [0, 0])
    cut = np.sort(rng.integers(0, numbers, size=(n_workers, 2)), axis=1)
    cut[0], cut[-1] = (0, numbers), (3, 3)
    whole = HessianTask(3, w)
    single = CurvatureTask(3, w, "full", dtype="float32")
    return {
        "Hessians of some": Exchange("x", whole, everyone, pieces=some),
        "of nobody": Exchange("x", whole, everyone, pieces=0 * some),
        "on batches": Exchange("x", HessianTask(3, w, 4, 3), everyone, pieces=some),
        "on batches of the Hessian": Exchange("x", HessianTask(3, w, None, 3), everyone, pieces=some),
        "of some, with masks": Exchange("x", whole, everyone, masks, pieces=some),
        "of a few": Exchange("x", whole, everyone[1:], masks[1:], pieces=some[1:]),
        "with masks": Exchange("x", whole, everyone, masks),
        "pieces": Exchange("x", whole, everyone, pieces=cut),
        "pieces, with masks": Exchange("x", whole, everyone, masks, pieces=cut),
        "in float32": Exchange("x", single, everyone),
        "of some in float32": Exchange("x", single, everyone, masks, pieces=some),
        "pieces in float32": Exchange("x", single, everyone, masks, pieces=cut),
        "in float64, as a part": Exchange("x", CurvatureTask(3, w, "full"), everyone, masks, pieces=some),
        "diagonals": Exchange("x", CurvatureTask(3, w, "diag"), everyone, masks, pieces=np.minimum(some, d)),
        "pieces of sketches": Exchange(
            "x", CurvatureTask(3, w, "lowrank", 2, dtype="float32"), everyone, pieces=np.minimum(cut, 2 * d)
        ),
    }


def same_answers_to_mixed_exchanges(engine, problem, regions, w):
    """What the workers send one by one: who sent what, the sums, the pieces and the bytes."""
    alone, rules = Local(batched=False), ReplyRules.of(problem, regions)
    alone.open(problem, regions=regions, policy=None, seed=0)
    for name, exchange in mixed_exchanges(problem.n_workers, regions.n_regions, w).items():
        ours, theirs = (
            rules.validate_replies(exchange, each.exchange(exchange), problem.weights) for each in (engine, alone)
        )
        assert (ours.failures, theirs.failures) == ({}, {}), name
        for field in ("workers", "curvature_senders"):
            assert getattr(ours, field).tolist() == getattr(theirs, field).tolist(), name
        np.testing.assert_allclose(ours.losses, theirs.losses, rtol=1e-12, err_msg=name)
        size = problem.n_workers, regions.n_regions
        np.testing.assert_array_equal(ours.trained(*size), theirs.trained(*size), err_msg=name)
        kept = theirs.trained(*size)[:, regions.of_coefficient]
        np.testing.assert_allclose(*(_gradients(each, kept) for each in (ours, theirs)), rtol=1e-9, atol=1e-13)
        assert (ours.curvature_sum is None) == (theirs.curvature_sum is None) == ("pieces" in name or "nobody" in name)
        if "pieces" in name:
            assert ours.curvatures.keys() == theirs.curvatures.keys() == set(theirs.curvature_senders.tolist())
            for worker, numbers in theirs.curvatures.items():
                assert ours.curvatures[worker].dtype == numbers.dtype
                np.testing.assert_array_equal(ours.curvatures[worker], numbers, err_msg=name)
        elif theirs.curvature_sum is not None:
            sums = [each.curvature_sum for each in (ours, theirs)]
            if "diag" not in name:
                sums = [unpack(each, w.size) for each in sums]
            np.testing.assert_allclose(*sums, rtol=1e-11, atol=1e-13, err_msg=name)
        assert bytes_up(exchange, ours, regions).tolist() == bytes_up(exchange, theirs, regions).tolist()
        assert len(bytes_down(exchange, regions)) == len(exchange.workers)


def _gradients(replies, kept):
    rows = np.zeros(kept.shape)
    rows[replies.senders] = replies.gradients
    return np.where(kept, rows, 0.0)


def answers_mixed_exchanges(make):
    """Workers of one exchange may be asked for different things."""
    problem = random_problem()
    engine = open_engine(make(), problem)
    try:
        w = np.linspace(-1, 1, problem.n_features)
        same_answers_to_mixed_exchanges(engine, problem, Regions.make(3, problem.n_features), w)
    finally:
        engine.close()


def has_models_of_their_own(make):
    """Workers of one exchange may be asked about different models."""
    problem = random_problem()
    engine = open_engine(make(), problem)
    try:
        models = np.random.default_rng(0).normal(size=(problem.n_workers, problem.n_features))
        for kind, task in (("loss", LossTask(0, models[0])), ("gradient", GradientTask(1, models[0]))):
            replies = engine.exchange(Exchange(kind, task, np.array([0, 2, 3]), own={"w": models[[0, 2, 3]]}))
            assert (replies.workers.tolist(), replies.failures) == ([0, 2, 3], {})
            for worker, loss in zip(replies.workers, replies.losses, strict=True):
                assert abs(loss - problem.local_objectives[worker].value(models[worker])) < 1e-14
    finally:
        engine.close()


def keeps_what_tasks_go_on_from(make):
    """Each worker has its own slot, at its own version; another version is forgotten, and so is all after `open`."""
    problem = random_problem()
    engine, alone = open_engine(make(), problem), open_engine(Local(batched=False), problem)
    everyone = np.arange(problem.n_workers)

    def same_answers(number, versions, workers=everyone):
        task = LearnTask(number, np.full(problem.n_features, 0.1 * number), "learned", 0, "topk:3", 1.0)
        exchange = Exchange("learn", task, workers, own={"version": np.array(versions)})
        ours, theirs = (each.exchange(exchange) for each in (engine, alone))
        assert ours.messages.keys() == theirs.messages.keys()
        for worker, reply in theirs.messages.items():
            for name, value in vars(reply).items():
                np.testing.assert_allclose(getattr(ours.messages[worker], name), value, rtol=1e-9, atol=1e-13)
        assert {who: each.kind for who, each in ours.failures.items()} == {
            who: each.kind for who, each in theirs.failures.items()
        }
        return {who: each.kind for who, each in ours.failures.items()}

    try:
        assert same_answers(0, [0, 0, 0], everyone[:3]) == {}
        assert same_answers(1, [1, 1], everyone[:2]) == {}
        assert same_answers(2, [2, 1, 1, 0]) == {1: "forgot"}
        assert same_answers(3, [0, 2, 5, 1]) == {2: "forgot"}
        assert same_answers(4, [1, 3, 2, 2]) == {}
        open_engine(engine, problem)
        open_engine(alone, problem)
        assert same_answers(5, [2, 4, 0, 3]) == {0: "forgot", 1: "forgot", 3: "forgot"}
    finally:
        engine.close()


def learns(make):
    """A run whose workers keep what they have learned, and one whose workers take turns."""
    for method in OWN_METHODS:
        same_run(make, method=method, max_rounds=30)


def compresses(make):
    """Hessians that travel compressed, of everyone or of some, and draws at random that are the same everywhere."""
    for compressor in COMPRESSED:
        same_run(make, method=f"danl:hessian_compressor={compressor}", max_rounds=30)


def opens_again(make):
    """A method that makes the start opens the engine first, the run itself opens it again."""
    same_run(make, w0="fedavg:rounds=2")


def closes_twice(make):
    """Closing is safe whatever happened before."""
    engine = make()
    engine.close()
    open_engine(engine, random_problem())
    engine.close()
    engine.close()


CHECKS = (
    *(answers_the_task_it_was_given, answers_twice_alike, answers_mixed_exchanges, has_models_of_their_own),
    *(keeps_what_tasks_go_on_from, learns, compresses, opens_again, closes_twice),
)
