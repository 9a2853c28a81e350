import dataclasses

import numpy as np
import pytest
from scipy import sparse

from danl.data import Dataset, load_dataset
from danl.data.dataset import encode_labels
from danl.data.registry import REGISTRY
from danl.errors import InputError


def message(*args, **options):
    with pytest.raises(InputError) as caught:
        load_dataset(*args, **options)
    return str(caught.value)


@pytest.fixture
def write(tmp_path):
    def write(text, name="x.libsvm"):
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


def test_a1a():
    data = load_dataset("a1a")
    assert isinstance(data, Dataset)
    assert (data.n_rows, data.n_features) == (1605, 123)
    assert sparse.isspmatrix_csr(data.X)
    assert data.X.dtype == data.y.dtype == np.float64
    assert data.X.nnz == 22_249
    assert (data.y == 1).sum() == 395
    assert (data.y == 0).sum() == 1210
    assert data.name == "a1a"
    assert data.classes == (-1, 1)
    assert data.feature_names is data.sites is data.weights is None
    assert "a1a" in repr(data)
    assert len(repr(data)) < 500


@pytest.mark.parametrize("name", ["a2a", "a3a", "phishing", "a9a", "w8a"])
def test_registered_sets(data_dir, monkeypatch, name):
    monkeypatch.setenv("DANL_DATA_DIR", str(data_dir))
    data = load_dataset(name)
    assert data.X.shape == (REGISTRY[name].rows, REGISTRY[name].features)
    assert set(np.unique(data.y)) == {0.0, 1.0}
    assert data.source == str(data_dir / name)


def test_a_dataset_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        load_dataset("a1a").name = "mine"


# --- names and paths ---


def test_a_registered_name_wins_and_a_path_is_explicit(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a1a").write_text("1 1:1\n0 2:1\n")
    (tmp_path / "covtype.binary").write_text("1 1:1\n0 2:1\n")
    (tmp_path / "mine").write_text("1 1:1\n0 2:1\n")
    assert load_dataset("a1a").n_rows == 1605
    assert load_dataset("./a1a").n_rows == 2
    assert load_dataset(tmp_path / "a1a").n_rows == 2
    assert load_dataset("mine").name == "mine"
    monkeypatch.setenv("DANL_OFFLINE", "1")
    monkeypatch.delenv("DANL_DATA_DIR", raising=False)
    assert "the data set covtype.binary is not on this machine" in message("covtype.binary")


def test_unknown_name():
    assert message("a11a").startswith("name='a11a': must be one of a1a, ")


@pytest.mark.parametrize("name", ["none.csv", "none.libsvm", "folder/none"])
def test_no_such_file(name):
    assert message(name) == f"{name}: there is no such file; check the path"


def test_a_registered_set_must_have_its_shape(tmp_path, monkeypatch):
    (tmp_path / "a4a").write_text("1 1:1\n-1 2:1\n")
    monkeypatch.setenv("DANL_DATA_DIR", str(tmp_path))
    assert message("a4a") == (
        f"{tmp_path / 'a4a'} is not the data set a4a: found 2 rows and 123 features, expected 4781 and 123; "
        f"replace it by the file from {REGISTRY['a4a'].url}"
    )
    (tmp_path / "a4a").write_text("1 124:1\n")
    assert "line 1: '1 124:1': the index 124 is beyond n_features=123" in message("a4a")


# --- labels ---


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        (["0", "1", "1"], (0, 1)),
        (["-1", "+1", "1"], (-1, 1)),
        (["1", "2", "2"], (1, 2)),
        (["0.5", "1.5", "1.5"], (0.5, 1.5)),
        (["no", "yes", "yes"], ("no", "yes")),
        (["1", "yes", "yes"], ("1", "yes")),
    ],
)
def test_two_labels_become_0_and_1_in_sorted_order(write, labels, classes):
    data = load_dataset(write("a,y\n" + "".join(f"1,{label}\n" for label in labels), "x.csv"))
    assert data.y.tolist() == [0, 1, 1]
    assert data.y.dtype == np.float64
    assert data.classes == classes
    assert [type(each) for each in data.classes] == [type(each) for each in classes]


def test_one_class_only(write):
    path = write("1 1:1\n1 2:1\n")
    assert message(path) == (
        f"{path}: y: found only the value 1 in 2 rows; target='binary' needs exactly two different values; "
        "check the target, or bring rows of both classes"
    )


def test_more_than_two_classes(write):
    path = write("".join(f"{label} 1:1\n" for label in range(37)))
    assert message(path) == (
        f"{path}: y: found 37 different values (0, 1, 2, 3, 4, ...); target='binary' needs exactly two; "
        "for a real-valued target use loss squared or poisson (load_dataset(..., target='real') in Python), "
        "for more classes loss multinomial (target='classes')"
    )
    assert "found 3 different values ('a', 'b', 'c');" in message(write("x,y\n1,a\n2,b\n3,c\n", "x.csv"))


def test_real_target(write):
    data = load_dataset(write("2.5 1:1\n-7 2:1\n0 1:1\n"), target="real")
    assert data.y.tolist() == [2.5, -7, 0]
    assert data.classes is None


def test_real_target_must_be_numbers(write):
    path = write("a,y\n1,2\n1,big\n", "x.csv")
    assert message(path, target="real") == (
        f"{path}: y[1]='big': must be a number for target='real'; it is in row 1 (counted from 0)"
    )


def test_bad_target():
    assert message("a1a", target="count") == "target='count': must be 'binary', 'classes' or 'real'"


def test_encode_labels_leaves_its_input_alone():
    labels = np.array([3.0, 2.0, 3.0])
    y, classes = encode_labels(labels)
    assert (y.tolist(), classes, labels.tolist()) == ([1, 0, 1], (2, 3), [3, 2, 3])


# --- entries that are not finite; weights ---


@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
def test_not_finite_in_libsvm(write, value):
    path = write(f"1 1:1\n0 1:1 3:{value}\n")
    assert message(path) == (
        f"{path}: X[1, 2]={value}: must be a finite number; it is in row 1 (counted from 0), "
        "column 2 (counted from 0): fill it in or drop the row"
    )
    path = write(f"1 1:1\n{value} 1:1\n")
    assert message(path) == (
        f"{path}: y[1]={value}: must be a finite number; it is in row 1 (counted from 0): fill it in or drop the row"
    )


def test_not_finite_in_csv_names_the_column(write):
    path = write("age,y\n1,0\ninf,1\n", "x.csv")
    assert message(path) == (
        f"{path}: X[1, 0]=inf: must be a finite number; it is in row 1 (counted from 0), column 'age': "
        "fill it in or drop the row"
    )
    assert "column 'age': the value is missing" in message(write("age,y\n1,0\nnan,1\n", "x.csv"))


def test_sites_and_weights(write):
    path = write("a,site,w,y\n1,north,0,0\n2,south,2.5,1\n", "x.csv")
    data = load_dataset(path, site_column="site", weight_column="w")
    assert data.sites.tolist() == ["north", "south"]
    assert data.weights.tolist() == [0, 2.5]
    assert data.feature_names == ("a",)
    assert data.n_features == 1


def test_negative_weights(write):
    path = write("a,w,y\n1,1,0\n2,-2.5,1\n", "x.csv")
    assert message(path, weight_column="w") == (
        f"{path}: weights[1]=-2.5: must be 0 or more; it is in row 1 (counted from 0)"
    )


def test_weights_all_zero(write):
    path = write("a,w,y\n1,0,0\n2,0,1\n", "x.csv")
    assert message(path, weight_column="w") == f"{path}: weights: all 2 are 0; at least one row must count"


# --- options that do not fit ---


def test_options_that_do_not_fit(write):
    csv, libsvm = write("a,y\n1,0\n2,1\n", "x.csv"), write("1 1:1\n0 1:1\n")
    assert message(csv, n_features=3) == (f"n_features and zero_based are for LIBSVM text; leave them out for {csv}")
    assert message(libsvm, site_column="s") == (
        f"site_column='s': must be left out: {libsvm} is LIBSVM text, without columns"
    )
    assert message("a1a", n_features=5) == "n_features=5: must be 123 for the data set a1a; or left out"
    assert message("a1a", zero_based=True) == "zero_based=True: must be False: the data set a1a counts from 1"
    assert load_dataset("a1a", n_features=123).n_features == 123
    assert load_dataset(libsvm, n_features=5).n_features == 5
