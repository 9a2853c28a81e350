"""Products of the rows: scipy's inner loops called directly are scipy's products."""

import numpy as np
import pytest
from scipy import sparse

from danl import kernels


@pytest.fixture(params=["directly", "by scipy"])
def products(request, monkeypatch):
    if request.param == "by scipy":
        monkeypatch.setattr(kernels, "_csr_matvec", None)
        monkeypatch.setattr(kernels, "_csc_matvec", None)
    else:
        assert kernels._csr_matvec is not None, (
            "this scipy has moved its inner loops: danl is slower with it, not wrong"
        )
    return kernels.times, kernels.transposed_times


@pytest.mark.parametrize("shape", [(30, 7), (1, 1), (5, 0), (0, 5), (7, 40)])
@pytest.mark.parametrize("indices", [np.int32, np.int64])
def test_products_are_those_of_the_dense_matrix(products, shape, indices):
    times, transposed_times = products
    rng = np.random.default_rng(0)
    dense = rng.standard_normal(shape) * (rng.random(shape) < 0.4)
    X = sparse.csr_matrix(dense)
    X.indices = X.indices.astype(indices)  # blocks of many workers have wide columns beside narrow row ends
    w, slopes = rng.standard_normal(shape[1]), rng.standard_normal(shape[0])
    for given in (X, dense):
        np.testing.assert_allclose(times(given, w), dense @ w, rtol=0, atol=1e-13)
        np.testing.assert_allclose(transposed_times(given, slopes), dense.T @ slopes, rtol=0, atol=1e-13)


def test_a_vector_of_another_length_is_refused(products):
    times, transposed_times = products
    X = sparse.random(20, 6, 0.5, format="csr", random_state=0)
    for product, length in ((times, 5), (times, 7), (transposed_times, 19), (transposed_times, 21)):
        with pytest.raises(ValueError, match="dimension mismatch"):
            product(X, np.ones(length))


def test_a_strided_vector_is_read_as_it_is(products):
    times, transposed_times = products
    X = sparse.random(20, 6, 0.5, format="csr", random_state=0)
    pairs = np.arange(40.0).reshape(20, 2)
    np.testing.assert_allclose(transposed_times(X, pairs[:, 1]), X.T @ pairs[:, 1])
    np.testing.assert_allclose(times(X, pairs[::3, 0][:6]), X @ pairs[::3, 0][:6])
