"""Flower's programs: where they are, the environment they run in, and `flwr` for the runs of one SuperLink."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from danl.errors import InputError


class Flwr:
    """The command `flwr`, for the runs of one SuperLink."""

    def __init__(self, connection: str, home: Path | None) -> None:
        self._connection, self._environment = connection, flower_environment(home)

    def start(self, app: Path, timeout: float) -> str:
        """Submit the app; return the number of the run."""
        answer = self._call(["run", str(app)], timeout)
        if not answer.get("success") or not answer.get("run-id"):
            raise InputError(f"flwr run: {answer.get('error-message', 'the SuperLink did not take the run')}")
        return str(answer["run-id"])

    def status(self, run_id: str) -> str:
        """The run's status in Flower's words, "finished:failed" for example; empty where it is not known."""
        runs = self._call(["list", "--run-id", run_id]).get("runs") or [{}]
        return str(runs[0].get("status", ""))

    def stop(self, run_id: str) -> None:
        """Stop a run that nobody waits for any more."""
        with contextlib.suppress(InputError):  # it has ended, or its SuperLink has
            self._call(["stop", run_id])

    def _call(self, words: list[str], timeout: float = 60.0) -> dict[str, Any]:
        command = [executable("flwr"), *words, self._connection, "--format", "json"]
        try:
            done = subprocess.run(
                command, env=self._environment, capture_output=True, text=True, timeout=timeout, check=False
            )
            return dict(json.loads(done.stdout[done.stdout.index("{") :]))
        except subprocess.TimeoutExpired:
            raise InputError(f"flwr {words[0]}: the SuperLink did not answer within {timeout:g} s") from None
        except ValueError:
            raise InputError(f"flwr {words[0]}: {last_words(done)}") from None


def flower_environment(home: Path | None) -> dict[str, str]:
    """The environment of Flower's programs: no reports to anybody, short waits, one core each; `home` is FLWR_HOME."""
    programs = os.pathsep.join([str(Path(sys.executable).parent), sysconfig.get_path("scripts")])
    environment = os.environ | {
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": os.environ.get("FLWR_SUPEREXEC_TASK_POLL_INTERVAL", "0.1"),
        "OPENBLAS_NUM_THREADS": os.environ.get("OPENBLAS_NUM_THREADS", "1"),
        "PATH": os.pathsep.join([programs, os.environ.get("PATH", "")]),
    }
    if os.environ.get("PYTHONPATH"):  # they run in another folder
        parts = os.environ["PYTHONPATH"].split(os.pathsep)
        environment["PYTHONPATH"] = os.pathsep.join(os.path.abspath(part) for part in parts if part)
    return environment if home is None else environment | {"FLWR_HOME": str(home.resolve())}


def executable(name: str) -> str:
    """The path of one of Flower's programs."""
    found = shutil.which(name, path=flower_environment(None)["PATH"])
    if found is None:
        raise InputError(f"{name}: is not there; install it with pip install 'danl[flower]'")
    return found


def last_words(done: subprocess.CompletedProcess[str]) -> str:
    """The end of what a program wrote before it failed."""
    return (done.stderr or done.stdout).strip()[-800:] or "it wrote nothing"
