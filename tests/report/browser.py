"""Chromium without a window, driven over its DevTools protocol; every wait is bounded."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "microsoft-edge")
FLAGS = (
    *("headless", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run", "no-pings", "mute-audio"),
    *("disable-background-networking", "disable-component-update", "disable-sync", "disable-dev-shm-usage"),
    *("disable-extensions", "disable-default-apps", "hide-scrollbars", "remote-debugging-port=0"),
    "remote-allow-origins=*",
)
START_SECONDS = WAIT_SECONDS = 240.0  # after that something hangs; nothing waits so long


def find_browser():
    """The program, or a skip with the reason."""
    pytest.importorskip("websockets", reason="websockets is not installed: nothing to drive a browser with")
    found = [path for path in map(shutil.which, NAMES) if path]
    if not found:
        pytest.skip(f"no Chromium here (looked for {', '.join(NAMES)})")
    return found[0]


class Browser:
    """One page of one browser: go somewhere, ask the page, look at what it logged and what it asked the network for."""

    def __init__(self):
        program = find_browser()
        self.opened = ExitStack()
        self.folder = tempfile.mkdtemp(prefix="danl-browser-")
        self.process = subprocess.Popen(
            [program, *(f"--{flag}" for flag in FLAGS), f"--user-data-dir={self.folder}", "about:blank"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            self._connect()
        except BaseException:
            self.close()
            raise

    def _connect(self):
        from websockets.sync.client import connect

        ready, until = Path(self.folder) / "DevToolsActivePort", time.monotonic() + START_SECONDS
        while not (ready.exists() and ready.read_text().count("\n")):
            assert self.process.poll() is None, "the browser ended before it was ready"
            assert time.monotonic() < until, "the browser was not ready in time"
            time.sleep(0.05)
        port, path = ready.read_text().split("\n")[:2]
        opened = connect(f"ws://127.0.0.1:{port}{path}", max_size=None, open_timeout=WAIT_SECONDS, compression=None)
        self.socket = self.opened.enter_context(opened)
        self.count, self.session, self.events = 0, None, []
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def send(self, method, **parameters):
        """One command; what it returns."""
        self.count += 1
        message = {"id": self.count, "method": method, "params": parameters}
        if self.session is not None:
            message["sessionId"] = self.session
        self.socket.send(json.dumps(message))
        while True:
            answer = json.loads(self.socket.recv(timeout=WAIT_SECONDS))
            if answer.get("id") == self.count:
                assert "error" not in answer, f"{method}: {answer.get('error')}"
                return answer["result"]
            self.events.append(answer)

    def evaluate(self, expression):
        """The value of an expression in the page."""
        answer = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def until(self, expression):
        """Wait until an expression is true in the page; its value."""
        end = time.monotonic() + WAIT_SECONDS
        while True:
            value = self.evaluate(expression)
            if value:
                return value
            assert time.monotonic() < end, f"never true: {expression}"
            time.sleep(0.05)

    def go(self, address, *, width=1280, height=900, dark=False, drawn=True):
        """Open an address in a window of this size and wait until its figures are drawn."""
        self.events.clear()
        self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        feature = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[feature])
        self.evaluate("delete document.documentElement.dataset.drawn")  # of the page before
        answer = self.send("Page.navigate", url=address)
        assert "errorText" not in answer, answer
        if drawn:
            self.until("document.readyState === 'complete' && document.documentElement.dataset.drawn")

    def change(self, name, value, event="change"):
        """Give the control with this id a value, as a person does."""
        self.evaluate(
            f"(() => {{ const control = document.getElementById('{name}'); control.value = {json.dumps(value)}; "
            f"control.dispatchEvent(new Event('{event}')); }})()"
        )

    def key(self, name, code):
        """Press and release a key."""
        for kind in ("rawKeyDown", "keyUp"):
            self.send("Input.dispatchKeyEvent", type=kind, key=name, code=name, windowsVirtualKeyCode=code)

    def complaints(self):
        """What the page logged as an error or a warning, and exceptions nobody caught."""
        self.evaluate("1")  # events come before the answer
        said = []
        for event in self.events:
            method, params = event.get("method"), event.get("params", {})
            if method == "Runtime.exceptionThrown":
                said.append(params["exceptionDetails"].get("exception", {}).get("description", "exception"))
            elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
                said.append(json.dumps(params["args"]))
            elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
                said.append(params["entry"]["text"])
        return said

    def requests(self):
        """The addresses the page asked for, beside itself and what is in it."""
        asked = [e["params"]["request"]["url"] for e in self.events if e.get("method") == "Network.requestWillBeSent"]
        return [address for address in asked if not address.startswith(("data:", "blob:"))]

    def screenshot(self, path, *, whole=True):
        """A PNG of the page."""
        size = self.send("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        params = {"clip": clip, "captureBeyondViewport": True} if whole else {}
        Path(path).write_bytes(base64.b64decode(self.send("Page.captureScreenshot", format="png", **params)["data"]))

    def close(self):
        """End the browser and remove what it wrote."""
        self.opened.close()
        self.process.terminate()
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
