"""Questions about a model at hand that everyone answers once: `OwnTask`s of tables, of a site's own fit, of counts.

Not a way to a model but a look at one: w stays where it is. Several questions go out in one exchange. Those missing are
asked again; who refuses, or is still missing after that, is left out. The products are the arrays of the replies, a row
a worker, by question and field: "null-model.sums"; "null-model.workers" says whose they are, and "null-model.silent"
has the failures of those that answered others and not this one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from danl.frozen import replace
from danl.methods.base import Info, Setup, Status, Turn
from danl.protocol.messages import PERMANENT, Array, Exchange, Failure, Mask
from danl.protocol.own_tasks import OWN_TASKS, array_fields
from danl.protocol.replies import Replies
from danl.tasks.several import SeveralTask

Question = tuple[str, Mapping[str, Any]]
"""An `OwnTask` by its name, and its fields beside exchange and model."""


@dataclass(frozen=True)
class FollowUpState:
    """The replies so far, and who is still to answer."""

    w: Array
    missing: Mask  # (N,)
    tries: int = 0
    replies: Mapping[int, Any] = field(default_factory=dict)
    status: Status | None = None
    products: dict[str, np.ndarray[Any, Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class FollowUp:
    """Questions to everyone, in one exchange.

    Parameters
    ----------
    questions : sequence of (str, mapping)
        The name of an `OwnTask`, and its fields beside exchange and model; no name twice.
    patience : int
        Exchanges that a worker may miss before it is left out; those missed by workers that the engine expects back
        are not counted.

    """

    name = "follow-up"

    questions: Sequence[Question]
    patience: int = 3

    def begin(self, setup: Setup) -> FollowUpState:
        return FollowUpState(setup.w0, np.ones(setup.n_workers, dtype=bool))

    def plan(self, state: FollowUpState, setup: Setup, turn: Turn) -> Exchange:
        about = turn.exchange, state.w
        parts = [OWN_TASKS[name](*about, **options) for name, options in self.questions]
        task = parts[0] if len(parts) == 1 else SeveralTask(*about, tuple(parts))
        return Exchange(task.name, task, np.flatnonzero(state.missing))

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
        products: dict[str, Any] = {}
        for place, (name, _) in enumerate(self.questions):
            own = {who: found[who] if len(self.questions) == 1 else found[who].parts[place] for who in sorted(found)}
            products |= {f"{name}.{key}": value for key, value in _by_field(own).items()}
        return replace(state, status="converged", products=products), Info()


def _by_field(answers: Mapping[int, Any]) -> dict[str, Any]:
    """The arrays of the answers to one question, a row a worker; and who did not answer it."""
    silent = [answer for answer in answers.values() if isinstance(answer, Failure)]
    told = [who for who, answer in answers.items() if not isinstance(answer, Failure)]
    made: dict[str, Any] = {"workers": np.array(told, dtype=np.int64), "silent": np.array(silent, dtype=object)}
    for name in array_fields(answers[told[0]]) if told else ():
        made[name] = np.array([getattr(answers[who], name) for who in told])
    return made
