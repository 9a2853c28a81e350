"""Methods: which tasks to send and how the replies move the model. `make_method` turns a name into one.

| name | class | what it is |
| --- | --- | --- |
| danl | DANL() | the default: corrected memory, safeguarded, Hessians when progress asks for them |
| danl-secant | DANL(secant=20, contraction=0.1, window=2) | the default, with curvature from the gradients as well |
| danl-masked | DANL(memory="raw", curvature="once") | gradients at w, only what is sent is masked |
| danl-paper | DANL(submodel="pruned", memory="raw", curvature="once") | Algorithm 1 to the letter |
| newton-zero | NewtonZero | one Hessian, full gradients: Algorithm 1 with full masks |
| newton | Newton | a Hessian at every accepted model, safeguarded |
| newton-undamped | NewtonUndamped | the plain Newton step, the paper's benchmark |
| gd | GradientDescent | a fixed step of 1 / L |
| fedavg | FedAvg | local steps, models averaged |
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from danl.errors import InputError
from danl.methods.base import AnyMethod, Info, Method, Setup, State, Status, Turn
from danl.methods.danl import DANL
from danl.methods.descent import GradientDescent, NewtonUndamped, NewtonZero
from danl.methods.fedavg import FedAvg
from danl.methods.newton import Newton
from danl.spec import closest_first, parse_spec, unknown_name

PRESETS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "danl": (DANL, {}),
    "danl-secant": (DANL, {"secant": 20, "contraction": 0.1, "window": 2}),
    "danl-masked": (DANL, {"submodel": "full", "memory": "raw", "curvature": "once"}),
    "danl-paper": (DANL, {"submodel": "pruned", "memory": "raw", "curvature": "once"}),
    "newton-zero": (NewtonZero, {}),
    "newton": (Newton, {}),
    "newton-undamped": (NewtonUndamped, {}),
    "gd": (GradientDescent, {}),
    "fedavg": (FedAvg, {}),
}
"""The methods by name: a class, and the options that make the name."""


def make_method(method: str | AnyMethod) -> AnyMethod:
    """Turn ``"fedavg:steps=5,learning_rate=0.1"`` into a method, or check that an object is one."""
    if not isinstance(method, str):
        if all(hasattr(method, part) for part in ("name", "begin", "plan", "absorb")):
            return method
        raise InputError(f"method={method!r}: must be a name ({', '.join(PRESETS)}) or an object from danl.methods")
    name, options = parse_spec(method, argument="method")
    if name not in PRESETS:
        raise unknown_name("method", name, PRESETS)
    build, fixed = PRESETS[name]
    known = [field.name for field in dataclasses.fields(build) if field.name not in fixed]  # type: ignore[arg-type]
    for option in options:
        if option not in known:
            allowed = ", ".join(closest_first(option, known))
            raise InputError(f"method={method!r}: {name} has no option {option!r}; it has {allowed}")
    made: AnyMethod = build(**fixed, **options)
    return made


__all__ = [
    "DANL",
    "PRESETS",
    "AnyMethod",
    "FedAvg",
    "GradientDescent",
    "Info",
    "Method",
    "Newton",
    "NewtonUndamped",
    "NewtonZero",
    "Setup",
    "State",
    "Status",
    "Turn",
    "make_method",
]
