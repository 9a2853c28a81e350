"""The ClientApp: a site's answers carried by Flower's messages.

The site is what its SuperNode was started with (--node-config); see `Site.from_config`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from danl.data.redaction import redacted
from danl.engines.flower.kept_margins import KEPT
from danl.engines.flower.opening import (
    ANALYSIS,
    DESIGN,
    INFO,
    MESSAGE,
    OPENING,
    RECORD,
    SURVEY,
    danl_record,
    message_type,
)
from danl.engines.flower.site import LONGEST_DETAIL, Site
from danl.protocol.messages import TASKS, Failure
from danl.protocol.own_tasks import OWN_TASKS
from danl.protocol.wire import encode


def client_app(site_of: Callable[[Mapping[str, Any]], Site]) -> ClientApp:
    """A ClientApp whose site `site_of` makes from the node's configuration.

    It answers the tasks of danl, and those of other packages that have been imported by now.
    """
    made = ClientApp()

    def shard_info(message: Message, context: Context) -> Message:
        """Tell the site's name and what may be known of its columns, or of its shard."""
        content: dict[str, str | bytes]
        name = context.node_config.get("name", context.node_id)
        try:
            site = site_of(context.node_config)
            name = site.name
            asked = danl_record(message)
            if ANALYSIS in asked:
                content = {SURVEY: site.survey(asked[ANALYSIS])}
            else:
                content = {INFO: site.shard_info(asked.get("loss"), asked.get(DESIGN))}
        except Exception as error:  # a wrong file or setting: the server is to say which site, and where in the file
            content = {MESSAGE: failed(name, error)}
        return Message(RecordDict({RECORD: ConfigRecord(content)}), reply_to=message)

    def answer(message: Message, context: Context) -> Message:
        """Answer one task; what the site keeps for the next stays in the node's state."""
        asked, kept = danl_record(message), dict(context.state.config_records.get(KEPT, {}))
        try:
            reply = site_of(context.node_config).answer(asked.get(MESSAGE), asked.get(OPENING), kept)
            context.state[KEPT] = ConfigRecord(kept)
        except Exception as error:  # a setting: what the site itself meets it answers with
            reply = failed(context.node_config.get("name", context.node_id), error)
        return Message(RecordDict({RECORD: ConfigRecord({MESSAGE: reply})}), reply_to=message)

    def failed(name: object, error: Exception) -> bytes:
        """What leaves the site of an error: Flower would send its text."""
        return encode(Failure(0, "error", f"site {name}: {redacted(error)}"[:LONGEST_DETAIL]))

    made.query(INFO)(shard_info)
    made.query(SURVEY)(shard_info)
    for task in (*TASKS, *OWN_TASKS.values()):
        made.train(message_type(task).partition(".")[2])(answer)
    return made


app = client_app(Site.from_config)
