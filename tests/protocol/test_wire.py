"""Messages as bytes: what was sent arrives, and nothing else is taken for a message."""

import pickle
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from danl.protocol.messages import (
    CurvatureReply,
    CurvatureTask,
    Failure,
    FailureKind,
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
    packed_size,
)
from danl.protocol.wire import FRAME, TYPES, WireError, decode, encode, most_bytes

LIMIT = 10**6
numbers = st.floats(allow_nan=True, allow_infinity=True)
counts = st.integers(0, 2**40)
sizes = st.one_of(st.none(), st.integers(1, 1000))


def vectors(dtype=np.float64):
    return hnp.arrays(dtype, st.integers(0, 9), elements=numbers if dtype == np.float64 else st.floats(width=32))


masks = st.one_of(st.none(), hnp.arrays(np.bool_, st.integers(0, 9)))
MESSAGES = {
    HessianTask: st.builds(HessianTask, counts, vectors(), sizes, sizes),
    CurvatureTask: st.builds(
        CurvatureTask,
        counts,
        vectors(),
        st.sampled_from(["full", "block", "lowrank", "diag"]),
        counts,
        counts,
        sizes,
        sizes,
        st.sampled_from(["float64", "float32"]),
        masks,
        counts,
        sizes,
        st.booleans(),
        st.sampled_from([None, "rankr:5", "identity"]),
    ),
    GradientTask: st.builds(
        GradientTask,
        counts,
        vectors(),
        masks,
        st.booleans(),
        counts,
        st.sampled_from(["pruned", "full"]),
        sizes,
        st.booleans(),
    ),
    LossTask: st.builds(LossTask, counts, vectors()),
    LocalStepsTask: st.builds(LocalStepsTask, counts, vectors(), st.integers(1, 99), numbers, sizes),
    ScoresTask: st.builds(ScoresTask, counts, vectors()),
    SmoothnessTask: st.builds(SmoothnessTask, counts),
    HessianReply: st.builds(HessianReply, counts, counts, vectors(), st.one_of(st.none(), vectors()), numbers),
    CurvatureReply: st.builds(
        CurvatureReply,
        *(counts, counts, vectors(), st.one_of(vectors(), vectors(np.float32)), numbers, masks),
        *(st.one_of(st.none(), hnp.arrays(dtype, st.integers(0, 9))) for dtype in (np.int32, np.int16)),
    ),
    GradientReply: st.builds(GradientReply, counts, counts, masks, vectors(), numbers),
    LossReply: st.builds(LossReply, counts, counts, numbers),
    ModelReply: st.builds(ModelReply, counts, counts, vectors(), numbers),
    ScoresReply: st.builds(ScoresReply, counts, counts, vectors()),
    SmoothnessReply: st.builds(SmoothnessReply, counts, counts, numbers, vectors()),
    MomentsTask: st.builds(MomentsTask, counts),
    MomentsReply: st.builds(MomentsReply, counts, counts, vectors(), vectors(), vectors()),
    Failure: st.builds(Failure, counts, st.sampled_from(get_args(FailureKind)), st.text()),
}
anything = st.one_of(*MESSAGES.values())


def same(left, right):
    assert type(left) is type(right)
    for name in vars(left):
        one, other = getattr(left, name), getattr(right, name)
        if isinstance(one, np.ndarray):
            assert one.dtype == other.dtype
            assert one.tobytes() == other.tobytes()
        else:
            assert type(one) is type(other)
            assert repr(one) == repr(other)


def test_every_message_is_tried():
    assert {kind.__name__ for kind in MESSAGES} == set(TYPES)


@pytest.mark.slow
@settings(max_examples=500, deadline=None)
@given(anything)
def test_what_was_sent_arrives_to_the_bit(message):
    same(decode(encode(message), most_bytes=LIMIT), message)


@pytest.mark.parametrize(("features", "outputs", "intercept"), [(1, 1, 0), (1, 5, 1), (2, 1, 1), (2, 3, 0), (50, 4, 1)])
def test_moments_are_no_longer_than_the_longest_message(features, outputs, intercept):
    reply = MomentsReply(10**6, 10**6, np.ones(features), np.ones(features), np.ones(outputs))
    assert len(encode(reply)) <= most_bytes((features + intercept) * outputs, 1)
    arrays = 8 * (2 * features + outputs)
    assert arrays <= most_bytes((features + intercept) * outputs, 1) - FRAME  # without what the frame has to spare


@pytest.mark.parametrize("d", [1, 7, 123])
def test_the_largest_message_fits_and_the_frame_is_small(d):
    w, mask = np.full(d, np.pi), np.ones(4, dtype=bool)
    messages = [
        HessianReply(10**6, 10**6, w, np.full(packed_size(d), -np.pi), float("-1e-300")),
        CurvatureReply(10**6, 10**6, w, np.full(d + d * ((d - 1) // 2), -np.pi), float("-1e-300")),
        CurvatureReply(10**6, 10**6, w, np.full(packed_size(d), -np.pi, dtype=np.float32), float("-1e-300")),
        CurvatureReply(10**6, 10**6, w, np.full(packed_size(d), -np.pi), float("-1e-300"), mask),
        CurvatureReply(
            10**6, 10**6, w, np.full(d * d, np.pi), -1e-300, None, np.empty(0, "<i4"), np.full(d, -1, dtype="<i2")
        ),
        CurvatureReply(
            10**6, 10**6, w, np.full(packed_size(d), np.pi), 0.1, None, np.arange(packed_size(d), dtype="<i4")
        ),
        CurvatureTask(10**6, w, "lowrank", 10**6, 2**62, 10**6, 10**6, "float32", mask, 2**62, 2**62),
        GradientTask(10**6, w, mask, True, 10**6, "pruned", 10**6, True),
        LocalStepsTask(10**6, w, 10**6, -1e-300, 10**6),
    ]
    for message in messages:
        data = encode(message)
        assert len(data) <= most_bytes(d, 4)
        assert len(data) - sum(each.nbytes for each in vars(message).values() if isinstance(each, np.ndarray)) < FRAME
    with pytest.raises(WireError, match="the largest message of this run has 100"):
        decode(encode(messages[0]), most_bytes=100)


@pytest.mark.slow
@settings(max_examples=1000, deadline=None)
@given(message=anything, data=st.data())
def test_changed_bytes_are_another_message_or_none(message, data):
    changed = bytearray(encode(message))
    for _ in range(data.draw(st.integers(1, 6))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.one_of(st.none(), st.integers(0, len(changed))))
    try:
        got = decode(bytes(changed[:cut]), most_bytes=LIMIT)
    except WireError:
        return
    same(decode(encode(got), most_bytes=LIMIT), got)  # it is a message of known type with fields of known types


@pytest.mark.slow
@settings(max_examples=500, deadline=None)
@given(st.one_of(st.binary(max_size=200), st.binary(max_size=200).map(lambda rest: b"DNL1" + rest)))
def test_random_bytes_are_no_message(data):
    with pytest.raises(WireError):
        decode(data, most_bytes=LIMIT)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (b"[]", "must have type, fields and arrays"),
        (b'{"type": "os.system", "fields": {}, "arrays": []}', "unknown type 'os.system'"),
        (b'{"type": [], "fields": {}, "arrays": []}', "unknown type"),
        (b'{"type": "LossTask", "fields": {"exchange": 1}, "arrays": []}', "LossTask lacks w"),
        (b'{"type": "LossTask", "fields": {"exchange": true}, "arrays": []}', "exchange cannot be 'True'"),
        (b'{"type": "LossTask", "fields": {"exchange": 1, "w": null}, "arrays": []}', "w cannot be 'None'"),
        (b'{"type": "LossTask", "fields": {"x": 1}, "arrays": []}', "has no field 'x'"),
        (b'{"type": "LossTask", "fields": {"exchange": 1}, "arrays": [["w", "|O", 1]]}', "w must be <f8"),
        (b'{"type": "LossTask", "fields": {"exchange": 1}, "arrays": [["w", "<f4", 1]]}', "w must be <f8, this"),
        (b'{"type": "CurvatureReply", "fields": {}, "arrays": [["numbers", "|b1", 1]]}', "must be <f8 or <f4, this"),
        (b'{"type": "CurvatureTask", "fields": {"kind": "all"}, "arrays": []}', "kind cannot be 'all'"),
        (b'{"type": "LossTask", "fields": {"exchange": 1}, "arrays": [["w", "<f8", 9]]}', "w is cut off"),
        (b'{"type": "LossTask", "fields": {"exchange": 1}, "arrays": [["w", "<f8", -1]]}', "no length"),
        (b'{"type": "LossTask", "fields": {"exchange": 1}, "arrays": [["w", "<f8", 1e99]]}', "no length"),
        (b"{" * 5000, "no JSON"),
    ],
)
def test_what_is_wrong_is_said(header, message):
    data = b"DNL1" + len(header).to_bytes(4, "little") + header
    with pytest.raises(WireError, match=message):
        decode(data, most_bytes=LIMIT)


def test_a_pickle_is_no_message():
    with pytest.raises(WireError, match="does not begin with DNL1"):
        decode(pickle.dumps({"a": 1}), most_bytes=LIMIT)
    with pytest.raises(WireError, match="a message is bytes"):
        decode("text", most_bytes=LIMIT)
