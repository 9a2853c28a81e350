"""States as files: frozen dataclasses of arrays, numbers, words, tuples, lists and mappings, and back again.

`serialize` turns a value into JSON and numbered arrays, `deserialize` turns these back. A dataclass is written as its
name and its fields, and takes part only if its class says so. A method of your own does it for its state with

    @storable
    @dataclass(frozen=True)
    class MyState:
        w: Array
        status: Status | None = None

`to_file` makes one npz of a value (`danl.storage.arrays`):

    head            JSON: what the file is (magic), version, digest: SHA-256 of the text and of every array
    text            JSON: a fingerprint, and the value with a reference wherever an array belongs
    a0, a1, ...     the arrays: float64, int64 or bool

`from_file` refuses a file of another kind, version or fingerprint, and one whose digest differs. The digest finds
damage and careless changes; it is no signature.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

import numpy as np

from danl.errors import InputError
from danl.storage.arrays import AnyArray, UnreadableError, from_npz, to_npz

T = TypeVar("T")

DTYPES = ("<f8", "<i8", "|b1")
OTHER_VERSION = "written by another version of danl"
_CLASSES: dict[str, type] = {}


def storable(kind: type[T]) -> type[T]:
    """Let the objects of a dataclass be written to checkpoints, and be made again from them: a class decorator."""
    name, there = kind.__name__, _CLASSES.get(kind.__name__)
    if not is_dataclass(kind):
        raise InputError(f"storable: {name} must be a dataclass; put @storable above @dataclass")
    if there is not None and (there.__module__, there.__qualname__) != (kind.__module__, kind.__qualname__):
        raise InputError(f"storable: there is a {name} in {there.__module__} already; give {kind.__module__}'s another")
    _CLASSES[name] = kind
    return kind


def serialize(value: Any, arrays: dict[str, AnyArray]) -> Any:
    """A value as JSON; its arrays are put into `arrays` under numbered names."""
    if isinstance(value, np.ndarray):
        name = f"a{len(arrays)}"
        arrays[name] = value
        return {"array": name}
    if is_dataclass(value) and not isinstance(value, type):
        kind = type(value).__name__
        if _CLASSES.get(kind) is not type(value):
            raise InputError(
                f"checkpoint: a {kind} cannot be written down; put @storable (danl.methods.storable) above its class, "
                "or run without checkpoints"
            )
        own = {part.name: serialize(getattr(value, part.name), arrays) for part in fields(value)}
        return {"class": kind, "fields": own}
    if isinstance(value, Mapping):
        return {"mapping": [[serialize(key, arrays), serialize(item, arrays)] for key, item in value.items()]}
    if isinstance(value, tuple | list):
        return {"tuple" if isinstance(value, tuple) else "list": [serialize(item, arrays) for item in value]}
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": repr(value)}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise InputError(f"checkpoint: a {type(value).__name__} cannot be written down; run without checkpoints")


def deserialize(part: Any, arrays: Mapping[str, AnyArray]) -> Any:
    """The value that `serialize` wrote."""
    match part:
        case None | bool() | int() | float() | str():
            return part
        case {"array": name}:
            return arrays[name]
        case {"class": name, "fields": values}:
            return _CLASSES[name](**{key: deserialize(item, arrays) for key, item in values.items()})
        case {"mapping": pairs}:
            return {deserialize(key, arrays): deserialize(item, arrays) for key, item in pairs}
        case {"tuple": items}:
            return tuple(deserialize(item, arrays) for item in items)
        case {"list": items}:
            return [deserialize(item, arrays) for item in items]
        case {"float": text}:
            return float(text)
    raise UnreadableError("its text is not a state's")


def plain(value: Any, otherwise: Callable[[Any], Any] | None = None) -> Any:
    """A value as JSON has it; TypeError, or `otherwise` of it, for what JSON has no place for."""
    match value:
        case np.generic() | np.ndarray():
            return plain(value.tolist(), otherwise)
        case list() | tuple():
            return [plain(item, otherwise) for item in value]
        case dict():
            return {plain(key, otherwise): plain(item, otherwise) for key, item in value.items()}
        case None | bool() | int() | float() | str():
            return value
    if otherwise is None:
        raise TypeError(type(value).__name__)
    return otherwise(value)


def to_file(values: Mapping[str, Any], *, magic: str, version: int, fingerprint: str = "") -> bytes:
    """The values as a file."""
    arrays: dict[str, AnyArray] = {}
    whole = {name: serialize(value, arrays) for name, value in values.items()}
    text = json.dumps({"fingerprint": fingerprint, "carried": whole})  # the key that older files have
    head = json.dumps({"magic": magic, "version": version, "digest": _digest(text, arrays)})
    return to_npz({"head": _bytes(head), "text": _bytes(text), **arrays})


def from_file(data: bytes, *, magic: str, version: int, fingerprint: str = "") -> dict[str, Any]:
    """The values of a file; `UnreadableError` says what is wrong with anything else."""
    stored = from_npz(data, f"{magic} file")
    try:
        head = json.loads(bytes(stored.pop("head")).decode())
        text = bytes(stored.pop("text")).decode()
        if not isinstance(head, dict) or head.get("magic") != magic:
            raise UnreadableError(f"no {magic} file")
        if head.get("version") != version:
            raise UnreadableError(f"{OTHER_VERSION} (format {head.get('version')}, this is {version})")
        if head.get("digest") != _digest(text, stored):
            raise UnreadableError("torn or changed: its digest is another")
        whole = json.loads(text)
        if whole["fingerprint"] != fingerprint:
            raise UnreadableError("of another run: problem, data, method, masks or seed differ")
        return {name: deserialize(part, stored) for name, part in whole["carried"].items()}
    except UnreadableError:
        raise
    except Exception as error:  # whatever a text that nobody wrote makes json and the classes raise
        raise UnreadableError(f"torn, or no {magic} file ({type(error).__name__})") from None


def _bytes(text: str) -> AnyArray:
    return np.frombuffer(text.encode(), dtype=np.uint8)


def _digest(text: str, arrays: Mapping[str, AnyArray]) -> str:
    digest = hashlib.sha256(text.encode())
    for name in sorted(arrays):
        array = arrays[name]
        if array.dtype.str not in DTYPES:
            raise UnreadableError(f"an array of {array.dtype.str}")
        digest.update(str((name, array.dtype.str, array.shape)).encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
