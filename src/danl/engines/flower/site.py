"""A site: its data, what it is willing to answer, and its answers.

The rules are the site's own, read where its data is; the server cannot change them. A task that breaks one is refused
with the rule's name and numbers, the server shuts the site out of the run, and the run goes on without it.

They bind the tasks of this package. Whoever may submit an app to a SuperLink may bring other code: a SuperNode that is
to run only apps it knows is started with Flower's --trusted-entities.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from danl.checks import check_number, check_whole
from danl.data.redaction import redacted
from danl.data.reference import ShardReference
from danl.data.shard import Shard, info_of
from danl.design.analysis import Analysis
from danl.design.design import Design
from danl.design.formula import read_model
from danl.design.survey import survey
from danl.engines.flower.kept_margins import KeptMargins
from danl.engines.flower.kept_slots import KeptSlots
from danl.engines.flower.opening import Opening
from danl.errors import InputError, bad_argument
from danl.frozen import replace
from danl.objective.losses import make_loss
from danl.protocol.messages import TASKS, Failure, FailureKind, GradientReply, GradientTask, Reply, Task
from danl.protocol.own_tasks import OWN_TASKS, FewRowsError
from danl.protocol.wire import WireError, decode, encode, most_bytes
from danl.spec import unknown_name

LONGEST_DETAIL = 400
"""Characters of a refusal or an error that are sent."""


def task_names() -> tuple[str, ...]:
    """The tasks there are: those of Algorithm 1 and its readings, and those of other methods that are imported."""
    return (*(task.name for task in TASKS), *OWN_TASKS)


@dataclass(frozen=True)
class SiteRules:
    """What a site is willing to answer.

    Parameters
    ----------
    min_rows : int
        The fewest rows an answer is computed on. A mini-batch counts with its own rows.
    max_features_per_row : float
        The largest ratio of numbers that tell of the rows to rows: trained features (the coordinates of the mask, all
        of them for a Hessian or a model) over the rows they are computed on. Many features of few rows tell the rows.
    tasks : tuple of str
        The tasks it accepts: hessian, curvature (a part of a Hessian, or one in float32), gradient, loss,
        local-steps, scores, smoothness, moments; and those of the field's methods (`danl.tasks`). Default: all.

    """

    min_rows: int = 1
    max_features_per_row: float = math.inf
    tasks: tuple[str, ...] = field(default_factory=task_names)

    def __post_init__(self) -> None:
        check_whole("min-rows", self.min_rows)
        check_number("max-features-per-row", self.max_features_per_row, infinite=True)
        for task in self.tasks:
            if task not in task_names():
                raise unknown_name("tasks", task, task_names())

    def broken_by(self, task: Task, n_rows: int, n_features: int, trained: int | None = None) -> str | None:
        """The rule a task breaks, with its numbers; None where it breaks none.

        `trained` are the coordinates of the mask, where one is known.
        """
        if task.name not in self.tasks:
            return f"tasks: {task.name} is not among {', '.join(self.tasks) or 'none'}"
        batches = [getattr(task, "batch_size", None), getattr(task, "hessian_batch", None)]
        rows = min([n_rows, *(batch for batch in batches if batch is not None)])  # that any part of the answer is of
        if rows < self.min_rows:
            return f"min-rows: {rows} rows, and at least {self.min_rows} are asked for"
        if task.name in ("loss", "smoothness"):
            return None  # one number, of all rows
        features = n_features if trained is None else trained
        if features > self.max_features_per_row * rows:
            return (
                f"max-features-per-row: {features} features of {rows} rows are {features / rows:.3g} a row, "
                f"and at most {self.max_features_per_row:g} are allowed"
            )
        return None


class RefusedError(Exception):
    """A task the site does not answer; the text names the rule."""


@dataclass(frozen=True)
class Site:
    """A site by its name, where its rows are, and its rules."""

    name: str
    reference: ShardReference
    rules: SiteRules = field(default_factory=SiteRules)

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Site:
        """From the node's own configuration (``--node-config`` of its SuperNode); docs/federated.md lists the keys."""
        known = {*_REFERENCE_KEYS, *_RULE_KEYS, "name", "data", *_FLOWERS_OWN}
        for key in config:
            if key not in known:
                raise unknown_name("node-config key", key, sorted(known - set(_FLOWERS_OWN)))
        if not config.get("data") or not config.get("name"):
            raise InputError(
                "node-config: must have name and data, the site's name and its file, for example "
                '--node-config \'name="north" data="/data/north.svm" n-features=123\''
            )
        name = str(config["name"])
        options = {_REFERENCE_KEYS[key]: value for key, value in config.items() if key in _REFERENCE_KEYS}
        rules = {_RULE_KEYS[key]: value for key, value in config.items() if key in _RULE_KEYS}
        if "tasks" in rules:
            rules["tasks"] = tuple(task.strip() for task in str(rules["tasks"]).split(",") if task.strip())
        return cls(name, ShardReference(path=str(config["data"]), name=name, **options), SiteRules(**rules))

    def survey(self, analysis: object) -> str:
        """What the columns of an analysis hold here, as JSON; a level of fewer records than a cell has is not named."""
        asked = Analysis.from_json(analysis)
        model = read_model(asked)
        rules = {name: getattr(self.rules, name, default) for name, default in _SURVEY_RULES.items()}
        return survey(self.reference.records(model.names), asked, model, site=self.name, **rules).to_json()

    def rows(self, design: Design | None) -> Shard:
        """The site's rows: those of a design, or all of its file."""
        if design is None:
            return self.reference.read()
        return design.shard(self.reference.records(design.needed), self.name)

    def shard_info(self, loss: object, design: object = None) -> str:
        """The site's name and what the server may know of its shard, as JSON."""
        if not isinstance(loss, str):
            raise bad_argument("loss", loss, "a name")
        shard = self.rows(None if design is None else Design.from_json(design))
        made = make_loss(loss)
        try:
            made.check_targets(shard.y)
        except InputError as error:
            file = Path(self.reference.path or "load()").name
            raise InputError(str(error), redacted=f"{file}: {redacted(error)}") from error
        info = dataclasses.replace(info_of(shard, made.binary), site=self.name)
        return json.dumps({"site": self.name, "facts": dataclasses.asdict(info)})

    def answer(self, task: object, opening: object, kept: MutableMapping[str, Any] | None = None) -> bytes:
        """The reply to a task as bytes: what it asks for, a refusal, or an error; it never raises.

        `kept` is what the site keeps for the next task (`danl.engines.flower.kept_margins`, `kept_slots`), which no
        reply has.
        """
        worker = 0
        try:
            terms = Opening.from_json(opening)
            worker = terms.worker
            record = {} if kept is None else kept
            parts = (
                KeptMargins.of(record, str(opening), self.reference),
                KeptSlots.of(record, str(opening), self.reference),
            )
            reply = self._answer(task, terms, *parts)
            return self._failed(worker, reply.kind, reply.detail) if isinstance(reply, Failure) else encode(reply)
        except RefusedError as refusal:
            return self._failed(worker, "refused", str(refusal))
        except WireError as error:  # of the task, which came from the server
            return self._failed(worker, "error", str(error))
        except Exception as error:
            return self._failed(worker, "error", redacted(error))

    def _answer(self, data: object, terms: Opening, margins: KeptMargins, slots: KeptSlots) -> Reply | Failure:
        shard = self.rows(terms.design_of_rows())
        worker = replace(terms.worker_for(shard), least_rows=self.rules.min_rows)
        d = worker.objective.layout.n_coefficients
        task = decode(data, most_bytes=most_bytes(d, d))  # type: ignore[arg-type]  # decode looks at the type itself
        if not isinstance(task, Task):
            raise WireError(f"a task is asked for, this is {type(task).__name__}")
        chosen = isinstance(task, GradientTask) and task.choose
        trained = None
        if isinstance(task, GradientTask) and task.mask is not None and not chosen:
            trained = int(worker.regions.coordinates(task.mask).size)
        elif chosen:
            trained = 0  # the mask is the worker's to choose: known when it has answered
        self._check(task, shard.n_rows, d, trained)
        margins.put_back(worker.objective)
        slots.put_back(worker, task)
        try:
            reply = worker.answer(task)
        except FewRowsError:
            raise RefusedError(f"min-rows: a draw of fewer rows than the {self.rules.min_rows} asked for") from None
        margins.keep(worker.objective)
        slots.keep(worker, task)
        if chosen and isinstance(reply, GradientReply):
            self._check(task, shard.n_rows, d, int(reply.fragment.size))
        return reply

    def _check(self, task: Any, n_rows: int, n_features: int, trained: int | None) -> None:
        broken = self.rules.broken_by(task, n_rows, n_features, trained)
        if broken is not None:
            raise RefusedError(broken)

    def _failed(self, worker: int, kind: FailureKind, detail: str) -> bytes:
        return encode(Failure(worker, kind, f"site {self.name}: {detail}"[:LONGEST_DETAIL]))


_REFERENCE_KEYS = {
    "n-features": "n_features",
    "zero-based": "zero_based",
    "target": "target",
    "positive": "positive",
    "target-column": "target_column",
    "weight-column": "weight_column",
}
_RULE_KEYS = {"min-rows": "min_rows", "max-features-per-row": "max_features_per_row", "tasks": "tasks"}
_SURVEY_RULES: dict[str, Any] = {"min_cell": 3, "max_levels": 40}
_FLOWERS_OWN = ("partition-id", "num-partitions")
