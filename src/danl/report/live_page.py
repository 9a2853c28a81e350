"""The page of a run that is going on, on this machine alone: a small server that answers and never takes anything.

It listens on 127.0.0.1. It has two things to give: the page, and the rows that came since. Anything but GET and HEAD is
refused, and so is a request that was meant for another host's name, which is how a page elsewhere would reach it.
"""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np

from danl.checks import is_whole
from danl.errors import InputError, bad_argument
from danl.report.encode import all_masks, columns_of, frames_that_fit, left_out
from danl.report.findings import Finding, findings
from danl.report.page import page_of, policy
from danl.report.payload import payload_of, sections_of, summary_of, workers_of
from danl.report.recorded import RecordedRun
from danl.run.history import History, Row
from danl.run.trace import Trace

SUMMED = ("exchanges", "hessians", "refused", "failed", "bytes_up", "bytes_down", "seconds", "simulated")
"""What of a summary adds up from row to row; the rest is that of the newest one."""
ADDRESS = "127.0.0.1"
OWN_NAMES = (ADDRESS, "localhost")
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
REQUEST_SECONDS, ANSWER_SECONDS = 3.0, 20.0
"""How long a connection may be silent before it has said what it wants, and while it takes the answer."""
MOST_CONNECTIONS = 32
"""Answered at a time; more wait until one has ended, which a silent one does soon."""


class LivePage:
    """The run as it is now, for the server's threads; a callback of `danl.solve` with the trace that the run fills.

    The run only appends its rows. The server's threads add them up as they come, so that an answer looks at the newest
    rows, not at all of them again.
    """

    def __init__(self, trace: Trace, config: Mapping[str, Any], name: str = "run") -> None:
        self._name, self._trace = name, trace
        self._config: Mapping[str, Any] = {**config, "status": "running"}
        self._done = False
        self._rows: list[Row] = []
        self._sums: list[tuple[float, float, float]] = []  # bytes, seconds and simulated seconds up to each row
        self._summary = summary_of(RecordedRun(name, History()))
        self._workers: dict[str, Any] | None = None
        self._lock, self._adding, self._saying = threading.Lock(), threading.Lock(), threading.Lock()
        self._said: list[Finding] = []
        self._said_at, self._said_took, self._said_of = -np.inf, 0.0, (-1, False)
        self._open_until = -np.inf  # a page is taken to be open until then
        self.end_was_sent = threading.Event()
        self._page = page_of(payload_of([self._run(self._config)], live=True)).encode("utf-8")

    def resumed(self, earlier: History) -> None:
        """Take the rows that a run has which goes on from a checkpoint."""
        self._rows.extend(earlier)

    def __call__(self, row: Row) -> None:
        """Take the newest row; nobody is waited for."""
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
            config, done = self._config, self._done
        with self._adding:
            count = len(self._rows)
            if count > len(self._sums):
                self._add(len(self._sums), count)
        after = min(after, count)
        end = min(after + MOST_ROWS, count)
        about, rows = RecordedRun(self._name, History(), None, config), History(self._rows[after:end])
        most = frames_that_fit(self._trace)
        fits = self._trace.n_workers == 0 or most > 0
        shown = self._part(min(max(after, count - most), end), end)
        newest = f"The map of workers and regions has the newest {most:,} exchanges; waits are counted from there."
        run = {
            "name": self._name,
            "status": about.status,
            "summary": self._summary | {"method": about.method},
            "findings": [asdict(found) for found in self._findings(count, config, done)],
            "sections": sections_of(about),
            "regions": len(self._rows[0].coverage) if count else 0,
            "rows": columns_of(rows, *np.array(self._sums[after:end]).reshape(-1, 3).T),
            "masks": all_masks(rows, shown) | {"most": most} if fits and len(shown) else None,
            "no_masks": "" if fits else left_out(self._trace),
            "workers": self._workers,
            "since": self._since(),
            "notes": [newest] if fits and count > most else [],
        }
        return {"done": done, "more": end < count, "run": run}

    def wait_for_last_look(self) -> None:
        """Where a page is open, give it the time to see the end."""
        if time.monotonic() < self._open_until:
            self.end_was_sent.wait(LAST_LOOK_SECONDS)

    def _findings(self, count: int, config: Mapping[str, Any], done: bool) -> list[Finding]:
        """The sentences, made anew where that is due; the run does not wait for it."""
        with self._saying:
            now, state = time.monotonic(), (count, done)
            pause = max(FINDINGS_SECONDS, FINDINGS_SHARE * self._said_took)
            if state != self._said_of and (done or not self._said or now - self._said_at >= pause):
                none = [Finding("note", "No exchange has ended yet.")]
                self._said = findings(self._run(config)) if count else none
                self._said_at, self._said_of = time.monotonic(), state
                self._said_took = self._said_at - now
            return self._said

    def _run(self, config: Mapping[str, Any]) -> RecordedRun:
        """A copy of all of it that stays as it is while the run goes on."""
        rows = self._rows.copy()
        return RecordedRun(self._name, History(rows), self._part(0, len(rows)), config)

    def _add(self, first: int, end: int) -> None:
        """Add up the rows that came since."""
        rows, trace = self._rows[first:end], self._part(first, end)
        moved, taken, simulated = self._sums[-1] if self._sums else (0.0, 0.0, math.nan)
        for row in rows:
            moved, taken = moved + row.bytes_up + row.bytes_down, taken + row.seconds
            if not math.isnan(row.simulated_seconds):
                simulated = row.simulated_seconds + (0.0 if math.isnan(simulated) else simulated)
            self._sums.append((moved, taken, simulated))
        summary = summary_of(RecordedRun(self._name, History(rows)))
        self._summary = summary | {name: _sum(self._summary[name], summary[name]) for name in SUMMED}
        if len(trace):
            workers = workers_of(trace)
            before = self._workers or dict.fromkeys(workers)
            self._workers = {name: _sum(before[name], workers[name]) for name in workers}

    def _part(self, first: int, end: int) -> Trace:
        """What the trace has of these rows: a run that was resumed may have rows before it."""
        lead = self._rows[0].exchange - self._since() if end > first else 0
        return self._trace.part(max(first + lead, 0), max(end + lead, 0))

    def _since(self) -> int:
        """The exchange from which on it is known who did what."""
        return RecordedRun(self._name, History(), self._trace.part(0, 1)).known_since


def _sum(before: Any, new: Any) -> Any:
    """Two numbers, or the numbers of two lists, together; None is nothing to add."""
    if before is None or new is None:
        return new if before is None else before
    return [_sum(*both) for both in zip(before, new, strict=True)] if isinstance(new, list) else before + new


class LiveServer:
    """The server of one live page; `address` is where to look."""

    def __init__(self, live: LivePage, port: int = 0) -> None:
        if not is_whole(port, 0) or port > 65535:
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
        self._http.shutdown()
        self._http.server_close()
        self._thread.join(5.0)


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, where: tuple[str, int], live: LivePage) -> None:
        self.live = live
        self._room = threading.BoundedSemaphore(MOST_CONNECTIONS)
        super().__init__(where, Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer in a thread of its own, of which there are only so many."""
        if not self._room.acquire(timeout=REQUEST_SECONDS + 1.0):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._room.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a browser that goes away in the middle of an answer is no news."""


class Handler(BaseHTTPRequestHandler):
    """One request."""

    server: _Http
    timeout = REQUEST_SECONDS
    server_version, sys_version = "danl", ""
    _is_last = False  # whether what is sent has the end of the run

    def do_GET(self) -> None:
        self.connection.settimeout(ANSWER_SECONDS)
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
                self.server.live.end_was_sent.set()

    def __getattr__(self, name: str) -> Any:
        """Every method of HTTP is answered here, known or not."""
        if name.startswith("do_"):
            return self.do_GET
        raise AttributeError(name)

    def _answer(self) -> tuple[HTTPStatus, str, bytes]:
        if self.command not in ("GET", "HEAD"):
            return _plain_text(HTTPStatus.METHOD_NOT_ALLOWED, "this page can only be read")
        port = self.server.server_address[1]
        if not is_meant(self.headers.get("Host"), port):
            return _plain_text(HTTPStatus.MISDIRECTED_REQUEST, f"open it as http://{ADDRESS}:{port}/")
        asked = urlsplit(self.path)
        if asked.path == "/":
            return HTTPStatus.OK, "text/html", self.server.live.page()
        if asked.path == "/rows":
            after = parse_qs(asked.query).get("after", ["0"])[0]
            if not (after.isascii() and after.isdigit() and len(after) < 10):
                return _plain_text(HTTPStatus.BAD_REQUEST, "after must be a whole number")
            answer = self.server.live.rows_after(int(after))
            self._is_last = answer["done"] and not answer["more"]
            return HTTPStatus.OK, "application/json", json.dumps(answer, allow_nan=False).encode("utf-8")
        return _plain_text(HTTPStatus.NOT_FOUND, "there is nothing here")

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


def is_meant(host: str | None, port: int) -> bool:
    """Whether a request under this name is meant for this server; browsers leave the port out where it is 80."""
    name = (host or "").lower()
    return name in {f"{own}:{port}" for own in OWN_NAMES} or (port == 80 and name in OWN_NAMES)


def _plain_text(status: HTTPStatus, text: str) -> tuple[HTTPStatus, str, bytes]:
    return status, "text/plain", f"{text}\n".encode()
