import numpy as np
import pytest

from danl.engines import Local
from danl.errors import InputError
from danl.objective.regions import Regions
from danl.policies import Promise, Random
from danl.protocol.messages import (
    CurvatureTask,
    GradientTask,
    HessianTask,
    LocalStepsTask,
    LossTask,
    SmoothnessTask,
    unpack,
)
from danl.run.solver import solve
from danl.worker.worker import Worker
from tests.problems import random_problem

W = np.random.default_rng(5).normal(size=7)


def worker(policy=None, seed=0, **shape):
    problem = random_problem(**shape)
    return Worker(1, problem.local_objectives[1], Regions.make(3, 7), policy, seed), problem.local_objectives[1]


def test_a_pruned_gradient_is_taken_at_the_pruned_model_and_cut_to_the_mask():
    subject, objective = worker()
    mask = np.array([True, False, True])  # regions of sizes 3, 2, 2
    kept = np.array([0, 1, 2, 5, 6])
    pruned = np.where(np.isin(np.arange(7), kept), W, 0.0)
    reply = subject.answer(GradientTask(3, W, mask=mask, submodel="pruned"))
    loss, gradient = objective.value_and_gradient(pruned)
    np.testing.assert_array_equal(reply.fragment, gradient[kept])
    np.testing.assert_array_equal(reply.mask, mask)
    assert (reply.loss, reply.worker, reply.exchange) == (loss, 1, 3)
    full = subject.answer(GradientTask(3, W, mask=mask, submodel="full"))
    np.testing.assert_array_equal(full.fragment, objective.value_and_gradient(W)[1][kept])


def test_hessian_loss_and_smoothness():
    subject, objective = worker()
    reply = subject.answer(HessianTask(0, W))
    np.testing.assert_allclose(unpack(reply.packed_hessian, 7), objective.hessian(W), atol=1e-15)
    np.testing.assert_array_equal(reply.gradient, objective.value_and_gradient(W)[1])
    assert subject.answer(LossTask(0, W)).loss == pytest.approx(objective.value(W), rel=1e-15)
    assert subject.answer(SmoothnessTask(0)).smoothness == objective.smoothness()


@pytest.mark.parametrize("batches", [{}, {"batch_size": 5, "hessian_batch": 6}], ids=["all rows", "batches"])
def test_a_piece_of_the_hessian_and_of_the_gradient_are_cut_from_the_whole(batches):
    subject, _ = worker()
    mask, kept = np.array([False, True, True]), np.array([3, 4, 5, 6])
    whole = subject.answer(HessianTask(2, W, **batches))
    reply = subject.answer(CurvatureTask(2, W, "full", mask=mask, first=4, last=11, **batches))
    np.testing.assert_allclose(reply.numbers, whole.packed_hessian[4:11], rtol=1e-14, atol=1e-16)
    np.testing.assert_array_equal(reply.gradient, whole.gradient[kept])
    np.testing.assert_array_equal(reply.mask, mask)
    assert (reply.loss, reply.worker, reply.exchange) == (whole.loss, 1, 2)
    rest = subject.answer(CurvatureTask(2, W, "full", mask=~mask & mask, first=11, **batches))
    np.testing.assert_allclose(rest.numbers, whole.packed_hessian[11:], rtol=1e-14, atol=1e-16)
    assert rest.gradient.shape == (0,)


def test_local_steps_descend():
    subject, objective = worker()
    w = W
    for _ in range(3):
        w = w - 0.1 * objective.value_and_gradient(w)[1]
    reply = subject.answer(LocalStepsTask(0, W, 3, 0.1))
    np.testing.assert_array_equal(reply.w, w)
    assert reply.loss == objective.value_and_gradient(W)[0]


TASKS = [
    GradientTask(4, W, batch_size=5),
    HessianTask(4, W, batch_size=5, hessian_batch=6),
    LocalStepsTask(4, W, 3, 0.1, batch_size=5),
    GradientTask(4, W, choose=True, round=4),
]


@pytest.mark.parametrize("task", TASKS, ids=lambda task: type(task).__name__)
def test_a_worker_that_restarts_answers_the_same(task):
    first, _ = worker(Random(0.5))
    again, _ = worker(Random(0.5))
    first.answer(GradientTask(1, W, batch_size=2))  # what it did before does not matter
    a, b = first.answer(task), again.answer(task)
    for name in a.__dataclass_fields__:
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))


def test_batches_differ_between_exchanges_seeds_and_purposes():
    subject, objective = worker()
    fragments = [subject.answer(GradientTask(k, W, batch_size=5)).fragment for k in range(4)]
    fragments.append(worker(seed=1)[0].answer(GradientTask(0, W, batch_size=5)).fragment)
    fragments.append(objective.value_and_gradient(W)[1])
    for i, a in enumerate(fragments):
        assert all(np.abs(a - b).max() > 1e-6 for b in fragments[:i])


def test_a_batch_as_large_as_the_shard_is_the_shard():
    subject, objective = worker()
    reply = subject.answer(GradientTask(0, W, batch_size=14))
    np.testing.assert_array_equal(reply.fragment, objective.value_and_gradient(W)[1])


class Chosen:
    """A policy of one's own that returns whatever it was given."""

    side = "worker"

    def __init__(self, mask):
        self._mask = mask

    def check(self, setting):
        pass

    def promise(self, setting):
        return Promise()

    def mask(self, w, worker, number, rng, regions):
        return self._mask


@pytest.mark.parametrize(
    ("mask", "returned"),
    [
        (np.array([2, 0, 1]), r"int64 of shape \(3,\)"),  # region numbers are no mask
        (np.array([1.0, 0.0, 1.0]), r"float64 of shape \(3,\)"),
        ([1, 0, 1], r"int64 of shape \(3,\)"),
        (np.ones(4, dtype=bool), r"bool of shape \(4,\)"),
        (None, r"object of shape \(\)"),
    ],
    ids=str,
)
def test_a_mask_that_is_none_is_refused(mask, returned):
    said = rf"^Chosen\.mask for worker 1 in round 4 returned {returned}: must be booleans of shape \(3,\)"
    with pytest.raises(InputError, match=said):
        worker(Chosen(mask))[0].answer(GradientTask(4, W, choose=True, round=4))
    for method in ("danl:masks=always", "danl-masked:batch_size=5"):  # all workers together, and one by one
        with pytest.raises(InputError, match=r"^Chosen\.mask for worker 0 in round 1 returned "):
            solve(random_problem(), regions=3, method=method, policy=Chosen(mask), engine=Local())


def test_a_list_of_booleans_is_a_mask():
    reply = worker(Chosen([True, False, True]))[0].answer(GradientTask(4, W, choose=True, round=4))
    np.testing.assert_array_equal(reply.mask, [True, False, True])
