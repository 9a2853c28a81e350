"""`danl compare`: several methods on the same problem."""

import json

import pytest

import danl
from danl.cli.compare import folder_name, split_methods
from danl.cli.display import ProgressLine
from tests.cli.shell import contents, run
from tests.cli.test_fit import FILES, KEYS

pytestmark = pytest.mark.slow


def test_methods_side_by_side(capsys, tmp_path):
    methods = "danl-masked,fedavg:steps=2,learning_rate=0.1,newton"
    words = ("--methods", methods, "--rounds", "6", "--policy", "coverage:psi=3", "--alpha", "1e-3")
    ended = run(capsys, "compare", "a1a", *words, "--json", "--out", tmp_path)
    assert ended.status == 0
    runs = ended.json["runs"]
    assert [each["label"] for each in runs] == ["danl-masked", "fedavg:steps=2,learning_rate=0.1", "newton"]
    assert all(each.keys() >= KEYS for each in runs)
    assert all(each["gap"] is not None for each in runs)
    assert runs[2]["gap"] < 1e-9 < runs[1]["gap"]
    folders = ["danl-masked", "fedavg_steps=2_learning_rate=0.1", "newton"]
    expected = [f"{folder}/{name}" for folder in folders for name in FILES]
    assert sorted(contents(tmp_path)) == sorted([*expected, "comparison.json", "comparison.png"])
    assert json.loads((tmp_path / "comparison.json").read_text()) == ended.json
    for folder, each in zip(folders, runs, strict=True):
        assert len(danl.History.read_csv(tmp_path / folder / "history.csv")) == each["exchanges"]
        assert each["out"] == str(tmp_path / folder)
    config = json.loads((tmp_path / folders[1] / "config.json").read_text())
    assert config["options"]["method"] == "fedavg:steps=2,learning_rate=0.1"
    assert (tmp_path / "comparison.png").read_bytes().startswith(b"\x89PNG")


def test_each_run_is_the_one_fit_makes(capsys):
    words = ("a1a", "--rounds", "4", "--policy", "coverage:psi=2", "--seed", "5", "--json")
    compared = run(capsys, "compare", *words, "--methods", "gd,danl-masked").json["runs"][1]
    assert run(capsys, "fit", *words, "--method", "danl-masked").json["w_sha256"] == compared["w_sha256"]


def test_one_that_diverges_is_a_result(capsys):
    words = ("--methods", "danl-paper,newton-zero", "--policy", "coverage:psi=3", "--no-reference", "--json")
    ended = run(capsys, "compare", "a1a", *words)
    assert ended.status == 0
    assert [each["status"] for each in ended.json["runs"]] == ["diverged", "max_rounds"]
    assert [each["gap"] for each in ended.json["runs"]] == [None, None]


def test_the_table_fits_80_columns(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    words = ("--methods", "newton,fedavg:steps=5,learning_rate=0.1", "--rounds", "3")
    ended = run(capsys, "compare", "a1a", *words)
    assert ended.out == ""
    assert max(len(line.rstrip()) for line in ended.err.splitlines()) <= 80
    assert "…" not in ended.err


def test_ctrl_c_keeps_the_runs_so_far(capsys, tmp_path, monkeypatch):
    def interrupt(self, row):
        if self._label == "gd" and row.exchange == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(ProgressLine, "__call__", interrupt)
    words = ("--methods", "newton,gd,danl-masked", "--rounds", "5", "--json", "--out", tmp_path)
    ended = run(capsys, "compare", "a1a", *words)
    assert ended.status == 130
    runs = ended.json["runs"]
    assert [(each["label"], each["status"]) for each in runs] == [("newton", "max_rounds"), ("gd", "interrupted")]
    assert len(danl.History.read_csv(tmp_path / "gd" / "history.csv")) == 4
    assert not (tmp_path / "danl-masked").exists()
    assert (tmp_path / "comparison.png").exists()


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ("gd", ["gd"]),
        ("gd, newton", ["gd", "newton"]),
        ("fedavg:steps=5,learning_rate=0.1,gd", ["fedavg:steps=5,learning_rate=0.1", "gd"]),
        ("gd:learning_rate=1,fedavg:steps=2", ["gd:learning_rate=1", "fedavg:steps=2"]),
    ],
)
def test_commas_part_methods_and_options(text, labels):
    assert split_methods(text) == labels


def test_a_method_makes_the_name_of_a_folder():
    assert str(folder_name("fedavg:steps=5,learning_rate=0.1")) == "fedavg_steps=5_learning_rate=0.1"


def test_the_gallery_is_drawn_where_it_is_asked_for(capsys, tmp_path):
    words = ("compare", "a1a", "--methods", "newton,gd", "--rounds", "3", "--gallery")
    ended = run(capsys, *words, "--out", tmp_path)
    assert ended.status == 0
    assert (tmp_path / "gallery.png").read_bytes().startswith(b"\x89PNG")
    assert "gallery.png" in ended.err
    nowhere = run(capsys, *words)
    assert nowhere.status == 2
    assert "--gallery: needs --out" in nowhere.err
