"""Engines: where the workers live. `make_engine` turns a name into one."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable

from danl.engines.base import Engine
from danl.engines.local import Local
from danl.engines.ray.engine import Ray
from danl.errors import InputError
from danl.spec import parse_spec, unknown_name

ENGINES: dict[str, Callable[..., Engine]] = {"local": Local, "ray": Ray}
"""The engines by name; `flower` is one more, in a package of its own."""
ADAPTERS = {"flower": "danl.engines.flower.simulation:FlowerSimulation"}
"""Engines that live in packages of their own, above this one: imported when they are asked for, never before."""


def make_engine(engine: str | Engine) -> Engine:
    """Turn a name, with options if need be (``"local:dropout=0.3,seed=1"``), into an engine, or check an object."""
    if isinstance(engine, str):
        name, options = parse_spec(engine, argument="engine")
        if name not in ENGINES and name not in ADAPTERS:
            raise unknown_name("engine", name, [*ENGINES, *ADAPTERS])
        factory = ENGINES[name] if name in ENGINES else _adapter(name)
        known = list(inspect.signature(factory).parameters)
        for option in options:
            if option not in known:
                raise InputError(f"engine={engine!r}: {name} has no option {option!r}; it has {', '.join(known)}")
        made: Engine = factory(**options)
        return made
    if all(hasattr(engine, part) for part in ("name", "open", "exchange", "close")):
        return engine
    names = ", ".join([*ENGINES, *ADAPTERS])
    raise InputError(f"engine={engine!r}: must be a name ({names}) or an object from danl.engines")


def _adapter(name: str) -> Callable[..., Engine]:
    module, _, attribute = ADAPTERS[name].partition(":")
    factory: Callable[..., Engine] = getattr(importlib.import_module(module), attribute)
    return factory


__all__ = ["ENGINES", "Engine", "Local", "Ray", "make_engine"]
