"""`python -m benchmarks`: every measurement there is, or the one that is named, printed as the documents show it."""

from __future__ import annotations

import argparse
import sys

from benchmarks import convergence, ray_latency, readme_table, reproduction, structured

BENCHMARKS = {
    "readme": readme_table.main,
    "convergence": convergence.main,
    "reproduction": reproduction.main,
    "ray": ray_latency.main,
    "structured": structured.main,
}


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measurements that stand in the documents. Without a name: all of them, one after the other.",
        epilog="readme: the table of README.md. convergence: the tables of docs/method.md. "
        "reproduction: figures and verdicts of docs/reproduction.md. ray: what the Ray engine adds to bare Ray. "
        "structured: curvature for many coefficients, in docs/method.md. "
        "`python -m benchmarks NAME --help` lists the options of one.",
    )
    parser.add_argument("name", nargs="?", choices=BENCHMARKS, help="which one; default: all")
    arguments, rest = parser.parse_known_args(sys.argv[1:2])
    if arguments.name is not None:
        return BENCHMARKS[arguments.name](sys.argv[2:])
    if rest:
        parser.error(f"unknown option {rest[0]}; name a benchmark first")
    return max(run([]) for run in BENCHMARKS.values())


if __name__ == "__main__":
    sys.exit(main())
