"""Copies of a site's rows: the same rows, of the file as it is, and readable by nobody else."""

import os

import numpy as np
import pytest
from scipy import sparse

import danl
from danl.data import Shard
from danl.engines.flower import kept_rows
from danl.engines.flower.kept_rows import KeptRows
from danl.engines.flower.opening import Opening
from danl.engines.flower.site import Site
from danl.engines.flower.sitefiles import write_sites
from danl.errors import InputError
from danl.objective.problem import RemoteProblem
from danl.objective.regions import Regions
from danl.protocol.messages import GradientTask
from danl.protocol.wire import encode

NAMES = ("age", "bmi")


def shard_of(as_sparse=False, weighted=True, names=NAMES):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(7, 2))
    X = sparse.csr_matrix(X) if as_sparse else X
    return Shard.of(X, rng.normal(size=7), weights=rng.random(7) if weighted else None, feature_names=names)


class Reader:
    """A file that is read, and how often."""

    def __init__(self, tmp_path, shard):
        self.file, self.shard, self.times = tmp_path / "rows.csv", shard, 0
        self.file.write_text("as it is")
        self.kept = KeptRows(str(self.file), tmp_path / "copies", worth=0.0, settled=-1.0)

    def __call__(self):
        self.times += 1
        return self.shard

    def read(self, terms="terms"):
        return self.kept.read(self, terms)

    @property
    def copies(self):
        return sorted((self.file.parent / "copies").glob("*"))


@pytest.mark.parametrize("as_sparse", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("names", [NAMES, None])
def test_a_copy_is_the_rows_to_the_bit(as_sparse, weighted, names, tmp_path):
    reader = Reader(tmp_path, shard_of(as_sparse, weighted, names))
    reader.read()
    read = reader.read()
    assert reader.times == 1
    wanted = reader.shard
    assert sparse.issparse(read.X) == as_sparse
    assert (read.X != wanted.X).sum() == 0
    for name in ("y", "rows", "weights"):
        assert np.array_equal(getattr(read, name), getattr(wanted, name)) or getattr(read, name) is None
    assert (read.weights is None) == (not weighted)
    assert (read.name, read.feature_names, read.target_name) == (wanted.name, names, None)


@pytest.mark.parametrize("change", ["content", "time", "terms", "version", "another file"])
def test_what_decides_the_rows_is_part_of_the_key(change, tmp_path, monkeypatch):
    reader = Reader(tmp_path, shard_of())
    reader.read()
    terms = "terms"
    if change == "content":
        reader.file.write_text("as it is not")
    elif change == "time":
        os.utime(reader.file, ns=(1, 1))
    elif change == "terms":
        terms = "others"
    elif change == "version":
        monkeypatch.setattr(kept_rows, "__version__", "0")
    else:
        content = reader.file.read_text()
        reader.file.rename(tmp_path / "old")
        reader.file.write_text(content)
    reader.read(terms)
    assert reader.times == 2


def test_a_content_of_the_same_size_and_time_is_seen(tmp_path):
    """Nobody can set back the time at which the file system saw a change."""
    reader = Reader(tmp_path, shard_of())
    before = reader.file.stat()
    reader.read()
    reader.file.write_text("as it as")
    os.utime(reader.file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert reader.file.stat().st_mtime_ns == before.st_mtime_ns
    reader.read()
    assert reader.times == 2


def test_nobody_else_can_read_a_copy(tmp_path):
    reader = Reader(tmp_path, shard_of())
    before = os.umask(0)
    try:
        reader.read()
    finally:
        os.umask(before)
    (copy,) = reader.copies
    assert copy.stat().st_mode & 0o777 == 0o600
    assert copy.parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("spoiled", ["cut", "no archive", "open to others", "folder open to others", "another's key"])
def test_a_copy_that_is_not_sound_is_not_used(spoiled, tmp_path):
    reader = Reader(tmp_path, shard_of())
    reader.read()
    (copy,) = reader.copies
    if spoiled == "cut":
        copy.write_bytes(copy.read_bytes()[:-100])
    elif spoiled == "no archive":
        copy.write_bytes(b"nothing")
    elif spoiled == "open to others":
        copy.chmod(0o644)
    elif spoiled == "folder open to others":
        copy.parent.chmod(0o755)
    else:
        reader.read("others")
        (other,) = set(reader.copies) - {copy}
        other.replace(copy)
        reader.times -= 1
    assert np.array_equal(reader.read().X, reader.shard.X)
    assert reader.times == 2


def test_no_more_than_two_copies_of_a_file(tmp_path):
    reader = Reader(tmp_path, shard_of())
    for terms in "abcd":
        reader.read(terms)
    assert len(reader.copies) == 2
    reader.read("d")
    assert reader.times == 4


@pytest.mark.parametrize("why", ["quick", "just changed", "off", "changed while read", "no room"])
def test_what_is_not_kept(why, tmp_path, monkeypatch):
    reader = Reader(tmp_path, shard_of())
    if why == "quick":
        reader.kept = KeptRows(str(reader.file), tmp_path / "copies", worth=60.0, settled=-1.0)
    elif why == "just changed":
        reader.kept = KeptRows(str(reader.file), tmp_path / "copies", worth=0.0)
    elif why == "off":
        reader.kept = KeptRows(str(reader.file), None, worth=0.0, settled=-1.0)
    elif why == "no room":
        (tmp_path / "copies").write_text("a file where the folder would be")

    def read():
        if why == "changed while read":
            reader.file.write_text(f"changed {reader.times}")
        return reader()

    reader.kept.read(read, "terms")
    assert not reader.copies
    reader.kept.read(read, "terms")
    assert reader.times == 2


def test_a_site_answers_from_its_copy_as_from_its_file(tmp_path, monkeypatch):
    data = danl.load_dataset("a1a")
    shards = danl.partition(data.X, data.y, workers=2, seed=0)
    config = write_sites(shards, tmp_path, binary=True)[0]
    site = Site.from_config(config | {"keep-rows": False})
    assert site.copies is None
    keeping = Site(site.name, site.reference, site.rules, tmp_path / "copies")
    terms = Opening.of(RemoteProblem(alpha=1e-3), regions=Regions.make(4, 123), policy=None, seed=0)
    task = encode(GradientTask(0, np.full(123, 0.1)))

    def kept(self, read, terms, original=KeptRows.read):
        return original(KeptRows(self.path, self.folder, 0.0, -1.0), read, terms)

    monkeypatch.setattr(KeptRows, "read", kept)
    answers = [each.answer(task, terms.to_json(0)) for each in (site, keeping, keeping)]
    assert len(list((tmp_path / "copies").iterdir())) == 1
    assert answers[0] == answers[1] == answers[2]


def test_whether_rows_are_kept_is_a_word_of_the_site(tmp_path):
    config = {"name": "north", "data": "north.csv"}
    assert Site.from_config(config).copies is not None
    assert Site.from_config(config | {"keep-rows": False}).copies is None
    with pytest.raises(InputError, match="keep-rows='no': must be true or false"):
        Site.from_config(config | {"keep-rows": "no"})
