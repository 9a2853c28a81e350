"""Products of the rows: scipy's inner loops called directly are scipy's products."""

from itertools import pairwise

import numpy as np
import pytest
from scipy import sparse

from danl.objective import kernels
from danl.objective.row_blocks import RowChunks


@pytest.fixture(params=["directly", "by scipy"])
def products(request, monkeypatch):
    if request.param == "by scipy":
        monkeypatch.setattr(kernels, "csr_matvec", kernels._csr_matvec)
        monkeypatch.setattr(kernels, "csc_matvec", kernels._csc_matvec)
    else:
        assert kernels.csr_matvec is not kernels._csr_matvec, (
            "this scipy has moved its inner loops: danl is slower with it, not wrong"
        )
    return kernels.times, kernels.transpose_times


@pytest.mark.parametrize("shape", [(30, 7), (1, 1), (5, 0), (0, 5), (7, 40)])
@pytest.mark.parametrize("indices", [np.int32, np.int64])
def test_products_are_those_of_the_dense_matrix(products, shape, indices):
    times, transpose_times = products
    rng = np.random.default_rng(0)
    dense = rng.standard_normal(shape) * (rng.random(shape) < 0.4)
    X = sparse.csr_matrix(dense)
    X.indices = X.indices.astype(indices)  # blocks of many workers have wide columns beside narrow row ends
    w, slopes = rng.standard_normal(shape[1]), rng.standard_normal(shape[0])
    for given in (X, dense):
        np.testing.assert_allclose(times(given, w), dense @ w, rtol=0, atol=1e-13)
        np.testing.assert_allclose(transpose_times(given, slopes), dense.T @ slopes, rtol=0, atol=1e-13)


def test_a_vector_of_another_length_is_refused(products):
    times, transpose_times = products
    X = sparse.random(20, 6, 0.5, format="csr", random_state=0)
    for product, length in ((times, 5), (times, 7), (transpose_times, 19), (transpose_times, 21)):
        with pytest.raises(ValueError, match="dimension mismatch"):
            product(X, np.ones(length))


def test_a_strided_vector_is_read_as_it_is(products):
    times, transpose_times = products
    X = sparse.random(20, 6, 0.5, format="csr", random_state=0)
    pairs = np.arange(40.0).reshape(20, 2)
    np.testing.assert_allclose(transpose_times(X, pairs[:, 1]), X.T @ pairs[:, 1])
    np.testing.assert_allclose(times(X, pairs[::3, 0][:6]), X @ pairs[::3, 0][:6])


@pytest.mark.parametrize("value", [None, 1.0, 2.5])
@pytest.mark.parametrize("entries", [1, 7, 1000])
def test_chunks_are_the_rows_of_their_workers(products, value, entries, monkeypatch):
    monkeypatch.setattr(kernels, "CHUNK_ENTRIES", entries)
    rng = np.random.default_rng(0)
    X = sparse.random(60, 8, 0.4, format="csr", random_state=0)
    X.data[:] = rng.standard_normal(X.nnz) if value is None else value
    X.data[X.indptr[7] : X.indptr[9]] = 0.0
    X.eliminate_zeros()  # a worker whose rows have no entries
    bounds = [0, 7, 9, 40, 60]
    assert kernels.repeated_value(X) == value
    chunks = RowChunks(X, bounds, value)
    w, models, slopes = rng.standard_normal(8), rng.standard_normal((4, 8)), rng.standard_normal(60)
    of_each = [slice(*ends) for ends in pairwise(bounds)]
    back = np.stack([X[own].T @ slopes[own] for own in of_each])
    np.testing.assert_allclose(chunks.times(w), X @ w, atol=1e-13)
    np.testing.assert_allclose(
        chunks.times(models), np.concatenate([X[own] @ m for own, m in zip(of_each, models, strict=True)]), atol=1e-13
    )
    np.testing.assert_allclose(chunks.transpose_times(slopes), back, atol=1e-13)
    asked = np.array([True, False, False, True])
    product = chunks.times(w, asked.tolist())
    np.testing.assert_allclose(product[np.r_[0:7, 40:60]], (X @ w)[np.r_[0:7, 40:60]], atol=1e-13)
    assert not product[7:40].any()
    np.testing.assert_allclose(chunks.transpose_times(slopes, asked), back * asked[:, None], atol=1e-13)


def test_equal_values_are_kept_once(monkeypatch):
    monkeypatch.setattr(kernels, "CHUNK_ENTRIES", 64)
    X = sparse.random(300, 40, 0.3, format="csr", random_state=0)
    assert kernels.repeated_value(X) is None
    X.data[:] = 1.0
    chunks = [arrays for *_, arrays in RowChunks(X, [0, 300], 1.0).chunks]
    assert len(chunks) > 30
    assert max(len(data) for _, _, data in chunks) < 64 + 40  # to the end of a row
    assert len({data.__array_interface__["data"][0] for _, _, data in chunks}) == 1
    assert all(np.shares_memory(indices, X.indices) for _, indices, _ in chunks)


def test_one_value_among_many_others_is_noticed(monkeypatch):
    monkeypatch.setattr(kernels, "BLOCK_ENTRIES", 100)
    X = sparse.random(300, 40, 0.3, format="csr", random_state=0)
    X.data[:] = 2.0
    assert kernels.repeated_value(X) == 2.0
    X.data[-1] = 1.0
    assert kernels.repeated_value(X) is None
    assert kernels.repeated_value(sparse.csr_matrix((3, 4))) is None


@pytest.mark.parametrize("shape", [(1, 5), (3, 5000), (2000, 7), (2001, 7), (700, 4096)])
def test_one_row_is_added_to_all(shape):
    rng = np.random.default_rng(0)
    rows, row = rng.normal(size=shape), rng.normal(size=shape[1])
    expected = rows + row
    kernels.add_to_rows(rows, row)
    np.testing.assert_array_equal(rows, expected)
