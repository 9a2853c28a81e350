"""What an engine is: it opens the workers and carries tasks out and replies in; it does no maths of the algorithm."""

from __future__ import annotations

from typing import Protocol

from danl.core.messages import Exchange, Replies
from danl.policies.base import WorkerPolicy
from danl.problem import Problem
from danl.regions import Regions


class Engine(Protocol):
    """The interface of an engine; implement it to bring your own."""

    @property
    def name(self) -> str: ...

    def open(self, problem: Problem, *, regions: Regions, policy: WorkerPolicy | None, seed: int) -> None:
        """Start the workers; `policy` is theirs when masks are chosen where the data is."""
        ...

    def exchange(self, exchange: Exchange, *, deadline: float | None = None) -> Replies:
        """Deliver the tasks; return the replies there are by the deadline (seconds) and typed failures for the rest."""
        ...

    def close(self) -> None:
        """Let the workers go."""
        ...
