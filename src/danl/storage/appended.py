"""Files that only grow: what a run adds to is added, and never written again.

Whoever keeps the length and the digest of such a file (`Appended.mark`) has so much of it back, whatever came after:
an end that was torn by a crash, or that belongs to nothing, is cut off when the file is opened again.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from danl.storage.arrays import UnreadableError


class Appended:
    """One such file, at a length that is known."""

    def __init__(self, path: Path) -> None:
        self.path, self.length = path, 0
        self._digest = hashlib.sha256()

    @property
    def mark(self) -> tuple[int, str]:
        """How long it is, and the SHA-256 of its bytes up to there."""
        return self.length, self._digest.hexdigest()

    def append(self, data: bytes) -> None:
        """Add to it, on the disk before this returns; what stands beyond the known length is cut off.

        After an error it is as long as it was, and the same can be tried again.
        """
        try:
            file = self.path.open("r+b" if self.length else "wb")
        except FileNotFoundError:
            if not self.length:
                raise  # the folder is not there
            raise UnreadableError(f"{self.path.name} is gone") from None
        with file:
            if file.seek(0, os.SEEK_END) < self.length:
                raise UnreadableError(f"{self.path.name} has become shorter")
            file.seek(self.length)
            file.truncate()
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        self.length += len(data)
        self._digest.update(data)

    @classmethod
    def reopen(cls, path: Path, mark: tuple[int, str]) -> tuple[Appended, bytes]:
        """The file at an earlier mark, and its bytes up to there."""
        length, digest = mark
        with path.open("rb") as file:
            data = file.read(length)
        log = cls(path)
        log.length = len(data)
        log._digest.update(data)
        if log.mark != (length, digest):
            raise UnreadableError(f"{path.name} is torn or changed")
        return log, data
