import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from danl.errors import InputError
from danl.protocol.message_bytes import task_bytes
from danl.protocol.messages import (
    Failure,
    GradientTask,
    HessianTask,
    LocalStepsTask,
    LossTask,
    SmoothnessTask,
    pack,
    unpack,
)


@given(st.integers(1, 12), st.integers(0, 1000))
def test_pack_keeps_the_half_and_unpack_gives_the_matrix_back(d, seed):
    A = np.random.default_rng(seed).normal(size=(d, d))
    A = A + A.T
    assert pack(A).size == d * (d + 1) // 2
    np.testing.assert_array_equal(unpack(pack(A), d), A)


W = np.zeros(123)
MASK = np.ones(9, dtype=bool)


@pytest.mark.parametrize(
    ("message", "size"),
    [
        (HessianTask(0, W), 8 * 123),
        (GradientTask(0, W), 8 * 123),
        (GradientTask(0, W, mask=MASK), 8 * 123 + 2),
        (LossTask(0, W), 8 * 123),
        (LocalStepsTask(0, W, 5, 0.1), 8 * 123),
        (SmoothnessTask(0), 0),
    ],
    ids=lambda value: type(value).__name__,
)
def test_bytes_of_every_task(message, size):
    assert task_bytes(message) == size


def test_a_failure_is_of_a_known_kind():
    assert Failure(1, "gone", "its process ended").kind == "gone"
    with pytest.raises(InputError, match="kind='whatever': must be one of timeout, died, restarting, gone, refused, "):
        Failure(1, "whatever")
