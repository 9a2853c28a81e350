"""`danl report` and `danl fit --serve`: what they write, say and refuse."""

import json
import re
import signal
import subprocess
import sys
import urllib.request
import webbrowser

import pytest

from tests.cli.shell import LISTENING, TIMEOUT, run
from tests.report.made import large_run, write_folder


@pytest.fixture
def folder(tmp_path):
    return write_folder(large_run(12, 4, 3), tmp_path / "run")


def data_of(path):
    text = path.read_text(encoding="utf-8")
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)[1])


def test_a_report_of_a_fit(capsys, tmp_path, monkeypatch):
    monkeypatch.delenv("DANL_DATA_DIR", raising=False)
    words = ["--policy", "coverage:psi=3", "--alpha", "1e-3", "--reference", "--engine", "local:dropout=0.2", "--quiet"]
    assert run(capsys, "fit", "a1a", *words, "--out", tmp_path / "run").status == 0
    ended = run(capsys, "report", tmp_path / "run")
    assert (ended.status, ended.out) == (0, "")
    assert ended.err.startswith("1 run, 4.")
    assert ended.err.endswith(f"written to {tmp_path / 'run' / 'report.html'}\n")
    payload = data_of(tmp_path / "run" / "report.html")
    assert payload["title"] == "a1a, danl"
    (one,) = payload["runs"]
    assert one["status"] == "converged"
    assert one["masks"]["workers"] == 10
    assert {"Data", "Options of the command", "Settings of the run", "Versions"} <= {
        s["title"] for s in one["sections"]
    }
    assert "replies did not come" in json.dumps(one["findings"])


@pytest.mark.slow
def test_a_report_of_a_comparison(capsys, tmp_path, monkeypatch):
    monkeypatch.delenv("DANL_DATA_DIR", raising=False)
    assert run(capsys, "compare", "a1a", "--methods", "danl,newton", "--quiet", "--out", tmp_path / "cmp").status == 0
    assert run(capsys, "report", tmp_path / "cmp").err.startswith("2 runs")
    payload = data_of(tmp_path / "cmp" / "report.html")
    assert [one["name"] for one in payload["runs"]] == ["danl", "newton"]
    assert payload["findings"]


def test_several_folders_write_here(capsys, tmp_path, folder, monkeypatch):
    monkeypatch.chdir(tmp_path)
    other = write_folder(large_run(5, 4, 3), tmp_path / "other")
    assert run(capsys, "report", folder, other).err.endswith("written to report.html\n")
    assert (tmp_path / "report.html").is_file()
    assert run(capsys, "report", folder, other, "--out", tmp_path / "page.html").status == 0
    assert (tmp_path / "page.html").read_bytes() == (tmp_path / "report.html").read_bytes()


def test_an_older_folder_without_workers_says_why(capsys, folder):
    (folder / "workers.npz").unlink()
    assert run(capsys, "report", folder).status == 0
    (one,) = data_of(folder / "report.html")["runs"]
    assert one["masks"] is None
    assert one["no_masks"].startswith("There is no workers.npz in the folder")


def test_a_page_that_is_there_is_kept(capsys, folder):
    (folder / "report.html").write_text("mine")
    ended = run(capsys, "report", folder)
    assert ended.status == 2
    assert ended.err.endswith("report.html': is there already; choose another file or add --force\n")
    assert (folder / "report.html").read_text() == "mine"
    assert run(capsys, "report", folder, "--force").status == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nothing"], "DIR='nothing': must be a folder that exists; give the one danl fit --out wrote"),
        (["."], "DIR='.': has no history.csv, so there is no run in it; give the folder danl fit --out wrote"),
        (["run", "--out", "."], "--out='.': is a folder; name a file in it, such as 'report.html'"),
        (["run", "--out", "no/x.html"], "--out='no/x.html': the folder 'no' does not exist; make it first"),
    ],
)
def test_what_is_wrong_is_said(capsys, tmp_path, folder, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    ended = run(capsys, "report", *words)
    assert (ended.status, ended.out, ended.err) == (2, "", f"error: {message}\n")


def test_without_plotly_the_extra_is_named(capsys, folder, monkeypatch):
    monkeypatch.setattr("danl.checks.find_spec", lambda name: None)
    ended = run(capsys, "report", folder)
    assert ended.status == 2
    assert ended.err == "error: report: needs plotly; install it with pip install 'danl[report]'\n"
    assert not (folder / "report.html").exists()


def test_it_is_opened_only_where_that_is_asked_for(capsys, folder, monkeypatch):
    opened = []
    monkeypatch.setattr(webbrowser, "open", lambda address: bool(opened.append(address)))
    assert run(capsys, "report", folder).status == 0
    assert opened == []
    ended = run(capsys, "report", folder, "--force", "--open")
    assert opened == [(folder / "report.html").as_uri()]
    assert ended.err.endswith("no browser was found; open the file in one\n")


def test_a_served_run_ends_by_itself_where_there_is_no_terminal(capsys, monkeypatch):
    monkeypatch.delenv("DANL_DATA_DIR", raising=False)
    ended = run(capsys, "fit", "a1a", "--alpha", "1e-3", "--serve", "--json")
    assert ended.status == 0
    assert ended.json["status"] == "converged"
    assert re.match(r"the run is shown at http://127\.0\.0\.1:\d+/\n", ended.err)


def test_a_port_that_is_taken_is_said_before_the_run(capsys, monkeypatch):
    monkeypatch.delenv("DANL_DATA_DIR", raising=False)
    ended = run(capsys, "fit", "a1a", "--serve", "--serve-port", "99999")
    assert ended.status == 2
    assert ended.err == "error: serve-port=99999: must be a whole number from 0 to 65535; 0 takes a free port\n"


def test_sites_are_not_served(capsys):
    ended = run(capsys, "fit", "a1a", "--serve", "--engine", "flower:sites=2")
    assert ended.status == 2


@pytest.mark.engines
@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
def test_on_a_terminal_the_page_stays_until_ctrl_c(monkeypatch):
    import os
    import pty

    monkeypatch.delenv("DANL_DATA_DIR", raising=False)
    server_side, terminal = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", LISTENING, "fit", "a1a", "--alpha", "1e-3", "--serve", "--quiet"],
        stdin=terminal, stdout=subprocess.DEVNULL, stderr=terminal,
    )  # fmt: skip
    os.close(terminal)
    try:
        shown = read_until(server_side, "until Ctrl-C")
        address = re.search(r"http://127\.0\.0\.1:\d+/", shown)[0]
        with urllib.request.urlopen(f"{address}rows?after=0", timeout=TIMEOUT) as answer:
            payload = json.loads(answer.read())
        assert payload["done"]
        assert payload["run"]["status"] == "converged"
        process.send_signal(signal.SIGINT)
        assert process.wait(TIMEOUT) == 0
    finally:
        process.kill()
        process.wait(TIMEOUT)
        os.close(server_side)


def read_until(handle, words):
    """What a terminal shows until these words are there."""
    import os
    import select
    import time

    shown, until = "", time.monotonic() + TIMEOUT
    while words not in " ".join(shown.split()):
        ready, _, _ = select.select([handle], [], [], max(until - time.monotonic(), 0))
        assert ready, f"never shown: {words!r}\n{shown}"
        shown += os.read(handle, 4096).decode(errors="replace")
    return shown
