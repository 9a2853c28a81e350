"""`danl plan`: what a run would cost, before anything is run."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

from danl.cli.display import console, plain_table, right
from danl.cli.options import PROBLEM, RUN, Json, option
from danl.wording import human_bytes

NETWORK = "Network"
TYPICAL = {"hessian": 3, "gradient": 7, "loss": 0}
"""Exchanges of a well-conditioned fit (a1a, alpha 1e-3, coverage:psi=3): what `danl fit` counts there."""


def plan(
    workers: Annotated[int, option(PROBLEM, "Number of workers, N.")],
    features: Annotated[int, option(PROBLEM, "Number of features, d.")],
    regions: Annotated[int, option(PROBLEM, "Number of regions, Q.")] = 4,
    coverage: Annotated[int | None, option(PROBLEM, "Workers on each region in a masked round; default: all.")] = None,
    hessians: Annotated[int, option(RUN, "Hessian exchanges of the run.")] = TYPICAL["hessian"],
    gradients: Annotated[int, option(RUN, "Masked rounds of the run.")] = TYPICAL["gradient"],
    losses: Annotated[int, option(RUN, "Loss-only exchanges of the run.")] = TYPICAL["loss"],
    bandwidth: Annotated[float, option(NETWORK, "Megabits a second of every machine.")] = 100.0,
    latency: Annotated[float, option(NETWORK, "Milliseconds a message is under way.")] = 50.0,
    fan_in: Annotated[int, option(NETWORK, "Replies a node of the tree takes.")] = 32,
    hessian_compressor: Annotated[
        str | None, option(RUN, "What compresses Hessians, for example rankr:5; default: nothing.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Say what a run would cost: bytes, seconds and memory, with and without a tree of aggregators.

    Example: danl plan --workers 1000 --features 2000 --coverage 100
    """
    from danl.run.scale import Network, Scale  # here: --help should not wait for it

    network = Network(bandwidth=bandwidth * 1e6 / 8, latency=latency / 1e3)
    scale = Scale(workers, features, regions, coverage, fan_in, network, hessian_compressor)
    times = {"hessian": hessians, "gradient": gradients, "loss": losses}
    costs = scale.costs()
    total = {
        name: sum(times[cost.kind] * getattr(cost, name) for cost in costs)
        for name in ("bytes_up", "bytes_down", "seconds", "tree_seconds")
    }
    if as_json:
        whole = {
            "exchanges": {cost.kind: asdict(cost) | {"times": times[cost.kind]} for cost in costs},
            "total": total,
            **{name: getattr(scale, name) for name in ("levels", "aggregators", "server_bytes", "tree_bytes")},
        }
        print(json.dumps(whole, allow_nan=False))
    screen = console()
    table = plain_table("exchange", *map(right, ("times", "up", "down", "s, flat", f"s, tree of {fan_in}")))
    for cost in costs:
        table.add_row(cost.kind, str(times[cost.kind]), *_cells(asdict(cost)))
    table.add_row("run", str(sum(times.values())), *_cells(total), style="bold")
    screen.print(f"{workers:,} workers, {features:,} features, {regions} regions", style="bold", highlight=False)
    screen.print(table)
    screen.print(
        f"the server keeps {human_bytes(scale.server_bytes)}; with a tree ({scale.levels} levels, "
        f"{scale.aggregators:,} aggregators) {human_bytes(scale.tree_bytes)}, and as much in each aggregator at most"
    )
    screen.print("seconds are the network's; the workers' own work comes on top", style="dim")
    return 0


def _cells(values: dict[str, float]) -> tuple[str, ...]:
    sizes = [human_bytes(values[name]) for name in ("bytes_up", "bytes_down")]
    return (*sizes, *(f"{values[name]:.3g}" for name in ("seconds", "tree_seconds")))
