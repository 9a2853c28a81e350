"""Folders that a run writes to: made, tried by writing, and held by one process at a time.

A folder is tried before a run begins, by writing to it: a full disk, a folder that is read-only and a file that stands
in its place are known then, and not after hours. While the run goes on, a file in it is locked (`filelock`): the system
lets go of the lock when the process ends, however it ends, so a lock that was left behind holds nobody up. At the end
the file is removed, and so are the folders that were made and have nothing in them.
"""

from __future__ import annotations

import errno
import os
import platform
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from danl.errors import InputError

TRIED = 65_536
"""Bytes that must find room before a run begins."""
NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL}
"""What a file system says that knows no locks: there the folder is used without."""


@contextmanager
def claimed(folder: Path, argument: str, otherwise: str = "choose another folder", *, lock: str) -> Iterator[None]:
    """Have a folder for this process alone until the block ends; it is made if need be.

    The messages name the `argument` that the folder was given as, and say what to do `otherwise`. `lock` is the name of
    the file that is locked: one for each use of a folder that stands in no other's way.
    """
    from filelock import FileLock, Timeout  # here: most runs claim nothing

    name, owner, path = f"{argument}={str(folder)!r}", os.getpid(), folder / lock
    made = [each for each in (folder, *folder.parents) if not os.path.lexists(each)]
    # No fallback: a lock that is but a file stays behind where a process is killed.
    held = FileLock(path, timeout=0, thread_local=False, fallback_to_soft=False, on_acquired=_sign)
    had = False
    try:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            try:
                held.acquire()
            except OSError as error:
                if error.errno not in NO_LOCKS:
                    raise
            had = True
            _try(folder)
        except Timeout:
            raise InputError(f"{name}: is in use by {_holder(path)}; wait until it is over, or {otherwise}") from None
        except OSError as error:
            raise InputError(f"{name}: {why_not(folder, error)}; {otherwise}") from None
        yield
    finally:
        if os.getpid() == owner:  # not a forked child that comes here
            with suppress(OSError):
                if had:
                    path.unlink()  # before the lock is gone: afterwards it may be another's
            held.release()
            for each in made:
                with suppress(OSError):  # there is something in it now
                    each.rmdir()


def why_not(folder: Path, error: OSError) -> str:
    """Why a folder cannot be written to, in words."""
    nearest = folder
    while not os.path.lexists(nearest) and nearest != nearest.parent:
        nearest = nearest.parent
    if not nearest.is_dir():
        return f"must be a folder, and {str(nearest)!r} is a file"
    return f"cannot be written ({error.strerror or error})"


def _try(folder: Path) -> None:
    """Write something and have it on the disk: there a file system that is full says so."""
    with tempfile.TemporaryFile(dir=folder) as file:
        file.write(bytes(TRIED))
        file.flush()
        os.fsync(file.fileno())


def _sign(handle: int) -> None:
    """Write into the locked file whose it is."""
    os.ftruncate(handle, 0)
    os.write(handle, f"{os.getpid()} {platform.node()}\n".encode())


def _holder(path: Path) -> str:
    """Who has the lock, as far as the file tells."""
    try:
        number, _, machine = path.read_text(errors="replace")[:200].strip().partition(" ")
    except OSError:  # gone a moment ago
        number = ""
    if not number.isdecimal():
        return "another process"
    if machine != platform.node():
        return f"process {number} on {machine}"
    return f"another run of this process ({number})" if int(number) == os.getpid() else f"process {number}"
