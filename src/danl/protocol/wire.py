"""Tasks and replies as bytes: a short JSON header and the arrays after it. No pickle, and nothing is trusted.

    4 bytes   b"DNL1"
    4 bytes   length of the header, little-endian
    header    {"type": ..., "fields": {...}, "arrays": [[field, dtype, length], ...]}
    arrays    one after the other, little-endian, in the header's order

Numbers in the header are exact: integers and booleans as JSON has them, floats as hexadecimal text ("0x1.8p+1", "nan").
`decode` takes a message only if every part of it is as `encode` would have written it: known type, the type's fields
and no others, vectors of the dtype the field has, no byte missing or left over. It never allocates more than a message
is long, and the caller says how long that may be (`most_bytes`).
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, fields
from functools import cache
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import numpy as np

from danl.protocol.messages import (
    CurvatureReply,
    CurvatureTask,
    Failure,
    GradientReply,
    GradientTask,
    HessianReply,
    HessianTask,
    LocalStepsTask,
    LossReply,
    LossTask,
    ModelReply,
    MomentsReply,
    MomentsTask,
    Reply,
    ScoresReply,
    ScoresTask,
    SmoothnessReply,
    SmoothnessTask,
    Task,
)

MAGIC = b"DNL1"
HEADER_LIMIT = 65536
"""Bytes a header may have: there are a dozen short fields in it."""
FRAME = 1024
"""Bytes that header and framing of a message take at most, beside its arrays and the text of a failure."""
TYPES = {
    kind.__name__: kind
    for kind in (
        HessianTask,
        CurvatureTask,
        GradientTask,
        LossTask,
        LocalStepsTask,
        ScoresTask,
        SmoothnessTask,
        MomentsTask,
        HessianReply,
        CurvatureReply,
        GradientReply,
        LossReply,
        ModelReply,
        ScoresReply,
        SmoothnessReply,
        MomentsReply,
        Failure,
    )
}
DTYPES = {np.float64: "<f8", np.float32: "<f4", np.bool_: "|b1"}
NATIVE = {code: native for native, code in DTYPES.items()}
Message = Task | Reply | Failure


class WireError(ValueError):
    """Bytes that are no message."""


@dataclass(frozen=True)
class _Field:
    """What a field may hold."""

    name: str
    arrays: tuple[str, ...] = ()  # dtypes an array field may have
    scalar: type | None = None
    words: tuple[str, ...] = ()  # the values of a Literal
    optional: bool = False


def encode(message: Message) -> bytes:
    """The message as bytes."""
    scalars: dict[str, Any] = {}
    arrays: list[tuple[str, str, int]] = []
    parts: list[bytes] = []
    kind: type = type(message)
    for field in _fields(kind):
        value = getattr(message, field.name)
        if field.arrays and value is not None:
            data = np.ascontiguousarray(value)
            dtype = DTYPES.get(data.dtype.type, "")
            dtype = dtype if dtype in field.arrays else field.arrays[0]
            data = data.astype(dtype, copy=False)
            arrays.append((field.name, dtype, data.size))
            parts.append(data.tobytes())
        elif isinstance(value, float | np.floating):
            scalars[field.name] = float(value).hex()
        else:
            scalars[field.name] = value.item() if isinstance(value, np.generic) else value
    header = json.dumps({"type": kind.__name__, "fields": scalars, "arrays": arrays}).encode()
    return b"".join([MAGIC, struct.pack("<I", len(header)), header, *parts])


def decode(data: bytes, *, most_bytes: int) -> Message:
    """The message of these bytes; `WireError` says what is wrong with anything else."""
    if not isinstance(data, bytes):
        raise WireError(f"a message is bytes, this is {type(data).__name__}")
    if len(data) > most_bytes:
        raise WireError(f"{len(data)} bytes, and the largest message of this run has {most_bytes}")
    if len(data) < 8 or data[:4] != MAGIC:
        raise WireError("no message of danl: it does not begin with DNL1")
    (length,) = struct.unpack_from("<I", data, 4)
    if length > min(HEADER_LIMIT, len(data) - 8):
        raise WireError("the header is longer than the message")
    try:
        header = json.loads(data[8 : 8 + length].decode("utf-8"))
    except (ValueError, RecursionError):
        raise WireError("the header is no JSON") from None
    if not isinstance(header, dict) or set(header) != {"type", "fields", "arrays"}:
        raise WireError("the header must have type, fields and arrays")
    kind = TYPES.get(header["type"]) if isinstance(header["type"], str) else None
    if kind is None:
        raise WireError(f"unknown type {str(header['type'])[:40]!r}")
    if not isinstance(header["fields"], dict) or not isinstance(header["arrays"], list):
        raise WireError("fields must be an object and arrays a list")
    values = _arrays(kind, header["arrays"], data, 8 + length)
    if set(values) & set(header["fields"]):
        raise WireError("a field is there twice")
    for name, value in header["fields"].items():
        values[name] = _scalar(kind, name, value)
    missing = {field.name for field in _fields(kind)} - set(values)
    if missing:
        raise WireError(f"{kind.__name__} lacks {sorted(missing)[0]}")
    message: Message = kind(**values)
    return message


def most_bytes(d: int, n_regions: int) -> int:
    """The longest message a run with d coefficients can have: a Hessian, a gradient, a mask and the frame.

    Moments of few columns are longer than that: two numbers a column, and one for the target.
    """
    return 8 * max(d * (d + 1) // 2 + d, 3 * d) + n_regions + FRAME


def _arrays(kind: type, entries: list[Any], data: bytes, offset: int) -> dict[str, Any]:
    values: dict[str, Any] = {}
    by_name = {field.name: field for field in _fields(kind)}
    for entry in entries:
        if not (isinstance(entry, list) and len(entry) == 3 and isinstance(entry[0], str)):
            raise WireError("an array must be given as field, dtype and length")
        name, dtype, count = entry
        field = by_name.get(name)
        if field is None or not field.arrays or name in values:
            raise WireError(f"{kind.__name__} has no array {name[:40]!r}, or has it once")
        if dtype not in field.arrays:
            raise WireError(f"{name} must be {' or '.join(field.arrays)}, this is {str(dtype)[:20]!r}")
        if not _whole(count) or count < 0 or count > len(data):
            raise WireError(f"the length of {name} is no length")
        end = offset + count * np.dtype(dtype).itemsize
        if end > len(data):
            raise WireError(f"{name} is cut off")
        if dtype == "|b1" and not set(data[offset:end]) <= {0, 1}:
            raise WireError(f"{name} must be bytes of 0 and 1")
        values[name] = np.frombuffer(data[offset:end], dtype=dtype).astype(NATIVE[dtype])
        offset = end
    if offset != len(data):
        raise WireError(f"{len(data) - offset} bytes are left over")
    return values


def _scalar(kind: type, name: str, value: Any) -> Any:
    field = next((field for field in _fields(kind) if field.name == name), None)
    if field is None:
        raise WireError(f"{kind.__name__} has no field {name[:40]!r}")
    if value is None and field.optional:
        return None
    if field.words and value in field.words:
        return value
    if field.scalar is float and isinstance(value, str) and len(value) < 40:
        try:
            return float.fromhex(value)
        except (ValueError, OverflowError):
            pass
    if field.scalar is int and _whole(value) and abs(value) < 2**63:
        return value
    if field.scalar is bool and isinstance(value, bool):
        return value
    if field.scalar is str and isinstance(value, str):
        return value
    raise WireError(f"{name} cannot be {str(value)[:40]!r}")


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


@cache
def _fields(kind: type) -> tuple[_Field, ...]:
    """What each field of a message may hold, from the type hints of its class."""
    hints = get_type_hints(kind)
    return tuple(_field(part.name, hints[part.name]) for part in fields(kind))


def _field(name: str, hint: Any) -> _Field:
    choices = [hint] if get_origin(hint) in (None, Literal, np.ndarray) else list(get_args(hint))
    optional = NoneType in choices
    mains = [choice for choice in choices if choice is not NoneType]
    if all(get_origin(main) is np.ndarray for main in mains):
        dtypes = [get_args(get_args(main)[1])[0] for main in mains]
        return _Field(name, arrays=tuple(DTYPES[dtype] for dtype in dtypes), optional=optional)
    (main,) = mains
    if get_origin(main) is Literal:
        return _Field(name, words=get_args(main), optional=optional)
    return _Field(name, scalar=main, optional=optional)
