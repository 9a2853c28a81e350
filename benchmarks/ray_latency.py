"""What danl's Ray engine adds to Ray: a round of 10 workers and 123 coefficients against bare actors, in one run.

    bare    the model put into the object store, ten actors called with its reference, arrays of the same sizes back
    danl    `exchange` of the engine: bytes of the wire both ways, validated; a Hessian round adds up in
            the tree and ends with the sum at the driver, where the bare one ends with ten Hessians there

Once for the transport alone: danl's workers have 4 rows each and the bare actors return what they have. Once with the
mathematics of a1a on both sides. Rounds of both sides alternate, so that other load on the machine meets both; the
median of each is printed, and the ratio. The bar is for the transport.

Ray listens on every address: without --here the script runs itself again in a network namespace with loopback alone.
"""

from __future__ import annotations

import argparse
import os
import shutil
import socket
import statistics
import subprocess
import sys
import time

import numpy as np

import danl
from danl.engines import Ray
from danl.objective.regions import Regions
from danl.protocol.messages import Exchange, GradientTask, HessianTask, pack, packed_size
from danl.protocol.replies import ReplyRules

WORKERS = 10
BAR = 1.3


class Bare:
    """An actor as one would write it by hand: it takes a model and returns arrays."""

    def __init__(self, d, objective):
        self.objective = objective
        self.vector, self.packed = np.ones(d), np.ones(packed_size(d))

    def gradient(self, w):
        return (self.vector + w[0], 1.0) if self.objective is None else self.objective.value_and_gradient(w)

    def hessian(self, w):
        if self.objective is None:
            return self.vector + w[0], self.packed + w[0], 1.0
        loss, gradient = self.objective.value_and_gradient(w)
        return gradient, pack(self.objective.hessian(w)), loss


def problems():
    """For the transport alone, and with a1a's rows."""
    data = danl.load_dataset("a1a")
    d = data.X.shape[1]
    X = np.random.default_rng(0).normal(size=(4 * WORKERS, d))
    y = (X[:, 0] > 0).astype(float)
    yield "transport", danl.Problem(danl.partition(X, y, workers=WORKERS, seed=0), alpha=1e-3)
    yield "a1a", danl.Problem(danl.partition(data.X, data.y, workers=WORKERS, seed=0), alpha=1e-3)


def measure(problem: danl.Problem, computes: bool, rounds: int) -> dict[str, dict[str, list[float]]]:
    """Seconds of every round by kind and side."""
    d = problem.n_features
    regions = Regions.make(4, d)
    engine = Ray()
    import ray  # after the engine has set what Ray reads when it is imported

    engine.open(problem, regions=regions, policy=None, seed=0)
    rules = ReplyRules(regions, problem.penalties, problem.layout.penalised, overflows=False)
    actor = ray.remote(Bare).options(num_cpus=0)
    bare = [actor.remote(d, local if computes else None) for local in problem.local_objectives]
    w = np.zeros(d)
    number = 0

    def bare_round(method):
        model = ray.put(w)
        ray.get([getattr(actor, method).remote(model) for actor in bare])

    def danl_round(kind):
        nonlocal number
        number += 1
        exchange = Exchange("round", kind(number, w), np.arange(WORKERS))
        replies = rules.validate_replies(exchange, engine.exchange(exchange), problem.weights)
        assert len(replies.workers) == WORKERS, replies.failures

    sides = {
        "gradient": {"bare": lambda: bare_round("gradient"), "danl": lambda: danl_round(GradientTask)},
        "Hessian": {"bare": lambda: bare_round("hessian"), "danl": lambda: danl_round(HessianTask)},
    }
    seconds: dict[str, dict[str, list[float]]] = {kind: {"bare": [], "danl": []} for kind in sides}
    try:
        for kind, both in sides.items():
            for count in range(-rounds // 5, rounds):  # those below 0 warm up
                for side, play in both.items():
                    start = time.perf_counter()
                    play()
                    if count >= 0:
                        seconds[kind][side].append(time.perf_counter() - start)
    finally:
        engine.close()
    return seconds


def lines(name: str, seconds: dict[str, dict[str, list[float]]]) -> tuple[list[str], float]:
    """The rows of the table, and the largest ratio in them."""
    rows, worst = [], 0.0
    for kind, both in seconds.items():
        bare, ours = (1e3 * statistics.median(both[side]) for side in ("bare", "danl"))
        worst = max(worst, ours / bare)
        rows.append(f"| {name}, {kind} | {bare:.1f} ms | {ours:.1f} ms | {ours / bare:.2f} |")
    return rows, worst


def in_namespace(module: str, argv: list[str]) -> int:
    """Run a script again where there is nothing but loopback."""
    if not shutil.which("unshare") or not shutil.which("ip"):
        print(f"{module}: needs unshare and ip for a network of its own; --here runs it without", file=sys.stderr)
        return 2
    flags = ["-n"] if os.geteuid() == 0 else ["-r", "-n"]
    flags += ["--pid", "--fork", "--kill-child", "--mount-proc"]  # whatever Ray started ends with it
    inside = [sys.executable, "-m", module, "--here", *argv]
    return subprocess.run(["unshare", *flags, "sh", "-c", 'ip link set lo up && exec "$@"', "sh", *inside]).returncode


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks ray", description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=200, help="rounds of each kind that are timed (default 200)")
    parser.add_argument("--here", action="store_true", help="start Ray in the network of this machine")
    argv = sys.argv[1:] if argv is None else argv
    arguments = parser.parse_args(argv)
    if not arguments.here and [name for _, name in socket.if_nameindex()] != ["lo"]:
        return in_namespace("benchmarks.ray_latency", argv)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    print("| round | bare Ray | danl | ratio |\n| --- | ---: | ---: | ---: |", flush=True)
    ratios = {}
    for name, problem in problems():
        rows, ratios[name] = lines(name, measure(problem, name != "transport", arguments.rounds))
        print("\n".join(rows), flush=True)
    held = ratios["transport"] <= BAR
    print(f"transport: at most {ratios['transport']:.2f} x bare Ray; the bar, {BAR} x, {'holds' if held else 'breaks'}")
    return int(not held)


if __name__ == "__main__":
    sys.exit(main())
