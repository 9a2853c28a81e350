"""Tasks that bring their own work: slots that begin, go on and are lost, what they weigh, and what is no answer."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import pytest

import danl.tasks
from danl.engines import Local
from danl.objective.regions import Regions
from danl.protocol.message_bytes import bytes_down, bytes_up
from danl.protocol.messages import Array, Exchange, Failure, GradientTask, HessianTask, LossTask, Mask, Reply
from danl.protocol.own_tasks import OWN_TASKS, OwnTask, StatefulTask, Workplace, array_fields, vectors_fault
from danl.protocol.replies import ReplyRules
from danl.protocol.reply_form import ReplyForm
from danl.protocol.streams import GRADIENT_BATCH
from danl.protocol.wire import decode, encode, most_bytes
from danl.tasks import LearnReply, LearnTask
from danl.worker.worker import Worker
from tests.problems import random_problem

PROBLEM = random_problem()
D, N = PROBLEM.n_features, PROBLEM.n_workers
REGIONS = Regions.make(3, D)
FORM, RULES = ReplyForm(REGIONS, PROBLEM.layout), ReplyRules.of(PROBLEM, REGIONS)
W = np.linspace(-1, 1, D)


@dataclass(frozen=True)
class SumReply(Reply):
    """The sum of the gradients that this worker was asked for, and how many they are."""

    total: Array
    parts: Mask
    count: int
    share: float


@dataclass(frozen=True)
class SumTask(StatefulTask):
    """Add the gradient at w to those that were asked for before."""

    name, answer = "test-sum", SumReply

    shift: Array | None = None

    def work_with(self, place: Workplace, kept: Mapping[str, Array] | None) -> tuple[SumReply, Mapping[str, Array]]:
        total = place.objective.value_and_gradient(self.w)[1] + (0.0 if kept is None else kept["total"])
        total = total if self.shift is None else total + self.shift
        reply = SumReply(place.worker, self.exchange, total, total > 0, int(self.version) + 1, 0.5)
        return reply, {"total": total}

    def fault(self, reply: Any, d: int) -> str | None:
        return vectors_fault(reply, {"total": d}) or vectors_fault(reply, {"parts": d}, np.bool_)

    def work_rows(self, rows: int, entries_per_row: float) -> float:
        return 7.0 * rows


def worker(index=0, seed=0):
    return Worker(index, PROBLEM.local_objectives[index], REGIONS, None, seed)


def ask(version, w=W, exchange=0, slot="sum"):
    return SumTask(exchange, w, slot, version)


def gradient(w=W, index=0):
    return PROBLEM.local_objectives[index].value_and_gradient(w)[1]


# --- slots ---


def test_a_slot_begins_and_goes_on():
    one = worker()
    first, second = one.answer(ask(0)), one.answer(ask(1, 2 * W, 1))
    np.testing.assert_array_equal(first.total, gradient())
    np.testing.assert_array_equal(second.total, gradient(2 * W) + gradient())
    assert (first.count, second.count, second.exchange) == (1, 2, 1)
    assert one.slots.keys() == {"sum"}
    assert one.slots["sum"].version == 2
    np.testing.assert_array_equal(one.slots["sum"].arrays["total"], second.total)


@pytest.mark.parametrize(("version", "has"), [(1, "version 2"), (3, "version 2"), (9, "version 2")])
def test_another_version_is_forgotten_and_the_slot_stays(version, has):
    one = worker(2)
    one.answer(ask(0))
    one.answer(ask(1))
    before = one.slots["sum"]
    failure = one.answer(ask(version))
    assert failure == Failure(2, "forgot", f"keeps {has} as sum, and version {version} is asked for")
    assert one.slots == {"sum": before}
    assert one.answer(ask(2)).count == 3  # it goes on as if nothing had been asked


def test_a_worker_that_was_started_anew_has_nothing():
    assert worker(1).answer(ask(4)) == Failure(1, "forgot", "keeps nothing as sum, and version 4 is asked for")


def test_version_0_begins_anew_whatever_there_was():
    one = worker()
    for version in (0, 1, 2, 0):
        reply = one.answer(ask(version))
    np.testing.assert_array_equal(reply.total, gradient())
    assert one.slots["sum"].version == 1


def test_slots_have_names():
    one = worker()
    one.answer(ask(0))
    one.answer(ask(0, 3 * W, slot="other"))
    np.testing.assert_array_equal(one.answer(ask(1)).total, 2 * gradient())
    np.testing.assert_array_equal(one.slots["other"].arrays["total"], gradient(3 * W))


def test_workers_share_no_slots():
    one, other = worker(), worker()
    one.answer(ask(0))
    assert other.slots == {}


def test_a_task_that_raises_leaves_the_slot_as_it_was():
    class Broken(SumTask):
        def work_with(self, place, kept):
            raise ZeroDivisionError

    one = worker()
    one.answer(ask(0))
    before = one.slots["sum"]
    with pytest.raises(ZeroDivisionError):
        one.answer(Broken(1, W, "sum", 1))
    assert one.slots == {"sum": before}


# --- where it is worked ---


def test_rows_are_a_function_of_seed_purpose_and_key():
    place = Workplace(1, PROBLEM.local_objectives[1], REGIONS, 5)
    assert place.rows(GRADIENT_BATCH, None, 3) is None
    drawn = place.rows(GRADIENT_BATCH, 200, 3)
    assert set(drawn.tolist()) == set(range(place.objective.n_rows))  # with replacement: more than there are
    np.testing.assert_array_equal(drawn, place.rows(GRADIENT_BATCH, 200, 3))
    others = [place.rows(GRADIENT_BATCH, 200, 4), place.rows(GRADIENT_BATCH + 1, 200, 3)]
    others += [replace(place, seed=6).rows(GRADIENT_BATCH, 200, 3)]
    assert all((each != drawn).any() for each in others)


def test_a_class_without_a_name_is_no_task():
    class Nameless(SumTask):
        pass

    assert OWN_TASKS["test-sum"] is SumTask
    assert OWN_TASKS["learn"] is LearnTask


# --- replies ---


def exchange_of(versions, number=0, **own):
    return Exchange("test-sum", ask(0, exchange=number), np.arange(N), own={"version": np.array(versions), **own})


def test_replies_come_as_they_are_with_failures_beside_them():
    workers = [worker(index) for index in range(N)]
    workers[1].answer(ask(0))
    asked = exchange_of([0, 1, 1, 0])
    answers = {index: workers[index].answer(task) for index, task in asked.tasks().items()}
    replies = RULES.validate_replies(asked, FORM.stack(asked, answers), PROBLEM.weights)
    assert replies.workers.tolist() == [0, 1, 3]
    assert replies.gradients is None
    assert np.isnan(replies.losses).all()  # nobody was asked for one, and nobody is blamed
    assert {who: reply.count for who, reply in replies.messages.items()} == {0: 1, 1: 2, 3: 1}
    assert (replies.failures[2].kind, set(replies.absent)) == ("forgot", {2})


def test_bytes_are_counted():
    asked = exchange_of([0] * N)
    answers = {index: worker(index).answer(task) for index, task in asked.tasks().items()}
    replies = FORM.stack(asked, answers)
    assert bytes_down(asked, REGIONS).tolist() == [8 * D] * N
    assert bytes_up(asked, replies, REGIONS).tolist() == [8 * D + 1 + 8] * N  # total, a mask of 7 bits, share
    shifted = exchange_of([0] * N, shift=np.ones((N, D)))
    assert bytes_down(shifted, REGIONS).tolist() == [16 * D] * N
    assert bytes_down(exchange_of([0] * N, w=np.ones((N, D))), REGIONS).tolist() == [8 * D] * N


def test_what_each_worker_has_of_its_own_is_in_its_task():
    models = np.arange(N)[:, None] * W
    asked = exchange_of(range(N), w=models)
    tasks = asked.without([1]).tasks()
    assert list(tasks) == [0, 2, 3]
    for who, task in tasks.items():
        assert task.version == who
        np.testing.assert_array_equal(task.w, models[who])


@pytest.mark.parametrize("batched", [True, False])
def test_models_of_their_own_for_tasks_that_are_answered_together(batched):
    models = np.arange(1, N + 1)[:, None] * W
    engine = Local(batched=batched)
    engine.open(PROBLEM, regions=REGIONS, policy=None, seed=0)
    everyone = np.arange(N)
    losses = engine.exchange(Exchange("loss", LossTask(0, W), everyone, own={"w": models})).losses
    gradients = engine.exchange(Exchange("gradient", GradientTask(1, W), everyone, own={"w": models})).gradients
    hessians = engine.exchange(Exchange("hessian", HessianTask(2, W), everyone, own={"w": models}))
    for who, (objective, w) in enumerate(zip(PROBLEM.local_objectives, models, strict=True)):
        loss, expected = objective.value_and_gradient(w)
        assert losses[who] == pytest.approx(loss, rel=1e-14)
        np.testing.assert_allclose(gradients[who], expected, rtol=1e-12)
        np.testing.assert_allclose(hessians.curvatures[who], objective.hessian(w)[np.triu_indices(D)], rtol=1e-12)
    engine.close()


# --- what is no answer ---


def learned(version=0):
    one = worker()
    for number in range(version + 1):
        task = LearnTask(number, W + number, "learned", number, "topk:3", 1.0)
        reply = one.answer(task)
    return task, reply


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({}, None),
        ({"total": np.zeros(D + 1)}, f"its total is not an array of {D} numbers"),
        ({"total": np.zeros(D, dtype=np.float32)}, f"its total is not an array of {D} numbers"),
        ({"total": [0.0] * D}, f"its total is not an array of {D} numbers"),
        ({"parts": np.zeros(D)}, f"its parts is not an array of {D} numbers"),
        ({"worker": 1}, "answered in the name of worker '1'"),
    ],
)
def test_faults(change, fault):
    task = ask(0)
    assert FORM.fault(0, task, replace(worker().answer(task), **change)) == fault


def test_another_reply_is_a_fault():
    _, other = learned()
    assert FORM.fault(0, ask(0), other) == "answered with LearnReply where SumReply was asked for"


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"version": 1}, "it answered from another version than the one asked for"),
        ({"gradient": np.zeros(D - 1)}, f"its gradient is not an array of {D} numbers"),
        ({"error": "none"}, "its error or its bound is no number"),
        ({"loss": None}, "its loss is NoneType, not a number"),
    ],
)
def test_faults_of_a_learned_hessian(change, fault):
    task, reply = learned()
    assert FORM.fault(0, task, reply) is None
    assert FORM.fault(0, task, replace(reply, **change)) == fault


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("field", ["gradient", "numbers", "loss"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_numbers_that_are_not_finite_are_invalid(version, field, value):
    task, reply = learned(version)
    asked = Exchange("learn", task, np.array([0]))
    bad = value if field == "loss" else np.where(np.arange(getattr(reply, field).size) == 1, value, 0.0)
    spoilt = replace(reply, **{field: bad})
    replies = RULES.validate_replies(asked, FORM.stack(asked, {0: spoilt}), PROBLEM.weights)
    assert not replies.messages
    assert replies.failures[0].kind == "invalid"
    assert replies.failures[0].detail.startswith("its ")


def test_at_a_model_of_a_workers_own_that_blew_up_nobody_is_blamed():
    models = np.tile(W, (N, 1))
    models[2] *= 1e200
    asked = exchange_of([0] * N, w=models)
    answers = {index: worker(index).answer(task) for index, task in asked.tasks().items()}
    answers[2] = replace(answers[2], total=np.full(D, np.inf))
    assert not RULES.validate_replies(asked, FORM.stack(asked, answers), PROBLEM.weights).failures
    asked = exchange_of([0] * N)
    assert set(RULES.validate_replies(asked, FORM.stack(asked, answers), PROBLEM.weights).failures) == {2}


# --- on the wire ---


def same(left, right):
    assert type(left) is type(right)
    for part in fields(left):
        one, other = getattr(left, part.name), getattr(right, part.name)
        if isinstance(one, np.ndarray):
            assert (one.dtype, one.shape) == (other.dtype, other.shape)
            np.testing.assert_array_equal(one, other)
        else:
            assert one == other


@pytest.mark.parametrize("version", [0, 1])
def test_what_was_sent_arrives(version):
    limit = most_bytes(D, REGIONS.n_regions)
    for message in (*learned(version), ask(version), replace(ask(version), shift=W), worker().answer(ask(0))):
        same(decode(encode(message), most_bytes=limit), message)
    failure = worker().answer(ask(3))
    assert decode(encode(failure), most_bytes=limit) == failure


def test_a_version_out_of_an_array_arrives_as_a_number():
    (_, task, *_) = exchange_of([0, 3, 0, 0]).tasks().values()
    arrived = decode(encode(task), most_bytes=most_bytes(D, 3))
    assert (arrived.version, type(arrived.version)) == (3, int)


# --- danl's own ---

DANLS = {name: task for name, task in OWN_TASKS.items() if task.__module__.startswith("danl.")}


@pytest.mark.parametrize("name", DANLS)
def test_every_task_of_danl_says_what_it_must(name):
    """What sites' rules, the wire and the costs look for."""
    task = DANLS[name]
    assert issubclass(task, OwnTask)
    assert name.replace("-", "_").isidentifier()
    assert name.islower()
    worked = "work_with" if issubclass(task, StatefulTask) else "work"
    for part in (worked, "fault", "work_rows"):
        assert getattr(task, part) is not getattr(StatefulTask, part)
    assert task.__name__ in danl.tasks.__all__
    assert task.answer.__name__ in danl.tasks.__all__
    batches = {part.name for part in fields(task) if "batch" in part.name}
    assert batches <= {"batch_size", "hessian_batch"}  # a site's rules look at these


def test_arrays_of_a_message_by_name():
    task, reply = learned(1)
    assert set(array_fields(task)) == {"w"}
    assert set(array_fields(reply)) >= {"gradient", "numbers", "places"}
    assert array_fields(Failure(0, "forgot")) == {}
    assert isinstance(reply, LearnReply)


# --- cells ---


@pytest.mark.parametrize(
    ("counts", "told"),
    [
        ([5, 0, 7], [5, 0, 7]),
        ([5, 2, 7, 9], [-1, -1, 7, 9]),  # 2 alone would be the rest of a total
        ([1, 1, 7, 9], [-1, -1, -1, 9]),  # 2 together would be, too
        ([1, 2, 7, 9], [-1, -1, 7, 9]),
        ([2, 0, 0], [-1, 0, 0]),
    ],
)
def test_small_cells_are_numbers_that_no_count_is(counts, told):
    place = Workplace(0, PROBLEM.local_objectives[0], REGIONS, 0, min_cell=3)
    assert place.tellable(np.array(counts, dtype=float)).tolist() == told
    assert replace(place, min_cell=1).tellable(np.array(counts, dtype=float)).tolist() == counts
