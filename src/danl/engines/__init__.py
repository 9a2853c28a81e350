"""Engines: where the workers live. `make_engine` turns a name into one."""

from __future__ import annotations

import inspect
from collections.abc import Callable

from danl.engines.base import Engine
from danl.engines.local import Local
from danl.errors import InputError
from danl.spec import parse_spec, unknown_name

ENGINES: dict[str, Callable[..., Engine]] = {"local": Local}


def make_engine(engine: str | Engine) -> Engine:
    """Turn a name, with options if need be (``"local:dropout=0.3,seed=1"``), into an engine, or check an object."""
    if isinstance(engine, str):
        name, options = parse_spec(engine, argument="engine")
        if name not in ENGINES:
            raise unknown_name("engine", name, ENGINES)
        known = list(inspect.signature(ENGINES[name]).parameters)
        for option in options:
            if option not in known:
                raise InputError(f"engine={engine!r}: {name} has no option {option!r}; it has {', '.join(known)}")
        made: Engine = ENGINES[name](**options)
        return made
    if all(hasattr(engine, part) for part in ("name", "open", "exchange", "close")):
        return engine
    raise InputError(f"engine={engine!r}: must be a name ({', '.join(ENGINES)}) or an object from danl.engines")


__all__ = ["ENGINES", "Engine", "Local", "make_engine"]
