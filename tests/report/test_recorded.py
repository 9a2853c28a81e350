"""Reading the folders of runs: what is there, what is missing, what is damaged."""

import json
import shutil

import pytest

import danl
from danl.report.recorded import read_run, read_runs
from tests.report.made import large_run, write_folder


@pytest.fixture
def folder(tmp_path):
    return write_folder(large_run(12, 4, 3), tmp_path / "run")


def test_a_folder_has_everything(folder):
    run = read_run(folder)
    assert (run.name, run.status, run.method) == ("run", "max_rounds", "danl")
    assert len(run.history) == len(run.trace) == 12
    assert run.config_at("data", "sha256") == "ab" * 32
    assert run.config_at("data", "nothing", "deeper") is None


def test_without_workers_and_without_config(folder):
    (folder / "workers.npz").unlink()
    (folder / "config.json").unlink()
    run = read_run(folder)
    assert (run.trace, run.status, run.method, run.notes) == (None, "unknown", "", [])


def test_a_comparison_stands_for_its_runs(tmp_path):
    for name in ("danl", "gd_steps=1"):
        write_folder(large_run(5, 3, 2), tmp_path / "cmp" / name)
    runs = [{"label": "danl", "out": "elsewhere/cmp/danl"}, {"label": "gd:steps=1", "out": "elsewhere/cmp/gd_steps=1"}]
    (tmp_path / "cmp" / "comparison.json").write_text(json.dumps({"runs": runs}))
    assert [run.name for run in read_runs([tmp_path / "cmp"])] == ["danl", "gd:steps=1"]
    assert [run.name for run in read_runs([tmp_path / "cmp", tmp_path / "cmp" / "danl"])][2] == "danl (2)"


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: shutil.rmtree(folder), "must be a folder that exists; give the one danl fit --out wrote"),
        (lambda folder: (folder / "history.csv").unlink(), "has no history.csv, so there is no run in it"),
        (lambda folder: (folder / "history.csv").write_bytes(b"\xff\xfe\x00"), "is empty or not text"),
        (lambda folder: (folder / "history.csv").write_text("a,b\n1,2\n"), "has no column 'exchange'"),
        (lambda folder: (folder / "config.json").write_text("{"), "is damaged, not the JSON danl fit --out wrote"),
        (lambda folder: (folder / "config.json").write_text("[1]"), "must be one JSON object"),
        (
            lambda folder: (folder / "workers.npz").write_bytes(b"PK\x03\x04"),
            "or remove it for a report without workers$",
        ),
        (lambda folder: large_run(12, 4, 2).trace.save(folder / "workers.npz"), "are of different runs"),
        (lambda folder: large_run(13, 4, 3).trace.save(folder / "workers.npz"), "are of different runs"),
    ],
)
def test_what_is_wrong_is_said(folder, damage, message):
    damage(folder)
    with pytest.raises(danl.InputError, match=message):
        read_run(folder)


@pytest.mark.parametrize("text", ['{"runs": []}', '{"runs": [{"label": "danl"}]}', "{}", '{"runs": [1]}'])
def test_a_comparison_without_runs_is_refused(tmp_path, text):
    (tmp_path / "comparison.json").write_text(text)
    with pytest.raises(danl.InputError, match=r"comparison\.json"):
        read_runs([tmp_path])


def test_no_folder_at_all():
    with pytest.raises(danl.InputError, match="DIR: is missing"):
        read_runs([])


def test_a_folder_of_a_reproduction_is_told_from_one_that_is_empty(tmp_path):
    for name in ("index.md", "environment.json"):
        (tmp_path / name).write_text("{}")
    with pytest.raises(danl.InputError, match=r"is a folder of danl reproduce, which has no report; open .*index\.md"):
        read_run(tmp_path)
