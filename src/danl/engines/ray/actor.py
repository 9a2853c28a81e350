"""A worker as a Ray actor: it reads its rows where it runs and answers tasks that come as bytes.

A restarted actor has lost everything but the arguments of `__init__`: it reads its rows again and says that it does not
know the run; the engine then sends it. What tasks have kept (`Worker.slots`) it does not get back: who asks for it is
told so. Rows in memory come with the run and not as an argument of `__init__`: Ray warns of objects there.
"""

from __future__ import annotations

from dataclasses import dataclass

from danl.data.records import Records
from danl.data.redaction import redacted
from danl.data.reference import ShardReference
from danl.data.schema import in_order
from danl.data.shard import Shard, ShardInfo, info_of
from danl.design.analysis import Analysis
from danl.design.design import Design
from danl.design.formula import read_model
from danl.design.references import shard_of, survey_reference
from danl.design.survey import Survey
from danl.errors import InputError
from danl.frozen import replace
from danl.objective.problem import RemoteProblem
from danl.objective.regions import Regions
from danl.policies.base import WorkerPolicy
from danl.protocol.messages import Array, Failure, HessianReply, ModelTask, Reply, Task
from danl.protocol.wire import decode, encode, most_bytes
from danl.worker.worker import Worker

UNKNOWN_RUN = b""
"""The answer of an actor that does not know the run it is asked about: it was restarted."""
DETAIL = 300
"""Characters of an error's text that travel."""


@dataclass(frozen=True)
class RunTerms:
    """What a run adds to a shard: everything a worker needs beside its rows."""

    problem: RemoteProblem  # loss, penalty and weighting; no shards
    regions: Regions
    policy: WorkerPolicy | None
    seed: int


class WorkerActor:
    """Worker `index`: its rows are read here from a reference, or come with the first call."""

    def __init__(self, index: int, reference: ShardReference | None, at_once: bool = True) -> None:
        self.index, self.reference = index, reference
        self.number = 0  # of the run whose terms are known here
        self.worker: Worker | None = None
        self.shard: Shard | None = None
        self.records: Records | None = None  # between a survey and the shard
        self.by_reference = reference is not None
        self.trouble = ""
        try:
            self.shard = reference.read() if reference is not None and at_once else None
        except Exception as error:  # reported when somebody asks: an actor that raises here is only "dead"
            self.trouble = redacted(error)

    def ready(self) -> bool:
        """Says that it has begun: for who waits until it is back."""
        return True

    def survey(self, analysis: Analysis) -> Survey | str:
        """What the columns of an analysis hold, or what is wrong with the file."""
        try:
            assert self.reference is not None
            told, self.records = survey_reference(self.reference, self.index, analysis, read_model(analysis))
            return told
        except Exception as error:
            return redacted(error)

    def shard_info(self, binary: bool, shard: Shard | None, design: Design | None = None) -> ShardInfo | Failure:
        """What the server may know of the rows, or the place where they cannot be read."""
        rows = self._rows(shard, design)
        return Failure(self.index, "error", self.trouble) if rows is None else info_of(rows, binary)

    def answer(
        self, number: int, terms: RunTerms | None, shard: Shard | None, data: bytes | Task, w: Array | None
    ) -> bytes | Reply:
        """The reply to a task, both as bytes; a model too large to travel inside the task comes beside it as `w`.

        `terms` and `shard` come when this actor is sent a run. A task that comes as an object is answered with one.
        """
        reply = self._reply(number, terms, shard, data, w)
        if isinstance(reply, Reply) and isinstance(data, Task):
            return reply
        return UNKNOWN_RUN if reply is None else encode(reply)

    def hessian(
        self, number: int, terms: RunTerms | None, shard: Shard | None, data: bytes | Task, w: Array | None
    ) -> tuple[bytes, Array | None]:
        """As `answer`, with the Hessian as an object of its own (num_returns=2), for others to fetch and add up."""
        reply = self._reply(number, terms, shard, data, w)
        if not isinstance(reply, HessianReply):
            return (UNKNOWN_RUN if reply is None else encode(reply)), None
        return encode(replace(reply, packed_hessian=None)), reply.packed_hessian

    def _reply(
        self, number: int, terms: RunTerms | None, shard: Shard | None, data: bytes | Task, w: Array | None
    ) -> Reply | Failure | None:
        try:
            if terms is not None:
                rows = self._rows(shard, terms.problem.design)
                if rows is None:
                    return Failure(self.index, "error", f"its rows cannot be read: {self.trouble}"[:DETAIL])
                self._open(number, terms, rows)
            if self.worker is None or number != self.number:
                return None
            task = data if isinstance(data, Task) else decode(data, most_bytes=self.longest)
            assert isinstance(task, Task)
            if w is not None and isinstance(task, ModelTask):
                task = replace(task, w=w)
            return self.worker.answer(task)
        except Exception as error:
            wrong = isinstance(error, InputError)
            text = redacted(error) if self.by_reference else str(error) if wrong else f"{type(error).__name__}: {error}"
        if wrong:
            raise InputError(text)  # the caller's mistake, which the driver raises, too
        return Failure(self.index, "error", text[:DETAIL])

    def _open(self, number: int, terms: RunTerms, shard: Shard) -> None:
        regions = terms.regions
        self.shard = shard = in_order(shard, terms.problem.feature_names)
        self.worker = Worker(self.index, terms.problem.local(shard), regions, terms.policy, terms.seed)
        self.number, self.longest = number, most_bytes(regions.n_coefficients, regions.n_regions)

    def _rows(self, shard: Shard | None, design: Design | None) -> Shard | None:
        """The rows; None where this actor, which may have been restarted, cannot read them (any more)."""
        if self.shard is None and design is not None and self.reference is not None:
            try:
                self.shard = shard_of(self.reference, self.index, design, self.records)
                self.records = None
            except Exception as error:
                self.trouble = redacted(error)
        elif self.shard is None:
            self.shard = shard
        return self.shard
