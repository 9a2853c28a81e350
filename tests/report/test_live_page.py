"""The server of a run that goes on: what it gives, and everything it refuses."""

import http.client
import json
import socket
import threading
import time

import numpy as np
import pytest

import danl
from danl.report import live_page as live_module
from danl.report.encode import row_columns
from danl.report.live_page import LivePage, LiveServer
from danl.report.payload import summary_of, workers_of
from danl.run.history import History
from danl.run.trace import Trace
from tests.report.made import large_run

TIMEOUT = 280.0  # seconds after which something hangs; nothing waits so long


@pytest.fixture
def running(monkeypatch):
    """A run of 12 exchanges of which 5 have ended, served; and how to go on."""
    monkeypatch.setattr(live_module.Handler, "timeout", TIMEOUT)  # a busy machine is not silent
    whole = large_run(12, 4, 3)
    trace, served = Trace(), 0
    trace.begin(4, 3)
    page = LivePage(trace, dict(whole.config))

    def go_on(count):
        nonlocal served
        for number in range(served, served + count):
            arrays = (whole.trace.bytes_up[number], whole.trace.bytes_down[number], None)
            trace.note(number, whole.trace.asked_in(number), whole.trace.trained_in(number), *arrays)
            page(whole.history[number])
        served += count

    go_on(5)
    server = LiveServer(page)
    yield server, page, go_on, whole
    server.close()


def ask(server, path, method="GET", host=None, body=None):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=TIMEOUT)
    headers = {} if host is None else {"Host": host}
    connection.request(method, path, body=body, headers=headers)
    answer = connection.getresponse()
    data = answer.read()
    connection.close()
    return answer, data


def test_the_page_and_its_headers(running):
    server = running[0]
    answer, data = ask(server, "/")
    assert answer.status == 200
    assert data.startswith(b"<!doctype html>")
    reported = answer.headers["Content-Security-Policy"]
    assert reported.startswith("default-src 'none'; script-src 'sha256-")
    assert "connect-src 'self'" in reported
    assert reported.endswith("frame-ancestors 'none'")
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Cache-Control"] == "no-store"
    assert "Access-Control-Allow-Origin" not in answer.headers


def test_rows_come_as_they_are_made(running):
    server, page, go_on, whole = running
    first = json.loads(ask(server, "/rows?after=0")[1])
    assert (first["done"], first["more"], first["run"]["status"]) == (False, False, "running")
    assert first["run"]["summary"]["exchanges"] == 5
    go_on(7)
    then = json.loads(ask(server, "/rows?after=5")[1])
    assert numbers(then["run"]["rows"]["exchange"]) == list(range(5, 12))
    assert numbers(then["run"]["masks"]["exchange"]) == list(range(5, 12))
    assert then["run"]["summary"]["bytes_up"] == whole.history.column("bytes_up").sum()
    page.finish(dict(whole.config))
    last = json.loads(ask(server, "/rows?after=12")[1])
    assert (last["done"], last["run"]["status"], numbers(last["run"]["rows"]["exchange"])) == (True, "max_rounds", [])
    assert last["run"]["findings"][0]["text"].startswith("Used up its rounds")


def numbers(text):
    import base64

    return np.frombuffer(base64.b64decode(text), dtype="<i4").tolist()


def test_many_rows_come_in_pieces(running, monkeypatch):
    monkeypatch.setattr(live_module, "MOST_ROWS", 3)
    server = running[0]
    first = json.loads(ask(server, "/rows")[1])
    assert (numbers(first["run"]["rows"]["exchange"]), first["more"]) == ([0, 1, 2], True)
    second = json.loads(ask(server, "/rows?after=3")[1])
    assert (numbers(second["run"]["rows"]["exchange"]), second["more"]) == ([3, 4], False)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "NONSENSE"])
def test_it_can_only_be_read(running, method):
    answer, data = ask(running[0], "/", method, body=b"x=1" if method == "POST" else None)
    assert answer.status == 405
    assert answer.headers["Allow"] == "GET, HEAD"
    assert data == b"this page can only be read\n"


def test_head_has_no_body(running):
    answer, data = ask(running[0], "/", "HEAD")
    assert (answer.status, data) == (200, b"")
    assert int(answer.headers["Content-Length"]) > 1_000_000


@pytest.mark.parametrize("path", ["/other", "/rows/", "/../etc/passwd", "/report.html", "/%2e%2e/x"])
def test_there_is_nothing_else(running, path):
    assert ask(running[0], path)[0].status == 404


@pytest.mark.parametrize("query", ["after=-1", "after=x", "after=1e3", "after=" + "9" * 30, "after=%D9%A1"])
def test_a_number_that_is_none_is_refused(running, query):
    assert ask(running[0], f"/rows?{query}")[0].status == 400


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1", "127.0.0.1:1", "localhost.evil:1", ""]
)
def test_another_hosts_name_is_refused(running, host):
    for path in ("/", "/rows?after=0"):
        assert ask(running[0], path, host=host)[0].status == 421


def test_localhost_is_this_machine(running):
    assert ask(running[0], "/", host=f"localhost:{running[0].port}")[0].status == 200


def test_a_request_without_a_host_is_refused(running):
    with socket.create_connection(("127.0.0.1", running[0].port), timeout=TIMEOUT) as connection:
        connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
        assert b" 421 " in connection.recv(100)


def test_it_listens_on_loopback_alone(running):
    server = running[0]
    assert server._http.server_address[0] == "127.0.0.1"
    with (
        pytest.raises(OSError, match=r"refused|assign|timed out|unreachable"),
        socket.create_connection(("127.0.0.2", server.port), timeout=TIMEOUT),
    ):
        pass


@pytest.mark.parametrize("port", [-1, 65536, True, "80"])
def test_a_port_that_is_none_is_refused(running, port):
    with pytest.raises(danl.InputError, match="serve-port="):
        LiveServer(running[1], port)


def test_a_port_in_use_is_said(running):
    with pytest.raises(danl.InputError, match=r"serve-port=\d+: cannot be listened on"):
        LiveServer(running[1], running[0].port)


def test_the_end_waits_for_a_page_that_is_open_and_not_longer(running, monkeypatch):
    """With hours to wait, what ends the wait is the last look, or that nobody was there."""
    for name in ("LAST_LOOK_SECONDS", "OPEN_SECONDS"):
        monkeypatch.setattr(live_module, name, 3600.0)
    server, page, _, whole = running
    ask(server, "/rows?after=0")
    page.finish(dict(whole.config))
    waiting = threading.Event()

    class Told(threading.Event):
        def wait(self, timeout=None):
            waiting.set()
            return super().wait(timeout)

    page.end_was_sent = Told()
    ended = threading.Thread(target=page.wait_for_last_look, daemon=True)
    ended.start()
    assert waiting.wait(TIMEOUT)
    assert not page.end_was_sent.is_set()
    ask(server, "/rows?after=5")
    ended.join(TIMEOUT)
    assert not ended.is_alive()
    assert page.end_was_sent.is_set()
    never_asked = LivePage(Trace(), {})
    never_asked.finish({})
    never_asked.wait_for_last_look()
    assert not never_asked.end_was_sent.is_set()


def test_findings_are_not_made_at_every_look(running, monkeypatch):
    made = []
    real = live_module.findings
    monkeypatch.setattr(live_module, "findings", lambda run: made.append(1) or real(run))
    monkeypatch.setattr(live_module, "FINDINGS_SECONDS", np.inf)
    _, page, go_on, whole = running
    for _ in range(3):
        page.rows_after(0)
        go_on(1)
    assert len(made) == 1
    page.finish(dict(whole.config))
    page.rows_after(0)
    page.rows_after(0)
    assert len(made) == 2


def test_an_answer_is_what_all_the_rows_at_once_would_say(running):
    _, page, go_on, whole = running
    said = [page.rows_after(0)["run"]]
    go_on(4)
    said.append(page.rows_after(5)["run"])
    go_on(3)
    said.append(page.rows_after(9)["run"])
    columns = ["bytes", "seconds", "coverage", "gap", "kind"]
    for name, kind in zip(columns, ("<f8", "<f8", "<i4", "<f8", "<u1"), strict=True):
        reported = np.concatenate([decoded(one["rows"][name], kind) for one in said])
        assert reported == pytest.approx(decoded(row_columns(whole, np.arange(12))[name], kind))
    apart = {"seconds", "simulated", "method"}
    summary = {name: value for name, value in summary_of(whole).items() if name not in apart}
    assert summary.items() <= said[-1]["summary"].items()
    assert said[-1]["summary"]["seconds"] == pytest.approx(summary_of(whole)["seconds"])
    assert said[-1]["workers"]["up"] == workers_of(whole.trace)["up"]
    assert said[-1]["workers"]["silent"] == workers_of(whole.trace)["silent"]
    assert said[-1]["summary"]["method"] == "danl"


def decoded(text, kind):
    import base64

    return np.frombuffer(base64.b64decode(text), dtype=kind)


def test_an_answer_looks_at_the_newest_rows_only(running, monkeypatch):
    seen = []
    real = History.column
    monkeypatch.setattr(History, "column", lambda self, name: seen.append(len(self)) or real(self, name))
    _, page, go_on, _ = running
    page.rows_after(0)
    go_on(2)
    seen.clear()
    page.rows_after(5)
    assert max(seen) == 2


def test_masks_of_a_long_run_are_those_of_the_newest_exchanges(running, monkeypatch):
    monkeypatch.setattr(live_module, "frames_that_fit", lambda trace: 4)
    _, page, go_on, _ = running
    first = page.rows_after(0)["run"]
    assert (numbers(first["masks"]["exchange"]), first["masks"]["most"]) == ([1, 2, 3, 4], 4)
    assert numbers(first["rows"]["exchange"]) == [0, 1, 2, 3, 4]
    assert first["notes"][0].startswith("The map of workers and regions has the newest 4 exchanges")
    go_on(7)
    assert numbers(page.rows_after(5)["run"]["masks"]["exchange"]) == [8, 9, 10, 11]
    monkeypatch.setattr(live_module, "frames_that_fit", lambda trace: 0)
    none = page.rows_after(5)["run"]
    assert none["masks"] is None
    assert none["no_masks"].startswith("Who trained what is left out: 12 pairs")


def test_a_run_that_was_taken_up_again_begins_where_it_went_on():
    whole = large_run(12, 4, 3)
    trace = Trace()
    trace.begin(4, 3)
    page = LivePage(trace, dict(whole.config))
    for number in range(8, 12):
        arrays = (whole.trace.bytes_up[number], whole.trace.bytes_down[number], None)
        trace.note(number, whole.trace.asked_in(number), whole.trace.trained_in(number), *arrays)
    for number in range(12):  # rows of all of it, who did what of the last four
        page(whole.history[number])
    reported = page.rows_after(0)["run"]
    assert (reported["since"], numbers(reported["masks"]["exchange"])) == (8, [8, 9, 10, 11])
    assert reported["workers"]["up"] == whole.trace.bytes_up[8:].sum(axis=0).tolist()


@pytest.mark.parametrize(
    ("host", "port", "meant"),
    [
        ("127.0.0.1", 80, True),
        ("LocalHost", 80, True),
        ("127.0.0.1:80", 80, True),
        ("LOCALHOST:8000", 8000, True),
        ("127.0.0.1", 8000, False),
        ("evil.example", 80, False),
        ("127.0.0.1:8000", 80, False),
        (None, 80, False),
    ],
)
def test_a_host_without_a_port_means_80(host, port, meant):
    assert live_module.is_meant(host, port) == meant


def test_who_comes_under_another_name_is_told_the_right_one(running):
    server = running[0]
    assert ask(server, "/", host="evil.example")[1].decode() == f"open it as http://127.0.0.1:{server.port}/\n"


def test_silent_connections_do_not_keep_a_page_waiting_for_long(running, monkeypatch):
    """Of 40 that say nothing three are heard at a time; each is left when it was silent for too long."""
    page = running[1]
    monkeypatch.setattr(live_module, "MOST_CONNECTIONS", 3)
    monkeypatch.setattr(live_module.Handler, "timeout", 0.05)
    together, counting = [0, 0], threading.Lock()
    handle = live_module.Handler.handle

    def counted(self):
        with counting:
            together[0] += 1
            together[1] = max(together)
        try:
            handle(self)
        finally:
            with counting:
                together[0] -= 1

    monkeypatch.setattr(live_module.Handler, "handle", counted)
    small, silent = LiveServer(page), []
    try:
        silent = [socket.create_connection(("127.0.0.1", small.port), timeout=TIMEOUT) for _ in range(40)]
        assert asked_again(small, "/rows?after=0").status == 200
        assert together[1] == 3
        assert [connection.recv(1) for connection in silent] == [b""] * 40  # each was left
    finally:
        for connection in silent:
            connection.close()
        small.close()


def asked_again(server, path):
    """The answer to a page that asks until it has one: on a busy machine it may be taken for a silent one itself."""
    end = time.monotonic() + TIMEOUT
    while True:
        try:
            return ask(server, path)[0]
        except (ConnectionError, http.client.HTTPException):
            assert time.monotonic() < end
