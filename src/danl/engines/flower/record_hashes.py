"""Records known again without being kept: keyed hashes of what they hold.

A ledger compares the records of one answer with those of another (`danl.engines.flower.ledger`). Of each it has 64 bits
of BLAKE2b, with a key that never leaves the site: who has the ledger alone cannot try values until one fits. What a
record holds is looked at in three ways, as each is blind where another sees:

    rows    the numbers that enter the fit, by the names of their columns. The same record has another hash in a run
            with other columns.
    file    the record as it stands in the file, other columns included. The same record has another hash after the file
            was written in another way.
    counted the same with the record's weight and offset, where it has a weight: the whole with a weight, an offset, or
            neither, whatever its columns.

Records that are alike are counted: the second of them has another hash than the first.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from danl.data.files import file_format
from danl.data.reference import ShardReference
from danl.data.shard import Shard
from danl.engines.flower.site_rules import RefusedError
from danl.errors import InputError

Hashes = NDArray[np.uint64]
BYTES = 8
"""Of a hash: among ten million records two have the same by chance once in half a million times."""
ROWS_AT_A_TIME = 4_096


def hashes_of(shard: Shard, reference: ShardReference, key: bytes) -> dict[str, Hashes]:
    """The hashes of a shard's records, sorted, for each way of looking at them."""
    made = {"rows": _sorted(_row_contents(shard), key)}
    lines = file_records(reference.path)
    if lines is not None:
        places = np.unique(shard.rows)
        if len(lines) == shard.n_rows + 1 and places[-1] == shard.n_rows - 1:
            lines = lines[1:]  # a header of numbers, or names that count as none
        elif shard.feature_names is not None:
            lines = lines[1:]
        if places[-1] >= len(lines):
            raise RefusedError("ledger: the rows of the file cannot be told from each other; write it one row a line")
        made["file"] = _sorted((lines[place] for place in places.tolist()), key)
        made["counted"] = _sorted((lines[place] + b"\x1e" + entry for place, entry in _counted(shard)), key)
    return made


def set_digest(kind: str, hashes: Hashes, key: bytes) -> str:
    """What a set of records is called in the ledger."""
    return hashlib.blake2b(kind.encode() + hashes.astype("<u8").tobytes(), digest_size=16, key=key).hexdigest()


def differing(one: Hashes, other: Hashes) -> int:
    """How many records are in one of two sets and not in both."""
    return len(one) + len(other) - 2 * len(np.intersect1d(one, other, assume_unique=True))


def file_records(path: str | None) -> list[bytes] | None:
    """The records of a file as they stand there, a header line included; None where rows come from elsewhere."""
    if path is None or not Path(path).is_file():
        return None
    try:
        kind = file_format(Path(path))
    except InputError:  # said where it is read
        return None
    if kind == "parquet":
        import pandas as pd  # here: only a site with such a file needs it

        frame = pd.read_parquet(path)
        frame = frame[sorted(frame.columns)]
        rows = zip(*(frame[name].astype(str) for name in frame.columns), strict=True)
        return [b"", *("\x1f".join(row).encode() for row in rows)]  # its names take the place of a header line
    return list(_joined(Path(path).read_bytes().splitlines(), quoted=kind == "csv"))


def _joined(lines: Iterable[bytes], *, quoted: bool) -> Iterator[bytes]:
    """Lines that are not empty; those that end within quotes go on in the next one."""
    open_line = b""
    for line in lines:
        whole = open_line + line if open_line else line
        if quoted and whole.count(b'"') % 2:
            open_line = whole + b"\n"
            continue
        open_line = b""
        bare = whole.strip() if quoted else whole.partition(b"#")[0].strip()
        if bare:
            yield bare
    if open_line:
        yield open_line.strip()


def _row_contents(shard: Shard) -> Iterator[bytes]:
    """The numbers of every record: its rows, one after the other, columns in the order of their names."""
    names = shard.feature_names
    order: Any = slice(None) if names is None else np.argsort(np.array(names, dtype=object), kind="stable")
    offset = getattr(shard, "offset", None)
    weights = np.ones(shard.n_rows) if shard.weights is None else shard.weights
    extra = np.column_stack([shard.y, weights, *([] if offset is None else [offset])])
    contents = _matrix_rows(shard.X[:, order] if names is not None else shard.X, extra)
    if len(np.unique(shard.rows)) == shard.n_rows:
        yield from contents
        return
    of_record: dict[int, list[bytes]] = {}
    for record, content in zip(shard.rows.tolist(), contents, strict=True):
        of_record.setdefault(record, []).append(content)
    for parts in of_record.values():
        yield b"\x1e".join(sorted(parts))


def _counted(shard: Shard) -> Iterator[tuple[int, bytes]]:
    """The records of a weight above 0, with weight and offset; two rows of one are its successes and its failures."""
    weights = np.ones(shard.n_rows) if shard.weights is None else shard.weights
    offset = np.zeros(shard.n_rows) if shard.offset is None else shard.offset
    records, first, codes = np.unique(shard.rows, return_index=True, return_inverse=True)
    sums = np.bincount(codes, weights)
    for place in np.flatnonzero(sums > 0).tolist():
        yield int(records[place]), np.array([sums[place], offset[first[place]]]).astype("<f8").tobytes()


def _matrix_rows(X: Any, extra: NDArray[np.float64]) -> Iterator[bytes]:
    for first in range(0, len(extra), ROWS_AT_A_TIME):
        part = X[first : first + ROWS_AT_A_TIME]
        dense = part.toarray() if sparse.issparse(part) else part
        for row in np.column_stack([dense, extra[first : first + ROWS_AT_A_TIME]]) + 0.0:  # -0.0 is 0.0
            yield row.astype("<f8").tobytes()


def _sorted(contents: Iterable[bytes], key: bytes) -> Hashes:
    seen = Counter[bytes]()
    made = []
    for content in contents:
        seen[content] += 1
        text = content + b"\x1d%d" % seen[content]
        made.append(int.from_bytes(hashlib.blake2b(text, digest_size=BYTES, key=key).digest(), "little"))
    return np.unique(np.array(made, dtype=np.uint64))
