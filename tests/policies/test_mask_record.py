"""The running measures against the definitions, and against cases worked out by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as budget
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from simulation import measured, naive_measures

from danl.policies import MaskRecord, coverage_counts, staleness_after

SHAPES = st.tuples(st.integers(1, 25), st.integers(1, 5), st.integers(1, 5))


@budget(deadline=None)
@given(
    arrays.arrays(bool, SHAPES),
    st.sampled_from([None, "a round of nothing", "a region nobody trains"]),
)
def test_the_record_equals_the_definitions(all_masks, twist):
    if twist == "a round of nothing":
        all_masks[len(all_masks) // 2] = False
    if twist == "a region nobody trains":
        all_masks[:, :, 0] = False
    record = measured(all_masks)
    assert (record.min_coverage, record.max_staleness, record.min_trained) == naive_measures(all_masks)


def test_before_any_round():
    record = MaskRecord.start(3, 2)
    assert (record.min_coverage, record.max_staleness, record.min_trained) == (3, 0, 2)
    np.testing.assert_array_equal(record.staleness, np.zeros((3, 2)))


def test_three_rounds_by_hand():
    first = np.array([[True, False], [True, False], [False, False]])
    second = np.array([[False, True], [True, True], [False, True]])
    start = MaskRecord.start(3, 2)
    one = start.after(first)
    assert (one.min_coverage, one.max_staleness, one.min_trained) == (2, 1, 1)
    two = one.after(second)
    assert (two.min_coverage, two.max_staleness, two.min_trained) == (1, 2, 1)
    np.testing.assert_array_equal(two.staleness, [[1, 0], [0, 0], [2, 0]])
    three = two.after(np.zeros((3, 2), dtype=bool))
    assert (three.min_coverage, three.max_staleness, three.min_trained) == (1, 3, 0)
    np.testing.assert_array_equal(start.staleness, np.zeros((3, 2)))  # nothing is changed in place


def test_the_parts():
    masks = np.array([[True, False, True], [True, False, False]])
    np.testing.assert_array_equal(coverage_counts(masks), [2, 0, 1])
    np.testing.assert_array_equal(staleness_after(np.array([[4, 4, 0], [0, 1, 2]]), masks), [[0, 5, 0], [0, 2, 3]])


@pytest.mark.parametrize("shape", [(3, 5), (1000, 3)])
def test_coverage_counts_the_workers_of_every_region(shape):
    masks = np.random.default_rng(0).random(shape) < 0.3
    np.testing.assert_array_equal(coverage_counts(masks), masks.sum(axis=0))
