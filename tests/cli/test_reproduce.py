"""`danl reproduce`: everything in one folder, continued where it stopped, and clear words for wrong input."""

import json
import os
import subprocess
import sys

import pytest

from tests.cli.shell import TIMEOUT, contents, run, run_process

SMALL = ("--quick", "--seeds", "1")
"""What --quick does, with one seed."""


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The folder of `danl reproduce all --quick --seeds 1`, and how the command ended."""
    out = tmp_path_factory.mktemp("reproduction") / "out"
    done = subprocess.run(
        [sys.executable, "-m", "danl", "reproduce", *SMALL, "--out", str(out), "--json"],
        capture_output=True,
        text=True,
        timeout=580,
        check=True,
        env={name: value for name, value in os.environ.items() if name != "DANL_DATA_DIR"} | {"DANL_OFFLINE": "1"},
    )
    return out, json.loads(done.stdout), done.stderr


def figure_data(out):
    return {name: data for name, data in contents(out / "figures").items() if name.endswith(".csv")}


@pytest.mark.slow
def test_it_writes_figures_verdicts_pages_and_the_environment(made):
    out, summary, _ = made
    assert summary["computed"] == summary["runs"] > 0
    for name in ("environment.json", "claims.json", "claims.md", "index.md"):
        assert (out / name).stat().st_size > 0
    for path in summary["figures"]:
        assert os.path.getsize(path) > 1000
    for reading in ("danl-paper", "danl-masked", "danl"):
        for penalty in ("lambda-1e-4", "alpha-1e-3"):
            for suffix in ("png", "svg", "csv"):
                assert (out / "figures" / f"fig1-{reading}-{penalty}.{suffix}").exists()
    verdicts = json.loads((out / "claims.json").read_text())["verdicts"]
    assert len(verdicts) >= 13
    assert {verdict["word"] for verdict in verdicts} <= {"holds", "holds for some readings", "does not hold"}
    environment = json.loads((out / "environment.json").read_text())
    assert environment["plan"]["seeds"] == [0]
    assert set(environment["data_sha256"]) == {"a1a"}
    assert {"python", "numpy", "scipy"} <= set(environment["versions"])
    page = (out / "index.md").read_text()
    for link in ("figures/fig1-danl-masked-lambda-1e-4.png", "claims.md"):
        assert f"]({link})" in page


@pytest.mark.slow
def test_the_screen_shows_every_verdict(made):
    _, summary, shown = made
    assert len(summary["claims"]) >= 13
    for claim in summary["claims"]:
        assert claim["claim"] in shown


@pytest.mark.slow
def test_half_of_the_files_deleted_are_computed_again_and_nothing_else(made, capsys):
    out, summary, _ = made
    figures, claims = figure_data(out), (out / "claims.json").read_bytes()
    records = sorted((out / "runs").rglob("*.json"))
    for number, path in enumerate(records[::2]):
        path.with_suffix(".csv" if number % 2 else ".json").unlink()
    kept = {path: path.stat().st_mtime_ns for path in records[1::2]}
    ended = run(capsys, "reproduce", *SMALL, "--out", out, "--json", "--quiet")
    assert ended.status == 0
    assert ended.json["computed"] == len(records[::2])
    assert ended.json["runs"] == summary["runs"] == len(records)
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    assert figure_data(out) == figures
    assert (out / "claims.json").read_bytes() == claims


@pytest.mark.slow
def test_what_is_there_is_not_computed_again(made, capsys):
    out, _, _ = made
    before = {path: path.stat().st_mtime_ns for path in (out / "runs").rglob("*.*")}
    ended = run(capsys, "reproduce", "fig1", *SMALL, "--out", out, "--json")
    assert ended.json["computed"] == 0
    assert ended.json["claims"] == []
    count = ended.json["runs"]
    assert 0 < count < len(before)
    assert f"{count} runs, {count} of them there already, in {out}\n" in ended.err
    assert {path: path.stat().st_mtime_ns for path in (out / "runs").rglob("*.*")} == before


INTERRUPTED = """
import signal, sys, time
from pathlib import Path
signal.signal(signal.SIGINT, signal.default_int_handler)
from danl.reproduce import pool
wait = pool.wait
def waited(*arguments, **options):
    if not list(Path(sys.argv[sys.argv.index("--out") + 1]).rglob("runs/**/*.json"))[2:]:
        return wait(*arguments, **options)
    signal.raise_signal(signal.SIGINT)
pool.wait, pool.POLL_SECONDS = waited, 0.01
from danl.__main__ import main
main()
"""
"""The command line of a process in which Ctrl-C is pressed when three runs are there, however fast it is."""


@pytest.mark.engines
def test_ctrl_c_keeps_what_is_done_and_the_command_goes_on(tmp_path):
    out = tmp_path / "out"
    words = ["reproduce", "fig1", *SMALL, "--out", str(out), "--processes", "1", "--json"]
    ended = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, *words], capture_output=True, text=True, timeout=TIMEOUT, check=False
    )
    assert ended.returncode == 130, ended.stderr
    assert ended.stdout == ""
    assert "the same command goes on from there" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert not list(out.rglob("*.partial*"))
    done = len(list((out / "runs").rglob("*.json")))
    again = run_process(*words)
    assert again.status == 0, again.err
    assert again.json["computed"] == again.json["runs"] - done


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["fig3"], "target='fig3': must be one of fig1, fig2, claims, all"),
        (["--seeds", "0"], "seeds=0: must be a whole number >= 1"),
        (["--processes", "0"], "processes=0: must be a whole number >= 1"),
        (["--data", ","], "data=',': must be data sets separated by commas"),
        (["--data", "a1a,nonsense"], "nonsense"),
        (["--data-dir", "no/such/folder"], "data-dir='no/such/folder': must be a folder that exists"),
    ],
)
def test_wrong_input_is_one_line_and_nothing_is_made(words, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ended = run(capsys, "reproduce", *words)
    assert ended.status == 2
    assert ended.out == ""
    assert message in ended.err
    assert ended.err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_folder_with_other_things_is_left_alone(capsys, tmp_path):
    (tmp_path / "index.md").write_text("mine")
    ended = run(capsys, "reproduce", *SMALL, "--out", tmp_path)
    assert ended.status == 2
    assert "is not empty and holds no reproduction" in ended.err
    assert contents(tmp_path) == {"index.md": b"mine"}


def test_a_missing_data_set_is_said_before_anything_runs(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("DANL_OFFLINE", "1")
    monkeypatch.delenv("DANL_DATA_DIR", raising=False)
    ended = run(capsys, "reproduce", "fig1", "--out", tmp_path / "out")
    assert ended.status == 2
    assert "a2a" in ended.err
    assert "DANL_DATA_DIR" in ended.err
    assert not (tmp_path / "out").exists()
