import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from danl.data import Shard, load_dataset, partition
from danl.data.partition import as_they_lie
from danl.data.shard import check_rows
from danl.errors import InputError

SCHEMES = ["iid", "sorted", "sorted:shuffle=0.3", "dirichlet:alpha=0.1", "dirichlet", "quantity:alpha=0.2"]
ALPHA = "must be a finite number > 0; small means uneven, large means even"


def message(call, *args, **options):
    with pytest.raises(InputError) as caught:
        call(*args, **options)
    return str(caught.value)


def rows_and_labels(n, labels=2):
    """X whose only column is the row's number, so that a shard's rows can be told."""
    return np.arange(n, dtype=float).reshape(-1, 1), np.arange(n) % labels


def sizes(shards):
    return [shard.n_rows for shard in shards]


# --- what holds for every scheme ---


@given(
    st.sampled_from(SCHEMES),
    st.integers(1, 60).flatmap(lambda n: st.tuples(st.just(n), st.integers(1, n))),
    st.integers(0, 2**32),
    st.integers(1, 40),
    st.booleans(),
)
def test_every_row_exactly_once_and_no_worker_without(scheme, shape, seed, labels, as_sparse):
    n, workers = shape
    X, y = rows_and_labels(n, labels)
    X = np.hstack([X + 1, -X])
    shards = partition(
        sparse.csr_matrix(X) if as_sparse else X,
        y,
        workers=workers,
        scheme=scheme,
        seed=seed,
        weights=y + 1.0,
    )
    assert [shard.name for shard in shards] == [f"worker-{index}" for index in range(workers)]
    assert min(sizes(shards)) >= 1
    assert sorted(np.concatenate([shard.rows for shard in shards])) == list(range(n))
    for shard in shards:
        dense = shard.X.toarray() if as_sparse else shard.X
        np.testing.assert_array_equal(dense, X[shard.rows])
        np.testing.assert_array_equal(shard.y, y[shard.rows])
        np.testing.assert_array_equal(shard.weights, y[shard.rows] + 1.0)
        assert shard.X.dtype == shard.y.dtype == np.float64
        assert shard.total_weight == shard.weights.sum()


@given(st.sampled_from(SCHEMES), st.integers(0, 1000))
def test_same_seed_same_shards_and_no_global_state(scheme, seed):
    X, y = rows_and_labels(40)
    np.random.seed(seed)  # noqa: NPY002 - the global state is what is watched here
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    first, second = (partition(X, y, workers=7, scheme=scheme, seed=seed) for _ in range(2))
    generated = partition(X, y, workers=7, scheme=scheme, seed=np.random.default_rng(seed))
    np.testing.assert_array_equal(np.random.get_state()[1], before)  # noqa: NPY002
    for one, two, three in zip(first, second, generated, strict=True):
        np.testing.assert_array_equal(one.rows, two.rows)
        np.testing.assert_array_equal(one.rows, three.rows)


@pytest.mark.parametrize("scheme", ["iid", "dirichlet", "quantity", "sorted:shuffle=0.5"])
def test_another_seed_other_shards(scheme):
    X, y = rows_and_labels(100)
    first, second = (partition(X, y, workers=4, scheme=scheme, seed=seed) for seed in (0, 1))
    assert [shard.rows.tolist() for shard in first] != [shard.rows.tolist() for shard in second]


# --- what each scheme is for ---


@given(st.integers(1, 80), st.integers(1, 80), st.sampled_from(["iid", "sorted", "sorted:shuffle=0.37"]))
def test_as_even_as_possible(n, workers, scheme):
    workers = min(n, workers)
    found = sizes(partition(*rows_and_labels(n), workers=workers, scheme=scheme))
    assert max(found) - min(found) <= 1


def test_sorted_puts_labels_apart():
    shards = partition(*rows_and_labels(100), workers=10, scheme="sorted")
    assert [set(shard.y) for shard in shards] == [{0.0}] * 5 + [{1.0}] * 5


def test_sorted_with_all_rows_shuffled_is_mixed():
    shards = partition(*rows_and_labels(1000), workers=5, scheme="sorted", shuffle=1.0)
    assert all(0.3 < shard.y.mean() < 0.7 for shard in shards)
    partly = partition(*rows_and_labels(1000), workers=2, scheme="sorted:shuffle=0.2")
    assert [round(float(shard.y.mean()), 1) for shard in partly] == [0.1, 0.9]


def label_spread(shards):
    """How far the shards' mean targets lie from the mean of all, averaged over rows."""
    overall = np.concatenate([shard.y for shard in shards]).mean()
    return np.average([abs(shard.y.mean() - overall) for shard in shards], weights=sizes(shards))


def test_a_smaller_alpha_skews_labels_more():
    X, y = rows_and_labels(5000)
    spread = [
        np.mean(
            [label_spread(partition(X, y, workers=10, scheme="dirichlet", alpha=alpha, seed=seed)) for seed in range(5)]
        )
        for alpha in (0.1, 1.0, 1000.0)
    ]
    assert spread[0] > spread[1] > spread[2]
    assert spread[2] < 0.05


def test_dirichlet_bins_a_real_target():
    X = np.ones((2000, 1))
    y = np.random.default_rng(0).normal(size=2000)
    skewed = partition(X, y, workers=5, scheme="dirichlet:alpha=0.05")
    assert label_spread(skewed) > 5 * label_spread(partition(X, y, workers=5))


def test_quantity_differs_in_size_but_not_in_labels():
    shards = partition(*rows_and_labels(20_000), workers=5, scheme="quantity:alpha=1.0", seed=3)
    assert max(sizes(shards)) > 2 * min(sizes(shards))
    assert all(abs(shard.y.mean() - 0.5) < 0.05 for shard in shards if shard.n_rows > 1000)


@pytest.mark.parametrize("scheme", ["dirichlet", "quantity"])
@pytest.mark.parametrize("alpha", [1e-300, 1e-3, 1e6])
def test_extreme_alpha(scheme, alpha):
    shards = partition(*rows_and_labels(50), workers=20, scheme=scheme, alpha=alpha)
    assert sum(sizes(shards)) == 50
    assert min(sizes(shards)) >= 1


def test_site():
    X, y = rows_and_labels(5)
    shards = partition(X, y, scheme="site", sites=["b", "a", "b", "c", "a"], weights=[1, 2, 3, 4, 5])
    assert [shard.name for shard in shards] == ["a", "b", "c"]
    assert [shard.rows.tolist() for shard in shards] == [[1, 4], [0, 2], [3]]
    assert [shard.weights.tolist() for shard in shards] == [[2, 5], [1, 3], [4]]
    assert [s.name for s in partition(X, y, scheme="site", sites=[3, 3, 10, 3, 3], workers=2)] == ["3", "10"]


def test_a1a():
    data = load_dataset("a1a")
    shards = partition(data.X, data.y, workers=10, scheme="iid", seed=0)
    assert sizes(shards) == [161] * 5 + [160] * 5
    assert all(sparse.isspmatrix_csr(shard.X) and shard.X.shape[1] == 123 for shard in shards)
    assert sum(shard.X.nnz for shard in shards) == data.X.nnz
    assert all(shard.weights is None and shard.total_weight == shard.n_rows for shard in shards)


# --- wrong input ---


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            {"workers": 2000},
            "workers=2000: must be a whole number between 1 and 1605, the number of rows; "
            "lower workers or bring more data",
        ),
        ({"workers": 0}, "workers=0: must be a whole number between 1 and 1605, the number of rows"),
        ({"workers": None}, "workers=None: must be a whole number between 1 and 1605, the number of rows"),
        ({"workers": 2.0}, "workers=2.0: must be a whole number between 1 and 1605, the number of rows"),
        ({"workers": True}, "workers=True: must be a whole number between 1 and 1605, the number of rows"),
        ({"scheme": "idd"}, "scheme='idd': must be one of iid, contiguous, sorted, dirichlet, quantity, site"),
        ({"scheme": "dirichlet:alpha=0"}, f"alpha=0: {ALPHA}"),
        ({"scheme": "quantity", "alpha": -1.0}, f"alpha=-1.0: {ALPHA}"),
        ({"scheme": "quantity:alpha=nan"}, f"alpha=nan: {ALPHA}"),
        ({"scheme": "quantity:alpha=big"}, "alpha='big': must be a number"),
        ({"scheme": "quantity:alpha=true"}, "alpha=True: must be a number"),
        (
            {"scheme": "sorted:shuffle=1.5"},
            "shuffle=1.5: must be a number between 0 and 1; the share of the rows dealt at random",
        ),
        ({"scheme": "iid:alpha=1"}, "alpha=1: is not an option of scheme 'iid', which takes no options"),
        (
            {"scheme": "sorted", "alpha": 1.0},
            "alpha=1.0: is not an option of scheme 'sorted', which takes shuffle",
        ),
        (
            {"scheme": "dirichlet:alpha=1", "alpha": 2.0},
            "alpha=2.0: must be given once, not also in scheme='dirichlet:alpha=1'",
        ),
        ({"scheme": "site"}, "sites=None: must be the site of each row; pass sites=, or another scheme"),
        (
            {"scheme": "site", "sites": [1, 2]},
            "sites: must have one id for each of the 1605 rows, found shape (2,)",
        ),
        (
            {"scheme": "site", "sites": [1, 2, 3] * 535},
            "workers=10: must be 3, the number of sites; or leave it out",
        ),
        (
            {"scheme": "site", "sites": ["a", ""] + ["b"] * 1603},
            "sites[1]='': must be the id of a site, not missing",
        ),
        ({"seed": -1}, "seed=-1: must be a whole number, 0 or more, or a numpy Generator"),
        ({"seed": None}, "seed=None: must be a whole number, 0 or more, or a numpy Generator"),
    ],
)
def test_wrong_options(options, expected):
    X, y = rows_and_labels(1605)
    assert message(partition, X, y, **({"workers": 10} | options)) == expected


def test_sites_of_two_kinds():
    X, y = rows_and_labels(2)
    sites = np.array([1, "a"], dtype=object)
    assert message(partition, X, y, scheme="site", sites=sites).startswith(
        "sites: ids must all be numbers or all be text"
    )


@pytest.mark.parametrize("convert", [np.asarray, sparse.csr_matrix, sparse.csc_matrix, sparse.coo_array])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_entries_that_are_not_finite(convert, value):
    X = np.array([[0.0, 1.0, 0.0], [0.0, 0.0, 0.0], [1.0, 0.0, value]])
    assert message(check_rows, convert(X), [0, 1, 0]) == (
        f"X[2, 2]={value}: must be a finite number; it is in row 2 (counted from 0), "
        "column 2 (counted from 0): fill it in or drop the row"
    )


def test_rows_that_do_not_fit_together():
    X = np.ones((3, 2))
    assert message(check_rows, X, [0, np.nan, 1]).startswith("y[1]=nan: must be a finite number; it is in row 1")
    assert message(check_rows, X, [0, 1, 1], [1, 1, np.inf]).startswith("weights[2]=inf: must be a finite number")
    assert message(check_rows, X, [0, 1]) == ("y: must have one entry for each of the 3 rows of X; found shape (2,)")
    assert message(check_rows, X, [0, 1, 1], [1]).startswith("weights: must have one entry for each of the 3")
    assert message(check_rows, X, [0, 1, 1], [1, -0.5, 1]) == (
        "weights[1]=-0.5: must be 0 or more; it is in row 1 (counted from 0)"
    )
    assert message(check_rows, X, [0, 1, 1], [0, 0, 0]) == "weights: all 3 are 0; at least one row must count"
    assert message(check_rows, X, ["a", "b", "a"]).startswith("y: must hold numbers; found entries of type")
    assert message(check_rows, np.ones(3), [0, 1, 1]).endswith("found shape (3,)")
    assert message(check_rows, np.ones((0, 2)), []).endswith("found shape (0, 2)")
    assert message(check_rows, X * 1j, [0, 1, 1]).endswith("found entries of type complex128")
    assert message(check_rows, np.array([["a"]], dtype=object), [1]).startswith("X: must be a matrix of real")


def test_a_shard_whose_rows_all_weigh_nothing():
    X, y = rows_and_labels(4)
    weights = [0, 0, 1, 1]
    assert message(partition, X, y, scheme="site", sites=[0, 0, 1, 1], weights=weights) == (
        "weights: all 2 rows of shard '0' have weight 0; every shard needs a row that counts: "
        "drop the rows with weight 0, or use fewer workers or another seed"
    )


# --- shards made by hand ---


def test_check_rows_converts_and_leaves_the_input_alone():
    doubled = sparse.csr_matrix((np.array([1, 2, 4]), np.array([1, 0, 1]), np.array([0, 3])), shape=(1, 2))
    X, y, weights = check_rows(doubled, [True], [2])
    assert X.toarray().tolist() == [[2, 5]]
    assert X.has_canonical_format
    assert doubled.nnz == 3
    assert doubled.indices.tolist() == [1, 0, 1]
    assert (y.dtype, weights.dtype) == (np.float64, np.float64)


def test_shard_of():
    shard = Shard.of(sparse.csr_array(np.eye(3)), [0, 1, 1], weights=[1, 2, 3], name="clinic")
    assert (shard.n_rows, shard.total_weight, shard.rows.tolist()) == (3, 6.0, [0, 1, 2])
    assert sparse.isspmatrix_csr(shard.X)
    arrays = [shard.X.data, shard.X.indices, shard.X.indptr, shard.y, shard.weights, shard.rows]
    assert shard.nbytes == sum(each.nbytes for each in arrays)
    assert repr(shard) == "Shard(name='clinic')"
    dense = Shard.of(np.eye(3), [0, 1, 1])
    assert (dense.nbytes, dense.name) == (3 * 3 * 8 + 3 * 8 + 3 * 8, "worker-0")
    assert message(Shard.of, np.eye(2), [0, 1], rows=[1]).startswith("rows: found (1,), must have one index")


@pytest.mark.parametrize(("n", "workers"), [(10, 3), (9, 3), (4, 4), (7, 1)])
def test_rows_as_they_lie_are_the_contiguous_ones_without_a_copy(n, workers):
    X, y = rows_and_labels(n)
    known = as_they_lie(X, y.astype(float), workers, None)
    for ours, theirs in zip(known, partition(X, y, workers=workers, scheme="contiguous"), strict=True):
        assert ours.name == theirs.name
        np.testing.assert_array_equal(ours.X, theirs.X)
        np.testing.assert_array_equal(ours.y, theirs.y)
        np.testing.assert_array_equal(ours.rows, theirs.rows)
        assert np.shares_memory(ours.X, X)
    assert sizes(known) == [len(rows) for rows in np.array_split(np.arange(n), workers)]


@pytest.mark.parametrize("scheme", ["iid", "contiguous", "sorted", "dirichlet", "quantity", "site"])
def test_offsets_stay_with_their_rows(scheme):
    rng = np.random.default_rng(0)
    X, y, offset = rng.normal(size=(40, 2)), rng.integers(0, 2, 40), rng.normal(size=40)
    options = {"sites": np.resize(["a", "b", "c"], 40)} if scheme == "site" else {"workers": 3}
    shards = partition(X, y, scheme=scheme, offset=offset, seed=1, **options)
    for shard in shards:
        np.testing.assert_array_equal(shard.offset, offset[shard.rows])
        np.testing.assert_array_equal(shard.X, X[shard.rows])
    assert partition(X, y, workers=3)[0].offset is None
    assert message(partition, X, y, workers=3, offset=offset[1:]).startswith("offset: must have one entry for each")
