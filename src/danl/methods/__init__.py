"""Methods: which tasks to send and how the replies move the model. `make_method` turns a name into one.

| name | class | what it is |
| --- | --- | --- |
| danl | DANL() | the default: safeguarded, asks the cheapest question that pays |
| danl-secant | DANL() | the former name of what is the default now |
| danl-masked | DANL(memory="raw", curvature="once") | gradients at w, only what is sent is masked |
| danl-paper | DANL(submodel="pruned", memory="raw", curvature="once") | Algorithm 1 to the letter |
| newton-zero | NewtonZero | one Hessian, full gradients: Algorithm 1 with full masks |
| newton | Newton | a Hessian at every accepted model, safeguarded |
| newton-undamped | NewtonUndamped | the plain Newton step, the paper's benchmark |
| gd | GradientDescent | a fixed step of 1 / L |
| fedavg | FedAvg | local steps, models averaged |
| fednl | FedNL | Hessians learned from compressed differences |
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from danl.methods.base import AnyMethod, Info, Method, Setup, State, Status, Turn, too_few
from danl.methods.danl import DANL
from danl.methods.descent import GradientDescent, NewtonUndamped, NewtonZero
from danl.methods.fedavg import FedAvg
from danl.methods.fednl import FedNL
from danl.methods.newton import Newton
from danl.protocol.messages import (
    CurvatureTask,
    Exchange,
    GradientTask,
    HessianTask,
    LocalStepsTask,
    LossTask,
    ScoresTask,
    SmoothnessTask,
)
from danl.protocol.replies import Replies
from danl.server.aggregation import mean_gradient, mean_hessian, mean_loss, mean_value
from danl.spec import Registry
from danl.storage.serialize import storable

PRESETS: dict[str, Callable[..., AnyMethod]] = {
    "danl": DANL,
    "danl-secant": DANL,
    "danl-masked": partial(DANL, submodel="full", memory="raw", curvature="once"),
    "danl-paper": partial(DANL, submodel="pruned", memory="raw", curvature="once"),
    "newton-zero": NewtonZero,
    "newton": Newton,
    "newton-undamped": NewtonUndamped,
    "gd": GradientDescent,
    "fedavg": FedAvg,
    "fednl": FedNL,
}
"""The methods of danl by name: what makes each of them."""
_REGISTRY = Registry("method", "danl.methods", PRESETS, parts=("name", "begin", "plan", "absorb"))


def make_method(method: str | AnyMethod) -> AnyMethod:
    """Turn ``"fedavg:steps=5,learning_rate=0.1"`` into a method, or check that an object is one."""
    return _REGISTRY.make(method)


__all__ = [
    "DANL",
    "PRESETS",
    "AnyMethod",
    "CurvatureTask",
    "Exchange",
    "FedAvg",
    "FedNL",
    "GradientDescent",
    "GradientTask",
    "HessianTask",
    "Info",
    "LocalStepsTask",
    "LossTask",
    "Method",
    "Newton",
    "NewtonUndamped",
    "NewtonZero",
    "Replies",
    "ScoresTask",
    "Setup",
    "SmoothnessTask",
    "State",
    "Status",
    "Turn",
    "make_method",
    "mean_gradient",
    "mean_hessian",
    "mean_loss",
    "mean_value",
    "storable",
    "too_few",
]
