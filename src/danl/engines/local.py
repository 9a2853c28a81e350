"""The in-process engine: the reference all others are compared with, and the default.

It can also play a federation whose workers come and go, so that what absences do to a method is seen before it meets
real ones: `dropout` makes every worker miss an exchange with some chance, `away` makes it miss a stretch of them.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import TypeVar

import numpy as np

from danl.checks import check_share
from danl.data.records import Records
from danl.data.redaction import redacted, unreadable
from danl.data.schema import in_order
from danl.data.shard import Shard, ShardInfo, info_of
from danl.design.references import shard_of, survey_references
from danl.design.survey import Surveyed
from danl.errors import InputError
from danl.frozen import replace
from danl.objective.problem import BaseProblem, Problem, RemoteProblem
from danl.objective.regions import Regions
from danl.objective.threads import blas_held, check_threads
from danl.policies.base import WorkerPolicy
from danl.protocol.messages import Exchange, Failure, Reply
from danl.protocol.replies import Replies
from danl.protocol.reply_form import ReplyForm
from danl.worker.batched_workers import BatchedWorkers
from danl.worker.worker import Worker

Made = TypeVar("Made")
SMALL_ALGEBRA = 500
"""Coefficients up to which BLAS has one thread while this engine's threads are at work."""
AWAY = "away, as the engine was told"


class Local:
    """All workers in this process, together where they can be (`danl.objective.batch`), else one after the other.

    Parameters
    ----------
    dropout : float
        The chance of every worker to miss an exchange.
    away : mapping of worker to (first, last), optional
        Exchanges a worker misses for sure, counted from 0: (0, 7) joins late, (6, None) leaves for good.
    seed : int
        Of the dropouts.
    batched : bool
        Whether workers may be evaluated together. Their answers are the same up to rounding.
    threads : int, optional
        How many threads evaluate them. Default: as many as this process may use (`danl.objective.threads`), where
        there is work for more than one.

    """

    name = "local"

    def __init__(
        self,
        *,
        dropout: float = 0.0,
        away: Mapping[int, tuple[int, int | None]] | None = None,
        seed: int = 0,
        batched: bool = True,
        threads: int | None = None,
    ) -> None:
        check_share("dropout", dropout, one=False)
        self._threads = check_threads(threads)
        self._dropout, self._away = dropout, dict(away or {})
        self._seed, self._drawn = seed, 0
        self._rng: np.random.Generator | None = None  # made when it is asked
        self._workers: list[Worker] = []
        self._shards: list[Shard] = []
        self._records: dict[int, Records] = {}  # between a survey and the shards
        self._batched = batched
        self._batch: BatchedWorkers | None = None
        self._held = ExitStack()
        weakref.finalize(self, self._held.close)  # where nobody closes it

    def __repr__(self) -> str:
        options = {"dropout": self._dropout, "away": self._away, "seed": self._seed, "threads": self._threads}
        return f"Local({', '.join(f'{name}={value!r}' for name, value in options.items() if value)})"

    def survey(self, problem: RemoteProblem) -> Surveyed:
        """Look at the records in this process; they are kept until `connect` makes shards of them."""
        assert problem.analysis is not None
        surveys, self._records = survey_references(problem.shards, problem.analysis)
        return Surveyed(surveys)

    def connect(self, problem: RemoteProblem) -> Sequence[ShardInfo]:
        """Read the shards in this process."""
        self._shards = [
            _at_site(index, partial(shard_of, reference, index, problem.design, self._records.pop(index, None)))
            for index, reference in enumerate(problem.shards)
        ]
        return [info_of(shard, problem.loss.binary) for shard in self._shards]

    def open(self, problem: BaseProblem, *, regions: Regions, policy: WorkerPolicy | None, seed: int) -> None:
        """Make a worker of every shard; dropouts are counted anew."""
        self._rng, self._drawn = None, 0
        if isinstance(problem, Problem):
            here = list(problem.local_objectives)
        else:
            self._shards = [in_order(shard, problem.feature_names) for shard in self._shards]
            here = [_at_site(index, partial(problem.local, shard)) for index, shard in enumerate(self._shards)]
        self._workers = [Worker(index, objective, regions, policy, seed) for index, objective in enumerate(here)]
        self._form = ReplyForm(regions, problem.layout)
        self._batch = BatchedWorkers.of(self._workers, problem) if self._batched else None
        self._held.close()
        if self._batch is not None:
            self._batch.batch.use_threads(self._threads)
            # The server's small products are not worth the threads of BLAS, which wait in the way of the others.
            small = problem.n_coefficients <= SMALL_ALGEBRA and self._batch.batch.threads > 1
            self._held.enter_context(blas_held(small))

    def exchange(self, exchange: Exchange, *, deadline: float | None = None) -> Replies:
        """Ask the workers; one that is away, raises, or is not reached before the deadline, is a failure."""
        away = self._absent(exchange.task.exchange)
        failures = {}
        if away:
            failures = {index: Failure(index, "timeout", AWAY) for index in exchange.workers.tolist() if index in away}
        present = exchange.without(failures) if failures else exchange
        if self._batch is not None and deadline is None:
            replies = self._batch.answer(present)
            if replies is not None:
                return replace(replies, failures=failures) if failures else replies
            messages = self._batch.messages(present)
            if messages is not None:
                return self._form.stack(exchange, {**failures, **messages})
        return self._form.stack(exchange, {**failures, **self._one_by_one(present, deadline)})

    def _one_by_one(self, exchange: Exchange, deadline: float | None) -> dict[int, Reply | Failure]:
        answers: dict[int, Reply | Failure] = {}
        start = time.perf_counter()
        for index, task in exchange.tasks().items():
            if deadline is not None and time.perf_counter() - start > deadline:
                answers[index] = Failure(index, "timeout", f"not reached within {deadline:g} s")
                continue
            try:
                answers[index] = self._workers[index].answer(task)
            except InputError:
                raise  # the caller's mistake, a custom policy's wrong mask for example: nothing to live with
            except Exception as error:
                text = redacted(error) if self._shards else f"{type(error).__name__}: {error}"
                answers[index] = Failure(index, "error", text)
        return answers

    def close(self) -> None:
        """Let the shards go."""
        self._workers, self._shards, self._records, self._batch = [], [], {}, None
        self._held.close()

    def _absent(self, number: int) -> set[int]:
        """Who misses exchange `number`: the same whether the run came here in one go or was resumed."""
        if not self._away and not self._dropout:
            return set()
        absent = {
            worker
            for worker, (first, last) in self._away.items()
            if first <= number and (last is None or number <= last)
        }
        if self._dropout > 0:
            rng = self._rng = self._rng or np.random.default_rng(self._seed)
            while self._drawn < number:  # those that another process has played
                rng.random(len(self._workers))
                self._drawn += 1
            missing = rng.random(len(self._workers)) < self._dropout
            self._drawn += 1
            absent |= {int(worker) for worker in np.flatnonzero(missing)}
        return absent


def _at_site(index: int, made: Callable[[], Made]) -> Made:
    """What a worker makes of a reference; what goes wrong is reported as a site would, by its place."""
    try:
        return made()
    except Exception as error:
        text = redacted(error)
    raise InputError(unreadable(index, text))
