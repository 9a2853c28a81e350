"""A site: its data, what it is willing to answer, and its answers.

The rules are the site's own, read where its data is; the server cannot change them (`danl.engines.flower.site_rules`).
What breaks one is refused with the rule's name, the server shuts the site out of the run, and the run goes on without
it.

They bind the tasks of this package. Whoever may submit an app to a SuperLink may bring other code: a SuperNode that is
to run only apps it knows is started with Flower's --trusted-entities.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import math
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from danl.data.redaction import redacted
from danl.data.reference import ShardReference
from danl.data.shard import Shard, ShardInfo, info_of
from danl.design.analysis import Analysis
from danl.design.design import Design
from danl.design.formula import read_model
from danl.design.survey import survey
from danl.engines.flower.dominance import (
    column_fault,
    dominated,
    n_records,
    overshoots,
    rounds,
    sum_fault,
    weight_fault,
)
from danl.engines.flower.kept_margins import KeptMargins, terms_digest
from danl.engines.flower.kept_rows import KeptRows, folder_of_copies
from danl.engines.flower.kept_slots import KeptSlots
from danl.engines.flower.ledger import Ledger
from danl.engines.flower.opening import Opening
from danl.engines.flower.record_hashes import Hashes, hashes_of
from danl.engines.flower.site_rules import RULE_KEYS, RefusedError, SiteRules, cost, not_among
from danl.errors import InputError, bad_argument
from danl.frozen import replace
from danl.objective.local_objective import LocalObjective
from danl.objective.losses import Array, make_loss, outputs_of
from danl.objective.null_model import null_margin
from danl.protocol.messages import (
    CurvatureTask,
    Failure,
    FailureKind,
    GradientReply,
    GradientTask,
    HessianTask,
    LossTask,
    ModelTask,
    MomentsTask,
    Reply,
    ScoresTask,
    Task,
)
from danl.protocol.own_tasks import FewRowsError, OwnTask
from danl.protocol.wire import WireError, decode, encode, most_bytes
from danl.tasks.several import SeveralReply, SeveralTask
from danl.worker.worker import Worker

LONGEST_DETAIL = 400
"""Characters of a refusal or an error that are sent."""


@dataclass(frozen=True)
class _Desk:
    """What the questions of a message are answered with."""

    worker: Worker
    shard: Shard
    run: str
    stamp: str | None
    margins: KeptMargins
    slots: KeptSlots


@dataclass(frozen=True)
class Site:
    """A site by its name, where its rows are, and its rules."""

    name: str
    reference: ShardReference
    rules: SiteRules = field(default_factory=SiteRules)
    copies: Path | None = None
    """The folder of what was made of its file for the last message; None: it is read for every message."""

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Site:
        """From the node's own configuration (``--node-config`` of its SuperNode); docs/federated.md lists the keys."""
        wrong = not_among(
            {key: value for key, value in config.items() if key not in _FLOWERS_OWN},
            [*_REFERENCE_KEYS, *RULE_KEYS, "rules", "name", "data", "keep-rows"],
        )
        if wrong is not None:
            raise wrong
        if not config.get("data") or not config.get("name"):
            raise InputError(
                "node-config: must have name and data, the site's name and its file, for example "
                '--node-config \'name="north" data="/data/north.svm" n-features=123\''
            )
        name = str(config["name"])
        options = {_REFERENCE_KEYS[key]: value for key, value in config.items() if key in _REFERENCE_KEYS}
        keeps = config.get("keep-rows", True)
        if not isinstance(keeps, bool):
            raise bad_argument("keep-rows", keeps, "true or false")
        copies = folder_of_copies() if keeps else None
        reference = ShardReference(path=str(config["data"]), name=name, **options)
        return cls(name, reference, SiteRules.from_config(config), copies)

    def survey(self, analysis: object) -> str:
        """What the columns of an analysis hold here, as JSON; a level of fewer records than a cell has is not named."""
        asked, rules = Analysis.from_json(analysis), self.rules
        model = read_model(asked)
        self._refuse_if(rules.broken_by_design(asked.formula, model.names))
        self._refuse_if(rules.broken_by_arithmetic(model.products))
        self._spend()
        cells = {"min_cell": rules.min_cell, "max_levels": rules.max_levels}
        told = survey(self.reference.records(model.names), asked, model, site=self.name, **cells)
        if told.complete < rules.min_rows:
            complete = f"{rules.count(told.complete)} complete records"
            raise RefusedError(f"min-rows: {complete}, and at least {rules.min_rows} are asked for")
        return told.to_json()

    def rows(self, design: Design | None) -> Shard:
        """The site's rows: those of a design, or all of its file; kept from the last message if it is the same."""
        reference = self.reference

        def read() -> Shard:
            if design is None:
                return reference.read()
            records = reference.records(design.needed)
            for counts, levels in design.levels_of(records):
                self._refuse_if(self.rules.broken_by_levels(counts, levels))
            return design.shard(records, self.name)

        if reference.path is None:
            return read()
        terms = [reference.to_dict(), self.name, None if design is None else [design.to_dict(), repr(self.rules)]]
        return KeptRows(reference.path, self.copies).read(read, json.dumps(terms))

    def _allowed_rows(self, design: Design | None) -> Shard:
        """The same, where formula and columns are allowed: the server wrote the design, and may have written more."""
        rules = self.rules
        if design is None:
            shard = self.rows(None)
            self._refuse_if(rules.broken_by_design(None, _columns(shard)))
            return shard
        self._refuse_if(rules.broken_by_design(design.analysis.formula, design.needed))
        self._refuse_if(rules.broken_by_arithmetic(design.products))
        if rules.formulas is not None and not design.is_of_its_formula():
            raise RefusedError("formulas: the columns of the design are not those of its formula")
        return self.rows(design)

    def shard_info(self, loss: object, design: object = None) -> str:
        """The site's name and what the server may know of its shard, as JSON."""
        if not isinstance(loss, str):
            raise bad_argument("loss", loss, "a name")
        self._refuse_if(self.rules.broken_by_loss(loss))
        made = make_loss(loss)
        self._spend()
        stamp = self._stamp(loss, None, design)
        shard = self._allowed_rows(None if design is None else Design.from_json(design))
        try:
            made.check_targets(shard.y)
        except InputError as error:
            file = Path(self.reference.path or "load()").name
            raise InputError(str(error), redacted=f"{file}: {redacted(error)}") from error
        records = n_records(shard)
        if self.rules.tellable_count(records) is None:
            raise RefusedError(f"min-cell: {self.rules.count(records)} rows")
        if fault := weight_fault(shard, self.rules.max_share):  # their sum is told
            raise RefusedError(f"max-share: {fault}")
        self._claim(shard, stamp, outputs=outputs_of(made))
        info = dataclasses.replace(self._told(info_of(shard, made.binary)), site=self.name)
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
        try:
            task, desk = self._read_task(data, terms, margins, slots)
        except Exception:
            self._spend()  # what is wrong with task or records is an answer, too
            raise
        return self._answer_each(task, desk) if isinstance(task, SeveralTask) else self._answer_one(task, desk)

    def _read_task(self, data: object, terms: Opening, margins: KeptMargins, slots: KeptSlots) -> tuple[Task, _Desk]:
        """The task, and what it is answered with."""
        self._refuse_if(self.rules.broken_by_loss(terms.loss))
        stamp, design = self._stamp(terms.loss, terms.feature_names, terms.design), terms.design_of_rows()
        shard = self._allowed_rows(design)
        worker = replace(terms.worker_for(shard), least_rows=self.rules.min_rows, min_cell=self.rules.min_cell)
        d = worker.objective.layout.n_coefficients
        task = decode(data, most_bytes=most_bytes(d, d))  # type: ignore[arg-type]  # decode looks at the type itself
        if not isinstance(task, Task):
            raise WireError(f"a task is asked for, this is {type(task).__name__}")
        return task, _Desk(worker, shard, terms.run, stamp, margins, slots)

    def _answer_each(self, task: SeveralTask, desk: _Desk) -> SeveralReply:
        """The answer to each part, or why there is none; where there is none to any, the error of the first."""
        parts, errors = list[Reply | Failure](), list[Exception]()
        for part in task.parts:
            try:
                parts.append(self._answer_one(part, desk))
            except Exception as error:  # of this part: the others have answers
                errors.append(error)
                kind: FailureKind = "refused" if isinstance(error, RefusedError) else "error"
                parts.append(Failure(desk.worker.index, kind, f"site {self.name}: {redacted(error)}"[:LONGEST_DETAIL]))
        if len(errors) == len(parts):
            raise errors[0]
        return SeveralReply(desk.worker.index, task.exchange, tuple(parts))

    def _answer_one(self, task: Task, desk: _Desk) -> Reply | Failure:
        """The answer to one question, under the rules."""
        worker, shard, d = desk.worker, desk.shard, desk.worker.objective.layout.n_coefficients
        chosen = isinstance(task, GradientTask) and task.choose
        trained, records = None, n_records(shard)
        if isinstance(task, GradientTask) and task.mask is not None and not chosen:
            trained = int(worker.regions.coordinates(task.mask).size)
        elif chosen:
            trained = 0  # the mask is the worker's to choose: known when it has answered
        self._refuse_if(self.rules.broken_by(task, records, d, trained))
        self._claim(shard, desk.stamp, outputs=worker.objective.layout.n_outputs, run=desk.run, cost=cost(task))
        desk.margins.put_back(worker.objective)
        if self._overshot(worker, task, shard):
            return _overflowed(worker, task)
        desk.slots.put_back(worker, task)
        try:
            reply = worker.answer(task)
        except FewRowsError as error:
            raise RefusedError(f"min-rows: {error} than the {self.rules.min_rows} asked for") from None
        desk.margins.keep(worker.objective)
        desk.slots.keep(worker, task)
        if chosen and isinstance(reply, GradientReply):
            self._refuse_if(self.rules.broken_by(task, records, d, int(reply.fragment.size)))
        return reply

    def _stamp(self, *of_run: object) -> str | None:
        """What changes with the file, with how it is read, with the run and the rules; None for rows of no file."""
        if self.reference.path is None or not Path(self.reference.path).is_file():
            return None
        read = json.dumps([repr(self.reference), repr(self.rules), *of_run])
        return hashlib.sha256(terms_digest(read, self.reference)).hexdigest()[:32]

    def _spend(self) -> None:
        """Count a question before a run."""
        ledger = Ledger.of(self.name, self.rules)
        if ledger is not None:
            ledger.spend()

    def _claim(self, shard: Shard, stamp: str | None, *, outputs: int, run: str | None = None, cost: int = 1) -> None:
        """Write the question down in the ledger, and look at columns that were not looked at before."""
        rules = self.rules
        ledger = Ledger.of(self.name, rules)

        def looked_at(key: bytes) -> Mapping[str, Hashes]:
            if not rules.sparse_columns:
                fault = column_fault(shard, rules.max_share, rules.min_cell, outputs=outputs)
                self._refuse_if(None if fault is None else f"sparse-columns: {fault}")
            return hashes_of(shard, self.reference, key) if ledger is not None else {}

        if ledger is None:
            looked_at(b"")
        else:
            ledger.claim(looked_at, stamp=stamp, run=run, cost=cost)

    def _overshot(self, worker: Worker, task: Task, shard: Shard) -> bool:
        """Whether few records would be the answer because the loss explodes: a step was too long, and no more is told.

        Refused where few records would be the answer and it does not.
        """
        w = task.w if isinstance(task, ModelTask) else None
        if isinstance(task, GradientTask) and task.submodel == "pruned" and w is not None and task.mask is not None:
            w = np.where(worker.regions.expand(task.mask), w, 0.0)
        objective, rules = worker.objective, self.rules
        with np.errstate(over="ignore", invalid="ignore"):
            besides, sums = _told_besides(task, objective)
            asked = [None if w is None else objective.margins(w), *besides]
        limits: dict[str, Any] = {
            "max_share": rules.max_share,
            "min_cell": rules.min_cell,
            "columns": not rules.sparse_columns,
            "squares": isinstance(task, ScoresTask) or (isinstance(task, OwnTask) and task.squares_slopes),
        }
        faults = itertools.chain(
            () if w is None or rules.max_share >= 1 else (rounds(objective, w),),
            (dominated(objective, shard, z, **limits) for z in asked),
            (sum_fault(terms, rules.max_share) for terms in sums),
        )
        fault = next(filter(None, faults), None)
        if fault is None:
            return False
        if w is not None and type(task) in TOLD_OF_OVERSHOOTING and overshoots(worker.objective, w):
            return True
        raise RefusedError(f"max-share: {fault}")

    def _told(self, info: ShardInfo) -> ShardInfo:
        """What of it the server may know: a rare class has no fewer than `min-cell` rows."""
        rarer = info.fewest_of_a_class
        return dataclasses.replace(info, fewest_of_a_class=max(rarer, self.rules.min_cell) if rarer else 0)

    def _refuse_if(self, broken: str | None) -> None:
        if broken is not None:
            raise RefusedError(broken)

    def _failed(self, worker: int, kind: FailureKind, detail: str) -> bytes:
        return encode(Failure(worker, kind, f"site {self.name}: {detail}"[:LONGEST_DETAIL]))


def _told_besides(task: Task, objective: LocalObjective) -> tuple[Sequence[Array], Sequence[Array]]:
    """What an answer is about beside the margins at its model: other margins, and terms of the records in sums."""
    if isinstance(task, OwnTask):
        return task.margins_besides(objective), task.terms_besides(objective)
    if isinstance(task, MomentsTask) and objective.offset is not None:
        null = null_margin(objective.loss, objective.y, objective.offset, objective.row_weights)
        return () if null is None else (null + objective.offset,), ()
    return (), ()


def _overflowed(worker: Worker, task: Task) -> Reply:
    """The reply at a model whose loss has overflowed: it is infinite, and the rest is that of no record at all."""
    nobody = worker.objective.sample(np.zeros(1, dtype=np.int64), np.zeros(1))
    reply = replace(worker, objective=nobody).answer(replace(task, w=np.zeros(worker.objective.layout.n_coefficients)))
    assert isinstance(reply, Reply)
    return replace(reply, loss=math.inf)


def _columns(shard: Shard) -> tuple[str, ...]:
    """The names of all columns that a run without a formula uses."""
    target = () if shard.target_name is None else (shard.target_name,)
    return (*(shard.feature_names or ()), *target)


TOLD_OF_OVERSHOOTING = (HessianTask, CurvatureTask, GradientTask, LossTask)
"""Tasks whose replies have a loss, which a server turns a step back by."""
_REFERENCE_KEYS = {
    "n-features": "n_features",
    "zero-based": "zero_based",
    "target": "target",
    "positive": "positive",
    "target-column": "target_column",
    "weight-column": "weight_column",
}
_FLOWERS_OWN = ("partition-id", "num-partitions")
