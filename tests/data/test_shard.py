"""Rows of several shards as one matrix, and rows of one as several."""

from itertools import pairwise

import numpy as np
import pytest
from scipy import sparse

from danl.data.shard import rows_of, stacked_rows


@pytest.fixture
def matrix():
    rng = np.random.default_rng(0)
    return sparse.csr_matrix(rng.standard_normal((30, 5)) * (rng.random((30, 5)) < 0.4))


@pytest.mark.parametrize("cuts", [[0, 30], [0, 7, 30], [0, 1, 11, 12, 30]])
def test_rows_that_lie_one_after_the_other_are_the_matrix_they_came_from(matrix, cuts):
    parts = [rows_of(matrix, first, last) for first, last in pairwise(cuts)]
    made = stacked_rows(parts)
    assert (made != matrix).nnz == 0
    assert made.indptr.dtype == matrix.indptr.dtype
    assert np.shares_memory(made.data, matrix.data)


def test_rows_from_elsewhere_are_put_together(matrix):
    made = stacked_rows([matrix[:4].copy(), matrix[4:].toarray()])
    np.testing.assert_array_equal(made.toarray(), matrix.toarray())


def test_more_entries_than_narrow_numbers_count_need_wide_ones(monkeypatch):
    """Without 2^31 entries at hand: parts that say they end there."""

    class Many:
        shape, format = (1, 5), "csr"

        def __init__(self, count):
            self.indptr = np.array([0, count], dtype=np.int32)
            self.data = self.indices = np.zeros(0)

    monkeypatch.setattr(sparse, "issparse", lambda part: True)
    made = stacked_rows([Many(2**31 - 2), Many(5)])
    assert made.indptr.tolist() == [0, 2**31 - 2, 2**31 + 3]
