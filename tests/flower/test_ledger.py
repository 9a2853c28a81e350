"""The ledger of a site: sets of records that must not differ by few, counts, and what happens to its files."""

import json
import multiprocessing
import stat
from dataclasses import replace

import numpy as np
import pytest

from danl.data import Shard
from danl.data.reference import ShardReference
from danl.engines.flower import ledger as ledgers
from danl.engines.flower.ledger import KEY, SETS, STATE, Ledger, default_folder
from danl.engines.flower.record_hashes import differing, file_records, hashes_of
from danl.engines.flower.site_rules import RefusedError, SiteRules
from danl.errors import InputError

X = np.random.default_rng(0).standard_normal((60, 3))
Y = np.arange(60) % 2.0


@pytest.fixture
def ledger(tmp_path):
    return Ledger(tmp_path / "ledger", SiteRules())


def of_rows(rows, X=X, y=Y, **terms):
    return lambda key: hashes_of(Shard.of(X[rows], y[rows], **terms), ShardReference(load=lambda: None), key)


def refused(ledger, rows, **terms):
    try:
        ledger.claim(of_rows(rows, **terms))
    except RefusedError as error:
        return str(error).startswith("changed-data: fewer than min-rows=10 records differ")
    return False


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (slice(0, 50), False),
        (slice(0, 51), True),
        (slice(1, 50), True),
        (slice(0, 59), True),
        (slice(0, 60), False),
        (slice(5, 55), False),
        (slice(4, 54), True),
        ([*range(49), 49, 49], True),
        (list(reversed(range(50))), False),
    ],
    ids=[
        "same",
        "one more",
        "one less",
        "9 more",
        "10 more",
        "10 exchanged",
        "8 exchanged",
        "one twice",
        "another order",
    ],
)
def test_sets_are_the_same_or_differ_by_many(ledger, rows, expected):
    assert not refused(ledger, slice(0, 50))
    assert refused(ledger, rows) is expected
    assert Ledger(ledger.folder, replace(SiteRules(), changed_data=True)).claim(of_rows(rows)) is None


def test_every_set_counts_not_only_the_newest(ledger):
    assert not refused(ledger, slice(0, 20))
    assert not refused(ledger, slice(0, 40))
    assert not refused(ledger, slice(0, 60))
    assert refused(ledger, slice(0, 39))
    assert refused(ledger, slice(0, 21))


def test_a_set_that_was_refused_is_none_that_was_answered_about(ledger):
    assert not refused(ledger, slice(0, 40))
    assert refused(ledger, slice(0, 45))
    assert not refused(ledger, slice(0, 50))  # 10 from the first, 5 from the one that was refused


def test_what_makes_a_record_another():
    key = bytes(32)

    def of(*args, **terms):
        return hashes_of(Shard.of(*args, **terms), ShardReference(load=lambda: None), key)["rows"]

    names = of(X, Y, feature_names=["a", "b", "c"])
    assert differing(names, of(X[:, [2, 0, 1]], Y, feature_names=["c", "a", "b"])) == 0
    assert differing(of(X, Y), of(X + 0.0, Y)) == 0
    assert differing(of(X, Y), of(X, 1 - Y)) == 120
    weights = np.ones(60)
    assert differing(of(X, Y), of(X, Y, weights=weights)) == 0
    weights[3] = 2.0
    assert differing(of(X, Y), of(X, Y, weights=weights)) == 2
    twins = np.repeat(np.arange(30), 2)  # two rows a record: as trials with successes and failures have
    assert len(of(X, Y, rows=twins)) == 30
    assert (
        differing(of(X, Y), hashes_of(Shard.of(X, Y), ShardReference(load=lambda: None), b"another" * 4)["rows"]) == 120
    )


def test_records_of_a_file(tmp_path):
    path = tmp_path / "north.csv"
    path.write_text('a,b,y\n1,"two\nlines",0\n\n2,x,1\r\n3,"last",0')
    assert file_records(str(path)) == [b"a,b,y", b'1,"two\nlines",0', b"2,x,1", b'3,"last",0']
    path = tmp_path / "north.svm"
    path.write_text("1 1:2 # said\n# nothing\n0 2:1\n")
    assert file_records(str(path)) == [b"1 1:2", b"0 2:1"]
    assert file_records(None) is None
    assert file_records("a1a") is None


def test_records_are_told_apart_by_columns_beside_those_of_the_fit(tmp_path):
    path = tmp_path / "north.csv"
    path.write_text("a,id,y\n" + "".join(f"1.5,{number},{number % 2}\n" for number in range(20)))
    shard = Shard.of(
        np.full((19, 1), 1.5), np.delete(np.arange(20) % 2.0, 4), rows=np.delete(np.arange(20), 4), feature_names=["a"]
    )
    whole = Shard.of(np.full((20, 1), 1.5), np.arange(20) % 2.0, feature_names=["a"])
    one, other = (hashes_of(each, ShardReference(path=str(path)), bytes(32)) for each in (shard, whole))
    assert differing(one["file"], other["file"]) == 1
    assert len(other["file"]) == 20


def test_counts_of_runs_and_days(tmp_path):
    day = ["2026-01-01"]
    ledger = Ledger(tmp_path, SiteRules(max_exchanges=3, max_exchanges_a_day=5), today=lambda: day[0])

    def ask(run, cost=1):
        ledger.claim(of_rows(slice(0, 60)), run=run, cost=cost)

    ask("a", cost=2)
    ask("a")
    with pytest.raises(
        RefusedError, match="max-exchanges: this run would have asked 4 times, and at most 3 are answered"
    ):
        ask("a")
    ask("b", cost=2)
    with pytest.raises(RefusedError, match="max-exchanges-a-day: today, over all runs, would have asked 6 times"):
        ask("c")
    day[0] = "2026-01-02"
    ask("c")
    with pytest.raises(RefusedError, match="max-exchanges: this run"):
        ask("a")


def test_a_file_that_was_seen_is_not_looked_at_again(ledger):
    ledger.claim(of_rows(slice(0, 60)), stamp="as it is")

    def never(key):
        raise AssertionError

    ledger.claim(never, stamp="as it is")
    with pytest.raises(AssertionError):
        ledger.claim(never, stamp="as it is now")


def test_nothing_in_it_tells_of_a_record_and_the_key_is_the_sites_alone(ledger):
    """The same records have other hashes in another ledger: nobody can try values until one fits."""
    ledger.claim(of_rows(slice(0, 60)), run="run")
    other = Ledger(ledger.folder.parent / "other", SiteRules())
    other.claim(of_rows(slice(0, 60)), run="run")
    assert stat.S_IMODE((ledger.folder / KEY).stat().st_mode) == 0o600
    assert (ledger.folder / KEY).read_bytes() != (other.folder / KEY).read_bytes()
    with (
        np.load(ledger.folder / SETS, allow_pickle=False) as mine,
        np.load(other.folder / SETS, allow_pickle=False) as theirs,
    ):
        assert set(mine) == {"records", "bits"}
        assert not set(mine["records"].tolist()) & set(theirs["records"].tolist())
    assert set(json.loads((ledger.folder / STATE).read_text())) == {"version", "sets", "runs", "days", "seen"}


@pytest.mark.parametrize("name", [KEY, STATE, SETS])
@pytest.mark.parametrize("how", ["gone", "torn", "other"])
def test_a_damaged_ledger_refuses(ledger, name, how):
    ledger.claim(of_rows(slice(0, 50)), run="run")
    path = ledger.folder / name
    data = path.read_bytes()
    path.unlink()
    if how != "gone":
        path.write_bytes(data[: len(data) // 2] if how == "torn" else b"[]" * 20)
    with pytest.raises(RefusedError, match="ledger: it is damaged"):
        ledger.claim(of_rows(slice(0, 30)), run="run")
    for left in ledger.folder.iterdir():
        left.unlink()
    ledger.claim(of_rows(slice(0, 51)), run="run")  # begun anew by the operator


def test_a_process_that_ended_between_its_two_files(ledger, monkeypatch):
    ledger.claim(of_rows(slice(0, 30)))

    def dies(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(ledgers, "write_json", dies)
        with pytest.raises(KeyboardInterrupt):
            ledger.claim(of_rows(slice(0, 50)))
    assert refused(ledger, slice(0, 31))
    assert not refused(ledger, slice(0, 45))
    assert refused(ledger, slice(0, 44))
    assert refused(ledger, slice(0, 31))


def test_a_folder_that_cannot_be_written_refuses(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RefusedError, match="ledger: cannot be written"):
        Ledger(tmp_path / "file" / "ledger", SiteRules()).claim(of_rows(slice(0, 50)))


def test_a_lock_that_is_never_free_is_an_error_in_the_end(ledger, monkeypatch):
    from filelock import FileLock

    monkeypatch.setattr(ledgers, "LOCK_SECONDS", 0.05)
    ledger.folder.mkdir()
    with FileLock(ledger.folder / "lock"), pytest.raises(InputError, match=r"ledger: is in use for more than 0\.05 s"):
        ledger.claim(of_rows(slice(0, 50)))


def _claims(folder, number, begin):
    begin.wait()
    for turn in range(5):
        Ledger(folder, SiteRules()).claim(of_rows(slice(0, 20 + 10 * (number % 3))), run=f"{number} {turn % 2}")


@pytest.mark.slow
def test_processes_that_claim_at_once_lose_nothing(tmp_path):
    """As a SuperNode does, which starts one for every message."""
    context = multiprocessing.get_context("spawn")
    begin = context.Barrier(4)
    started = [context.Process(target=_claims, args=(tmp_path / "ledger", number, begin)) for number in range(4)]
    for process in started:
        process.start()
    for process in started:
        process.join(120)
        assert process.exitcode == 0
    state = json.loads((tmp_path / "ledger" / STATE).read_text())
    assert sum(state["days"].values()) == sum(state["runs"].values()) == 20
    assert len(state["sets"]) == 3


def test_the_folder_of_a_site_that_names_none(own_state):
    assert default_folder("north") == own_state / "sites" / "north"
    strange = default_folder("../../north")
    assert strange.parent == own_state / "sites"
    assert strange != default_folder("______north")
    assert Ledger.of("north", SiteRules(ledger="none")) is None
    assert Ledger.of("north", SiteRules(ledger="/data/ledger")).folder.as_posix() == "/data/ledger"
