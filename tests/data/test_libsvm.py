"""The LIBSVM reader against scikit-learn's: the same X and y, exactly, on files and on made-up text."""

import io
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sklearn.datasets import load_svmlight_file

from danl.data import libsvm
from danl.data.files import read_libsvm
from danl.errors import InputError

WIDE = {"lowest": 0, "highest": libsvm.MAX_INDEX}


@pytest.fixture(scope="module")
def shared_path(tmp_path_factory):
    return tmp_path_factory.mktemp("libsvm") / "shared"


def peer(text, **options):
    """What scikit-learn makes of the text, without the zeros it keeps."""
    X, y = load_svmlight_file(io.BytesIO(text), **{"zero_based": False} | options)
    X.eliminate_zeros()
    return X, y


def same(table, X, y):
    np.testing.assert_array_equal(table.X.data, X.data)
    np.testing.assert_array_equal(table.X.indices, X.indices)
    np.testing.assert_array_equal(table.X.indptr, X.indptr)
    np.testing.assert_array_equal(table.y, y)
    np.testing.assert_array_equal(np.signbit(table.y), np.signbit(y))
    assert table.X.shape == X.shape


@pytest.mark.parametrize("name", ["a1a", "a2a", "a3a", "a9a", "phishing", "w8a"])
def test_every_data_set_is_read_at_once_and_like_scikit_learn(data_dir, name):
    text = (data_dir / name).read_bytes()
    assert libsvm.read_at_once(text, lowest=1, highest=libsvm.MAX_INDEX) is not None
    same(read_libsvm(data_dir / name), *peer(text))


# --- made-up text ---

digits = st.text("0123456789", min_size=1, max_size=25)
numbers = (
    st.integers(-9, 9).map(str)
    | st.floats(allow_nan=False, allow_infinity=False).map(repr)
    | st.floats(-10, 10).map("{:.6g}".format)
    | digits
    | st.builds("{}{}.{}".format, st.sampled_from(["", "+", "-"]), digits, digits)
    | st.builds("{}{}.".format, st.sampled_from(["", "+", "-"]), digits)
    | st.builds("{}.{}".format, st.sampled_from(["", "+", "-"]), digits)
    | st.builds("{}{}{}".format, digits, st.sampled_from(["e", "E", "e+", "e-", ".5e"]), st.integers(0, 400))
    | st.sampled_from(["+1", "-1", "1e-3", "-0", "0.0", "-.0", "9007199254740993", "1e999", "00012"])
)
blanks = st.sampled_from([" ", "  ", "\t", " \t "])


@st.composite
def rows(draw):
    indices = sorted(draw(st.sets(st.integers(1, 40) | st.integers(1, 2000), max_size=6)))
    pairs = [f"{index}:{draw(numbers)}" for index in indices]
    row = draw(st.sampled_from(["", " ", "\t"])) + draw(blanks).join([draw(numbers), *pairs])
    return row + draw(st.sampled_from(["", " ", "\r", " \r", " # a note", "#1:1"]))


texts = st.lists(rows() | st.sampled_from(["", " ", "# a comment", "\r"]), min_size=1, max_size=8)


@pytest.mark.slow
@given(texts, st.booleans(), st.sampled_from([1, 16, 1 << 18]))
@example(["1 1:1"], False, 1)
@example(["-0 2:-0 3:5.", "+1"], True, 1)
@example(["1e5 2:1e999 3:-1e999 4:1e-999"], True, 16)
def test_text_that_is_well_formed_is_read_at_once_and_like_scikit_learn(shared_path, lines, ends, chunk):
    text = ("\n".join(lines) + "\n" * ends).encode()
    X, y = peer(text)
    libsvm._CHUNK, kept = chunk, libsvm._CHUNK
    try:
        assert libsvm.read_at_once(text, lowest=1, highest=libsvm.MAX_INDEX) is not None
        shared_path.write_bytes(text)
        if len(y):
            same(read_libsvm(shared_path), X, y)
            width = X.shape[1] + 3
            same(read_libsvm(shared_path, n_features=width), *peer(text, n_features=width))
    finally:
        libsvm._CHUNK = kept


@pytest.mark.slow
@given(texts)
def test_line_by_line_gives_the_same(lines):
    text = "\n".join(lines).encode()
    fast = libsvm.read_at_once(text, **WIDE)
    slow = libsvm.read_by_line("x", text, n_features=None, zero_based=True)
    for part in ("labels", "counts", "indices", "values"):
        np.testing.assert_array_equal(getattr(fast, part), getattr(slow, part))


@given(st.text("0123456789+-.eE: \t\r\n#_nax", max_size=30))
def test_any_text_is_read_alike_or_refused(text):
    """Whatever is read at once is what line by line reads, too; whatever that refuses is never read at once."""
    fast = libsvm.read_at_once(text.encode(), **WIDE)
    try:
        slow = libsvm.read_by_line("x", text.encode(), n_features=None, zero_based=True)
    except InputError:
        assert fast is None
        return
    if fast is not None:
        for part in ("labels", "counts", "indices", "values"):
            np.testing.assert_array_equal(getattr(fast, part), getattr(slow, part))


@pytest.mark.parametrize(
    "text",
    [
        b"1 1:nan",  # a number to Python, and so to the slow way
        b"1 +2:1",
        b"1 0000000000002:1",
        b"1 2:1 1:1",
        b"1 3:1 3:1",
        b"1 1:1:1",
        b"1:1 1",
        b"1 :1",
        b"1 1:",
        b"1 1:.",
        b"1 1:-",
        b"1 1:1-",
        b"1 1:1.2.3",
        b"1 1:1e",
        b"1 1:e1",
        b"- 1:1",
        b"1 1 1:1",
        b"1 qid:3 1:1",
        b"1 1:1_0",
        b"1 1:1\x0b2:1",
        b"1 9999999999:1",
        b"1 1:" + b"1" * 70,
        "1 1:\u0663".encode(),
    ],
)
def test_what_is_not_sure_goes_line_by_line(text):
    assert libsvm.read_at_once(b"1 1:1\n" + text + b"\n1 1:1\n", lowest=1, highest=libsvm.MAX_INDEX) is None


def test_what_only_the_slow_way_takes(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"1 +2:1 003:inf\x0b4:1\n")
    table = read_libsvm(path)
    assert table.X.toarray().tolist() == [[0, 1, np.inf, 1]]


def test_an_index_without_end_is_named(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"1 " + b"9" * 5000 + b":1\n")
    with pytest.raises(InputError, match=r"line 1: .*has too many digits"):
        read_libsvm(path)


def test_digits_of_another_script_are_no_number(tmp_path):
    path = tmp_path / "x"
    path.write_text("1 1:\u0663\n", encoding="utf-8")
    with pytest.raises(InputError, match="of index 1 is not a number"):
        read_libsvm(path)


def test_reading_imports_no_scikit_learn(tmp_path):
    path = tmp_path / "x"
    path.write_text("1 1:0.5\n-1 2:1e-3\n")
    code = (
        f"import sys, danl; danl.load_dataset({str(path)!r}); print('sklearn' in sys.modules, 'pandas' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=280, check=True)
    assert done.stdout.split() == ["False", "False"]
