"""`--out` and `--checkpoint`: what cannot be written is known early, and a result is never lost for want of a file."""

import errno
import os

import numpy as np
import pytest

import danl
from tests.cli.shell import contents, run, run_process
from tests.mounts import run_on
from tests.storage.test_folder import holder

pytestmark = pytest.mark.slow

FIT = ("fit", "a1a", "--policy", "coverage:psi=3", "--alpha", "1e-3", "--quiet")
COMPARE = ("compare", "a1a", "--methods", "danl,newton", "--alpha", "1e-3", "--no-reference", "--quiet")


def one_line(text):
    assert text.count("\n") == 1, text
    return text.rstrip("\n")


# Before the run.


@pytest.mark.parametrize(("options", "why"), [("size=8k", "No space left on device"), ("ro", "Read-only file system")])
@pytest.mark.parametrize("words", [(*FIT, "--out"), (*FIT, "--checkpoint"), (*COMPARE, "--out")])
def test_a_place_that_takes_nothing_is_known_before_anything_is_read(options, why, words, tmp_path):
    place = tmp_path / "mounted"
    elsewhere = [word if word != "a1a" else "no-such-data.csv" for word in words]
    ended = run_on(options, place, "-m", "danl", *elsewhere, place / "run")
    name = f"{words[-1]}=".replace("--checkpoint", "checkpoint")
    assert (ended.status, ended.out) == (2, "")
    assert (
        one_line(ended.err) == f"error: {name}{str(place / 'run')!r}: cannot be written ({why}); choose another folder"
    )


@pytest.mark.parametrize("words", [(*FIT, "--out"), (*FIT, "--checkpoint"), (*COMPARE, "--out")])
def test_a_file_where_a_folder_should_be(words, capsys, tmp_path):
    (tmp_path / "file").write_text("mine")
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        ended = run(capsys, *words, folder)
        assert (ended.status, ended.out) == (2, "")
        assert f"must be a folder, and {str(tmp_path / 'file')!r} is a file; choose another" in one_line(ended.err)
    assert contents(tmp_path) == {"file": b"mine"}


@pytest.mark.parametrize(
    ("words", "lock"),
    [((*FIT, "--out"), ".out.lock"), ((*COMPARE, "--out"), ".out.lock"), ((*FIT, "--checkpoint"), ".checkpoint.lock")],
)
def test_a_second_process_with_the_same_folder_is_refused(words, lock, capsys, tmp_path):
    with holder(tmp_path / "run", lock=lock) as process:
        ended = run(capsys, *words, tmp_path / "run")
        assert (ended.status, ended.out) == (2, "")
        assert f"is in use by process {process.pid}; wait until it is over, or choose another folder" in one_line(
            ended.err
        )
        assert list(contents(tmp_path)) == [f"run/{lock}"]
    assert run(capsys, *words, tmp_path / "run").status == 0
    assert not [name for name in contents(tmp_path) if name.endswith(".lock")]


def test_one_folder_for_both_is_no_two_processes(capsys, tmp_path):
    assert run(capsys, *FIT, "--out", tmp_path / "run", "--checkpoint", tmp_path / "run").status == 0
    assert {"model.npz", "checkpoint-rows.jsonl"} <= {path.name for path in (tmp_path / "run").iterdir()}


def test_a_folder_with_the_checkpoints_of_another_run(capsys, tmp_path):
    run(capsys, *FIT, "--checkpoint", tmp_path / "ck")
    before = contents(tmp_path)
    ended = run(capsys, "fit", "no-such-data.csv", "--checkpoint", tmp_path / "ck")
    assert (ended.status, ended.out) == (2, "")
    assert "holds the checkpoints of a run already (checkpoint-" in one_line(ended.err)
    assert one_line(ended.err).endswith("resuming it from this folder, or choose another folder")
    assert contents(tmp_path) == before


# While it goes on, and at its end.


def test_a_disk_that_fills_up_ends_no_run(tmp_path):
    place = tmp_path / "mounted"
    expected = run_process(*FIT, "--json").json
    ended = run_on("size=400k", place, "-m", "danl", *FIT, "--json", "--checkpoint", place / "ck")
    assert ended.status == 0
    assert ended.json["w_sha256"] == expected["w_sha256"]
    (warning,) = [line for line in ended.err.splitlines() if line.startswith("warning: ")]
    assert f"checkpoint={str(place / 'ck')!r}: cannot be written (No space left on device) after " in warning
    assert "status         converged" in ended.err


@pytest.mark.parametrize(
    ("words", "missing"),
    [
        (FIT, ("run/figure.png",)),
        ((*FIT, "--workers", "300"), ("run/workers.npz", "run/figure.png")),
        (COMPARE, ("run/danl/figure.png", "run/newton/figure.png", "run/comparison.png")),
    ],
)
def test_files_that_find_no_room_are_said_after_the_result(words, missing, tmp_path):
    place = tmp_path / "mounted"
    ended = run_on("size=80k", place, "-m", "danl", *words, "--json", "--out", place / "run")
    assert ended.status == 2
    reported = ended.json
    for each in reported.get("runs", [reported]):
        assert (each["status"], each["out"]) == ("converged", None)
    *table, error = ended.err.splitlines()
    assert any("converged" in line for line in table)
    assert error.startswith(f"error: --out={str(place / 'run')!r}: not written: ")
    for name in missing:
        assert f"{place / name} (No space left on device)" in error
    assert "model.npz" not in error  # what cannot be had again is written first
    assert "; the result above is whole: make room" in error


def test_what_finds_room_is_written_all_the_same(capsys, tmp_path, monkeypatch):
    """The same where nothing can be mounted: all but one file."""

    def full(*arguments):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("danl.run.result._write_model", full)
    ended = run(capsys, *FIT, "--json", "--out", tmp_path / "run")
    assert (ended.status, ended.json["out"], ended.json["status"]) == (2, None, "converged")
    assert "error: " in ended.err.splitlines()[-1]
    assert f"not written: {tmp_path / 'run' / 'model.npz'} (No space left on device); " in ended.err
    written = {path.name for path in (tmp_path / "run").iterdir()}
    assert written == {"history.csv", "config.json", "result.json", "workers.npz", "figure.png"}
    assert len(danl.History.read_csv(tmp_path / "run" / "history.csv")) == ended.json["exchanges"]


# A run that is at its end.


def test_resuming_a_run_that_had_converged_says_so(capsys, tmp_path):
    words = (*FIT, "--json", "--out", tmp_path / "run")
    first = run(capsys, *words, "--checkpoint", tmp_path / "ck").json
    before = contents(tmp_path)
    ended = run(capsys, *words, "--resume", tmp_path / "ck")
    assert ended.status == 0
    assert ended.json == first
    said = f"nothing was left to do: the run had converged after {first['exchanges']} exchanges, and nobody was asked"
    assert said in ended.err.splitlines()
    after = contents(tmp_path)
    for name in ("run/history.csv", "ck/checkpoint-rows.jsonl", *(name for name in before if name.endswith("0.npz"))):
        assert after[name] == before[name]
    with np.load(tmp_path / "run" / "model.npz") as model:
        assert len(model["w"]) == 123
    assert len(danl.Trace.read(tmp_path / "run" / "workers.npz")) == first["exchanges"]


def test_resuming_a_run_without_rounds_left_says_so(capsys, tmp_path):
    first = run(capsys, *FIT, "--json", "--rounds", 4, "--checkpoint", tmp_path / "ck").json
    ended = run(capsys, *FIT, "--json", "--rounds", 4, "--resume", tmp_path / "ck")
    assert ended.json == first
    said = "nothing was left to do: the run had used up its rounds after 5 exchanges, and nobody was asked"
    assert f"{said}; more --rounds go on with it" in ended.err.splitlines()
    more = run(capsys, *FIT, "--json", "--rounds", 6, "--resume", tmp_path / "ck")
    assert more.json["exchanges"] == 7
    assert "nothing was left" not in more.err
