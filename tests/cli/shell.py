"""The command line as its callers see it: words in; status, standard output and standard error out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass

import pytest

from danl.__main__ import main

TIMEOUT = 280.0  # seconds after which something hangs; nothing waits so long
# The command line of a process that hears Ctrl-C: a shell that runs tests in the background ignores it, and children
# inherit that.
LISTENING = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from danl.__main__ import main
main()
"""


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    status: int
    out: str
    err: str

    @property
    def json(self):
        """The one object on standard output, which must be all there is on it."""
        assert self.out.endswith("\n")
        assert self.out.count("\n") == 1
        value = json.loads(self.out, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
        assert isinstance(value, dict)
        return value


def run(capsys, *words):
    """Run a command in this process."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    assert isinstance(ended.value.code, int)
    return Ended(ended.value.code, *capsys.readouterr())


def run_process(*words, python=(), cwd=None, **environment):
    """Run a command as a process of its own."""
    done = subprocess.run(
        [sys.executable, *python, "-m", "danl", *map(str, words)],
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        cwd=cwd,
        env=os.environ | environment,
        check=False,
    )
    return Ended(done.returncode, done.stdout, done.stderr)


def contents(folder):
    """Every file below a folder, by path, with its bytes."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
