"""A fit on a federation from outside: `flwr run` submits it, and the result is read when it is there.

`flwr run` can end well where the run does not, so its exit status says little: what counts is the file the ServerApp
writes last, in a folder that this process and the SuperLink's can both reach.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from danl.errors import InputError
from danl.federation.app_template import write_app
from danl.federation.flwr_commands import Flwr
from danl.federation.run_config import ERROR
from danl.run.history import History, Row
from danl.run.result import RESULT, Result

POLL_SECONDS = 0.5
"""Seconds between two looks for the result."""
STATUS_SECONDS = 10.0
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
    """Run the app with this run configuration on a SuperLink, in `timeout` seconds at most, and return the result.

    `callback` is called with every new row; the others are those of `run_until`.
    """
    run_until(RESULT, config, connection=connection, home=home, out=out, timeout=timeout, callback=callback)
    return Result.load(out)


def run_until(
    last: str,
    config: Mapping[str, Any],
    *,
    connection: str,
    home: Path | None,
    out: Path,
    timeout: float,
    callback: Callable[[Row], object] | None = None,
) -> None:
    """Run the app until the last of its files is in `out`, a folder that the ServerApp and this process can both reach.

    `connection` is the SuperLink's name in the config.toml of FLWR_HOME, `home` (None: the user's own).
    """
    end = time.monotonic() + timeout
    flower = Flwr(connection, home)
    with tempfile.TemporaryDirectory(prefix="danl-app-") as folder:
        app = Path(folder) / "danl-fit"
        write_app(app, dict(config) | {"out": str(out.resolve())})
        run_id = flower.start(app, timeout)
    n_seen, asked = 0, time.monotonic()
    try:
        while not (out / last).exists():
            if (out / ERROR).exists():
                raise InputError((out / ERROR).read_text(encoding="utf-8").strip())
            if time.monotonic() > end:
                raise InputError(
                    f"--engine flower: the run {run_id} gave no result within {timeout:g} s; it was stopped"
                )
            if time.monotonic() - asked > STATUS_SECONDS:
                asked = time.monotonic()
                _check_runs(flower, run_id, out, last)
            n_seen = _show_new_rows(out, n_seen, callback)
            time.sleep(POLL_SECONDS)
    except BaseException:
        flower.stop(run_id)
        raise
    _show_new_rows(out, n_seen, callback)


def _check_runs(flower: Flwr, run_id: str, out: Path, last: str) -> None:
    """Raise where the run has ended without a result."""
    status = flower.status(run_id)
    if status.startswith("finished"):
        time.sleep(2 * POLL_SECONDS)  # its last file may have come since we looked
        if not (out / last).exists() and not (out / ERROR).exists():
            raise InputError(f"--engine flower: the run {run_id} is {status} without a result; see flwr log {run_id}")


def _show_new_rows(out: Path, n_seen: int, callback: Callable[[Row], object] | None) -> int:
    """Call back with the rows after the first `n_seen`; return how many there are."""
    if callback is None or not (out / "history.csv").exists():
        return n_seen
    rows = list(History.read_csv(out / "history.csv"))
    for row in rows[n_seen:]:
        callback(row)
    return max(n_seen, len(rows))
