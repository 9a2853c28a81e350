"""Flower's sites played on this machine by its simulation runtime: the engine of `danl.solve(..., engine="flower")`.

The ServerApp of a simulation runs in a thread that Flower starts; here it only hands its Grid over and waits until the
run is over, so that the loop stays where it was called. Everything else is as in a real federation: the same messages,
the same ClientApp, the same engine over the Grid. Only the sites have no rules, as their rows are read here. The
simulation runs on Ray; see docs/federated.md on its ports.
"""

from __future__ import annotations

import os
import queue
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from danl.checks import check_installed, check_seconds, check_whole
from danl.data.shard import ShardInfo
from danl.engines.flower.site import Site
from danl.engines.flower.site_rules import SiteRules
from danl.engines.flower.sitefiles import write_sites
from danl.errors import InputError
from danl.frozen import replace
from danl.objective.problem import BaseProblem, Problem, RemoteProblem
from danl.objective.regions import Regions
from danl.policies.base import WorkerPolicy
from danl.protocol.messages import Exchange
from danl.protocol.replies import Replies

STARTS_WITHIN = 300.0
"""Seconds Flower and Ray have to come up."""
STOPS_WITHIN = 60.0


class FlowerSimulation:
    """Sites played by Flower's simulation runtime, one for every shard.

    Parameters
    ----------
    simulate : bool
        True: there is nothing else in Python, and the command line asks for it with
        ``--engine flower:simulate=true``.
    deadline : float
        Seconds an exchange may take.
    cpus : int, optional
        Cores the sites share; default: all there are.

    """

    name = "flower"

    def __init__(self, *, simulate: bool = True, deadline: float = 300.0, cpus: int | None = None) -> None:
        if simulate is not True:
            raise InputError(
                "engine='flower': real sites are asked by a ServerApp, with danl.flower.GridEngine(grid), "
                "or by danl fit --engine flower; in Python leave simulate out"
            )
        if cpus is not None:
            cpus = check_whole("cpus", cpus)
        check_seconds("deadline", deadline)
        for package in ("flwr", "ray"):
            check_installed("engine='flower'", package, "flower")
        self._deadline, self._cpus = deadline, cpus
        self._engine: Any = None  # a GridEngine, once the simulation runs
        self._thread: threading.Thread | None = None
        self._over = threading.Event()
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def __repr__(self) -> str:
        return f"FlowerSimulation(deadline={self._deadline:g})"

    def connect(self, problem: RemoteProblem) -> Sequence[ShardInfo]:
        """Play a site for every reference."""
        if not problem.shards:
            raise InputError(
                "shards: a simulation needs a reference for every site; for sites that are there already, run the app "
                "of danl.flower on their SuperLink (docs/federated.md)"
            )
        width = len(str(len(problem.shards) - 1))
        sites = [Site(f"site-{number:0{width}d}", each, SiteRules.open()) for number, each in enumerate(problem.shards)]
        return self._start(sites, problem)

    def open(self, problem: BaseProblem, *, regions: Regions, policy: WorkerPolicy | None, seed: int) -> None:
        """Start the sites of a problem in memory, if they are not there; tell the engine the terms."""
        if self._engine is None:
            assert isinstance(problem, Problem)
            self._folder = tempfile.TemporaryDirectory(prefix="danl-flower-")
            configs = write_sites(problem.shards, Path(self._folder.name), binary=problem.loss.binary)
            sites = [replace(Site.from_config(config), rules=SiteRules.open()) for config in configs]
            self._start(sites, problem)
        self._engine.open(problem, regions=regions, policy=policy, seed=seed)

    def exchange(self, exchange: Exchange, *, deadline: float | None = None) -> Replies:
        """As over any Grid."""
        replies: Replies = self._engine.exchange(exchange, deadline=deadline)
        return replies

    def close(self) -> None:
        """End the simulation."""
        self._over.set()
        if self._thread is not None:
            self._thread.join(STOPS_WITHIN)
        if self._folder is not None:
            self._folder.cleanup()
        self._engine, self._thread, self._folder = None, None, None

    def _start(self, sites: Sequence[Site], terms: BaseProblem) -> Sequence[ShardInfo]:
        """Start the simulation, get its Grid, and ask the sites for their `ShardInfo`."""
        from danl.engines.flower.engine import GridEngine

        grids: queue.Queue[Any] = queue.Queue()
        self._over = threading.Event()
        self._thread = threading.Thread(
            target=_simulate, args=(list(sites), self._cpus or os.cpu_count() or 1, grids, self._over), daemon=True
        )
        self._thread.start()
        try:
            grid = grids.get(timeout=STARTS_WITHIN)
        except queue.Empty:
            raise InputError(f"engine='flower': the simulation did not start within {STARTS_WITHIN:g} s") from None
        if isinstance(grid, BaseException):
            raise InputError(f"engine='flower': the simulation could not start ({grid})") from grid
        self._engine = GridEngine(grid, sites=len(sites), deadline=self._deadline, wait=STARTS_WITHIN, poll=0.01)
        infos: Sequence[ShardInfo] = self._engine.connect(terms.without_rows())
        return infos


def _simulate(sites: list[Site], cpus: int, grids: queue.Queue[Any], over: threading.Event) -> None:
    """Run Flower's simulation until the run is over; the thread's own function."""
    from flwr.serverapp import ServerApp
    from flwr.simulation import run_simulation

    from danl.engines.flower.clientapp import client_app

    def site_of(config: Mapping[str, Any]) -> Site:
        return sites[int(config["partition-id"])]

    server = ServerApp()

    @server.main()  # type: ignore[untyped-decorator, unused-ignore]
    def hand_over(grid: Any, context: Any) -> None:
        grids.put(grid)
        over.wait()

    try:
        run_simulation(
            server_app=server,
            client_app=client_app(site_of),
            num_supernodes=len(sites),
            backend_config={
                "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
                "init_args": {"num_cpus": cpus, "log_to_driver": False, "logging_level": "ERROR"},
            },
        )
    except BaseException as error:  # flwr leaves with SystemExit where something is missing
        grids.put(error)
