"""The page of a run that is going on, on this machine alone: a small server that answers and never takes anything.

It listens on 127.0.0.1. It has two things to give: the page, and the rows that came since. Anything but GET and HEAD is
refused, and so is a request that was meant for another host's name, which is how a page elsewhere would reach it.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np

from danl.errors import InputError, bad_argument
from danl.history import History, Row
from danl.report.encode import masks_between, row_columns
from danl.report.findings import Finding, findings
from danl.report.page import page_of, policy
from danl.report.payload import payload_of, sections_of, summary_of, workers_of
from danl.report.run import RecordedRun
from danl.trace import Trace

ADDRESS = "127.0.0.1"
MOST_ROWS = 1000
"""Rows in one answer; where there are more, the page asks again at once."""
FINDINGS_SECONDS = 2.0
"""The sentences are made again at most this often while the run goes on."""
FINDINGS_SHARE = 20.0
"""And so seldom that making them takes at most one part in this many of the time."""
LAST_LOOK_SECONDS = 10.0
"""How long a page that is open has to fetch the end of the run, where nobody keeps the server."""
OPEN_SECONDS = 3.0
"""A page that asked for rows within this time is taken to be open; one that was fetched needs longer to begin."""


class LivePage:
    """The run as it is now, for the server's threads; a callback of `danl.solve` with the trace that the run fills."""

    def __init__(self, trace: Trace, config: Mapping[str, Any], name: str = "run") -> None:
        self._trace, self._name = trace, name
        self._config: Mapping[str, Any] = {**config, "status": "running"}
        self._rows: list[Row] = []
        self._done = False
        self._lock, self._saying = threading.Lock(), threading.Lock()
        self._said: list[Finding] = []
        self._said_at, self._said_took, self._said_of = -np.inf, 0.0, (-1, False)
        self._open_until = -np.inf  # a page is taken to be open until then
        self._told_all = threading.Event()  # a page has had the end
        self._page = page_of(payload_of([self._run()], live=True)).encode("utf-8")

    def resumed(self, earlier: History) -> None:
        """Take the rows that a run has which goes on from a checkpoint."""
        with self._lock:
            self._rows.extend(earlier)

    def __call__(self, row: Row) -> None:
        """Take the newest row."""
        with self._lock:
            self._rows.append(row)

    def page(self) -> bytes:
        """The page itself, which then asks for rows."""
        with self._lock:
            self._open_until = time.monotonic() + LAST_LOOK_SECONDS
        return self._page

    def finish(self, config: Mapping[str, Any]) -> None:
        """Say that the run has ended, and how."""
        with self._lock:
            self._config, self._done = config, True

    def rows_after(self, after: int) -> dict[str, Any]:
        """What a page needs that has so many rows already."""
        with self._lock:
            self._open_until = time.monotonic() + OPEN_SECONDS
            run, done = self._run(), self._done
        said = self._findings(run, done)
        count = len(run.history)
        after = min(after, count)
        end = min(after + MOST_ROWS, count)
        known = 0 if run.trace is None else len(run.trace)
        missing = count - known  # of a run that went on, and whose first part left no trace
        has_masks = known > 0 and missing < end and run.trace is not None and int(run.trace.exchanges[0]) == missing
        return {
            "done": done,
            "more": end < count,
            "run": {
                "name": run.name,
                "status": run.status,
                "summary": summary_of(run),
                "findings": [{"tone": found.tone, "text": found.text} for found in said],
                "regions": len(run.history[0].coverage) if count else 0,
                "rows": row_columns(run, np.arange(after, end)),
                "masks": masks_between(run, max(after - missing, 0), max(end - missing, 0)) if has_masks else None,
                "no_masks": "",
                "workers": workers_of(run.trace) if has_masks and run.trace is not None else None,
                "sections": sections_of(run),
                "notes": [],
            },
        }

    def had_everything(self) -> None:
        """Note that a page has the end of the run: not that it was made for it, but that it was sent."""
        self._told_all.set()

    def wait_for_last_look(self) -> None:
        """Where a page is open, give it the time to see the end."""
        if time.monotonic() < self._open_until:
            self._told_all.wait(LAST_LOOK_SECONDS)

    def _run(self) -> RecordedRun:
        """A copy that stays as it is while the run goes on."""
        trace = self._trace.first(len(self._rows))
        begun = int(trace.exchanges[0]) if len(trace) else 0  # later than 0 where only what came since is known
        return RecordedRun(self._name, History(self._rows), trace.first(len(self._rows) - begun), self._config)

    def _findings(self, run: RecordedRun, done: bool) -> list[Finding]:
        """The sentences, made anew where that is due; the run does not wait for it."""
        with self._saying:
            now, state = time.monotonic(), (len(run.history), done)
            pause = max(FINDINGS_SECONDS, FINDINGS_SHARE * self._said_took)
            if state != self._said_of and (done or not self._said or now - self._said_at >= pause):
                self._said = findings(run) if len(run.history) else [Finding("note", "No exchange has ended yet.")]
                self._said_at, self._said_of = time.monotonic(), state
                self._said_took = self._said_at - now
            return self._said


class Server:
    """The server of one live page; `address` is where to look."""

    def __init__(self, live: LivePage, port: int = 0) -> None:
        if isinstance(port, bool) or not isinstance(port, int) or not 0 <= port <= 65535:
            raise bad_argument("serve-port", port, "a whole number from 0 to 65535", "0 takes a free port")
        try:
            self._http = _Http((ADDRESS, port), live)
        except OSError as error:
            raise InputError(
                f"serve-port={port}: cannot be listened on ({error.strerror}); choose another, or 0 for a free one"
            ) from None
        self.port = int(self._http.server_address[1])
        self.address = f"http://{ADDRESS}:{self.port}/"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.1,), daemon=True, name="danl-serve")
        self._thread.start()

    def close(self) -> None:
        """Stop listening."""
        self._http.shutdown()
        self._http.server_close()
        self._thread.join(5.0)


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, where: tuple[str, int], live: LivePage) -> None:
        self.live = live
        super().__init__(where, Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a browser that goes away in the middle of an answer is no news."""


class Handler(BaseHTTPRequestHandler):
    """One request."""

    server: _Http
    timeout = 20.0
    server_version, sys_version = "danl", ""
    _is_last = False  # whether what is sent has the end of the run

    def do_GET(self) -> None:
        """The page, or rows."""
        status, kind, body = self._answer()
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        if status == HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", "GET, HEAD")
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Security-Policy", f"{policy(live=True)}; frame-ancestors 'none'")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
            if self._is_last:
                self.server.live.had_everything()

    def __getattr__(self, name: str) -> Any:
        """Every method of HTTP is answered here, known or not."""
        if name.startswith("do_"):
            return self.do_GET
        raise AttributeError(name)

    def _answer(self) -> tuple[HTTPStatus, str, bytes]:
        if self.command not in ("GET", "HEAD"):
            return _said(HTTPStatus.METHOD_NOT_ALLOWED, "this page can only be read")
        port = self.server.server_address[1]
        if self.headers.get("Host") not in (f"{ADDRESS}:{port}", f"localhost:{port}"):
            return _said(HTTPStatus.MISDIRECTED_REQUEST, "this is the page of a run on another machine's name")
        asked = urlsplit(self.path)
        if asked.path == "/":
            return HTTPStatus.OK, "text/html", self.server.live.page()
        if asked.path == "/rows":
            after = parse_qs(asked.query).get("after", ["0"])[0]
            if not (after.isascii() and after.isdigit() and len(after) < 10):
                return _said(HTTPStatus.BAD_REQUEST, "after must be a whole number")
            told = self.server.live.rows_after(int(after))
            self._is_last = told["done"] and not told["more"]
            return HTTPStatus.OK, "application/json", json.dumps(told, allow_nan=False).encode("utf-8")
        return _said(HTTPStatus.NOT_FOUND, "there is nothing here")

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: the terminal shows the run."""


HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


def _said(status: HTTPStatus, text: str) -> tuple[HTTPStatus, str, bytes]:
    return status, "text/plain", f"{text}\n".encode()
