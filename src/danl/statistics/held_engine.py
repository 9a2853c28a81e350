"""An engine held open for several runs: the fit, and the questions about the fitted model after it.

`danl.solve` connects to its engine, and closes it at the end. Here it is connected once, and closed by `release`: sites
are asked for their facts once, and actors start once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from danl.engines import Engine, Replies, make_engine
from danl.errors import InputError
from danl.objective.problem import BaseProblem, RemoteProblem
from danl.objective.regions import Regions
from danl.policies import WorkerPolicy
from danl.protocol.messages import Exchange


class HeldEngine:
    """An engine that stays open until it is released; use it as a context."""

    def __init__(self, engine: str | Engine) -> None:
        self._engine = make_engine(engine)
        self._reported: Any = None
        self.surveyed: Any = None
        """What the sites told of their columns, where they were asked."""

    @property
    def name(self) -> str:
        """That of the engine."""
        return self._engine.name

    def survey(self, problem: RemoteProblem) -> Any:
        """What the workers tell of the columns of an analysis."""
        survey = getattr(self._engine, "survey", None)
        if survey is None:
            raise InputError(f"engine={self._engine!r}: has no `survey`, which a formula needs (docs/extending.md)")
        self.surveyed = survey(problem)
        return self.surveyed

    def connect(self, problem: RemoteProblem) -> Sequence[Any]:
        """What the workers report; they are asked once."""
        if self._reported is None:
            self._reported = self._engine.connect(problem)
        found: Sequence[Any] = self._reported
        return found

    def open(self, problem: BaseProblem, *, regions: Regions, policy: WorkerPolicy | None, seed: int) -> None:
        """Tell the engine what its workers work on now."""
        self._engine.open(problem, regions=regions, policy=policy, seed=seed)

    def exchange(self, exchange: Exchange, *, deadline: float | None = None) -> Replies:
        """Tasks out, replies in."""
        return self._engine.exchange(exchange, deadline=deadline)

    def close(self) -> None:
        """A run is over, and the engine stays open."""

    def release(self) -> None:
        """Let the workers go."""
        self._reported = None
        self._engine.close()

    def __enter__(self) -> HeldEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def __getattr__(self, name: str) -> Any:
        if name == "_engine":  # half made
            raise AttributeError(name)
        return getattr(self._engine, name)

    def __repr__(self) -> str:
        return repr(self._engine)
