"""Rows of several shards as one matrix, and rows of one as several."""

from itertools import pairwise

import numpy as np
import pytest
from scipy import sparse

import danl
from danl.data.schema import in_order
from danl.data.shard import Shard, info_of, rows_of, stacked_rows


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


def test_offset_and_clusters_are_checked_and_kept():
    shard = Shard.of(
        np.eye(3), [0, 1, 1], offset=[1, 2, 3], clusters=np.array([7, 7, 2]), feature_names=["a", "b", "c"]
    )
    assert (shard.offset.dtype, shard.clusters.dtype) == (np.float64, np.int64)
    moved = in_order(shard, ("c", "a", "b"))
    assert moved.offset is shard.offset
    assert moved.clusters is shard.clusters
    assert shard.nbytes == Shard.of(np.eye(3), [0, 1, 1]).nbytes + 2 * 24
    assert (info_of(shard, True).offset, info_of(Shard.of(np.eye(3), [0, 1, 1]), True).offset) == (True, False)


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ({"offset": [0.0, 1.0]}, "offset: must have one entry for each of the 3 rows of X; found shape (2,)"),
        (
            {"offset": [0.0, -np.inf, 0.0]},
            "offset[1]=-inf: must be a finite number; it is in row 1 (counted from 0): fill it in or drop the row; a "
            "log needs exposures above 0",
        ),
        (
            {"offset": ["a", "b", "c"]},
            "offset: must hold numbers; found entries of type <U1; danl.load_dataset turns two labels into 0 and 1",
        ),
        (
            {"clusters": [0.5, 1.0, 2.0]},
            "clusters: must be whole numbers, one for each of the 3 rows of X; found shape (3,) of type float64; "
            "numpy.unique(column, return_inverse=True) numbers the values of a column",
        ),
    ],
)
def test_wrong_offsets_and_clusters(argument, message):
    with pytest.raises(danl.InputError) as error:
        Shard.of(np.eye(3), [0, 1, 1], **argument)
    assert str(error.value) == message


@pytest.mark.parametrize(
    ("rows", "records", "codes"),
    [
        ([3, 5, 9], 3, None),
        ([9, 5, 3], 3, None),
        ([4, 4, 9], 2, [0, 0, 1]),
        ([9, 4, 9], 2, [1, 0, 1]),
        ([0, 0, 0], 1, [0, 0, 0]),
    ],
)
def test_rows_of_one_record_are_one_record(rows, records, codes):
    shard = Shard.of(np.eye(3), [0, 1, 1], rows=rows)
    assert (shard.n_rows, shard.n_records, info_of(shard, True).records) == (3, records, records)
    assert (None if shard.records is None else shard.records.tolist()) == codes
    problem = danl.Problem([shard], alpha=0.1)
    assert problem.records.tolist() == [records]
    local = problem.local_objectives[0]
    assert (None if local.records is None else local.records.tolist()) == codes
    if codes is not None:
        assert local.sample(np.array([0, 2])).records.tolist() == [codes[0], codes[2]]
