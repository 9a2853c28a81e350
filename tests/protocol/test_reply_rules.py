"""What breaks a rule is kept out, its worker is named, and the run ends where the others lead."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import danl
from danl.data import Shard
from danl.engines import Local
from danl.errors import InputError
from danl.objective.problem import Problem
from danl.objective.regions import Regions
from danl.protocol.guards import Guards
from danl.protocol.messages import (
    GradientReply,
    GradientTask,
    HessianReply,
    HessianTask,
    LossReply,
    LossTask,
    ModelReply,
    SmoothnessReply,
    SmoothnessTask,
)
from danl.protocol.replies import ReplyRules
from tests.problems import random_problem, random_shards
from tests.protocol.validated import fault, validated

SIZES = (9, 14, 5, 12, 11)
BAD = 2


def problem_of(*, without=None, loss="logistic", targets="binary"):
    shards = [shard for i, shard in enumerate(random_shards(sizes=SIZES, targets=targets)) if i != without]
    return Problem(shards, loss=loss, alpha=0.1)


class Messages(Local):
    """The local engine with messages that are changed before they are stacked."""

    def __init__(self):
        super().__init__(batched=False)

    def _one_by_one(self, exchange, deadline):
        return self.changed(exchange.task.exchange, super()._one_by_one(exchange, deadline))


class Corrupted(Messages):
    """One worker's replies are changed from some exchange on."""

    def __init__(self, change, first=0):
        super().__init__()
        self.change, self.first, self.asked = change, first, []

    def changed(self, number, messages):
        if BAD not in messages:
            return messages
        self.asked.append(number)
        return messages if number < self.first else messages | {BAD: self.change(messages[BAD])}


def vector(reply):
    return "gradient" if isinstance(reply, HessianReply) else "fragment"


def on_vectors(change):
    """Change the gradient of a reply that has one."""

    def changed(reply):
        if isinstance(reply, LossReply | SmoothnessReply):
            return reply
        return replace(reply, **{vector(reply): change(getattr(reply, vector(reply)))})

    return changed


def on_hessians(change):
    def changed(reply):
        return replace(reply, packed_hessian=change(reply.packed_hessian)) if isinstance(reply, HessianReply) else reply

    return changed


def at(position, value):
    def change(array):
        array = array.copy()
        array[position] = value
        return array

    return change


def indefinite(packed):
    """Positive entries on the diagonal and small minors, and still a negative direction: 1 off the diagonal of 1.2."""
    d = 7
    matrix = 1.2 * np.eye(d) - np.ones((d, d)) * 0.9
    matrix[np.diag_indices(d)] = 1.2
    return matrix[np.triu_indices(d)]


FAULTS = {
    "nan in the gradient": (on_vectors(at(0, np.nan)), "its gradient is not finite"),
    "infinite gradient": (on_vectors(at(0, np.inf)), "its gradient is not finite"),
    "short gradient": (on_vectors(lambda g: g[:-1]), "its gradient has shape"),
    "empty gradient": (on_vectors(lambda g: g[:0]), "its gradient has shape (0,)"),
    "float32 gradient": (on_vectors(lambda g: g.astype(np.float32)), "its gradient is float32"),
    "objects for a gradient": (on_vectors(lambda g: g.astype(object)), "its gradient is object"),
    "text for a gradient": (on_vectors(lambda g: "gradient"), "its gradient is str"),
    "a matrix for a gradient": (on_vectors(lambda g: g[None]), "its gradient has shape (1,"),
    "nan in the Hessian": (on_hessians(at(3, np.nan)), "its Hessian is not finite"),
    "the whole Hessian": (on_hessians(lambda h: np.ones((7, 7))), "its Hessian has shape (7, 7), not (28,)"),
    "negative diagonal": (on_hessians(at(0, -1.0)), "entry 0 of the diagonal is below the penalty"),
    "less than the penalty": (on_hessians(at(0, 0.05)), "entry 0 of the diagonal is below the penalty"),
    "large off the diagonal": (on_hessians(at(1, 50.0)), "larger than the diagonal allows"),
    "indefinite": (on_hessians(indefinite), "its Hessian is indefinite"),
    "nan loss": (lambda reply: replace(reply, loss=np.nan), "its loss is nan"),
    "infinite loss": (lambda reply: replace(reply, loss=np.inf), "its loss is inf"),
    "text for a loss": (lambda reply: replace(reply, loss="low"), "its loss is str, not a number"),
    "another kind of reply": (
        lambda reply: SmoothnessReply(BAD, reply.exchange, 1.0, np.ones(4)),
        "answered with SmoothnessReply",
    ),
    "no reply of danl": (lambda reply: replace_class(reply), "answered with Odd"),
    "in another's name": (lambda reply: replace(reply, worker=1), "answered in the name of worker '1'"),
}


class Odd:
    def __init__(self, exchange):
        self.exchange = exchange


def replace_class(reply):
    return Odd(reply.exchange)


def settle(problem, **arguments):
    return danl.solve(problem, regions=3, policy="coverage:psi=2", max_rounds=60, tol=1e-11, **arguments)


@pytest.mark.parametrize("first", [0, 1, 3])
@pytest.mark.parametrize("name", FAULTS)
def test_an_offender_is_quarantined_named_and_the_others_finish(name, first):
    change, said = FAULTS[name]
    engine = Corrupted(change, first)
    result = settle(problem_of(), engine=engine)
    assert result.status == "converged"
    np.testing.assert_allclose(result.w, settle(problem_of(without=BAD)).w, atol=1e-8)
    failures = [failure for failure in result.failures if failure.worker == BAD]
    assert [failure.kind for failure in failures] == ["invalid"]
    assert said in failures[0].detail
    assert result.notes[0].startswith(f"worker {BAD} was quarantined in exchange {engine.asked[-1]}: ")
    assert said in result.notes[0]
    assert "the 4 workers that are left" in result.notes[-1]


@pytest.mark.parametrize("offset", [-1, 1, 1000])
def test_replies_for_another_exchange_are_dropped_and_counted(offset):
    engine = Corrupted(lambda reply: replace(reply, exchange=reply.exchange + offset))
    result = settle(problem_of(), engine=engine)
    assert result.status == "converged"
    assert result.dropped == len(engine.asked) > 1  # it is asked again: a late reply may be honest
    np.testing.assert_allclose(result.w, settle(problem_of(without=BAD)).w, atol=1e-8)
    assert {failure.kind for failure in result.failures} == {"timeout"}
    assert result.summary()["dropped_replies"] == result.dropped


def test_a_worker_that_was_late_once_is_taken_in_again():
    late = iter([True])
    engine = Corrupted(lambda reply: replace(reply, exchange=99) if next(late, False) else reply, first=2)
    result = settle(problem_of(), engine=engine)
    assert (result.status, result.dropped) == ("converged", 1)
    np.testing.assert_allclose(result.w, settle(problem_of()).w, atol=1e-8)


def test_replies_nobody_asked_for_are_dropped():
    class Eager(Messages):
        def changed(self, number, messages):
            return messages | {17: LossReply(17, number, 0.0)}

    result = settle(problem_of(), engine=Eager())
    assert result.status == "converged"
    assert result.dropped == len(result.history)


def test_another_mask_than_the_one_planned():
    def change(reply):
        if isinstance(reply, GradientReply) and reply.mask is not None:
            return replace(reply, mask=~reply.mask, fragment=np.zeros(7 - len(reply.fragment)))
        return reply

    result = settle(problem_of(), method="danl:masks=always", engine=Corrupted(change))
    assert result.status == "converged"
    (failure,) = result.failures
    assert (failure.worker, failure.kind) == (BAD, "invalid")
    assert "another mask than the one planned" in failure.detail


def test_most_workers_broken_is_a_lost_quorum_and_no_crash():
    class Broken(Messages):
        def changed(self, number, messages):
            return {w: replace(r, loss=np.nan) if w else r for w, r in messages.items()}

    assert settle(problem_of(), engine=Broken()).status == "quorum_lost"


def test_a_loss_that_overflows_is_no_fault():
    """Poisson: at a wild trial an honest worker's loss is infinite, and the trial is refused, not the worker."""
    losses = []

    class Heard(Local):
        def exchange(self, exchange, *, deadline=None):
            replies = super().exchange(exchange, deadline=deadline)
            losses.extend(replies.losses)
            return replies

    counts = [np.array([1.0, 2.0, 3.0, k]) for k in range(4)]
    problem = danl.Problem([Shard.of(np.ones((4, 1)), y) for y in counts], loss="poisson", alpha=1e-9)
    result = danl.solve(problem, w0=np.array([-30.0]), engine=Heard())
    assert np.isinf(losses).any()
    assert result.history.column("refused").any()
    assert (result.status, result.failures, result.notes) == ("converged", (), ())
    np.testing.assert_allclose(result.w, np.log(np.mean(counts)), rtol=1e-6)


# Rules, one by one.


def rules(**options):
    return ReplyRules(Regions.make(2, 4), np.full(3, 0.1), np.ones(4, dtype=bool), overflows=False, **options)


TASKS = {
    HessianTask: HessianTask(5, np.zeros(4)),
    GradientTask: GradientTask(5, np.zeros(4), np.array([True, False])),
    LossTask: LossTask(5, np.zeros(4)),
    SmoothnessTask: SmoothnessTask(5),
}


def good(task):
    match task:
        case HessianTask():
            return HessianReply(0, 5, np.ones(4), np.eye(4)[np.triu_indices(4)], 0.3)
        case GradientTask():
            return GradientReply(0, 5, np.array([True, False]), np.ones(2), 0.3)
        case LossTask():
            return LossReply(0, 5, 0.3)
        case _:
            return SmoothnessReply(0, 5, 2.0, np.ones(4))


@pytest.mark.parametrize("task", TASKS.values(), ids=lambda task: type(task).__name__)
def test_a_good_reply_passes(task):
    assert fault(rules(), 0, task, good(task)) is None


def test_a_chosen_mask_must_be_a_mask():
    task = GradientTask(5, np.zeros(4), choose=True, round=1)
    reply = GradientReply(0, 5, np.array([True, True]), np.ones(4), 0.3)
    assert fault(rules(), 0, task, reply) is None
    for mask in (None, np.array([1, 1]), np.array([True]), "both"):
        assert "its mask is not 2 booleans" in fault(rules(), 0, task, replace(reply, mask=mask))


def test_models_and_constants():
    from danl.protocol.messages import LocalStepsTask

    task = LocalStepsTask(5, np.zeros(4), 3, 0.1)
    assert fault(rules(), 0, task, ModelReply(0, 5, np.ones(4), 0.3)) is None
    assert "its model is not finite" in fault(rules(), 0, task, ModelReply(0, 5, np.full(4, np.nan), 0.3))
    for constant in (0.0, -1.0, np.nan, "large", None):
        assert "its smoothness is" in fault(rules(), 0, SmoothnessTask(5), SmoothnessReply(0, 5, constant, np.ones(4)))


def test_a_model_that_blew_up_is_not_held_against_the_workers():
    task = replace(TASKS[HessianTask], w=np.full(4, 1e200))
    reply = HessianReply(0, 5, np.full(4, np.nan), np.full(10, np.nan), np.nan)
    assert fault(rules(), 0, task, reply) is None


class Plain:
    """Stands for whatever a hostile worker can think of."""


values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=5),
    st.just(Plain()),
    st.lists(st.floats(), max_size=5),
    st.builds(lambda n, v: np.full(n, v), st.integers(0, 12), st.floats()),
    st.builds(lambda n: np.zeros(n, dtype=object), st.integers(0, 12)),
    st.builds(lambda n: np.ones((n, n)), st.integers(0, 5)),
    st.builds(lambda n: np.ones(n, dtype=bool), st.integers(0, 5)),
)


@pytest.mark.slow
@settings(max_examples=1000, deadline=None)
@given(kind=st.sampled_from(list(TASKS)), data=st.data())
def test_a_mutated_reply_is_faulted_or_as_good_as_any(kind, data):
    """Whatever the fields are: no crash, and what passes has the shape, type and finiteness that methods rely on."""
    task = TASKS[kind]
    reply = good(task)
    for name in data.draw(st.lists(st.sampled_from(list(vars(reply))), min_size=1, max_size=3)):
        reply = replace(reply, **{name: data.draw(values)})
    replies = validated(rules(), task, {0: reply})
    if len(replies.workers):
        sent = [replies.gradients, replies.curvature_sum, *replies.values.values()]
        assert isinstance(task, SmoothnessTask) or np.isfinite(replies.losses).all()
        assert all(np.isfinite(part).all() for part in sent if part is not None)
    assert len(replies.workers) + len(replies.failures) == 1


# Guards.


def scaled_by(share):
    return on_vectors(lambda gradient: share * gradient)


def test_a_gradient_far_above_the_median_is_clipped():
    task = TASKS[GradientTask]
    messages = {i: replace(good(task), worker=i) for i in range(5)}
    messages[3] = replace(messages[3], fragment=np.full(2, 100.0))
    clipping = ReplyRules(
        Regions.make(2, 4), np.full(5, 0.1), np.ones(4, dtype=bool), overflows=False, guards=Guards(clip=4.0)
    )
    replies = validated(clipping, task, messages)
    np.testing.assert_allclose(replies.gradients[3, :2], 4.0)
    for other in (0, 1, 2, 4):
        np.testing.assert_array_equal(replies.gradients[other, :2], np.ones(2))


def test_clipping_limits_what_one_worker_can_do():
    attacked = Corrupted(scaled_by(-1000.0))
    free = danl.solve(problem_of(), method="gd", max_rounds=50, engine=attacked)
    held = danl.solve(problem_of(), method="gd", max_rounds=50, engine=attacked, guards=Guards(clip=2.0))
    honest = danl.solve(problem_of(), method="gd", max_rounds=50)
    distance = [np.linalg.norm(run.w - honest.w) for run in (free, held)]
    assert distance[1] < 0.1 * distance[0]


def test_wrong_guards():
    with pytest.raises(InputError, match=r"clip=0.5: must be a number >= 1, or infinity"):
        Guards(clip=0.5)


def test_infinite_losses_of_a_minority_can_be_dropped():
    problem = problem_of(loss="poisson", targets="count")
    engine = Corrupted(lambda reply: replace(reply, loss=np.inf))
    result = settle(problem, engine=engine, guards=Guards(drop_infinite=True))
    assert result.status == "converged"
    assert "its loss is infinite and most others' is not" in result.notes[0]


def test_the_replies_of_the_default_problem_pass():
    assert not danl.solve(random_problem(), method="danl-masked", max_rounds=5).failures
