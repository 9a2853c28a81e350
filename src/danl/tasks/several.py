"""Several questions about a model in one message: where a message takes seconds, tables of a fit take one of them.

Each part is answered as it would be alone, under the rules it would have alone. A part that a site does not answer is a
`Failure` among the parts of the reply, and the others are answers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from danl.errors import InputError
from danl.protocol.messages import Failure, Reply
from danl.protocol.own_tasks import OwnTask, StatefulTask, Workplace

OF_A_PART = ("refused", "error")
"""How a part may fail."""


@dataclass(frozen=True)
class SeveralReply(Reply):
    """The answer to each part, or why there is none."""

    trains = False

    parts: tuple[Reply | Failure, ...]


@dataclass(frozen=True)
class SeveralTask(OwnTask):
    """Answer these questions, which keep nothing."""

    name, answer = "several", SeveralReply

    parts: tuple[OwnTask, ...]

    def __post_init__(self) -> None:
        for part in self.parts:
            if not isinstance(part, OwnTask) or isinstance(part, SeveralTask | StatefulTask):
                what = f"several: {type(part).__name__} cannot be asked beside others"
                raise InputError(what, redacted=what)

    def work(self, place: Workplace) -> SeveralReply:
        return SeveralReply(place.worker, self.exchange, tuple(part.work(place) for part in self.parts))

    def fault(self, reply: Any, d: int) -> str | None:
        if len(reply.parts) != len(self.parts):
            return f"answered {len(reply.parts)} of {len(self.parts)} questions"
        for part, own in zip(self.parts, reply.parts, strict=True):
            if isinstance(own, Failure):
                if own.worker != reply.worker or own.kind not in OF_A_PART:
                    return f"sent a failure nobody can send: {own.kind} of worker {own.worker}"
                continue
            if type(own) is not part.answer or (own.worker, own.exchange) != (reply.worker, part.exchange):
                return f"answered with {type(own).__name__} where {part.answer.__name__} was asked for"
            if fault := part.fault(own, d):
                return fault
        return None

    def work_rows(self, rows: int, entries_per_row: float) -> float:
        return sum(part.work_rows(rows, entries_per_row) for part in self.parts)
