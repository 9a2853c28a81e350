"""A Grid without a network: messages are answered in this process by the ClientApp's own functions.

Contents are taken apart and put together again as on the wire. So is a node's state, all that lives on between two
messages to a site, which starts a process for each. What a network does to replies is played by `spoil` and `hold`.
"""

from __future__ import annotations

import uuid

from flwr.app import Context, Message, RecordDict
from flwr.common.serde import recorddict_from_proto, recorddict_to_proto
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents


def through_the_wire(message):
    """The message as the other end gets it."""
    contents = {name: each.deflate() for name, each in get_all_nested_objects(message).items()}
    arrived = inflate_object_from_contents(message.object_id, contents)
    arrived.metadata.__dict__["_message_id"] = message.metadata.message_id
    return arrived


class FakeGrid:
    """Nodes by id: each a ClientApp and a node configuration."""

    def __init__(self, app, configs, *, spoil=None, hold=None):
        self.nodes = {1000 + 7 * number: config for number, config in enumerate(configs)}
        self.states = {node: recorddict_to_proto(RecordDict()) for node in self.nodes}
        self.app, self.spoil, self.hold = app, spoil, hold
        self.pushed, self.waiting, self.held = [], {}, {}

    def get_node_ids(self):
        return list(reversed(self.nodes))  # in no helpful order

    def push_messages(self, messages):
        names = []
        for message in messages:
            message.metadata.__dict__["_message_id"] = str(uuid.uuid4())
            self.pushed.append(message)
            names.append(message.metadata.message_id)
            node = message.metadata.dst_node_id
            context = Context(1, node, dict(self.nodes[node]), recorddict_from_proto(self.states[node]), {})
            replies = [self.app(through_the_wire(message), context)]
            self.states[node] = recorddict_to_proto(context.state)
            if self.spoil is not None:
                replies = self.spoil(message, replies)
            for reply in replies:
                reply.metadata.__dict__["_message_id"] = str(uuid.uuid4())
            home = self.held if self.hold is not None and self.hold(message) else self.waiting
            home.setdefault(message.metadata.message_id, []).extend(map(through_the_wire, replies))
        return names

    def pull_messages(self, names):
        return [reply for name in names for reply in self.waiting.pop(name, [])]

    def release(self):
        """Let the replies that were held back arrive."""
        for name, replies in self.held.items():
            self.waiting.setdefault(name, []).extend(replies)
        self.held = {}


def error_reply(message, code, reason="it is gone"):
    from flwr.app import Error

    return Message(Error(code, reason), reply_to=message)


class Clock:
    """Seconds that pass only where somebody waits."""

    def __init__(self):
        self.now = 1000.0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += max(seconds, 1e-3)
