"""Exchanges in which workers are asked for different things: pieces of curvature, masked gradients, losses."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from danl.objective.regions import Regions
from danl.policies import Profile
from danl.protocol.costs import seconds_each, work_rows
from danl.protocol.guards import Guards
from danl.protocol.hessian_form import HessianForm, fitting_pieces
from danl.protocol.message_bytes import bytes_down, bytes_up
from danl.protocol.messages import (
    CurvatureReply,
    CurvatureTask,
    Exchange,
    GradientTask,
    HessianReply,
    HessianTask,
    LossTask,
    packed_size,
    unpack,
)
from danl.protocol.replies import Replies, ReplyRules
from danl.protocol.reply_form import ReplyForm
from danl.worker.worker import Worker
from tests.problems import random_problem

D, Q = 7, 3
WHOLE = packed_size(D)
REGIONS = Regions.make([[0, 3, 6], [1, 5], [2, 4]], D)
W = np.linspace(-1, 1, D)
NONE, ALL, SOME = np.zeros(Q, bool), np.ones(Q, bool), np.array([True, False, True])
KINDS = ["full", "block", "lowrank:2", "diag"]
PROBLEM = random_problem(sizes=(9, 14, 5, 12, 6))
RULES = ReplyRules.of(PROBLEM, REGIONS)
FORM = ReplyForm(REGIONS, PROBLEM.layout)
WORKERS = [Worker(i, objective, REGIONS, None, 0) for i, objective in enumerate(PROBLEM.local_objectives)]


def curvature_task(kind, **options):
    form = HessianForm.parse(kind)
    return CurvatureTask(3, W, form.kind, form.rank, sketch=5, **options)


def asked(task, masks=None, pieces=None, workers=(0, 1, 2, 4)):
    """An exchange with those workers that have a row."""
    who = np.array(workers)
    return Exchange("x", task, who, masks, pieces=None if pieces is None else np.array(pieces).reshape(-1, 2))


def answers(exchange):
    return {worker: WORKERS[worker].answer(task) for worker, task in exchange.tasks().items()}


def validated(exchange, given=None, rules=RULES):
    return rules.validate_replies(exchange, FORM.stack(exchange, given or answers(exchange)), PROBLEM.weights)


# --- what each worker gets ---


def test_every_worker_gets_the_least_task_that_has_what_it_is_asked_for():
    task = HessianTask(3, W, batch_size=4, hessian_batch=5)
    masks = np.array([ALL, ALL, SOME, SOME, SOME, NONE, NONE])
    pieces = [(0, WHOLE), (0, 0), (0, WHOLE), (4, 9), (6, 6), (0, 3), (2, 2)]
    tasks = list(asked(task, masks, pieces, workers=range(7)).tasks().values())
    assert tasks[0] is task
    assert [type(each) for each in tasks[1:]] == [
        *(GradientTask, CurvatureTask, CurvatureTask, GradientTask, CurvatureTask, LossTask)
    ]
    assert [getattr(each, "batch_size", 0) for each in tasks] == [4, 4, 4, 4, 4, 4, 0]
    assert all(each.exchange == 3 and each.w is W for each in tasks)
    for each, mask in zip(tasks[1:6], masks[1:6], strict=True):
        np.testing.assert_array_equal(each.mask, mask)
    curved = [tasks[number] for number in (2, 3, 5)]
    assert all((each.kind, each.dtype, each.hessian_batch) == ("full", "float64", 5) for each in curved)
    assert [(each.first, each.last) for each in curved] == [(0, WHOLE), (4, 9), (0, 3)]


def test_without_masks_everyone_sends_the_whole_gradient():
    tasks = asked(HessianTask(3, W), None, [(0, WHOLE), (0, 0), (1, 2), (5, 5)]).tasks()
    assert [each.mask for who, each in tasks.items() if who != 0] == [None, None, None]
    assert tasks[1] is tasks[4]  # one message, however many get it


def test_without_pieces_everyone_sends_all_of_its_curvature():
    task = curvature_task("diag", dtype="float32")
    tasks = asked(task, np.array([ALL, SOME, NONE, SOME])).tasks()
    assert [(each.first, each.last, each.dtype) for each in tasks.values()] == [(0, None, "float32")] * 4
    assert tasks[0].mask is None
    np.testing.assert_array_equal([tasks[who].mask for who in (1, 2, 4)], [SOME, NONE, SOME])


def test_fewer_workers_have_their_own_masks_and_pieces():
    masks, pieces = np.array([ALL, SOME, NONE, SOME]), [(0, 1), (1, 2), (2, 3), (3, 4)]
    left = asked(HessianTask(3, W), masks, pieces).without([1, 4])
    assert left.workers.tolist() == [0, 2]
    assert left.pieces.tolist() == [[0, 1], [2, 3]]
    np.testing.assert_array_equal(left.masks, [ALL, NONE])


# --- what comes back ---


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("kind", KINDS)
def test_pieces_put_together_are_the_whole(kind, dtype):
    task = curvature_task(kind, dtype=dtype)
    numbers = HessianForm.of(task).numbers(REGIONS)
    whole = validated(asked(task)).curvatures
    cut = [0, 1, numbers // 2, numbers - 1, numbers]
    pieces = list(pairwise(cut))
    for worker in (0, 1, 2, 4):
        parts = [validated(asked(task, None, [piece], [worker])).curvatures[worker] for piece in pieces]
        assert [part.size for part in parts] == [last - first for first, last in pieces]
        assert np.concatenate(parts).dtype == whole[worker].dtype == np.dtype(dtype)
        eps = np.finfo(dtype).eps  # only what is asked for is computed: sums may be rounded otherwise
        np.testing.assert_allclose(np.concatenate(parts), whole[worker], rtol=8 * eps, atol=8 * eps)


def test_a_mixed_exchange_is_what_asking_for_each_by_itself_gives():
    masks = np.array([ALL, SOME, NONE, SOME, NONE])
    pieces = [(0, WHOLE), (0, 0), (0, WHOLE), (0, WHOLE), (0, 0)]
    mixed = validated(asked(HessianTask(3, W), masks, pieces, range(5)))
    alone = [WORKERS[who].answer(HessianTask(3, W)) for who in range(5)]
    assert mixed.failures == {}
    assert mixed.workers.tolist() == [0, 1, 2, 3, 4]
    assert mixed.senders.tolist() == [0, 1, 3]
    assert mixed.curvature_senders.tolist() == [0, 2, 3]
    np.testing.assert_array_equal(mixed.masks, masks)
    np.testing.assert_allclose(mixed.losses, [reply.loss for reply in alone], rtol=1e-15)
    for row, who in enumerate(mixed.senders):
        kept = REGIONS.coordinates(masks[who])
        np.testing.assert_array_equal(mixed.gradients[row, kept], alone[who].gradient[kept])
    expected = sum(PROBLEM.weights[who] * alone[who].packed_hessian for who in (0, 2, 3))
    np.testing.assert_allclose(mixed.curvature_sum, expected, rtol=1e-15)


def test_everyones_whole_hessian_by_pieces_is_the_plain_exchange_to_the_bit():
    plain, pieces = (validated(asked(HessianTask(3, W), None, each, range(5))) for each in (None, [(0, WHOLE)] * 5))
    assert plain.curvature_senders.tolist() == pieces.curvature_senders.tolist() == [0, 1, 2, 3, 4]
    for one, other in ((plain.gradients, pieces.gradients), (plain.curvature_sum, pieces.curvature_sum)):
        assert one.tobytes() == other.tobytes()


def test_where_a_piece_is_a_part_there_is_no_sum():
    replies = validated(asked(HessianTask(3, W), None, [(0, 9), (9, WHOLE), (0, WHOLE), (0, 0)]))
    assert replies.curvature_sum is None
    assert replies.curvature_senders.tolist() == [0, 1, 2]
    assert {who: each.size for who, each in replies.curvatures.items()} == {0: 9, 1: WHOLE - 9, 2: WHOLE}
    hessian = PROBLEM.local_objectives[1].hessian(W)
    np.testing.assert_allclose(replies.curvatures[1], hessian[np.triu_indices(D)][9:], rtol=1e-14, atol=1e-16)


def test_where_nobody_sends_curvature_there_is_no_sum_either():
    replies = validated(asked(HessianTask(3, W), None, [(0, 0)] * 4))
    assert (replies.curvature_sum, replies.curvatures, replies.curvature_senders.tolist()) == (None, {}, [])
    assert replies.senders.tolist() == [0, 1, 2, 4]


def test_a_gradient_far_above_the_others_is_clipped_whatever_else_is_sent():
    exchange = asked(HessianTask(3, W), np.array([SOME, ALL, ALL, SOME]), [(0, 3), (0, 0), (0, WHOLE), (0, 0)])
    given = answers(exchange)
    given[0] = replace(given[0], gradient=given[0].gradient * 1e6)
    clipped = validated(exchange, given, replace(RULES, guards=Guards(clip=3.0)))
    assert clipped.failures == {}
    assert np.abs(clipped.gradients[0]).max() < 1e3 < np.abs(given[0].gradient).max()
    np.testing.assert_array_equal(clipped.gradients[2], given[2].gradient)


# --- what it costs ---


def test_who_has_the_margins_already_needs_no_half_pass_for_them():
    masks, pieces = np.array([ALL, SOME, NONE, SOME]), [(0, 9), (0, 0), (0, 0), (3, WHOLE)]
    exchange, machine = asked(HessianTask(3, W), masks, pieces), Profile(rows_per_second=2.0)
    rows, entries = np.array(PROBLEM.rows), np.full(5, 7.0)

    def seconds(exchange):
        return seconds_each(exchange, validated(exchange), [machine] * 5, rows, entries, REGIONS)

    kept = np.array([True, False, True, True])
    fresh, again = seconds(exchange), seconds(replace(exchange, kept=kept))
    np.testing.assert_allclose((fresh - again)[[0, 1, 2, 4]], np.where(kept, rows[[0, 1, 2, 4]] / 4, 0.0))
    assert again[2] == 0.0  # a loss is the margins, and a sum
    assert np.isnan(again[3])
    fewer = replace(exchange, kept=kept).without([0, 2])
    assert fewer.kept.tolist() == [False, True]


def test_bytes_are_those_of_what_each_sends_and_is_sent():
    masks = np.array([ALL, SOME, NONE, SOME, NONE])
    pieces = [(0, WHOLE), (0, 0), (3, 5), (0, WHOLE), (0, 0)]
    exchange = asked(HessianTask(3, W), masks, pieces, range(5))
    kept = 5  # coordinates of the two regions
    assert bytes_up(exchange, validated(exchange), REGIONS).tolist() == [
        8 * (1 + D + WHOLE),  # all of both: a HessianTask, without a mask
        8 * (1 + kept) + 1,
        8 * (1 + 2) + 1,
        8 * (1 + kept + WHOLE) + 1,
        8,
    ]
    assert bytes_down(exchange, REGIONS).tolist() == [8 * D, 8 * D + 1, 8 * D + 1 + 16, 8 * D + 1, 8 * D]


@pytest.mark.parametrize(("kind", "numbers"), [("full", 28), ("block", 12), ("lowrank:2", 21), ("diag", 7)])
def test_bytes_of_pieces_in_float32(kind, numbers):
    exchange = asked(curvature_task(kind, dtype="float32"), None, [(0, numbers), (0, 0), (1, 4), (0, numbers)])
    assert bytes_up(exchange, validated(exchange), REGIONS).tolist() == [
        8 * (D + 1) + 4 * own for own in (numbers, 0, 3, numbers)
    ]
    assert bytes_down(exchange, REGIONS).tolist() == [8 * D, 8 * D, 8 * D + 16, 8 * D]


def test_who_fails_counts_down_and_not_up():
    exchange = asked(HessianTask(3, W), None, [(0, WHOLE), (0, 0), (1, 3), (0, 0)])
    given = answers(exchange)
    given[1] = replace(given[1], fragment=given[1].fragment * np.nan)
    replies = validated(exchange, given)
    assert bytes_up(exchange, replies, REGIONS).tolist() == [8 * (D + 1 + WHOLE), 8 * (D + 1 + 2), 8 * (D + 1)]
    assert len(bytes_down(exchange, REGIONS)) == 4


def test_work_is_that_of_the_share_of_the_gradient_and_of_the_curvature():
    rows, entries, share = 20, 6.0, 5 / 7
    half = CurvatureTask(3, W, "full", mask=SOME, first=0, last=WHOLE // 2)
    expected = rows * (1 / 2 + share / 2) + rows * entries / 2 / 2
    assert work_rows(half, share, rows, entries, REGIONS) == pytest.approx(expected, rel=1e-14)
    nothing = replace(half, mask=NONE)
    assert work_rows(nothing, 0.0, rows, entries, REGIONS) == pytest.approx(rows / 2 + rows * entries / 4, rel=1e-14)
    for kind in KINDS:
        task = curvature_task(kind)
        whole = work_rows(task, 1.0, rows, entries, REGIONS)
        third = replace(task, last=HessianForm.of(task).numbers(REGIONS) // 7)
        share = third.last / HessianForm.of(task).numbers(REGIONS)
        assert work_rows(third, 1.0, rows, entries, REGIONS) == pytest.approx(rows + share * (whole - rows), rel=1e-14)


def test_seconds_are_those_of_what_each_does():
    masks = np.array([ALL, SOME, SOME, NONE])
    exchange = asked(HessianTask(3, W), masks, [(0, WHOLE), (0, 0), (0, 7), (0, 0)], range(4))
    rows, entries = PROBLEM.rows, np.full(5, 4.0)
    fleet = [Profile(rows_per_second=100.0, uplink=1000.0, downlink=500.0)] * 5
    found = seconds_each(exchange, validated(exchange), fleet, rows, entries, REGIONS)
    gradient = 1 / 2 + 5 / 14
    work = np.array([1 + 2, gradient, gradient + 2 / 4, 1 / 2]) * rows[:4]
    up = np.array([8 * (1 + D + WHOLE), 8 * 6 + 1, 8 * (6 + 7) + 1, 8])
    down = np.array([8 * D, 8 * D + 1, 8 * D + 17, 8 * D])
    np.testing.assert_allclose(found[:4], work / 100 + up / 1000 + down / 500, rtol=1e-14)
    assert np.isnan(found[4])


# --- what is wrong with a reply ---


def lower(place):
    return lambda reply: replace(reply, numbers=np.where(np.arange(reply.numbers.size) == place, -1.0, reply.numbers))


MASKED = (SOME, (7, 14))  # the diagonal of the packed triangle is at 0, 7, 13, 18, 22, 25, 27
FAULTS = {
    "piece too short": (*MASKED, lambda r: replace(r, numbers=r.numbers[1:]), "its curvature has shape (6,), not (7,)"),
    "the whole for a piece": (*MASKED, lambda r: replace(r, numbers=np.ones(28)), "has shape (28,), not (7,)"),
    "dtype": (*MASKED, lambda r: replace(r, numbers=r.numbers.astype("f4")), "is float32, not an array of float64"),
    "not finite": (*MASKED, lambda r: replace(r, numbers=r.numbers * np.nan), "its curvature is not finite"),
    "diagonal in the piece": (*MASKED, lower(0), "entry 1 of the diagonal is below the penalty"),
    "the next one": (*MASKED, lower(6), "entry 2 of the diagonal is below the penalty"),
    "whole gradient": (*MASKED, lambda r: replace(r, gradient=W), "its gradient has shape (7,), not (5,)"),
    "gradient not finite": (*MASKED, lambda r: replace(r, gradient=r.gradient * np.inf), "gradient is not finite"),
    "another mask": (*MASKED, lambda r: replace(r, mask=ALL), "for another mask than the one planned"),
    "no mask": (*MASKED, lambda r: replace(r, mask=None), "for another mask than the one planned"),
    "a mask nobody planned": (ALL, (7, 14), lambda r: replace(r, mask=ALL), "for another mask than the one planned"),
    "indefinite": (SOME, (0, 28), lower(0), "its Hessian is indefinite"),
    "off the diagonal": (SOME, (0, 28), lambda r: replace(r, numbers=r.numbers * 1e3 - 1e3), "its Hessian is indef"),
    "no Hessian": (ALL, (0, 28), lambda r: replace(r, packed_hessian=None), "its Hessian is missing"),
    "a gradient alone": (
        *MASKED,
        lambda r: WORKERS[1].answer(GradientTask(3, W, SOME)),
        "answered with GradientReply where CurvatureReply was asked for",
    ),
    "curvature nobody asked for": (
        SOME,
        (0, 0),
        lambda r: CurvatureReply(1, 3, r.fragment, np.ones(1), 0.0, SOME),
        "answered with CurvatureReply where GradientReply was asked for",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_what_breaks_a_rule_is_named_and_the_others_count(name):
    mask, piece, change, words = FAULTS[name]
    exchange = asked(HessianTask(3, W), np.array([ALL, mask, SOME, NONE]), [(0, WHOLE), piece, (0, 0), (0, 0)])
    given = answers(exchange)
    assert validated(exchange, given).failures == {}
    replies = validated(exchange, given | {1: change(given[1])})
    assert [(who, failure.kind) for who, failure in replies.failures.items()] == [(1, "invalid")]
    assert words in replies.failures[1].detail
    assert (replies.workers.tolist(), replies.senders.tolist()) == ([0, 2, 4], [0, 2])
    assert replies.curvature_senders.tolist() == list(replies.curvatures) == [0]
    np.testing.assert_array_equal(replies.curvatures[0], given[0].packed_hessian)


def test_entries_off_the_diagonal_of_a_piece_may_be_anything_finite():
    exchange = asked(HessianTask(3, W), None, [(7, 14)], [1])
    given = {1: lower(3)(answers(exchange)[1])}
    assert validated(exchange, given).failures == {}


@pytest.mark.parametrize("kind", KINDS)
def test_the_diagonal_is_where_the_places_say(kind):
    task = curvature_task(kind)
    numbers = WORKERS[1].answer(task).numbers
    places = HessianForm.of(task).diagonal_places(REGIONS)
    np.testing.assert_allclose(numbers[places], PROBLEM.local_objectives[1].hessian(W).diagonal(), rtol=1e-12)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("kind", KINDS)
def test_honest_pieces_pass_and_a_diagonal_below_the_penalty_does_not(kind, dtype):
    task = curvature_task(kind, dtype=dtype)
    form = HessianForm.of(task)
    for first in range(form.numbers(REGIONS)):
        exchange = asked(task, None, [(first, first + 1)], [2])
        given = answers(exchange)
        assert validated(exchange, given).failures == {}
        below = {2: replace(given[2], numbers=-np.abs(given[2].numbers) - np.ones(1, dtype))}
        assert (2 in validated(exchange, below).failures) == (first in form.diagonal_places(REGIONS))


def test_a_model_that_blew_up_is_held_against_nobody():
    exchange = asked(HessianTask(3, np.full(D, 1e200)), None, [(0, 9), (9, WHOLE), (0, WHOLE), (0, 0)])
    given = answers(exchange)
    given[0] = replace(given[0], numbers=-given[0].numbers)
    assert validated(exchange, given).failures == {}


@pytest.mark.parametrize(
    ("pieces", "fits"),
    [
        ([(0, 28), (0, 0), (28, 28), (3, 4)], True),
        ([(0, 29), (0, 0), (0, 0), (0, 0)], False),
        ([(-1, 3), (0, 0), (0, 0), (0, 0)], False),
        ([(4, 3), (0, 0), (0, 0), (0, 0)], False),
        ([(0, 1.0), (0, 0), (0, 0), (0, 0)], False),
        ([(0, 28)], False),
    ],
)
def test_pieces_are_ranges_of_the_numbers_one_for_every_worker(pieces, fits):
    assert fitting_pieces(asked(HessianTask(3, W), None, pieces), REGIONS) is fits
    assert not fitting_pieces(asked(GradientTask(3, W), None, pieces), REGIONS)


def test_sums_of_an_engines_own_making_are_of_those_that_send_curvature():
    exchange, seen = asked(HessianTask(3, W), None, [(0, WHOLE), (0, 0), (0, 0), (0, WHOLE)]), []

    def add_up(weights):
        from danl.protocol.replies import HessianSum

        seen.append(weights)
        return HessianSum(np.ones(WHOLE), {4: "it is broken"})

    made = Replies(exchange.workers, np.zeros(4), np.zeros((4, D)), curvature_senders=np.array([0, 4]), add_up=add_up)
    replies = RULES.validate_replies(exchange, made, PROBLEM.weights)
    assert seen == [{0: PROBLEM.weights[0], 4: PROBLEM.weights[4]}]
    assert (replies.curvature_senders.tolist(), replies.workers.tolist()) == ([0], [0, 1, 2])
    assert replies.curvature_sum.tolist() == [1.0] * WHOLE
    wrong = replace(made, curvature_senders=np.array([3]))
    with pytest.raises(ValueError, match="curvature_senders must be some of the workers"):
        RULES.validate_replies(exchange, wrong, PROBLEM.weights)


def test_the_sum_is_that_of_the_senders_matrices():
    replies = validated(asked(HessianTask(3, W), None, [(0, 0), (0, WHOLE), (0, 0), (0, WHOLE)]))
    expected = sum(PROBLEM.weights[who] * PROBLEM.local_objectives[who].hessian(W) for who in (1, 4))
    np.testing.assert_allclose(unpack(replies.curvature_sum, D), expected, rtol=1e-13)


def test_a_hessian_that_never_came_is_a_failure():
    """Without an engine that adds up, a worker that leaves its Hessian out would count as one that sent zeros."""
    exchange = asked(HessianTask(3, W))
    given = answers(exchange)
    given[2] = HessianReply(2, 3, given[2].gradient, None, given[2].loss)
    assert validated(exchange, given).failures[2].detail == "its Hessian is missing"
