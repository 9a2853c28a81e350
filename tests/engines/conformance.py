"""What every engine must do, whatever carries its messages: each engine's tests run these on an engine of theirs.

`make()` gives an engine that has not been opened. The reference is `danl.engines.Local`.
"""

from __future__ import annotations

import numpy as np

import danl
from danl.objective.regions import Regions
from danl.protocol.messages import Exchange, GradientTask, LossTask
from tests.problems import random_problem

METHODS = ("danl", "danl-masked", "newton", "gd", "fedavg", "danl-paper:batch_size=4,hessian_batch=5")
POLICIES = ("coverage:psi=2", "random:keep=0.6")
SAME = (
    *("exchange", "kind", "active", "failed", "coverage", "min_coverage", "max_staleness", "min_trained"),
    *("bytes_up", "bytes_down", "refused"),
)
CLOSE = ("objective", "model_norm", "step_norm")


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


CHECKS = (answers_the_task_it_was_given, answers_twice_alike, opens_again, closes_twice)
