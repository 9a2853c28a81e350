"""`danl fit --checkpoint` and `--resume`: the same model in two goes, and clear words where that cannot be."""

import pytest

from tests.cli.shell import contents, run

FIT = ("fit", "a1a", "--policy", "coverage:psi=3", "--alpha", "1e-3", "--init", "fedavg:rounds=2", "--quiet", "--json")


def test_two_goes_end_with_the_model_of_one(capsys, tmp_path):
    folder = tmp_path / "checkpoints"
    whole = run(capsys, *FIT).json
    first = run(capsys, *FIT, "--rounds", 4, "--checkpoint", folder, "--checkpoint-every", 2).json
    assert first["status"] == "max_rounds"
    assert sorted(path.name for path in folder.iterdir()) == [
        "checkpoint-00000004.npz",
        "checkpoint-00000005.npz",
        "checkpoint-rows.jsonl",
    ]
    second = run(capsys, *FIT, "--resume", folder).json
    assert (second["status"], second["exchanges"]) == (whole["status"], whole["exchanges"])
    assert second["w_sha256"] == whole["w_sha256"]
    assert second["init"]["w_sha256"] == whole["init"]["w_sha256"]


@pytest.mark.slow
def test_the_folder_of_the_run_that_goes_on_is_taken_over(capsys, tmp_path):
    words = (*FIT, "--out", tmp_path / "run")
    run(capsys, *words, "--rounds", 3, "--checkpoint", tmp_path / "checkpoints")
    assert run(capsys, *words, "--checkpoint", tmp_path / "checkpoints").status == 2  # it holds a run already
    assert run(capsys, *words, "--resume", tmp_path / "checkpoints").status == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--resume", "nowhere"), "resume='nowhere': must be a folder with checkpoints"),
        (("--checkpoint", "ck", "--checkpoint-every", "0"), "checkpoint-every=0: must be a whole number >= 1"),
        (("--address", "auto"), "--address='auto': is for --engine ray"),
    ],
)
def test_wrong_options(words, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ended = run(capsys, *FIT, *words)
    assert (ended.status, ended.out) == (2, "")
    assert message in ended.err
    assert contents(tmp_path) == {}


def test_a_checkpoint_of_another_run_is_refused(capsys, tmp_path):
    run(capsys, *FIT, "--rounds", 2, "--checkpoint", tmp_path)
    before = contents(tmp_path)
    ended = run(capsys, *FIT, "--seed", 1, "--resume", tmp_path)
    assert ended.status == 2
    assert "of another run" in ended.err
    assert contents(tmp_path) == before
