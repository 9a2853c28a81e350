"""Hessians compressed on their way: exchanges and bytes to gap 1e-8 by compressor, as the table in docs/method.md.

10 workers, 4 regions, full masks, from zero. Beside whole Hessians in float64 and float32, and a sketch, which is a
part of the Hessian as well.
"""

from __future__ import annotations

import argparse
import sys

import danl
from benchmarks.blocks import BLOCKS, made_with, markdown_table
from benchmarks.structured import ALPHAS, certain, reached, short

DATA = ("a1a", "phishing", "w8a")
METHODS = {
    "whole": "danl:curvature=full",
    "float32": "danl:curvature=full,hessian_dtype=float32",
    "`lowrank:10`": "danl:curvature=lowrank:10",
    "`rankr:1`": "danl:hessian_compressor=rankr:1",
    "`rankr:5`": "danl:hessian_compressor=rankr:5",
    "`topk:d`": "danl:hessian_compressor=topk:{d}",
    "`topk:5d`": "danl:hessian_compressor=topk:{five}",
    "`natural`": "danl:hessian_compressor=natural",
}


def headers() -> list[list[str]]:
    return [["data", "alpha", *METHODS]]


def compressed(names: tuple[str, ...]) -> str:
    lines = []
    for name in names:
        data = danl.load_dataset(name)
        shards = danl.partition(data.X, data.y, workers=10, seed=0)
        for alpha in ALPHAS:
            problem = danl.Problem(shards, alpha=alpha)
            reference, d, row = certain(problem), problem.n_coefficients, []
            for method in METHODS.values():
                count, hessians, megabytes, _ = reached(problem, reference, method.format(d=d, five=5 * d), regions=4)
                row.append(f"{count} / {hessians} / {megabytes}" if hessians else count)
            lines.append([f"{name}, d = {d}", short(alpha), *row])
            print(*lines[-1], sep=", ", file=sys.stderr)
    return markdown_table(headers()[0], lines, left=2)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks compressed", description=__doc__.splitlines()[0])
    parser.add_argument("--data", default=",".join(DATA), help="data sets, separated by commas")
    parser.add_argument("--docs", action="store_true", help="put the table into docs/method.md")
    chosen = parser.parse_args(arguments)
    report = f"{compressed(tuple(chosen.data.split(',')))}\n\n{made_with()}"
    print(report)
    if chosen.docs:
        BLOCKS["compressed"].write(report)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
