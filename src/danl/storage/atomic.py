"""Files that are there whole or not at all: written beside their place, then renamed; a failure leaves nothing."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def written_whole(path: str | Path, *, durable: bool = False) -> Iterator[Path]:
    """Give a path to write to, with the suffix of `path`; it takes the place of `path` when the block ends well.

    With `durable` the bytes, and then the name, are on the disk before the block is left: through a power cut, too.
    """
    path = Path(path)
    partial = path.with_name(f"{path.stem}.partial{path.suffix}")
    try:
        yield partial
        if durable:
            _sync(partial)  # the name must not be there before the bytes are
        partial.replace(path)
        if durable:
            _sync(path.parent)
    finally:
        partial.unlink(missing_ok=True)


def write_bytes(path: str | Path, data: bytes, *, durable: bool = False) -> None:
    """Bytes, whole."""
    with written_whole(path, durable=durable) as partial:
        partial.write_bytes(data)


def write_text(path: str | Path, text: str) -> None:
    """Text, whole."""
    write_bytes(path, text.encode())


def write_json(path: str | Path, value: Mapping[str, Any], indent: int = 2) -> None:
    """One JSON object, readable, whole."""
    write_text(path, json.dumps(value, indent=indent, allow_nan=False) + "\n")


def _sync(path: Path) -> None:
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError:  # Windows has no handles of folders
        return
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
