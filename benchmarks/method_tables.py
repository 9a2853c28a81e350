"""Two tables of docs/method.md: curvature from the gradients, and Algorithm 1 under the masks of the paper's figures.

secant    exchanges until the gradient norm is at most 1e-10, and how many of them had Hessians, from zero
masking   gaps after 100 rounds from the FedAvg start at alpha 1e-3, for three seeds, which also set the shards
"""

from __future__ import annotations

import argparse
import re
import warnings

import danl
from benchmarks.blocks import BLOCKS, made_with, markdown_table
from benchmarks.convergence import available
from danl.wording import gap_text

SECANT_DATA = ("a1a", "phishing")
SECANT_METHODS = ("danl", "danl:pairs=0", "newton")
SECANT_POLICIES = ("full", "coverage:psi=3")
PENALTIES = {"alpha 1e-3": {"alpha": 1e-3}, "lambda 1e-4": {"l2": 1e-4}}
READINGS = ("danl-paper", "danl-masked")
SEEDS = (0, 1, 2)
POLICIES = (
    "full",
    "coverage:psi=1",
    "coverage:psi=2",
    "coverage:psi=3",
    "coverage:psi=5",
    "coverage:psi=1,gamma=4",
    "coverage:psi=1,gamma=4,waits=longest",
    "coverage:psi=1,gamma=2",
    "coverage:psi=1,gamma=2,waits=longest",
    "coverage:psi=2,gamma=4",
    "coverage:psi=2,gamma=4,waits=longest",
    "coverage:psi=2,gamma=2",
    "coverage:psi=2,gamma=2,waits=longest",
    "subset:S=1",
    "subset:S=1,order=random",
)


def secant_headers() -> list[list[str]]:
    *methods, newton = SECANT_METHODS
    return [["data", "penalty", "masks", *(f"`{name}`" for name in methods), f"`{newton}`, which has no masks"]]


def masking_headers() -> list[list[str]]:
    return [["policy", *(f"`{reading}`" for reading in READINGS)]]


def secant(names: list[str]) -> str:
    lines = []
    for name in names:
        data = danl.load_dataset(name)
        shards = danl.partition(data.X, data.y, workers=10, seed=0)
        for penalty, given in PENALTIES.items():
            problem = danl.Problem(shards, **given)
            for policy in SECANT_POLICIES:
                cells = [_counted(problem, method, policy) for method in SECANT_METHODS]
                lines.append([name, penalty, policy if policy == "full" else f"`{policy}`", *cells])
    return markdown_table(secant_headers()[0], lines, left=3)


def _counted(problem: danl.Problem, method: str, policy: str) -> str:
    if method == "newton" and policy != "full":
        return ""
    run = danl.solve(problem, method=method, policy=policy, tol=1e-10).summary()
    counts = f"{run['exchanges']}, {run['hessian_exchanges']}"
    return counts if run["status"] == "converged" else f"{counts}, {run['status']}"


def masking() -> str:
    data = danl.load_dataset("a1a")
    problems = [danl.Problem(danl.partition(data.X, data.y, workers=10, seed=seed), alpha=1e-3) for seed in SEEDS]
    references = [danl.reference_optimum(problem) for problem in problems]
    lines = []
    for policy in POLICIES:
        line = [f"`{policy}`"]
        for reading in READINGS:
            ends = []
            for seed, problem, reference in zip(SEEDS, problems, references, strict=True):
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", danl.DanlWarning)  # a run that ends badly says so in its status
                    run = danl.solve(
                        problem, method=reading, policy=policy, w0="fedavg:rounds=10", seed=seed, reference=reference
                    )
                ends.append((run.history[-1].gap, run.status))
            line.append(ended(ends))
        lines.append(line)
    return markdown_table(masking_headers()[0], lines, left=3)


def ended(ends: list[tuple[float, str]]) -> str:
    """The gaps of the seeds, said once where all are the same, and how the runs ended if not by their rounds."""
    gaps = [re.sub(r"e([+-])0", r"e\1", gap_text(gap, ".0e")) for gap, _ in ends]
    reported = gaps[0] if len(set(gaps)) == 1 else ", ".join(gaps)
    statuses = [status for _, status in ends if status != "max_rounds"]
    counts = [f"{status} {statuses.count(status)} of {len(ends)}" for status in dict.fromkeys(statuses)]
    same = len(statuses) == len(ends) and len(counts) == 1
    return "; ".join([reported, *([statuses[0]] if same else counts)])


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks method", description=__doc__.split("\n")[0])
    parser.add_argument("--docs", action="store_true", help="put the tables into docs/method.md")
    options = parser.parse_args(words)
    there = available(SECANT_DATA)
    missing = ", ".join(name for name in SECANT_DATA if name not in there)
    if missing and options.docs:
        parser.error(f"not here: {missing}; DANL_DATA_DIR names the folder with the LIBSVM files")
    for name, made in (("secant", secant(there)), ("masking", masking())):
        report = f"{made}\n\n{made_with()}"
        print(report, end="\n\n")
        if options.docs:
            BLOCKS[name].write(report)
    return 0
