"""danl's ClientApp with the times of its process: started, Flower loaded, danl loaded, answer begun and ended.

A line of JSON for every message goes into the file of FLOWER_STAMPS. The clock is that of the machine since it was
started, which all processes share.
"""

# ruff: noqa: E402  (what is imported is timed)

import time

LOADED = time.clock_gettime(time.CLOCK_BOOTTIME)

import json
import os

from flwr.clientapp import ClientApp

import danl.data.reference as reference
from danl.engines.flower.clientapp import app as site

IMPORTED = time.clock_gettime(time.CLOCK_BOOTTIME)


def now():
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def started():
    """When this process was made, to a hundredth of a second."""
    with open("/proc/self/stat") as file:
        ticks = int(file.read().rpartition(")")[2].split()[19])
    return ticks / os.sysconf("SC_CLK_TCK")


class Timed(ClientApp):
    """The site's app; everything is answered by it."""

    def __call__(self, message, context):
        spent, original = [], reference.ShardReference.read

        def read(*arguments, **options):
            begun = now()
            try:
                return original(*arguments, **options)
            finally:
                spent.append(now() - begun)

        reference.ShardReference.read = read
        begun = now()
        reply = site(message, context)
        stamps = {"started": started(), "loaded": LOADED, "imported": IMPORTED, "begun": begun, "ended": now()}
        line = json.dumps(
            {"group": message.metadata.group_id, "node": context.node_config["name"], "read": sum(spent)} | stamps
        )
        with open(os.environ["FLOWER_STAMPS"], "a") as file:
            file.write(line + "\n")
        return reply


app = Timed()
