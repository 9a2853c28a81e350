"""The default method on the sites of a federation, with the times at which messages go and replies come."""

import json
import os
import time

from flwr.serverapp import ServerApp

import danl

app = ServerApp()


def now():
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Stamped:
    """A Grid that writes down when it was used."""

    def __init__(self, grid):
        self.grid, self.lines = grid, []

    def get_node_ids(self):
        return self.grid.get_node_ids()

    def push_messages(self, messages):
        begun = now()
        names = self.grid.push_messages(messages)
        self.lines += [{"group": each.metadata.group_id, "begun": begun, "pushed": now()} for each in messages]
        return names

    def pull_messages(self, names):
        replies = self.grid.pull_messages(names)
        self.lines += [{"group": each.metadata.group_id, "pulled": now()} for each in replies]
        return replies


@app.main()
def main(grid, context):
    stamped = Stamped(grid)
    engine = danl.flower.GridEngine(stamped, sites=int(context.run_config["sites"]))
    rounds = int(context.run_config["rounds"])
    danl.solve(danl.RemoteProblem(alpha=1e-3), engine=engine, max_rounds=rounds, tol=0.0)
    file = os.environ["FLOWER_STAMPS"] + ".server"
    with open(file + ".partial", "w") as written:
        json.dump(stamped.lines, written)
    os.replace(file + ".partial", file)
