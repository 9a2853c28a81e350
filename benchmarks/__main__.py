"""`python -m benchmarks NAME`: one measurement, or `all` of docs/benchmarks.md, printed as the documents show it."""

from __future__ import annotations

import argparse
import importlib
import os
import sys

from benchmarks import THREADS

PARTS = (
    "speed",
    "shapes",
    "limited_memory",
    "rounds",
    "growth",
    "threads",
    "memory",
    "network",
    "bits",
    "ending",
    "start",
)
"""Those of docs/benchmarks.md, which `all` runs one after the other."""
OTHERS = {
    "all": "document",
    "readme": "readme_table",
    "convergence": "convergence",
    "reproduction": "reproduction",
    "ray": "ray_latency",
    "flower": "flower",
    "structured": "structured",
    "compressed": "compressed",
    "method": "method_tables",
    "fleets": "fleets",
    "senders": "senders",
    "certify": "certificates",
    "field": "field",
    "fednl": "fednl_numbers",
    "walk": "walk",
    "tree": "tree",
    "recorded": "recorded",
    "versions": "versions",
}
"""Other names, and their modules."""


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measurements that stand in the documents.",
        epilog=f"all: docs/benchmarks.md, which is {', '.join(PARTS[:-1])} and {PARTS[-1]}. readme: the table of "
        "README.md. convergence: the tables of docs/method.md. reproduction: figures and verdicts of "
        "docs/reproduction.md. ray: what the Ray engine adds to bare Ray. flower: seconds of an exchange "
        "through Flower (docs/federated.md). structured, compressed, "
        "method: other tables of docs/method.md. fleets: the tables of docs/heterogeneous.md, senders: those of who "
        "sends curvature in docs/method.md; status 1 if a bar is missed. certify: that of docs/theory.md, 48 runs; "
        "status 1 if one violates a theorem. field: docs/field.md, the methods of the field side by side; "
        "fednl: FedNL's numbers there. "
        "tree: the figure of docs/architecture.md. "
        "walk: what one round calls, file by file. recorded: runs of two versions compared. versions: their seconds. "
        "--docs writes into the "
        "documents; `python -m benchmarks NAME --help` lists the options of one.",
    )
    parser.add_argument("name", choices=(*OTHERS, *PARTS), metavar="NAME", help=", ".join((*OTHERS, *PARTS)))
    name = parser.parse_args(words[:1]).name
    if name in OTHERS:
        return int(importlib.import_module(f"benchmarks.{OTHERS[name]}").main(words[1:]))
    os.environ.update(THREADS)  # before numpy is imported
    return int(importlib.import_module("benchmarks.parts").main(name, words[1:]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
