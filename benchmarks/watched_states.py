"""A method whose states are kept: what every node of a graph has, of which a run returns the average alone."""

from __future__ import annotations

from typing import Any

from danl.methods import AnyMethod, Exchange, Info, Replies, Setup, Turn, make_method


class Watched:
    """Does as the method does, and keeps its state after every exchange."""

    def __init__(self, method: str | AnyMethod) -> None:
        self.method = make_method(method)
        self.name = self.method.name
        self.over_graph = getattr(self.method, "over_graph", False)
        self.states: list[Any] = []

    def begin(self, setup: Setup) -> Any:
        return self.method.begin(setup)

    def plan(self, state: Any, setup: Setup, turn: Turn) -> Exchange:
        return self.method.plan(state, setup, turn)

    def absorb(self, state: Any, replies: Replies, setup: Setup) -> tuple[Any, Info]:
        after, info = self.method.absorb(state, replies, setup)
        self.states.append(after)
        return after, info
