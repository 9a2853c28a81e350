"""What a run costs before it is run: bytes, seconds and memory for N workers, d features and Q regions.

Bytes are those of `danl.protocol.messages`. With one level the server takes every reply itself; with a tree of
aggregators of fan-in k each node takes k replies and passes one sum on, so that no node takes more than k messages
whatever N is:

    levels         ceil(log_k N)
    seconds        levels * (latency + k * message / bandwidth)       up; the same way down with the model
    flat           latency + N * message / bandwidth

Losses and Hessians add up on the way. Masked gradients do, too, if each aggregator keeps the fragments of the workers
below it (k d numbers at the lowest level) and passes the sum on; the server then keeps d^2 + d numbers in all, instead
of d^2 + N d.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from danl.checks import check_whole
from danl.errors import bad_argument
from danl.policies.masks import mask_bytes
from danl.protocol.compressors import make_compressor
from danl.protocol.messages import packed_size

NUMBER = 8
"""Bytes of a float64."""


@dataclass(frozen=True)
class Network:
    """The way between a worker and whoever takes its replies."""

    bandwidth: float = 12.5e6
    """Bytes a second into and out of one machine: 100 Mbit/s."""
    latency: float = 0.05
    """Seconds a message is under way."""


@dataclass(frozen=True)
class Cost:
    """One exchange of a kind."""

    kind: str
    bytes_up: int
    bytes_down: int
    seconds: float
    """With the server taking every reply itself."""
    tree_seconds: float
    """With a tree of aggregators."""


@dataclass(frozen=True)
class Scale:
    """The size of a run.

    Parameters
    ----------
    workers, features, regions : int
        N, d, Q.
    coverage : int, optional
        Workers on each region in a masked round; default: all.
    fan_in : int
        Replies a node of the tree takes.
    network : Network
        Between any two nodes.
    hessian_compressor : str, optional
        What compresses Hessians on their way (`danl.methods.DANL`); sums of them go whole from node to node.

    """

    workers: int
    features: int
    regions: int = 4
    coverage: int | None = None
    fan_in: int = 32
    network: Network = Network()
    hessian_compressor: str | None = None

    def __post_init__(self) -> None:
        for name, least in (("workers", 1), ("features", 1), ("regions", 1), ("fan_in", 2)):
            check_whole(name, getattr(self, name), least)
        if self.regions > self.features:
            raise bad_argument("regions", self.regions, f"at most {self.features}, the number of features")
        if self.coverage is not None and not 1 <= self.coverage <= self.workers:
            raise bad_argument("coverage", self.coverage, f"between 1 and {self.workers}, the number of workers")
        if self.hessian_compressor is not None:
            make_compressor(self.hessian_compressor, "hessian_compressor")
        if not (self.network.bandwidth > 0 and self.network.latency >= 0):
            raise bad_argument("bandwidth", self.network.bandwidth, "above 0, with a latency of at least 0")

    @property
    def _nodes(self) -> list[int]:
        """Nodes of the tree on every level above the workers; the last one is the server."""
        nodes = [math.ceil(self.workers / self.fan_in)]
        while nodes[-1] > 1:
            nodes.append(math.ceil(nodes[-1] / self.fan_in))
        return nodes

    @property
    def levels(self) -> int:
        """Levels of the tree above the workers."""
        return len(self._nodes)

    @property
    def aggregators(self) -> int:
        """Nodes of the tree between the workers and the server."""
        return sum(self._nodes[:-1])

    def costs(self) -> tuple[Cost, ...]:
        """Every kind of exchange."""
        n, d = self.workers, self.features
        share = 1.0 if self.coverage is None else self.coverage / n
        mask = 0 if self.coverage is None else mask_bytes(self.regions)
        model, hessian = NUMBER * d, NUMBER * (packed_size(d) + d + 1)
        sent = hessian
        if self.hessian_compressor is not None:
            sent = make_compressor(self.hessian_compressor).nbytes(d) + NUMBER * (d + 1)
        fragments = round(n * share * NUMBER * d) + n * (mask + NUMBER)
        return (
            self._cost("hessian", n * sent, n * model, sent, hessian),
            self._cost("gradient", fragments, n * (model + mask), NUMBER * (d + 1)),
            self._cost("loss", n * NUMBER, n * model, NUMBER),
        )

    def _cost(self, kind: str, up: int, down: int, message: int, total: int | None = None) -> Cost:
        """`total`: bytes of a sum of messages, where these are not as long as each."""
        network, model = self.network, NUMBER * self.features

        def step(each: int) -> float:
            return 2 * network.latency + min(self.fan_in, self.workers) * (each + model) / network.bandwidth

        flat = 2 * network.latency + (up + down) / network.bandwidth
        above = (self.levels - 1) * step(message if total is None else total)
        return Cost(kind, up, down, flat, step(message) + above)

    @property
    def server_bytes(self) -> int:
        """Memory of the state: the curvature and its factors, and the newest fragment of every worker."""
        return NUMBER * (3 * self.features**2 + self.workers * self.features)

    @property
    def tree_bytes(self) -> int:
        """The same where aggregators keep the fragments of those below them."""
        return NUMBER * (3 * self.features**2 + min(self.fan_in, self.workers) * self.features)
