"""File systems of a test's own: small ones that are full soon, and ones that nobody can write to.

They are mounted in a mount namespace that only the command in it sees, so nothing is left behind.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys

import pytest

from tests.cli.shell import TIMEOUT, Ended

MOUNT = 'mount -t tmpfs -o "$1" tmpfs "$2" && shift 2 && exec "$@"'


@functools.cache
def can_mount(folder: str) -> bool:
    """Whether this machine lets us: containers often do not."""
    if shutil.which("unshare") is None:
        return False
    done = subprocess.run([*INSIDE, "size=4k", folder, "true"], capture_output=True, timeout=TIMEOUT, check=False)
    return done.returncode == 0


INSIDE = ("unshare", "--map-root-user", "--mount", "sh", "-c", MOUNT, "sh")


def run_on(options, folder, *words):
    """Run `python WORDS` with a file system mounted on a folder: `size=100k`, or `ro`; its files go with it."""
    folder.mkdir(exist_ok=True)
    if not can_mount(os.fspath(folder.parent)):
        pytest.skip("no file system can be mounted here")
    command = [*INSIDE, options, os.fspath(folder), sys.executable, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    return Ended(done.returncode, done.stdout, done.stderr)
