"""Curvature for many coefficients: exchanges and bytes to gap 1e-8 for every structure, as the table in docs/method.md.

Two tables. The LIBSVM data sets, where the whole Hessian is there to compare with: 10 workers, 4 regions, full masks
and 3 workers a region. And a made problem of 5,000 coefficients, with limited-memory BFGS and without (`pairs=0`).
"""

from __future__ import annotations

import argparse
import sys
import time

import numpy as np
from scipy import sparse
from scipy.special import expit

import danl
from benchmarks.blocks import BLOCKS, made_with, markdown_table
from danl.run.result import Reference

GAP = 1e-8
DATA = ("a1a", "a2a", "a3a", "phishing", "a9a", "w8a")
ALPHAS = (1e-3, 1e-4)
CURVATURES = ("full", "block", "lowrank:10", "lowrank:50", "diag")
POLICIES = ("full", "coverage:psi=3")
MAX_ROUNDS = 600


def sparse_logistic(rows: int = 50_000, features: int = 5_000, entries: int = 50, seed: int = 0):
    """Rows of norm 1 with so many equal entries, in columns that are as frequent as words are; noisy labels."""
    rng = np.random.default_rng(seed)
    frequency = 1.0 / np.arange(1, features + 1)
    drawn = rng.choice(features, size=(rows, 3 * entries), p=frequency / frequency.sum())
    order = np.argsort(drawn, axis=1, kind="stable")
    in_order = np.take_along_axis(drawn, order, axis=1)
    again = np.zeros_like(drawn, dtype=bool)
    np.put_along_axis(again, order[:, 1:], in_order[:, 1:] == in_order[:, :-1], axis=1)
    kept = ~again & (np.cumsum(~again, axis=1) <= entries)  # the first so many that are different
    row = np.nonzero(kept)[0]
    X = sparse.csr_matrix((np.full(row.size, entries**-0.5), (row, drawn[kept])), shape=(rows, features))
    w = rng.normal(size=features) * (rng.random(features) < 0.2)
    z = X @ w
    y = (rng.random(rows) < expit(2.0 * z / z.std())).astype(float)
    return X, y


def certain(problem: danl.Problem, method: str = "newton") -> Reference:
    """The optimum by a method, as sure as its gradient and the penalty make it: gap <= |grad|^2 / (2 alpha)."""
    result = danl.solve(problem, method=method, regions=1, tol=1e-11, max_rounds=1000)
    objective, gradient = problem.value_and_gradient(result.w)
    norm = float(np.linalg.norm(gradient))
    assert norm**2 / (2 * problem.strong_convexity) < 1e-13, norm
    return Reference(result.w, objective, norm, len(result.history))


def reached(problem: danl.Problem, reference: Reference, method: str, **arguments) -> tuple[str, str, str, float]:
    """Exchanges, Hessian exchanges and bytes to the gap, and seconds of the whole run."""
    begun = time.perf_counter()
    result = danl.solve(problem, method=method, reference=reference, max_rounds=MAX_ROUNDS, tol=1e-10, **arguments)
    seconds = time.perf_counter() - begun
    there = np.flatnonzero(result.history.column("gap") < GAP)
    if not there.size:
        return f"over {MAX_ROUNDS}", "", "", seconds
    count = int(there[0]) + 1
    hessians = int((result.history.column("kind")[:count] == "hessian").sum())
    return str(count), str(hessians), f"{result.history.total_bytes()[count - 1] / 1e6:.2f}", seconds


def headers() -> list[list[str]]:
    return [["data", "alpha", "masks", *(f"`{curvature}`" for curvature in CURVATURES)]]


def many_headers() -> list[list[str]]:
    return [["alpha", "curvature", "exchanges / Hessians / MB", "without pairs"]]


def short(alpha: float) -> str:
    return f"{alpha:.0e}".replace("e-0", "e-")


def on_data(names: tuple[str, ...]) -> str:
    lines = []
    for name in names:
        data = danl.load_dataset(name)
        shards = danl.partition(data.X, data.y, workers=10, seed=0)
        for alpha in ALPHAS:
            problem = danl.Problem(shards, alpha=alpha)
            reference = certain(problem)
            for policy in POLICIES:
                row = []
                for curvature in CURVATURES:
                    method = f"danl:curvature={curvature}"
                    count, hessians, megabytes, _ = reached(problem, reference, method, policy=policy, regions=4)
                    row.append(f"{count} / {hessians} / {megabytes}" if hessians else count)
                masks = "full" if policy == "full" else "psi=3"
                label = f"{name}, d = {problem.n_coefficients}"
                lines.append([label, short(alpha), masks, *row])
                print(*lines[-1], sep=", ", file=sys.stderr)
    return markdown_table(headers()[0], lines, left=3)


def on_many(alphas: tuple[float, ...]) -> str:
    X, y = sparse_logistic()
    shards = danl.partition(X, y, workers=10, seed=0)
    lines = []
    for alpha in alphas:
        problem = danl.Problem(shards, alpha=alpha)
        reference = certain(problem, "danl:curvature=lowrank:50")
        for curvature, regions in (("lowrank:50", 4), ("lowrank:10", 4), ("block", 50), ("diag", 4)):
            row = []
            for pairs in (20, 0):
                method = f"danl:curvature={curvature},pairs={pairs}"
                count, hessians, megabytes, _ = reached(problem, reference, method, regions=regions)
                row.append(f"{count} / {hessians} / {megabytes}" if hessians else count)
            label = f"`{curvature}`" + (f", {regions} regions" if curvature == "block" else "")
            lines.append([short(alpha), label, *row])
            print(*lines[-1], sep=", ", file=sys.stderr)
    return markdown_table(many_headers()[0], lines, left=2)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks structured", description=__doc__.splitlines()[0])
    parser.add_argument("--data", default=",".join(DATA), help="data sets, separated by commas; none: leave them out")
    parser.add_argument("--alphas", default="1e-3,1e-4,1e-5", help="penalties of the made problem")
    parser.add_argument("--docs", action="store_true", help="put the tables into docs/method.md")
    chosen = parser.parse_args(arguments)
    names = tuple(name for name in chosen.data.split(",") if name != "none")
    made = {"structured": on_data(names)} if names else {}
    made["structured-many"] = on_many(tuple(float(alpha) for alpha in chosen.alphas.split(",")))
    for name, table in made.items():
        report = f"{table}\n\n{made_with()}"
        print(report, end="\n\n")
        if chosen.docs:
            BLOCKS[name].write(report)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
