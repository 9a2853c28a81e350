"""Engines: where the workers live. `make_engine` turns a name into one."""

from __future__ import annotations

from collections.abc import Callable

from danl.data.shard import ShardInfo
from danl.engines.base import Engine
from danl.engines.local import Local
from danl.engines.ray.engine import Ray
from danl.protocol.messages import Exchange, Failure, Reply, Task
from danl.protocol.replies import Replies
from danl.protocol.reply_form import ReplyForm
from danl.protocol.wire import decode, encode, most_bytes
from danl.spec import Registry
from danl.worker.worker import Worker

ENGINES: dict[str, Callable[..., Engine] | str] = {
    "local": Local,
    "ray": Ray,
    "flower": "danl.engines.flower.simulation:FlowerSimulation",  # imported when it is asked for, never before
}
"""The engines of danl by name: what makes each of them."""
_REGISTRY = Registry("engine", "danl.engines", ENGINES, parts=("name", "connect", "open", "exchange", "close"))


def make_engine(engine: str | Engine) -> Engine:
    """Turn a name, with options if need be (``"local:dropout=0.3,seed=1"``), into an engine, or check an object."""
    return _REGISTRY.make(engine)


__all__ = [
    "ENGINES",
    "Engine",
    "Exchange",
    "Failure",
    "Local",
    "Ray",
    "Replies",
    "Reply",
    "ReplyForm",
    "ShardInfo",
    "Task",
    "Worker",
    "decode",
    "encode",
    "make_engine",
    "most_bytes",
]
