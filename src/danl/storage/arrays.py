"""Arrays with a header as bytes, the one place that writes and reads them. No pickle, and nothing is trusted.

    npz       files: traces, checkpoints, saved estimators; `numpy.load` reads them, too
    frame     messages: 4 bytes of magic, 4 bytes with the length of a JSON header, the header, and one after the other
              the vectors that it lists as [name, dtype, length]; all little-endian

Every bit comes back. A reader compares what an array claims with the bytes that are there before it makes room for it,
so it never allocates more than it was given. A message is no npz, as the archive would be longer than most messages are
and take ten times as long.

safetensors (0.8) has frames like these. It was tried and not taken: it writes an array in Fortran order with its rows
and columns mixed up, takes any byte for a bool and does not give back the metadata of bytes, so the checks here would
stay around it; and traces are npz files that people read.
"""

from __future__ import annotations

import io
import json
import math
import struct
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

AnyArray = np.ndarray[Any, Any]

HEADER_LIMIT = 65536
"""Bytes that the header of a frame may have: there are a dozen short fields in it."""


class UnreadableError(ValueError):
    """Bytes that are not what they should be; says why."""


def to_npz(arrays: Mapping[str, Any]) -> bytes:
    """The arrays as an npz file."""
    whole = io.BytesIO()
    np.savez(whole, **arrays)
    return whole.getvalue()


def from_npz(data: bytes, what: str) -> dict[str, AnyArray]:
    """The arrays of an npz file; `UnreadableError` says that anything else is no `what`."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = archive.infolist()
            if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
                raise UnreadableError(f"packed, which no {what} is")
            if sum(entry.file_size for entry in entries) > len(data):  # entries that share their bytes
                raise UnreadableError("torn: its arrays claim to be longer than it is")
            return {entry.filename.removesuffix(".npy"): _from_npy(archive.read(entry)) for entry in entries}
    except UnreadableError:
        raise
    except Exception as error:  # whatever a torn or hostile archive makes numpy, zipfile and struct raise
        raise UnreadableError(f"torn, or no {what} ({type(error).__name__})") from None


def _from_npy(data: bytes) -> AnyArray:
    stream = io.BytesIO(data)
    if np.lib.format.read_magic(stream) != (1, 0):
        raise ValueError("an array in another format")
    shape, fortran_order, dtype = np.lib.format.read_array_header_1_0(stream)
    if dtype.hasobject:
        raise ValueError("an array of objects")
    if math.prod(shape) * dtype.itemsize != len(data) - stream.tell():
        raise UnreadableError("torn: an array claims to be longer than it is, or shorter")
    flat = np.frombuffer(data, dtype, offset=stream.tell()).copy()  # one that can be written to
    return flat.reshape(shape, order="F" if fortran_order else "C")


def to_frame(magic: bytes, header: Mapping[str, Any], vectors: Mapping[str, AnyArray]) -> bytes:
    """Header and vectors as a frame."""
    entries = [(name, vector.dtype.str, vector.size) for name, vector in vectors.items()]
    text = json.dumps({**header, "arrays": entries}).encode()
    return b"".join([magic, struct.pack("<I", len(text)), text, *(vector.tobytes() for vector in vectors.values())])


def frame_header(data: bytes, magic: bytes) -> tuple[dict[str, Any], bytes]:
    """The header of a frame, and the bytes after it."""
    if len(data) < 8 or data[:4] != magic:
        raise UnreadableError(f"no message of danl: it does not begin with {magic.decode()}")
    (length,) = struct.unpack_from("<I", data, 4)
    if length > min(HEADER_LIMIT, len(data) - 8):
        raise UnreadableError("the header is longer than the message")
    try:
        header = json.loads(data[8 : 8 + length].decode("utf-8"))
    except (ValueError, RecursionError):
        raise UnreadableError("the header is no JSON") from None
    return header, data[8 + length :]


def frame_vectors(entries: Sequence[Any], data: bytes, dtypes: Mapping[str, Sequence[str]]) -> dict[str, AnyArray]:
    """The vectors that a header lists, of the names and dtypes there may be; no byte is left over."""
    vectors: dict[str, AnyArray] = {}
    begin = 0
    for entry in entries:
        if not (isinstance(entry, list) and len(entry) == 3 and isinstance(entry[0], str)):
            raise UnreadableError("an array must be given as field, dtype and length")
        name, dtype, count = entry
        if name not in dtypes or name in vectors:
            raise UnreadableError(f"there is no array {name[:40]!r}, or it is there twice")
        if dtype not in dtypes[name]:
            raise UnreadableError(f"{name} must be {' or '.join(dtypes[name])}, this is {str(dtype)[:20]!r}")
        if type(count) is not int or count < 0:
            raise UnreadableError(f"the length of {name} is no length")
        end = begin + count * np.dtype(dtype).itemsize
        if end > len(data):
            raise UnreadableError(f"{name} is cut off")
        if dtype == "|b1" and not set(data[begin:end]) <= {0, 1}:
            raise UnreadableError(f"{name} must be bytes of 0 and 1")
        vectors[name] = np.frombuffer(data[begin:end], dtype).astype(np.dtype(dtype).newbyteorder("="))
        begin = end
    if begin != len(data):
        raise UnreadableError(f"{len(data) - begin} bytes are left over")
    return vectors
