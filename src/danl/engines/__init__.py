"""Engines: where the workers live. `make_engine` turns a name into one."""

from __future__ import annotations

from danl.engines.base import Engine
from danl.engines.local import Local
from danl.errors import InputError
from danl.spec import unknown_name

ENGINES: dict[str, type[Engine]] = {"local": Local}


def make_engine(engine: str | Engine) -> Engine:
    """Turn a name into an engine, or check that an object is one."""
    if isinstance(engine, str):
        if engine in ENGINES:
            return ENGINES[engine]()
        raise unknown_name("engine", engine, ENGINES)
    if all(hasattr(engine, part) for part in ("name", "open", "exchange", "close")):
        return engine
    raise InputError(f"engine={engine!r}: must be a name ({', '.join(ENGINES)}) or an object from danl.engines")


__all__ = ["ENGINES", "Engine", "Local", "make_engine"]
