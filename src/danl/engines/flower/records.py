"""How tasks and replies sit in Flower's messages: the bytes of `danl.protocol.wire` in one ConfigRecord.

content   RecordDict {"danl": ConfigRecord {"message": bytes, "opening": JSON}}
type      query.facts, train.hessian, train.curvature, train.gradient, train.loss, train.local_steps, train.smoothness
group     the number of the exchange
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from danl.engines.flower.site import TASKS

RECORD, MESSAGE, OPENING, FACTS = "danl", "message", "opening", "facts"


def record_of(message: Any) -> Mapping[str, Any]:
    """The record with danl's fields; empty where there is none."""
    found = message.content.config_records.get(RECORD)
    return {} if found is None else found


def message_type(task: type) -> str:
    """The type of the message that carries a task; Flower wants identifiers."""
    return f"train.{TASKS[task].replace('-', '_')}"
