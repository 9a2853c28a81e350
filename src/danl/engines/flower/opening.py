"""What travels in Flower's messages: a task or a reply (`danl.protocol.wire`), and with a task what a site must know.

content   RecordDict {"danl": ConfigRecord {"message": bytes, "opening": JSON}}
type      query.survey, query.facts, train.hessian, train.curvature, train.gradient, train.loss, train.local_steps,
          train.smoothness, train.scores, train.moments, and train. with the name of a task of `danl.tasks`
group     the number of the exchange

A Flower site starts a new process for every message, so nothing can be sent once and kept in memory. Most tasks need
nothing of it: a worker's answer is a function of task, shard and opening, and its mini-batches are drawn from (seed,
worker, exchange), not from a generator that moves on. What a site keeps in its node's state are margins, which save
time and change no answer (`danl.engines.flower.kept_margins`), and what tasks with a state go on from (`kept_slots`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from danl.checks import is_finite, is_whole
from danl.data.shard import Shard
from danl.design.design import Design
from danl.errors import InputError, bad_argument
from danl.objective.losses import make_loss
from danl.objective.problem import BaseProblem, RemoteProblem
from danl.objective.regions import Regions
from danl.policies import Magnitude, Random, make_policy
from danl.policies.base import WorkerPolicy
from danl.protocol.messages import Task
from danl.worker.worker import Worker

RECORD, MESSAGE, OPENING, INFO = "danl", "message", "opening", "facts"
SURVEY, ANALYSIS, DESIGN = "survey", "analysis", "design"
LONGEST = 64_000_000
"""Characters an opening may have: regions given as index groups take a few for every feature."""
LONGEST_RUN = 200
"""Characters of what a run is called."""
TERMS = ("loss", "l2", "alpha", "weighting", "intercept", "feature_names")
"""What an opening has of a problem."""
AT_SITES = ("random", "magnitude")
"""Policies that choose masks at a site; others may read files, or be another package's."""
_CHECKS: dict[str, Callable[[Any], bool]] = {
    "worker": lambda value: is_whole(value, 0),
    "loss": lambda value: isinstance(value, str),
    "l2": lambda value: value is None or is_finite(value),
    "alpha": lambda value: value is None or is_finite(value),
    "weighting": lambda value: isinstance(value, str),
    "intercept": lambda value: isinstance(value, bool),
    "feature_names": lambda value: value is None or _names(value),
    "regions": lambda value: isinstance(value, list),
    "policy": lambda value: value is None or (isinstance(value, str) and value.partition(":")[0] in AT_SITES),
    "seed": lambda value: is_whole(value, 0),
    "centre": lambda value: value is None or (isinstance(value, list) and all(is_finite(each) for each in value)),
    "run": lambda value: isinstance(value, str) and len(value) <= LONGEST_RUN,
    "design": lambda value: value is None or isinstance(value, dict),
}


@dataclass(frozen=True)
class Opening:
    """The terms of a run, as worker `worker` needs them."""

    worker: int
    loss: str
    l2: float | None
    alpha: float | None
    weighting: str
    intercept: bool
    feature_names: list[str] | None
    """The order of the columns that the sites agreed on; None where they have no names."""
    regions: list[Any]
    """Sizes of contiguous regions of w, or index groups."""
    policy: str | None
    """The spec of a policy that chooses masks at the site."""
    seed: int
    centre: list[float] | None = None
    """What is subtracted from the columns (`danl.objective.centring`)."""
    run: str = ""
    """What tells this run from others with the same terms: what a site keeps of them is not for this one."""
    design: dict[str, Any] | None = None
    """What the sites agreed to make of their records, where the run is one of an analysis."""

    @classmethod
    def of(
        cls, terms: BaseProblem, *, regions: Regions, policy: WorkerPolicy | None, seed: int, run: str = ""
    ) -> Opening:
        """Write the terms down; what cannot be written (functions, own objects) is refused."""
        return cls(
            0,
            named_loss(terms),
            terms.l2,
            terms.alpha,
            terms.weighting,
            terms.intercept,
            None if (names := terms.without_rows().feature_names) is None else list(names),
            regions_to_json(regions),
            policy_spec(policy),
            seed,
            None if terms.centre is None else terms.centre.tolist(),
            run,
            None if terms.design is None else terms.design.to_dict(),
        )

    def to_json(self, worker: int) -> str:
        """The opening of one worker."""
        return json.dumps(asdict(self) | {"worker": worker})

    @classmethod
    def from_json(cls, text: object) -> Opening:
        """Read it at the site; a server may be broken, too."""
        if not isinstance(text, str) or len(text) > LONGEST:
            raise InputError("opening: must come with the task, as text")
        try:
            values = json.loads(text)
        except (ValueError, RecursionError):
            raise InputError("opening: is no JSON") from None
        if not isinstance(values, dict) or set(values) != set(_CHECKS):
            raise InputError(f"opening: must have the fields {', '.join(_CHECKS)}; do both ends run the same danl?")
        for name, check in _CHECKS.items():
            if not check(values[name]):
                raise bad_argument(f"opening.{name}", values[name], "as danl writes it")
        return cls(**values)

    def design_of_rows(self) -> Design | None:
        """The design, read and checked."""
        return None if self.design is None else Design.from_dict(self.design)

    def worker_for(self, shard: Shard) -> Worker:
        """The worker these terms make of a shard."""
        terms = RemoteProblem(**{name: getattr(self, name) for name in TERMS})
        if self.centre is not None:
            if len(self.centre) != shard.X.shape[1]:
                raise bad_argument("opening.centre", len(self.centre), f"{shard.X.shape[1]} numbers, one a column")
            terms = terms.centred_by(np.array(self.centre))
        policy = None if self.policy is None else make_policy(self.policy)
        if policy is not None and policy.side != "worker":
            raise bad_argument("opening.policy", self.policy, "one that chooses masks at the site")
        local = terms.local(shard)
        return Worker(self.worker, local, Regions.make(self.regions, local.layout.n_coefficients), policy, self.seed)


def danl_record(message: Any) -> Mapping[str, Any]:
    """The record with danl's fields; empty where there is none."""
    found = message.content.config_records.get(RECORD)
    return {} if found is None else found


def message_type(task: type[Task]) -> str:
    """The type of the message that carries a task; Flower wants identifiers."""
    return f"train.{task.name.replace('-', '_')}"


def named_loss(terms: BaseProblem) -> str:
    """The loss by its name; a loss of one's own cannot be sent."""
    try:
        known = type(make_loss(terms.loss.name)) is type(terms.loss)
    except InputError:
        known = False
    if not known:
        raise bad_argument("loss", terms.loss.name, "one that danl has by name", "a site cannot be sent an object")
    return terms.loss.name


def policy_spec(policy: WorkerPolicy | None) -> str | None:
    """A policy of the workers as text."""
    if policy is None:
        return None
    if isinstance(policy, Random | Magnitude):
        return f"{'random' if isinstance(policy, Random) else 'magnitude'}:keep={policy.keep!r}"
    raise bad_argument(
        "policy",
        policy,
        "random:keep=... or magnitude:keep=... where sites choose masks",
        "a site cannot be sent a function; plan the masks at the server instead",
    )


def regions_to_json(regions: Regions) -> list[Any]:
    """Regions as plain numbers: sizes where they are contiguous, else index groups."""
    if (np.diff(regions.of_coefficient) >= 0).all():
        return [int(size) for size in regions.sizes]
    return [[int(index) for index in regions.indices(q)] for q in range(regions.n_regions)]


def _names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)
