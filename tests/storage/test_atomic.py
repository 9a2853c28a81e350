import pytest

from danl.storage.atomic import written_whole


def test_a_file_takes_its_place_when_it_is_whole(tmp_path):
    with written_whole(tmp_path / "a.csv") as partial:
        partial.write_text("new")
        assert not (tmp_path / "a.csv").exists()
        assert partial.suffix == ".csv"
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("a.csv", "new")]


def test_a_failure_leaves_what_was_there_and_nothing_else(tmp_path):
    (tmp_path / "a.csv").write_text("old")

    def write_half():
        with written_whole(tmp_path / "a.csv") as partial:
            partial.write_text("ha")
            raise OSError("the disk is full")

    with pytest.raises(OSError, match="the disk is full"):
        write_half()
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("a.csv", "old")]
