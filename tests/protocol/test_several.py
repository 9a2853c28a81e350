"""Several questions in one message: on the wire, and held against what was asked."""

import json
import struct

import numpy as np
import pytest

import danl
from danl.objective.regions import Regions
from danl.protocol.message_bytes import message_bytes
from danl.protocol.messages import Failure, LossReply
from danl.protocol.own_tasks import Workplace, array_fields
from danl.protocol.wire import WireError, decode, encode, most_bytes
from danl.tasks import ColumnsTask, FitTask, LearnTask, LocalFitTask, NullTask, SeveralReply, SeveralTask
from danl.tasks.several import OF_A_PART

RNG = np.random.default_rng(0)
D = 4
W = np.array([0.3, -0.2, 0.1, 0.4])
X = RNG.normal(size=(60, D - 1))
Y = (RNG.random(60) < 1 / (1 + np.exp(-X[:, 0]))).astype(float)
PROBLEM = danl.Problem([danl.Shard.of(X, Y)], loss="logistic", alpha=0.5, intercept=True)
PLACE = Workplace(2, PROBLEM.local_objectives[0], Regions.make(1, D), 0)
FIT = FitTask(7, W, 0.1, "records", both=True)
OWN = LocalFitTask(7, W, np.ones(D, dtype=bool))
COLUMNS = ColumnsTask(7, W, np.full(D, -1.0), np.empty(0))
ASKED = SeveralTask(7, W, (FIT, OWN, COLUMNS))
REPLY = ASKED.work(PLACE)
LIMIT = most_bytes(D, 1)


def test_every_part_is_answered_as_it_would_be_alone():
    for part, own in zip(ASKED.parts, REPLY.parts, strict=True):
        assert encode(own) == encode(part.work(PLACE))
    assert ASKED.fault(REPLY, D) is None
    assert ASKED.work_rows(60, 3.0) == sum(part.work_rows(60, 3.0) for part in ASKED.parts)
    assert message_bytes(REPLY) == sum(message_bytes(own) for own in REPLY.parts)
    assert sum(array.size for array in array_fields(REPLY).values()) * 8 == message_bytes(REPLY)


def test_what_was_sent_arrives():
    for message in (ASKED, REPLY):
        assert encode(decode(encode(message), most_bytes=LIMIT)) == encode(message)
    refused = Failure(2, "refused", "site north: tasks: local-fit is not among hessian")
    some = SeveralReply(2, 7, (REPLY.parts[0], refused, REPLY.parts[2]))
    arrived = decode(encode(some), most_bytes=LIMIT)
    assert arrived.parts[1] == refused
    assert ASKED.fault(arrived, D) is None


@pytest.mark.parametrize("d", [1, 2, 10, 200])
def test_the_longest_reply_fits(d):
    """A whole sandwich, a covariance and the columns, with levels for every one of them."""
    rows, w = 2 * d + 5, np.zeros(d)
    shard = danl.Shard.of(RNG.integers(0, 2, size=(rows, d)).astype(float), np.resize([0.0, 1.0], rows))
    place = Workplace(0, danl.Problem([shard], loss="logistic", alpha=1.0).local_objectives[0], Regions.make(1, d), 0)
    columns = ColumnsTask(0, w, np.arange(d + 1.0), np.empty(0))
    parts = (FitTask(0, w, 0.1, "records", both=True), LocalFitTask(0, w, np.ones(d, dtype=bool)), columns)
    asked = SeveralTask(0, w, parts)
    assert len(encode(asked)) <= most_bytes(d, 1)
    assert len(encode(asked.work(place))) <= most_bytes(d, 1)


@pytest.mark.parametrize(
    "parts",
    [
        REPLY.parts[:2],
        (*REPLY.parts, REPLY.parts[0]),
        (REPLY.parts[1], REPLY.parts[0], REPLY.parts[2]),
        (*REPLY.parts[:2], LossReply(2, 7, 0.5)),
        (*REPLY.parts[:2], COLUMNS),
        (*REPLY.parts[:2], Failure(3, "refused", "")),
        *((*REPLY.parts[:2], Failure(2, kind, "")) for kind in ("died", "timeout", "gone", "invalid", "forgot")),
        (FIT.work(Workplace(1, PLACE.objective, PLACE.regions, 0)), *REPLY.parts[1:]),
        (NullTask(7, W, 0.1).work(PLACE), *REPLY.parts[1:]),
        (FitTask(6, W, 0.1, "records", both=True).work(PLACE), *REPLY.parts[1:]),
        (FitTask(7, W, 0.1, "none", both=True).work(PLACE), *REPLY.parts[1:]),
    ],
)
def test_parts_that_were_not_asked_for_are_a_fault(parts):
    assert ASKED.fault(SeveralReply(2, 7, tuple(parts)), D)


@pytest.mark.parametrize("kind", OF_A_PART)
def test_a_part_may_fail(kind):
    assert ASKED.fault(SeveralReply(2, 7, (*REPLY.parts[:2], Failure(2, kind, "why"))), D) is None


LEARN = LearnTask(0, W, "h", 0, "identity", 1.0)


def test_what_keeps_something_is_asked_alone():
    for part in (LEARN, ASKED, REPLY):
        with pytest.raises(danl.InputError, match="cannot be asked beside others"):
            SeveralTask(7, W, (FIT, part))


def framed(parts: bytes, lengths: object, kind: str = "SeveralReply") -> bytes:
    """A message with these bytes as its parts."""
    fields, arrays, before = {"exchange": 7, "parts": lengths}, [["parts", "|u1", len(parts)]], b""
    if kind == "SeveralReply":
        fields["worker"] = 2
    else:
        arrays.insert(0, ["w", "<f8", D])
        before = W.tobytes()
    text = json.dumps({"type": kind, "fields": fields, "arrays": arrays}).encode()
    return b"DNL1" + struct.pack("<I", len(text)) + text + before + parts


@pytest.mark.parametrize("length", [0, 1, -1, 10**9, 2**70, 0.5, True, None, "8", [8]])
def test_lengths_that_cannot_be_are_no_message(length):
    inner = encode(LossReply(2, 7, 0.5))
    assert decode(framed(inner, [len(inner)]), most_bytes=LIMIT).parts == (LossReply(2, 7, 0.5),)
    for lengths in ([length], [len(inner), length], length, [], {}):
        with pytest.raises(WireError):
            decode(framed(inner, lengths), most_bytes=LIMIT)


def test_too_many_parts_are_no_message():
    inner = encode(LossReply(2, 7, 0.5))
    with pytest.raises(WireError):
        decode(framed(inner * 9, [len(inner)] * 9), most_bytes=LIMIT)


def test_several_in_one_of_several_are_no_message():
    data = encode(REPLY)
    for _ in range(3):
        with pytest.raises(WireError, match="in another one"):
            decode(framed(data, [len(data)]), most_bytes=10**6)
        data = framed(data, [len(data)])


def test_a_task_of_several_that_cannot_be_is_no_message():
    good, bad = encode(FIT), encode(LEARN)
    assert encode(decode(framed(good, [len(good)], "SeveralTask"), most_bytes=LIMIT).parts[0]) == good
    with pytest.raises(WireError, match="cannot be asked beside others"):
        decode(framed(bad, [len(bad)], "SeveralTask"), most_bytes=LIMIT)
