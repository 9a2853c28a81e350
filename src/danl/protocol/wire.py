"""Tasks and replies as bytes: frames (`danl.storage.arrays`) whose header has a type and the fields that are no arrays.

    header    {"type": ..., "fields": {...}, "arrays": [[field, dtype, length], ...]}

A field of several messages has their lengths among the fields, and their bytes, one after the other, as its array.
Numbers in the header are exact: integers and booleans as JSON has them, floats as hexadecimal text ("0x1.8p+1", "nan").
`decode` takes a message only if every part of it is as `encode` would have written it: known type, the type's fields
and no others, vectors of the dtype the field has, no byte missing or left over. It never allocates more than a message
is long, and the caller says how long that may be (`most_bytes`).
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, fields
from functools import cache
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import numpy as np

from danl.errors import InputError
from danl.protocol.messages import TASKS, Failure, Reply, Task
from danl.protocol.own_tasks import OWN_TASKS
from danl.storage.arrays import UnreadableError, frame_header, frame_vectors, to_frame

MAGIC = b"DNL1"
COUNTS = 64
"""Numbers a column, and the outcome, that tables and histograms have at most (`danl.tasks`)."""
FRAME = 1024
"""Bytes that header and framing of a message take at most, beside its arrays and the text of a failure."""
MOST_PARTS = 8
"""Messages in one message."""
Message = Task | Reply | Failure
TYPES: dict[str, type] = {kind.__name__: kind for task in TASKS for kind in (task, task.answer)} | {"Failure": Failure}
DTYPES = {np.float64: "<f8", np.float32: "<f4", np.bool_: "|b1", np.int16: "<i2", np.int32: "<i4"}
BYTES = "|u1"
WireError = UnreadableError
"""Bytes that are no message."""


@dataclass(frozen=True)
class _Field:
    """What a field may hold."""

    arrays: tuple[str, ...] = ()  # dtypes an array field may have
    scalar: type | None = None
    choices: tuple[str, ...] = ()  # the values of a Literal
    optional: bool = False
    messages: bool = False  # several, in a message of their own


def encode(message: Message) -> bytes:
    """The task, reply or failure as bytes."""
    scalars: dict[str, Any] = {}
    vectors: dict[str, np.ndarray[Any, Any]] = {}
    kind: type = type(message)
    for name, field in _fields(kind).items():
        value = getattr(message, name)
        if field.messages:
            frames = [encode(part) for part in value]
            scalars[name] = [len(frame) for frame in frames]
            vectors[name] = np.frombuffer(b"".join(frames), np.uint8)
        elif field.arrays and value is not None:
            vector = np.asarray(value)
            dtype = DTYPES.get(vector.dtype.type, "")
            vectors[name] = vector.astype(dtype if dtype in field.arrays else field.arrays[0], copy=False)
        elif isinstance(value, float | np.floating):
            scalars[name] = float(value).hex()
        else:
            scalars[name] = value.item() if isinstance(value, np.generic) else value
    return to_frame(MAGIC, {"type": kind.__name__, "fields": scalars}, vectors)


def decode(data: bytes, *, most_bytes: int) -> Message:
    """The message of these bytes, of `most_bytes` at most; a `ValueError` says what is wrong with anything else."""
    return _decoded(data, most_bytes)


def _decoded(data: bytes, most_bytes: int, *, part: bool = False) -> Message:
    if not isinstance(data, bytes):
        raise WireError(f"a message is bytes, this is {type(data).__name__}")
    if len(data) > most_bytes:
        raise WireError(f"{len(data)} bytes, and the largest message of this run has {most_bytes}")
    header, body = frame_header(data, MAGIC)
    if not isinstance(header, dict) or set(header) != {"type", "fields", "arrays"}:
        raise WireError("the header must have type, fields and arrays")
    kind = _type(header["type"]) if isinstance(header["type"], str) else None
    if kind is None:
        raise WireError(f"unknown type {str(header['type'])[:40]!r}")
    scalars, entries, expected = header["fields"], header["arrays"], _fields(kind)
    if part and any(field.messages for field in expected.values()):
        raise WireError("a message of several is in another one")
    if not isinstance(scalars, dict) or not isinstance(entries, list):
        raise WireError("fields must be an object and arrays a list")
    values: dict[str, Any] = frame_vectors(entries, body, _dtypes(kind))
    for name, value in scalars.items():
        if name in expected and expected[name].messages:
            values[name] = _parts(name, value, values.get(name))
            continue
        if name not in expected or name in values:
            raise WireError(f"{kind.__name__} has no field {name[:40]!r}, or has it once")
        values[name] = _scalar(name, expected[name], value)
    missing = expected.keys() - values.keys()
    if missing:
        raise WireError(f"{kind.__name__} lacks {min(missing)}")
    try:
        message: Message = kind(**values)
    except InputError as error:  # parts that cannot be together
        raise WireError(str(error)) from None
    return message


def _parts(name: str, lengths: Any, together: np.ndarray[Any, Any] | None) -> tuple[Message, ...]:
    """The messages of these lengths, one after the other."""
    whole = isinstance(lengths, list) and 0 < len(lengths) <= MOST_PARTS and all(type(n) is int for n in lengths)
    if not whole or together is None or min(lengths) < 0 or sum(lengths) != together.size:
        raise WireError(f"{name} are no messages")
    ends = np.cumsum(lengths)
    frames = [each.tobytes() for each in np.split(together, ends[:-1])]
    return tuple(_decoded(frame, len(frame), part=True) for frame in frames)


def _type(name: str) -> type | None:
    """The class of this name; those of tasks that bring their own work are known once they are imported."""
    if name in TYPES:
        return TYPES[name]
    own = {kind.__name__: kind for task in OWN_TASKS.values() for kind in (task, task.answer)}
    return own.get(name)


def most_bytes(d: int, n_regions: int) -> int:
    """The longest task or reply of a run with d coefficients: all tables of a fit at once, four matrices, and frames.

    A Hessian in a basis that comes with it is shorter, and where d is small so are the moments. A failure's text comes
    on top.
    """
    return 8 * (2 * d * (d + 1) + 4 * d + COUNTS * (d + 2)) + n_regions + 4 * FRAME


def _scalar(name: str, field: _Field, value: Any) -> Any:
    """The value of a field that is no array."""
    match value:
        case None if field.optional:
            return value
        case bool() if field.scalar is bool:
            return value
        case int() if field.scalar is int and not isinstance(value, bool) and abs(value) < 2**63:
            return value
        case str() if field.scalar is str or value in field.choices:
            return value
        case str() if field.scalar is float and len(value) < 40:
            with suppress(ValueError, OverflowError):
                return float.fromhex(value)
    raise WireError(f"{name} cannot be {str(value)[:40]!r}")


@cache
def _fields(kind: type) -> dict[str, _Field]:
    """What each field of a message may hold, from the type hints of its class."""
    hints = get_type_hints(kind)
    return {part.name: _field(hints[part.name]) for part in fields(kind)}


@cache
def _dtypes(kind: type) -> dict[str, tuple[str, ...]]:
    return {name: field.arrays for name, field in _fields(kind).items() if field.arrays}


def _field(hint: Any) -> _Field:
    if get_origin(hint) is tuple:
        return _Field(arrays=(BYTES,), messages=True)
    choices = [hint] if get_origin(hint) in (None, Literal, np.ndarray) else list(get_args(hint))
    optional = NoneType in choices
    mains = [choice for choice in choices if choice is not NoneType]
    if all(get_origin(main) is np.ndarray for main in mains):
        dtypes = [get_args(get_args(main)[1])[0] for main in mains]
        return _Field(arrays=tuple(DTYPES[dtype] for dtype in dtypes), optional=optional)
    (main,) = mains
    if get_origin(main) is Literal:
        return _Field(choices=get_args(main), optional=optional)
    return _Field(scalar=main, optional=optional)
