"""Files that only grow: what was marked comes back, and no more."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from danl.storage.appended import Appended
from danl.storage.arrays import UnreadableError


def test_a_mark_gives_back_so_much_and_cuts_off_the_rest(tmp_path):
    path = tmp_path / "rows"
    log = Appended(path)
    log.append(b"one ")
    mark = log.mark
    log.append(b"two ")
    with path.open("ab") as file:
        file.write(b"tor")
    again, data = Appended.reopen(path, mark)
    assert (data, again.mark) == (b"one ", mark)
    assert path.read_bytes() == b"one two tor"  # nothing is cut off before there is something to add
    again.append(b"three ")
    assert path.read_bytes() == b"one three "
    assert Appended.reopen(path, again.mark)[1] == b"one three "


def test_what_a_failed_append_left_is_cut_off(tmp_path):
    path = tmp_path / "rows"
    log = Appended(path)
    log.append(b"one ")
    with path.open("ab") as file:
        file.write(b"tw")  # the disk was full after so much
    log.append(b"two ")
    assert path.read_bytes() == b"one two "


def test_a_file_that_is_gone_or_shorter_is_not_added_to(tmp_path):
    path = tmp_path / "rows"
    log = Appended(path)
    log.append(b"one ")
    path.write_bytes(b"on")
    with pytest.raises(UnreadableError, match="rows has become shorter"):
        log.append(b"two ")
    path.unlink()
    with pytest.raises(UnreadableError, match="rows is gone"):
        log.append(b"two ")
    assert not path.exists()


@settings(max_examples=300, deadline=None)
@given(st.binary(min_size=1, max_size=60), st.data())
def test_any_change_before_the_mark_is_noticed_and_none_after_it(tmp_path_factory, data, draw):
    path = tmp_path_factory.mktemp("log") / "rows"
    log = Appended(path)
    log.append(data)
    more = draw.draw(st.binary(max_size=20))
    place, change = draw.draw(st.integers(0, len(data) + len(more) - 1)), draw.draw(st.integers(1, 255))
    whole = bytearray(data + more)
    whole[place] ^= change
    cut = draw.draw(st.integers(0, len(whole)))
    path.write_bytes(whole[:cut])
    if bytes(whole[:cut])[: len(data)] == data:
        assert Appended.reopen(path, log.mark)[1] == data
    else:
        with pytest.raises(UnreadableError, match="torn or changed"):
            Appended.reopen(path, log.mark)
