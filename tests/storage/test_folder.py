"""Folders for one process at a time: the lock ends with its process, and nothing is left of it."""

import errno
import os
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager

import pytest

from danl.errors import InputError
from danl.storage.folder import claimed
from tests.mounts import run_on

HOLD = """
import os, sys
from pathlib import Path
from danl.storage.folder import claimed
with claimed(Path(sys.argv[1]), "--out", lock=sys.argv[3]):
    child = os.fork() if sys.argv[2] == "fork" else 1
    if not child:
        os.write(1, b"child\\n")
    else:
        os.write(1, b"held\\n")
    sys.stdin.read()
"""


@contextmanager
def holder(folder, fork="alone", lock=".lock"):
    """Another process that holds a folder, and says so; it ends when its input does."""
    command = [sys.executable, "-c", HOLD, str(folder), fork, lock]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        lines = [process.stdout.readline() for _ in range(2 if fork == "fork" else 1)]
        assert "held\n" in lines
        try:
            yield process
        finally:
            process.stdin.close()


def claim(folder):
    return claimed(folder, "--out", lock=".lock")


def test_a_second_process_is_refused_and_told_who_has_it(tmp_path):
    folder = tmp_path / "a" / "b"
    with holder(folder) as process:
        with pytest.raises(InputError) as error, claim(folder):
            pass
        who = f"is in use by process {process.pid}; wait until it is over, or choose another folder"
        assert str(error.value) == f"--out={str(folder)!r}: {who}"
    with claim(folder):
        pass
    assert list(tmp_path.iterdir()) == []  # folders that were made and have nothing in them


@pytest.mark.parametrize("fork", ["alone", "fork"])
def test_a_lock_ends_with_its_process_not_with_its_file_or_a_child(tmp_path, fork):
    with holder(tmp_path / "out", fork) as process:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        assert (tmp_path / "out" / ".lock").read_text().split()[0] == str(process.pid)
        with claim(tmp_path / "out"):  # the child, where there is one, is still there
            assert (tmp_path / "out" / ".lock").read_text().split()[0] == str(os.getpid())
    assert list((tmp_path / "out").iterdir()) == []


def test_the_same_process_is_refused_as_well(tmp_path):
    with claim(tmp_path):
        with (
            pytest.raises(InputError, match=rf"in use by another run of this process \({os.getpid()}\)"),
            claim(tmp_path),
        ):
            pass
        with claimed(tmp_path, "checkpoint", lock=".other"):  # another use
            assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", ".other"]
    assert list(tmp_path.iterdir()) == []


def test_whoever_comes_while_the_file_is_removed_takes_a_new_one(tmp_path):
    """Many threads at once: one at a time has it, and the file of one is never removed by another."""
    having, most, done = [], [], []

    def take(number):
        while True:
            try:
                with claim(tmp_path):
                    having.append(number)
                    most.append(len(having))
                    having.remove(number)
                    break
            except InputError:
                continue
        done.append(number)

    threads = [threading.Thread(target=take, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(done) == list(range(8))
    assert max(most) == 1
    assert list(tmp_path.iterdir()) == []


def test_what_is_in_a_folder_stays(tmp_path):
    with claim(tmp_path / "a" / "b"):
        (tmp_path / "a" / "mine").write_text("x")
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["mine"]


def test_without_locks_a_folder_is_used_without(tmp_path, monkeypatch):
    fcntl = pytest.importorskip("fcntl")

    def unknown(*arguments):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", unknown)
    with claim(tmp_path), claim(tmp_path):
        assert tmp_path.is_dir()


def test_a_file_in_its_place(tmp_path):
    (tmp_path / "file").write_text("mine")
    for folder in (tmp_path / "file", tmp_path / "file" / "below", tmp_path / "file" / "far" / "below"):
        with pytest.raises(InputError) as error, claim(folder):
            pass
        assert str(error.value) == (
            f"--out={str(folder)!r}: must be a folder, and {str(tmp_path / 'file')!r} is a file; choose another folder"
        )
    assert (tmp_path / "file").read_text() == "mine"


CLAIM = """
import sys
from pathlib import Path
from danl.errors import InputError
from danl.storage.folder import claimed
try:
    with claimed(Path(sys.argv[1]), "--out", lock=".lock"):
        print("had it")
except InputError as error:
    print(error)
print([str(path) for path in Path(sys.argv[2]).iterdir()])
"""


@pytest.mark.parametrize(("options", "why"), [("size=8k", "No space left on device"), ("ro", "Read-only file system")])
def test_a_file_system_that_takes_nothing(tmp_path, options, why):
    inner = tmp_path / "mounted"
    ended = run_on(options, inner, "-c", CLAIM, inner / "out", inner)
    assert ended.out.splitlines() == [
        f"--out={str(inner / 'out')!r}: cannot be written ({why}); choose another folder",
        "[]",
    ], ended.err
    assert run_on("size=1m", inner, "-c", CLAIM, inner / "out", inner).out.splitlines() == ["had it", "[]"]
