import re

import pytest

from danl.data.registry import REGISTRY, lookup
from danl.errors import InputError


def test_all_the_names_are_there():
    expected = [f"a{i}a" for i in range(1, 10)] + [f"w{i}a" for i in range(1, 9)]
    assert list(REGISTRY) == [*expected, "phishing", "mushrooms", "ijcnn1", "covtype.binary"]


@pytest.mark.parametrize("entry", REGISTRY.values(), ids=lambda entry: entry.name)
def test_entries_are_consistent(entry):
    assert lookup(entry.name) is entry
    assert entry.url == f"https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary/{entry.filename}"
    assert entry.filename == entry.plain_filename + (f".{entry.packed}" if entry.packed else "")
    assert entry.sha256 is None or re.fullmatch("[0-9a-f]{64}", entry.sha256)


def test_packed_sets_keep_the_sites_file_names():
    assert lookup("covtype.binary").filename == "covtype.libsvm.binary.bz2"
    assert lookup("covtype.binary").plain_filename == "covtype.libsvm.binary"
    assert lookup("ijcnn1").filename == "ijcnn1.bz2"


def test_unknown_name_lists_the_closest_first():
    with pytest.raises(InputError) as caught:
        lookup("fishing")
    others = ", ".join(name for name in REGISTRY if name != "phishing")
    assert str(caught.value) == (
        f"name='fishing': must be one of phishing, {others}; "
        "or give the path of a LIBSVM, CSV or Parquet file that exists"
    )


def test_the_registry_cannot_be_changed():
    with pytest.raises(TypeError):
        REGISTRY["mine"] = lookup("a1a")
