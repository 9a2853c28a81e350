"""Replies in one form: what the messages of an exchange become, and what they weigh."""

import numpy as np
import pytest

from danl.errors import InputError
from danl.objective.layout import Layout
from danl.objective.regions import Regions
from danl.protocol.message_bytes import bytes_down, bytes_up
from danl.protocol.messages import (
    CurvatureReply,
    CurvatureTask,
    Exchange,
    Failure,
    GradientReply,
    GradientTask,
    HessianReply,
    HessianTask,
    LocalStepsTask,
    LossReply,
    LossTask,
    ModelReply,
    MomentsReply,
    MomentsTask,
    ScoresReply,
    ScoresTask,
    SmoothnessReply,
    SmoothnessTask,
)
from danl.protocol.replies import Replies, ReplyRules
from danl.protocol.reply_form import ReplyForm

D = 123
W, PACKED = np.zeros(D), np.zeros(D * (D + 1) // 2)
REGIONS = Regions.make([30, 3, 10, 10, 10, 10, 10, 20, 20], D)
MASK = np.arange(9) == 0  # 30 coordinates, and two bytes for nine regions
FORM = ReplyForm(REGIONS, Layout(D, 1, False))


def stacked(task, message, masks=None, idle=None):
    exchange = Exchange("x", task, np.array([2]), masks, idle)
    replies = FORM.stack(exchange, {2: message})
    assert (replies.failures, replies.workers.tolist()) == ({}, [2])
    return exchange, replies


@pytest.mark.parametrize(
    ("task", "message", "size"),
    [
        (HessianTask(0, W), HessianReply(2, 0, W, PACKED, 0.0), 8 * (D + D * (D + 1) // 2 + 1)),
        (HessianTask(0, W), HessianReply(2, 0, W, None, 0.0), 8 * (D + D * (D + 1) // 2 + 1)),
        (CurvatureTask(0, W, "diag"), CurvatureReply(2, 0, W, W, 0.0), 8 * (2 * D + 1)),
        (
            CurvatureTask(0, W, "diag", dtype="float32"),
            CurvatureReply(2, 0, W, W.astype("f4"), 0.0),
            8 * (D + 1) + 4 * D,
        ),
        (GradientTask(0, W), GradientReply(2, 0, None, W, 0.0), 8 * (D + 1)),
        (GradientTask(0, W, mask=MASK), GradientReply(2, 0, MASK, np.zeros(30), 0.0), 8 * 31 + 2),
        (GradientTask(0, W, choose=True), GradientReply(2, 0, ~MASK & MASK, np.zeros(0), 0.0), 8 + 2),
        (LossTask(0, W), LossReply(2, 0, 0.0), 8),
        (LocalStepsTask(0, W, 5, 0.1), ModelReply(2, 0, W, 0.0), 8 * (D + 1)),
        (SmoothnessTask(0), SmoothnessReply(2, 0, 1.0, W), 8 * (D + 1)),
        (ScoresTask(0, W), ScoresReply(2, 0, PACKED), 8 * PACKED.size),
        (MomentsTask(0), MomentsReply(2, 0, W, W, np.zeros(1)), 8 * (2 * D + 1)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_bytes_of_every_reply(task, message, size):
    exchange, replies = stacked(task, message)
    assert bytes_up(exchange, replies, REGIONS).tolist() == [size]


def test_an_idle_worker_is_asked_for_its_loss_and_sends_that():
    masks = np.array([MASK, np.zeros(9, dtype=bool)])
    exchange = Exchange("gradient", GradientTask(4, W), np.array([1, 5]), masks, LossTask(4, W))
    messages = {5: LossReply(5, 4, 0.5), 1: GradientReply(1, 4, MASK, np.arange(30.0), 0.25)}
    replies = FORM.stack(exchange, messages)
    assert (replies.workers.tolist(), replies.senders.tolist(), replies.losses.tolist()) == ([1, 5], [1], [0.25, 0.5])
    np.testing.assert_array_equal(replies.gradients[0, :30], np.arange(30.0))
    np.testing.assert_array_equal(replies.masks, masks)
    assert bytes_up(exchange, replies, REGIONS).tolist() == [8 * 31 + 2, 8]
    assert bytes_down(exchange, REGIONS).tolist() == [8 * D + 2, 8 * D]
    assert replies.trained(6, 9).sum() == 1
    assert replies.trained(6, 9)[1, 0]


def test_rows_leave_together():
    """A worker that becomes a failure takes its loss, its gradient, its mask and its values along."""
    who, masks = np.array([0, 3, 4]), np.eye(3, dtype=bool)
    values = {"w": np.arange(6.0).reshape(3, 2)}
    replies = Replies(who, np.arange(3.0), np.arange(6.0).reshape(3, 2), masks=masks, values=values)
    left = replies.without({3: Failure(3, "invalid", "why")})
    assert (left.workers.tolist(), left.senders.tolist(), left.losses.tolist()) == ([0, 4], [0, 4], [0.0, 2.0])
    for rows in (left.gradients, left.values["w"]):
        np.testing.assert_array_equal(rows, [[0.0, 1.0], [4.0, 5.0]])
    np.testing.assert_array_equal(left.masks, masks[[0, 2]])
    assert left.failures == {3: Failure(3, "invalid", "why")}
    assert replies.without({}) is replies


def test_messages_in_any_order_are_stacked_by_worker():
    exchange = Exchange("loss", LossTask(1, W), np.arange(4))
    answers = {who: LossReply(who, 1, float(who)) for who in (3, 0, 2)} | {1: Failure(1, "died")}
    replies = FORM.stack(exchange, answers)
    assert (replies.workers.tolist(), replies.losses.tolist()) == ([0, 2, 3], [0.0, 2.0, 3.0])
    assert list(replies.failures) == [1]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"workers": np.array([1, 3])}, "workers must be some of those that were asked"),
        ({"workers": np.array([4, 1])}, "in increasing order"),
        ({"losses": np.zeros(3)}, "a row for each of the 2 workers"),
        ({"values": {"w": np.zeros((1, D))}}, "a row for each of the 2 workers"),
        ({"gradients": np.zeros((2, D - 1))}, rf"gradients must have the shape \(2, {D}\)"),
        ({"senders": np.array([2])}, "senders must be some of the workers"),
        ({"masks": np.array([~MASK, MASK])}, "masks must be those that were planned"),
        ({"masks": np.array([MASK, MASK, MASK])}, "masks must be those that were planned"),
    ],
)
def test_arrays_of_an_engines_own_making_are_held_against_the_exchange(wrong, words):
    planned = np.array([MASK, MASK, ~MASK])
    exchange = Exchange("gradient", GradientTask(3, W, round=1), np.array([1, 2, 4]), planned)
    rules = ReplyRules(REGIONS, np.full(5, 0.1), np.ones(D, dtype=bool), overflows=False)
    right = {"workers": np.array([1, 4]), "losses": np.zeros(2), "gradients": np.zeros((2, D)), "masks": planned[::2]}
    assert rules.validate_replies(exchange, Replies(**right), np.full(5, 0.2)).failures == {}
    with pytest.raises(InputError, match=f"engine: its replies to exchange 3: .*{words}.*ReplyForm.stack"):
        rules.validate_replies(exchange, Replies(**right | wrong), np.full(5, 0.2))
