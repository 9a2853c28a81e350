"""What an engine is: it opens the workers and carries tasks out and replies in; it does no maths of the algorithm."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from danl.data.shard import ShardInfo
from danl.design.survey import Surveyed
from danl.objective.problem import BaseProblem, RemoteProblem
from danl.objective.regions import Regions
from danl.policies.base import WorkerPolicy
from danl.protocol.messages import Exchange
from danl.protocol.replies import Replies


class Engine(Protocol):
    """The interface of an engine; implement it to bring your own."""

    @property
    def name(self) -> str:
        """What it is called on the command line."""
        ...

    def connect(self, problem: RemoteProblem) -> Sequence[ShardInfo]:
        """Have the workers of a problem given by reference read their shards, and tell what they found.

        Called once, before `open`, and only for such problems.
        """
        ...

    def open(self, problem: BaseProblem, *, regions: Regions, policy: WorkerPolicy | None, seed: int) -> None:
        """Start the workers; `policy` is theirs when masks are chosen where the data is.

        Called again with other arguments where a method makes the start: the shards stay.
        """
        ...

    def exchange(self, exchange: Exchange, *, deadline: float | None = None) -> Replies:
        """Deliver the tasks; return the replies there are by the deadline (seconds) and typed failures for the rest.

        `ReplyForm.stack` makes replies of one message of every worker. `danl.solve` gives no deadline: it is an option.

        A worker that is down is waited for as long as it may take to start; its failure is "restarting" until then, and
        "gone" if it is known never to come back. Every other failure counts as an absence.
        """
        ...

    def close(self) -> None:
        """Let the workers go."""
        ...


class Surveying(Protocol):
    """What an engine has besides, if it can run problems with an analysis."""

    def survey(self, problem: RemoteProblem) -> Surveyed:
        """Have the workers look at the columns of the problem's analysis, and tell what they found.

        Called before `connect`, which comes with the design that is made of the answers (`problem.design`).
        """
        ...
