"""Tests that start Flower or Ray run in a network namespace that has nothing but loopback.

Both open ports, and Ray's are open beyond this machine: `unshare -n` makes a network without any other. The inner
module is run by a pytest of its own, in a process group that is killed when its time is over.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

HERE = Path(__file__).parent
UP = "ip link set lo up && exec "


@cache
def namespace():
    """The words that make such a network, or None where this is not permitted."""
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        return None
    for words in (["unshare", "-n"], ["unshare", "-rn"]):
        try:
            tried = subprocess.run([*words, "sh", "-c", UP + "true"], capture_output=True, timeout=20, check=False)
        except (OSError, subprocess.TimeoutExpired):
            continue
        if tried.returncode == 0:
            return words
    return None


def run_inside(module, *, seconds):
    """Run a module of tests inside; fail with what it said, and leave nothing behind."""
    words = namespace()
    if words is None:
        pytest.skip("needs a network namespace of its own: unshare -n is not permitted here")
    root = HERE.parents[1]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(root / "src"), str(root), os.environ.get("PYTHONPATH", "")]),
        "OPENBLAS_NUM_THREADS": "1",
    }
    command = [sys.executable, "-m", "pytest", str(HERE / module), "-q", "-x", "-p", "no:cacheprovider", "-s"]
    process = subprocess.Popen(
        [*words, "sh", "-c", UP + '"$@"', "sh", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=root,
        env=environment,
        start_new_session=True,
    )
    try:
        said, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        said, _ = process.communicate()
        pytest.fail(f"{module} took more than {seconds:g} s\n{said[-4000:]}")
    assert process.returncode == 0, said[-8000:]
    return said
