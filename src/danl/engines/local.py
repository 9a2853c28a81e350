"""The in-process engine: the reference all others are compared with, and the default."""

from __future__ import annotations

import time

from danl.core.messages import Exchange, Failure, Replies, Reply
from danl.core.worker import Worker
from danl.errors import InputError
from danl.policies.base import WorkerPolicy
from danl.problem import Problem
from danl.regions import Regions


class Local:
    """All workers in this process, one after the other."""

    name = "local"

    def __init__(self) -> None:
        self._workers: list[Worker] = []

    def open(self, problem: Problem, *, regions: Regions, policy: WorkerPolicy | None, seed: int) -> None:
        """Make a worker of every shard."""
        self._workers = [
            Worker(index, objective, regions, policy, seed) for index, objective in enumerate(problem.locals)
        ]

    def exchange(self, exchange: Exchange, *, deadline: float | None = None) -> Replies:
        """Ask the workers in turn; one that raises, or is not reached before the deadline, is a failure."""
        received: dict[int, Reply] = {}
        failures: dict[int, Failure] = {}
        start = time.perf_counter()
        for index, task in exchange.tasks.items():
            if deadline is not None and time.perf_counter() - start > deadline:
                failures[index] = Failure(index, "timeout", f"not reached within {deadline:g} s")
                continue
            try:
                received[index] = self._workers[index].answer(task)
            except InputError:
                raise  # the caller's mistake, a custom policy's wrong mask for example: nothing to live with
            except Exception as error:
                failures[index] = Failure(index, "error", f"{type(error).__name__}: {error}")
        return Replies(received, failures)

    def close(self) -> None:
        """Let the shards go."""
        self._workers = []
