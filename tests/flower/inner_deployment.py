"""Run by test_loopback.py inside a network of its own: a federation with TLS, driven by the command line.

One deployment for all: it takes seconds to start and every exchange takes some, so the tests follow each other.
"""

import contextlib
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import danl
from danl.federation.certificates import make_certificates, make_node_key
from danl.federation.flwr_commands import executable, flower_environment
from danl.federation.local_federation import free_port
from tests.flower.federations import a1a_shards, same_run

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(570)]
MASKED = {"policy": "random:keep=0.7", "max_rounds": 4}  # masks chosen at the sites; every exchange takes seconds
LEARNED = {"method": "fednl", "max_rounds": 2}  # the sites keep what they learn from one message to the next
HANGS = 500.0
"""Seconds after which nothing will come any more: no test is about how long something takes."""

REFUSALS = {
    "plain": "Server disconnected without sending a response",
    "certificate": "CERTIFICATE_VERIFY_FAILED",
    "key": "[code: 2004]",
    "no-key": "All SuperNodes must be registered",
}
"""Who comes how, and what it is told: each is refused for its own reason, not because nothing works."""
LET_IN = "SuperNode ID"
"""What a SuperNode says that was let in."""


def said(log):
    return log.read_text(errors="replace")


def wait_for(what):
    end = time.monotonic() + HANGS
    while not what():
        assert time.monotonic() < end, "it hangs"
        time.sleep(0.2)


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return {"XDG_CACHE_HOME": str(tmp_path_factory.mktemp("cache"))}


@pytest.fixture(scope="module")
def up(tmp_path_factory, cache):
    """`danl flower up` as a person runs it; ended with it if a test fails."""
    folder = tmp_path_factory.mktemp("federation")
    command = [sys.executable, "-m", "danl", "flower", "up", "a1a", "--sites", "3", "--tls", "--dir", str(folder)]
    command += ["--rules", "open"]  # fednl is none of the methods that sites answer by default
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=os.environ | cache
    )
    try:
        wait_for(lambda: (folder / "state.json").exists() or process.poll() is not None)
        assert process.poll() is None, process.stdout.read()
        yield folder, process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            process.wait(HANGS)


def intruder(folder, name, *security):
    """A SuperNode that should not get in."""
    state = json.loads((folder / "state.json").read_text())
    log = folder / "logs" / f"{name}.log"
    words = ["--superlink", state["address"], "--host", "127.0.0.1", "--port", str(free_port()), "--max-retries", "1"]
    site = folder / "sites" / "site-0.toml"
    with log.open("wb") as file:
        process = subprocess.Popen(
            [executable("flower-supernode"), *words, "--node-config", str(site), *security],
            stdout=file,
            stderr=subprocess.STDOUT,
            env=flower_environment(folder / name),
            start_new_session=True,
        )
    return process, log


def test_strangers_are_not_let_in(up, tmp_path):
    folder, _ = up
    ours = str(folder / "certificates" / "ca.crt")
    theirs = str(make_certificates(tmp_path / "other").authority)
    stranger, _ = make_node_key(tmp_path / "stranger")
    known = str(folder / "keys" / "site-0.key")
    strangers = {
        "plain": ["--insecure"],
        "certificate": ["--root-certificates", theirs, "--auth-supernode-private-key", known],
        "key": ["--root-certificates", ours, "--auth-supernode-private-key", str(stranger)],
        "no-key": ["--root-certificates", ours],
    }
    end = time.monotonic() + HANGS
    for attempt in itertools.count():
        started = {name: intruder(folder, f"{name}-{attempt}", *words) for name, words in strangers.items()}
        try:  # whether it ends by itself, or tries again and again, is Flower's

            def has_heard(name, started=started):
                process, log = started[name]
                return REFUSALS[name] in said(log) or LET_IN in said(log) or process.poll() is not None

            wait_for(lambda: all(map(has_heard, strangers)))
        finally:
            for process, _ in started.values():
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait(HANGS)
        for name, (process, log) in started.items():
            assert process.returncode != 0, name
            assert LET_IN not in said(log), name
            if REFUSALS[name] in said(log):
                del strangers[name]  # refused for the right reason; the others never got as far: a port, a slow start
        if not strangers:
            break
        assert time.monotonic() < end, {name: said(started[name][1])[-2000:] for name in strangers}


@pytest.mark.parametrize("settings", [MASKED, LEARNED], ids=["masked", "learned"])
def test_the_fit_is_the_local_one(up, cache, tmp_path, settings):
    out = tmp_path / "out"
    command = [sys.executable, "-m", "danl", "fit", "a1a", "--engine", "flower:timeout=500", "--alpha", "1e-3"]
    words = {"rounds" if name == "max_rounds" else name: str(value) for name, value in settings.items()}
    command += [word for name, value in words.items() for word in (f"--{name}", value)]
    command += ["--json", "--out", str(out), "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANGS, check=False, env=os.environ | cache)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["sites"] == ["site-0", "site-1", "site-2"]
    problem = danl.Problem(a1a_shards(), alpha=1e-3)
    local = danl.solve(problem, **settings)
    with np.load(out / "model.npz", allow_pickle=False) as model:
        w = model["w"]
    history = danl.History.read_csv(out / "history.csv")
    same_run(danl.Result(w=w, status=report["status"], history=history, method=report["method"]), local, problem)
    files = {"history.csv", "config.json", "model.npz", "result.json", "workers.npz", "figure.png"}
    assert {path.name for path in out.iterdir()} == files
    assert len(danl.Trace.read(out / "workers.npz")) == len(history)


def test_what_cannot_be_run_is_said_in_one_line(up, cache):
    for words, message in (
        (["a1a", "--reference"], "--reference"),
        (["a9a"], "which the sites hold"),
        (["a1a", "--workers", "5"], "--workers"),
    ):
        command = [sys.executable, "-m", "danl", "fit", *words, "--engine", "flower"]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=HANGS, check=False, env=os.environ | cache
        )
        assert done.returncode == 2
        assert message in done.stderr
        assert done.stderr.count("\n") == 1


def test_ctrl_c_stops_all_of_it(up):
    folder, process = up
    port = int(json.loads((folder / "state.json").read_text())["address"].rpartition(":")[2])
    process.send_signal(signal.SIGINT)
    assert process.wait(HANGS) == 0
    reported = process.stdout.read()
    assert "SuperLink on 127.0.0.1" in reported
    assert "danl fit a1a --engine flower" in reported
    assert not (folder / "state.json").exists()
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0
    wait_for(lambda: not left_over(folder))


def left_over(folder):
    """Processes of this federation that still run: those whose environment names its folder."""
    home = f"FLWR_HOME={(folder / 'flwr').resolve()}".encode()
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if home in path.read_bytes().split(b"\0"):
                found.append(path.parent.name)
        except OSError:
            continue
    return found
