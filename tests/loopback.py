"""Running tests where there is no network but loopback: Ray and Flower open ports, Ray on every address there is."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def only_loopback() -> bool:
    """Whether this process has no network but loopback. (/sys/class/net still shows the machine's in a namespace.)"""
    return [name for _, name in socket.if_nameindex()] == ["lo"]


def namespace() -> list[str]:
    """The command that runs what follows it in a network of its own, loopback up; whatever it started ends with it."""
    flags = ["-n"] if os.geteuid() == 0 else ["-r", "-n"]
    flags += ["--pid", "--fork", "--kill-child", "--mount-proc"]
    bound = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []  # it ends with this process, too
    return [*bound, "unshare", *flags, "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]


def skip_unless_possible(module: str) -> None:
    """Skip where the module is not installed or a namespace is not permitted."""
    if find_spec(module) is None:
        pytest.skip(f"{module} is not installed")
    if only_loopback():
        return
    if not (shutil.which("unshare") and shutil.which("ip")):
        pytest.skip("needs unshare and ip for a network namespace with loopback alone")
    tried = subprocess.run([*namespace(), "true"], capture_output=True, text=True, timeout=280, check=False)
    if tried.returncode != 0:
        pytest.skip(f"a network namespace is not permitted here: {tried.stderr.strip()}")


def run_inside(*arguments: str, timeout: float) -> str:
    """Run pytest with these arguments in the namespace; its output is returned, and shown where it does not pass."""
    command = [*namespace(), sys.executable, "-m", "pytest", "-q", "--tb=short", "-p", "no:cacheprovider", *arguments]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "RAY_USAGE_STATS_ENABLED": "0"}
    environment["PYTHONPATH"] = os.pathsep.join(
        [str(ROOT / "src"), str(ROOT), environment.get("PYTHONPATH", "")]
    ).rstrip(":")
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            timeout=timeout, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as late:
        output = late.stdout.decode(errors="replace") if isinstance(late.stdout, bytes) else late.stdout
        pytest.fail(f"not done within {timeout:g} s\n{output}")
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout, done.stdout
    return done.stdout
