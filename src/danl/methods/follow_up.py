"""A question about a model at hand that everyone answers once: an `OwnTask` of tables, of a site's own fit, of counts.

Not a way to a model but a look at one: w stays where it is. Those missing are asked again; who refuses, or is still
missing after that, is left out, and `products["workers"]` says who answered. The other products are the arrays of the
replies, a row a worker.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from danl.frozen import replace
from danl.methods.base import Info, Setup, Status, Turn
from danl.protocol.messages import PERMANENT, Array, Exchange, Mask
from danl.protocol.own_tasks import OWN_TASKS, array_fields
from danl.protocol.replies import Replies


@dataclass(frozen=True)
class FollowUpState:
    """The replies so far, and who is still to answer."""

    w: Array
    missing: Mask  # (N,)
    tries: int = 0
    replies: Mapping[int, Any] = field(default_factory=dict)
    status: Status | None = None
    products: dict[str, Array] = field(default_factory=dict)


@dataclass(frozen=True)
class FollowUp:
    """One question, `task` by its name and `options` by theirs, to everyone at the start of the run.

    Parameters
    ----------
    task : str
        The name of an `OwnTask`.
    options : mapping
        Its fields beside exchange and model.
    patience : int
        Exchanges that a worker may miss before it is left out; those missed by workers that the engine expects back
        are not counted.

    """

    name = "follow-up"

    task: str
    options: Mapping[str, Any] = field(default_factory=dict)
    patience: int = 3

    def begin(self, setup: Setup) -> FollowUpState:
        return FollowUpState(setup.w0, np.ones(setup.n_workers, dtype=bool))

    def plan(self, state: FollowUpState, setup: Setup, turn: Turn) -> Exchange:
        task = OWN_TASKS[self.task](turn.exchange, state.w, **self.options)
        return Exchange(self.task, task, np.flatnonzero(state.missing))

    def absorb(self, state: FollowUpState, replies: Replies, setup: Setup) -> tuple[FollowUpState, Info]:
        missing, found = state.missing.copy(), {**state.replies, **replies.messages}
        tries = state.tries + bool(replies.absent)
        for worker, failure in replies.failures.items():
            if failure.kind in PERMANENT or (tries >= self.patience and failure.kind != "restarting"):
                missing[worker] = False
        missing[list(replies.messages)] = False
        state = replace(state, missing=missing, replies=found, tries=tries)
        if missing.any():
            return state, Info()
        if not found:
            return replace(state, status="quorum_lost"), Info()
        everyone = sorted(found)
        names = array_fields(found[everyone[0]])
        products = {name: np.array([getattr(found[worker], name) for worker in everyone]) for name in names}
        return replace(state, status="converged", products=products | {"workers": np.array(everyone)}), Info()
