import bz2
import gzip
import lzma
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from sklearn.datasets import dump_svmlight_file

from danl.data.files import file_format, read_csv, read_libsvm, read_parquet
from danl.errors import InputError

FORM = "expected '<label> <index>:<value> ...' with indices that increase"
PACKINGS = [("", bytes), (".bz2", bz2.compress), (".gz", gzip.compress), (".xz", lzma.compress)]


def message(read, path, **options):
    with pytest.raises(InputError) as caught:
        read(path, **options)
    return str(caught.value)


@pytest.fixture
def write(tmp_path):
    def write(text, name="bad.libsvm"):
        path = tmp_path / name
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    return write


@pytest.fixture(scope="module")
def shared_path(tmp_path_factory):
    """One path for all examples of a hypothesis test."""
    return tmp_path_factory.mktemp("files") / "shared.libsvm"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a1a", "libsvm"),
        ("x.bz2", "libsvm"),
        ("x.libsvm", "libsvm"),
        ("x.CSV", "csv"),
        ("x.csv.gz", "csv"),
        ("x.v2.parquet", "parquet"),
        ("x.pq", "parquet"),
    ],
)
def test_format_from_the_name(tmp_path, name, expected):
    assert file_format(tmp_path / name) == expected


# --- LIBSVM ---


@pytest.mark.parametrize(("suffix", "pack"), PACKINGS)
def test_libsvm_plain_and_packed(write, suffix, pack):
    text = b"# made by hand\n+1 1:0.5 3:2\n\n-1 # no entries\n+1 2:-1e-3 \r\n"
    table = read_libsvm(write(pack(text), "good.libsvm" + suffix), n_features=4)
    assert sparse.isspmatrix_csr(table.X)
    assert table.X.dtype == np.float64
    assert table.X.indices.dtype == np.int32
    assert table.X.toarray().tolist() == [[0.5, 0, 2, 0], [0, 0, 0, 0], [0, -1e-3, 0, 0]]
    assert table.y.tolist() == [1, -1, 1]
    assert table.feature_names is table.sites is table.weights is None


def test_libsvm_zero_based(write):
    path = write("1 0:1 2:3\n")
    assert read_libsvm(path, zero_based=True).X.toarray().tolist() == [[1, 0, 3]]
    assert read_libsvm(path, zero_based=True, n_features=3).X.shape == (1, 3)


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("+1 4:x 7:1", "the value 'x' of index 4 is not a number"),
        ("+1 4:", "the value '' of index 4 is not a number"),
        ("+1 4:1_0", "the value '1_0' of index 4 is not a number"),
        ("+1 4 7:1", "'4' has no colon"),
        ("4:1 7:1", "the label is missing before '4:1'"),
        ("yes 4:1", "the label 'yes' is not a number"),
        ("+1 a:1", "the index 'a' is not a whole number"),
        ("+1 1_0:1", "the index '1_0' is not a whole number"),
        ("+1 1.0:1", "the index '1.0' is not a whole number"),
        ("+1 qid:3 4:1", "the index 'qid' is not a whole number"),
        ("+1 7:1 4:1", "the index 4 comes after 7"),
        ("+1 4:1 4:1", "the index 4 comes twice"),
        ("+1 -4:1", "the index -4 is negative"),
        ("+1 11:1", "the index 11 is beyond n_features=10"),
        ("+1 0:1", "index 0 in a file that counts from 1; pass zero_based=True if it counts from 0"),
        ("+1 99999999999999999999:1", "the index 99999999999999999999 is beyond n_features=10"),
    ],
)
def test_malformed_line_is_named(write, line, fault):
    path = write(f"# header_comment\n-1 1:1 10:1\n{line}\n+1 2:1\n")
    assert message(read_libsvm, path, n_features=10) == (
        f"{path}, line 3: {line!r}: {fault}; {FORM}; the file was not loaded"
    )


def test_n_features_counts_from_zero_in_a_zero_based_file(write):
    path = write("1 10:1\n")
    assert "the index 10 is beyond n_features=10" in message(read_libsvm, path, n_features=10, zero_based=True)


def test_an_index_no_matrix_can_hold(write):
    assert "the index 3000000000 is beyond 2147483647" in message(read_libsvm, write("1 3000000000:1\n"))


def test_long_lines_are_shortened(write):
    line = "1 " + " ".join(f"{index}:1" for index in range(1, 500)) + " oops"
    text = message(read_libsvm, write(line + "\n"))
    assert f", line 1: '{line[:57]}...': 'oops' has no colon; expected" in text


def test_underscores_and_qid_in_comments_are_fine(write):
    assert read_libsvm(write("# qid:1 by_hand\n1 1:1 # a_1\n")).X.shape == (1, 1)


@pytest.mark.parametrize("text", ["", "\n \n", "# only a comment\n\n"])
def test_no_rows(write, text):
    path = write(text)
    assert message(read_libsvm, path) == (
        f"{path}: holds no rows (it is empty, or only comments and blank lines); {FORM}"
    )


def test_bytes_that_are_no_text(write):
    path = write(b"1 1:1\n\xff\xfe\x00 1:1\n")
    assert message(read_libsvm, path).startswith(f"{path}, line 2: ")


@pytest.mark.parametrize("read", [read_libsvm, read_csv, read_parquet])
def test_no_such_file(read, tmp_path):
    path = tmp_path / "none"
    assert message(read, path) == f"{path}: there is no such file; check the path"
    assert message(read, tmp_path) == f"{tmp_path}: is a folder; give the path of one file"


@pytest.mark.parametrize("suffix", [".bz2", ".gz", ".xz"])
@pytest.mark.parametrize("read", [read_libsvm, read_csv])
def test_broken_archive(read, write, suffix):
    path = write("not packed", "bad" + suffix)
    assert message(read, path).startswith(f"{path}: cannot be read: ")


@pytest.mark.parametrize("n_features", [0, -3, True])
def test_bad_n_features(write, n_features):
    assert message(read_libsvm, write("1 1:1\n"), n_features=n_features) == (
        f"n_features={n_features}: must be a whole number >= 1; None takes it from the file"
    )


entries = st.floats(-1e6, 1e6, allow_subnormal=False)


@st.composite
def matrices(draw):
    rows, columns = draw(st.integers(1, 6)), draw(st.integers(1, 6))
    flat = draw(st.lists(st.just(0.0) | entries, min_size=rows * columns, max_size=rows * columns))
    return np.array(flat).reshape(rows, columns)


@given(matrices(), st.booleans())
def test_libsvm_round_trip(shared_path, X, zero_based):
    y = np.arange(len(X)) % 2 * 2.0 - 1
    dump_svmlight_file(X, y, str(shared_path), zero_based=zero_based)
    table = read_libsvm(shared_path, n_features=X.shape[1], zero_based=zero_based)
    np.testing.assert_allclose(table.X.toarray(), X, rtol=1e-15)
    assert table.y.tolist() == y.tolist()


@given(st.data())
def test_a_mutated_line_is_read_or_named(shared_path, data):
    """One character replaced anywhere: the file loads with its shape, or the error names the very line."""
    lines = ["+1 1:1 4:0.5 10:1", "-1 2:1 3:1", "+1 5:-2 9:3e1"]
    number = data.draw(st.integers(0, 2))
    position = data.draw(st.integers(0, len(lines[number]) - 1))
    character = data.draw(st.sampled_from("0123456789:.+-eEx_ #\t"))
    lines[number] = lines[number][:position] + character + lines[number][position + 1 :]
    shared_path.write_text("\n".join(lines) + "\n")
    table, text = None, ""
    try:
        table = read_libsvm(shared_path, n_features=10)
    except InputError as error:
        text = str(error)
    if table is None:
        assert text.startswith(f"{shared_path}, line {number + 1}: {lines[number].strip()!r}: ")
        assert text.endswith(f"; {FORM}; the file was not loaded")
    else:
        kept = [line for line in lines if line.partition("#")[0].strip()]
        assert table.X.shape == (len(kept), 10)
        for row, line in enumerate(kept):
            label, *pairs = line.partition("#")[0].split()
            assert table.y[row] == float(label)
            expected = {int(i) - 1: float(v) for i, v in (pair.split(":") for pair in pairs)}
            assert "_" not in "".join(pairs)
            np.testing.assert_array_equal(
                table.X[row].toarray()[0], [expected.get(column, 0.0) for column in range(10)]
            )


# --- CSV ---


@pytest.mark.parametrize(("suffix", "pack"), PACKINGS)
def test_csv(write, suffix, pack):
    text = b'\xef\xbb\xbfage, "income, net",bought\n30,1.5,yes\n\n41,-2e3,no\n'
    table = read_csv(write(pack(text), "good.csv" + suffix))
    assert table.X.tolist() == [[30, 1.5], [41, -2000]]
    assert table.X.dtype == np.float64
    assert table.X.flags.c_contiguous
    assert table.y.tolist() == ["yes", "no"]
    assert table.feature_names == ("age", "income, net")
    assert table.sites is table.weights is None


def test_csv_columns_by_name(write):
    path = write("y,a,w,b,clinic\n1,2,0.5,3,north\n0,4,1,5,south\n", "x.csv")
    table = read_csv(path, target_column="y", site_column="clinic", weight_column="w")
    assert table.X.tolist() == [[2, 3], [4, 5]]
    assert table.y.tolist() == [1.0, 0.0]
    assert table.feature_names == ("a", "b")
    assert table.sites.tolist() == ["north", "south"]
    assert table.weights.tolist() == [0.5, 1.0]


def test_csv_default_target_is_the_last_column_without_another_part(write):
    path = write("a,y,w\n2,1,0.5\n", "x.csv")
    table = read_csv(path, weight_column="w")
    assert (table.feature_names, table.y.tolist()) == (("a",), [1.0])


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        (
            "a,b,y\n1,2,0\n1,x,1\n",
            ", line 3 (row 1, counted from 0), column 'b': 'x' is not a number; encode or",
        ),
        ("a,b,y\n1,1_0,0\n", ", line 2 (row 0, counted from 0), column 'b': '1_0' is not a number"),
        ("a,b,y\n1,True,0\n", ", line 2 (row 0, counted from 0), column 'b': 'True' is not a number"),
        ("a,b,y\n1,,0\n", ", line 2 (row 0, counted from 0), column 'b': the value is missing; fill it in"),
        ("a,b,y\n\nNaN,2,0\n", ", line 3 (row 0, counted from 0), column 'a': the value is missing"),
        ("a,b,y\n-nan,2,0\n", ", line 2 (row 0, counted from 0), column 'a': the value is missing"),
        ("a,b,y\n1,2,\n", ", line 2 (row 0, counted from 0), column 'y': the value is missing"),
        ("a,b,y\n1,2,0\n1,2\n", ", line 3: '1,2': found 2 cells, expected 3 as in the header; the file was"),
        ("a,b,y\n1,2,0,4\n", ", line 2: '1,2,0,4': found 4 cells, expected 3 as in the header"),
        ('a,b,y\n1,"2,0\n', ", line 2: unexpected end of data; expected comma-separated text in UTF-8"),
        (b"a,b,y\n1,\xff,0\n", "expected comma-separated text in UTF-8"),
        ("", ": is empty; expected a header line with the column names, then rows"),
        ("a,b,y\n", ": holds a header line and no rows"),
        ("1,0.5,0\n2,0.5,1\n", ", line 1: '1,0.5,0': expected the column names, found numbers; put a header"),
        ("a,a,y\n1,2,3\n", ": two columns are called 'a'; names must differ"),
        ("y\n1\n", ": expected a target and at least one feature, found the columns y; columns are parted"),
    ],
)
def test_bad_csv(write, text, rest):
    path = write(text, "bad.csv")
    text = message(read_csv, path)
    assert text.startswith(str(path))
    assert rest in text


def test_csv_header_of_counted_columns(write):
    """What pandas and olpy write for a table without names."""
    assert read_csv(write("0,1\n5,1\n6,0\n", "x.csv")).feature_names == ("0",)


def test_csv_unknown_column(write):
    path = write("age,bought\n1,0\n", "x.csv")
    assert message(read_csv, path, target_column="brought") == (
        f"target_column='brought': must be a column of {path}; its columns are: bought, age"
    )
    assert message(read_csv, path, target_column="age", site_column="age") == (
        "site_column='age': must be another column than target_column"
    )


def test_csv_missing_site(write):
    path = write("a,site,y\n1,NA,0\n1,,0\n", "x.csv")
    assert "line 3 (row 1, counted from 0), column 'site': the value is missing" in message(
        read_csv, path, site_column="site"
    )


# --- Parquet ---


def parquet(tmp_path, **columns):
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table(columns), path)
    return path


def test_parquet(tmp_path):
    path = parquet(
        tmp_path,
        a=[1, 2],
        b=[True, False],
        c=pa.array([0.5, 1.5], pa.float32()),
        site=pa.array(["n", "s"]).dictionary_encode(),
        w=[1, 2],
        y=["no", "yes"],
        __index_level_0__=[7, 8],
    )
    table = read_parquet(path, site_column="site", weight_column="w")
    assert table.X.tolist() == [[1, 1, 0.5], [2, 0, 1.5]]
    assert table.X.dtype == np.float64
    assert table.y.tolist() == ["no", "yes"]
    assert table.feature_names == ("a", "b", "c")
    assert table.sites.tolist() == ["n", "s"]
    assert table.weights.tolist() == [1.0, 2.0]


def test_parquet_numbers_stay_numbers(tmp_path):
    table = read_parquet(parquet(tmp_path, a=[1, 2], site=[3, 4], y=[0, 1]), site_column="site")
    assert table.y.dtype == np.float64
    assert table.sites.tolist() == [3, 4]


@pytest.mark.parametrize(
    ("columns", "rest"),
    [
        ({"a": [1, None], "y": [0, 1]}, ", row 1 (counted from 0), column 'a': the value is missing"),
        ({"a": [1, 2], "y": ["x", None]}, ", row 1 (counted from 0), column 'y': the value is missing"),
        ({"a": ["1", "2"], "y": [0, 1]}, ", column 'a': must hold numbers, found string"),
        ({"a": pa.array([], pa.int64()), "y": pa.array([], pa.int64())}, ": holds no rows"),
        ({"y": [0, 1]}, ": expected a target and at least one feature"),
    ],
)
def test_bad_parquet(tmp_path, columns, rest):
    path = parquet(tmp_path, **columns)
    assert message(read_parquet, path).startswith(f"{path}{rest}")


def test_not_parquet(write):
    path = write("a,b\n1,2\n", "x.parquet")
    assert message(read_parquet, path).startswith(f"{path}: is not a Parquet file: ")


def test_parquet_without_pyarrow(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert message(read_parquet, tmp_path / "x.parquet") == (
        f"{tmp_path / 'x.parquet'}: needs pyarrow; install it with pip install 'danl[parquet]'"
    )
