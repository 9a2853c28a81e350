"""Folders that a run writes to: made, tried by writing, and held by one process at a time.

A folder is tried before a run begins, by writing to it: a full disk, a folder that is read-only and a file that stands
in its place are known then, and not after hours. While the run goes on, a file in it is locked (`flock`, on Windows
`msvcrt.locking`): the system lets go of the lock when the process ends, however it ends, so a lock that was left behind
holds nobody up. At the end the file is removed, and so are the folders that were made and have nothing in them.
"""

from __future__ import annotations

import errno
import os
import platform
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from danl.errors import InputError

TRIED = 65_536
"""Bytes that must find room before a run begins."""
NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL}
"""What a file system says that knows no locks: there the folder is used without."""
_handles: set[int] = set()
"""The locks of this process. A child that is forked lets go of them: they end with this process, not with the child."""


def _forget() -> None:
    while _handles:
        os.close(_handles.pop())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


@contextmanager
def claimed(folder: Path, argument: str, otherwise: str = "choose another folder", *, lock: str) -> Iterator[None]:
    """Have a folder for this process alone until the block ends.

    Parameters
    ----------
    folder : path
        Made if need be.
    argument : str
        What the folder was given as, for the messages.
    otherwise : str
        What to do where it cannot be had.
    lock : str
        The name of the file that is locked: one for each use of a folder that stands in no other's way.

    """
    name, owner = f"{argument}={str(folder)!r}", os.getpid()
    made: list[Path] = []
    try:
        try:
            made.extend(_made(folder))
            handle = _locked(folder / lock)
        except _HeldError as held:
            raise InputError(f"{name}: is in use by {held}; wait until it is over, or {otherwise}") from None
        except OSError as error:
            raise InputError(f"{name}: {why_not(folder, error)}; {otherwise}") from None
        try:
            try:
                _try(folder)
            except OSError as error:
                raise InputError(f"{name}: {why_not(folder, error)}; {otherwise}") from None
            yield
        finally:
            _let_go(folder / lock, handle)
    finally:
        if os.getpid() == owner:  # not a forked child that comes here
            _remove_empty(made)


def why_not(folder: Path, error: OSError) -> str:
    """Why a folder cannot be written to, in words."""
    nearest = folder
    while not os.path.lexists(nearest) and nearest != nearest.parent:
        nearest = nearest.parent
    if not nearest.is_dir():
        return f"must be a folder, and {str(nearest)!r} is a file"
    return f"cannot be written ({error.strerror or error})"


class _HeldError(Exception):
    """Another process has the folder; says which."""


def _made(folder: Path) -> list[Path]:
    """Make a folder and those above it; the new ones, the outermost first."""
    missing = []
    while not folder.is_dir():
        missing.append(folder)
        if folder == folder.parent:
            break
        folder = folder.parent
    made: list[Path] = []
    try:
        for each in reversed(missing):
            try:
                each.mkdir()
                made.append(each)
            except FileExistsError:
                if not each.is_dir():  # a file; a folder is one that somebody else made a moment ago
                    raise
    except OSError:
        _remove_empty(made)
        raise
    return made


def _remove_empty(made: list[Path]) -> None:
    for each in reversed(made):
        with suppress(OSError):  # there is something in it now
            each.rmdir()


def _try(folder: Path) -> None:
    """Write something and have it on the disk: there a file system that is full says so."""
    with tempfile.TemporaryFile(dir=folder) as file:
        file.write(bytes(TRIED))
        file.flush()
        os.fsync(file.fileno())


def _locked(path: Path) -> int:
    """The handle of a file that this process alone has locked now, with its number in it."""
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            _lock(handle)
            if os.path.samestat(os.fstat(handle), path.stat()):
                os.ftruncate(handle, 0)
                os.write(handle, f"{os.getpid()} {platform.node()}\n".encode())
                _handles.add(handle)
                return handle
        except FileNotFoundError:
            pass
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)  # whoever had it before removed it between the two: once more


def _lock(handle: int) -> None:
    try:
        if sys.platform == "win32":
            import msvcrt

            os.lseek(handle, 2**30, os.SEEK_SET)  # beyond what is read
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
            os.lseek(handle, 0, os.SEEK_SET)
        else:
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        raise _HeldError(_holder(handle)) from None
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise


def _holder(handle: int) -> str:
    """Who has the lock, as far as the file tells."""
    os.lseek(handle, 0, os.SEEK_SET)
    number, _, machine = os.read(handle, 200).decode(errors="replace").strip().partition(" ")
    if not number.isdecimal():
        return "another process"
    if machine != platform.node():
        return f"process {number} on {machine}"
    return f"another run of this process ({number})" if int(number) == os.getpid() else f"process {number}"


def _let_go(path: Path, handle: int) -> None:
    if handle not in _handles:
        return  # in a child
    with suppress(OSError):
        if os.path.samestat(os.fstat(handle), path.stat()):
            path.unlink()  # before the lock is gone: afterwards it may be another's
    _handles.remove(handle)
    os.close(handle)
