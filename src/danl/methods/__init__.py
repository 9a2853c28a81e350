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

Those of the field, each after its paper, imported when they are asked for (docs/field.md):

| name | class | what it is |
| --- | --- | --- |
| fednl | fednl.FedNL | Hessians learned from compressed differences |
| bl | bl.BasisLearn | the same in the basis of the worker's rows |
| fedsn | fedsn.FedSN | local SGD on the quadratic model of a Newton step |
| giant | giant.Giant | local Newton directions averaged |
| dingo | dingo.Dingo | the same, down the norm of the gradient |
| svrg | svrg.SVRG | variance-reduced SGD, with stale workers |
| spider-sqn | spider_sqn.SpiderSQN | stochastic quasi-Newton with SPIDER's variance reduction |
| accelerated-sgd | accelerated_sgd.AcceleratedSGD | mini-batches with acceleration |
| pruned-sgd | pruned_sgd.PrunedSGD | SGD on pruned models, under the same masks |
| dsgd | dsgd.DSGD | SGD over a graph |
| st-sopro | st_sopro.StSoPro | a stochastic second-order proximal method over a graph |
| vr-sqn | vr_sqn.VRSQN | variance-reduced quasi-Newton over a graph |
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from danl.methods.base import AnyMethod, Info, Method, Setup, State, Status, Turn, too_few
from danl.methods.danl import DANL
from danl.methods.descent import GradientDescent, NewtonUndamped, NewtonZero
from danl.methods.fedavg import FedAvg
from danl.methods.newton import Newton
from danl.protocol.messages import (
    CurvatureTask,
    Exchange,
    GradientTask,
    HessianTask,
    LocalStepsTask,
    LossTask,
    Reply,
    ScoresTask,
    SmoothnessTask,
)
from danl.protocol.own_tasks import OwnTask, StatefulTask, Workplace, vectors_fault
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
}
"""The methods of danl by name: what makes each of them."""
FIELD: dict[str, str] = {
    "fednl": "danl.methods.fednl:FedNL",
    "bl": "danl.methods.bl:BasisLearn",
    "fedsn": "danl.methods.fedsn:FedSN",
    "giant": "danl.methods.giant:Giant",
    "dingo": "danl.methods.dingo:Dingo",
    "svrg": "danl.methods.svrg:SVRG",
    "spider-sqn": "danl.methods.spider_sqn:SpiderSQN",
    "accelerated-sgd": "danl.methods.accelerated_sgd:AcceleratedSGD",
    "pruned-sgd": "danl.methods.pruned_sgd:PrunedSGD",
    "dsgd": "danl.methods.dsgd:DSGD",
    "st-sopro": "danl.methods.st_sopro:StSoPro",
    "vr-sqn": "danl.methods.vr_sqn:VRSQN",
}
"""Those of the field by name: where each of them is."""
_REGISTRY: Registry[AnyMethod] = Registry(
    "method", "danl.methods", {**PRESETS, **FIELD}, parts=("name", "begin", "plan", "absorb")
)


def make_method(method: str | AnyMethod) -> AnyMethod:
    """Turn ``"fedavg:steps=5,learning_rate=0.1"`` into a method, or check that an object is one."""
    return _REGISTRY.make(method)


__all__ = [
    "DANL",
    "FIELD",
    "PRESETS",
    "AnyMethod",
    "CurvatureTask",
    "Exchange",
    "FedAvg",
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
    "OwnTask",
    "Replies",
    "Reply",
    "ScoresTask",
    "Setup",
    "SmoothnessTask",
    "State",
    "StatefulTask",
    "Status",
    "Turn",
    "Workplace",
    "make_method",
    "mean_gradient",
    "mean_hessian",
    "mean_loss",
    "mean_value",
    "storable",
    "too_few",
    "vectors_fault",
]
