"""A fit on a federation from outside: `flwr run` is told what to do, and the result is read when it is there.

`flwr run` can end well where the run does not, so its exit status says little: what counts is the file the ServerApp
writes last, in a folder that this process and the SuperLink's can both reach.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from danl.errors import InputError
from danl.federation.files import ERROR, RESULT, read_result
from danl.federation.new import write_app
from danl.federation.up import executable, flower_environment
from danl.run.history import History, Row
from danl.run.result import Result

LOOK = 0.5
"""Seconds between two looks for the result."""
ASK = 10.0
"""Seconds between two questions to the SuperLink whether the run still runs."""


def run_app(
    config: Mapping[str, Any],
    *,
    connection: str,
    home: Path | None,
    out: Path,
    timeout: float,
    callback: Callable[[Row], object] | None = None,
) -> Result:
    """Run the app with this run configuration on a SuperLink and return the result.

    Parameters
    ----------
    config
        Keys of the app's run configuration; `out` is set here.
    connection, home
        The name of the SuperLink's connection in the config.toml of FLWR_HOME; home None: the user's own.
    out
        The folder the ServerApp writes into; it must be one that both can reach.
    timeout
        Seconds all of it may take.
    callback
        Called with every new row.

    """
    end = time.monotonic() + timeout
    flower = Flwr(connection, home)
    with tempfile.TemporaryDirectory(prefix="danl-app-") as folder:
        app = Path(folder) / "danl-fit"
        write_app(app, dict(config) | {"out": str(out.resolve())})
        run_id = flower.start(app, timeout)
    seen, asked = 0, time.monotonic()
    try:
        while not (out / RESULT).exists():
            if (out / ERROR).exists():
                raise InputError((out / ERROR).read_text(encoding="utf-8").strip())
            if time.monotonic() > end:
                raise InputError(
                    f"--engine flower: the run {run_id} gave no result within {timeout:g} s; it was stopped"
                )
            if time.monotonic() - asked > ASK:
                asked = time.monotonic()
                _check(flower, run_id, out)
            seen = _show(out, seen, callback)
            time.sleep(LOOK)
    except BaseException:
        flower.stop(run_id)
        raise
    _show(out, seen, callback)
    return read_result(out)


class Flwr:
    """Flower's command `flwr`, for one SuperLink."""

    def __init__(self, connection: str, home: Path | None) -> None:
        self._connection, self._environment = connection, flower_environment(home)

    def start(self, app: Path, timeout: float) -> str:
        """Submit the app; return the number of the run."""
        told = self._call(["run", str(app), self._connection], timeout)
        if not told.get("success") or not told.get("run-id"):
            raise InputError(f"flwr run: {told.get('error-message', 'the SuperLink did not take the run')}")
        return str(told["run-id"])

    def status(self, run_id: str) -> str:
        """The run's status in Flower's words, "finished:failed" for example; empty where it is not known."""
        told = self._call(["list", "--run-id", run_id, self._connection], 60.0)
        runs = told.get("runs") or [{}]
        return str(runs[0].get("status", ""))

    def stop(self, run_id: str) -> None:
        """Stop a run that nobody waits for any more."""
        with contextlib.suppress(InputError):  # it has ended, or its SuperLink has
            self._call(["stop", run_id, self._connection], 60.0)

    def _call(self, words: list[str], timeout: float) -> dict[str, Any]:
        command = [executable("flwr"), *words, "--format", "json"]
        try:
            done = subprocess.run(
                command, env=self._environment, capture_output=True, text=True, timeout=timeout, check=False
            )
        except subprocess.TimeoutExpired:
            raise InputError(f"flwr {words[0]}: the SuperLink did not answer within {timeout:g} s") from None
        try:
            told = json.loads(done.stdout[done.stdout.index("{") :])
        except ValueError:
            text = (done.stderr or done.stdout).strip()[-800:]
            raise InputError(f"flwr {words[0]}: {text or 'it said nothing'}") from None
        return dict(told)


def _check(flower: Flwr, run_id: str, out: Path) -> None:
    """Raise where the run has ended without a result."""
    status = flower.status(run_id)
    if status.startswith("finished"):
        time.sleep(2 * LOOK)  # what it wrote last may have come between
        if not (out / RESULT).exists() and not (out / ERROR).exists():
            raise InputError(f"--engine flower: the run {run_id} is {status} without a result; see flwr log {run_id}")


def _show(out: Path, seen: int, callback: Callable[[Row], object] | None) -> int:
    """Call back with the rows that are new."""
    if callback is None or not (out / "history.csv").exists():
        return seen
    rows = list(History.read_csv(out / "history.csv"))
    for row in rows[seen:]:
        callback(row)
    return max(seen, len(rows))
