"""48 runs of `danl.certify` on a1a: is the corrected Theorem 1 violated where its conditions hold, or the default's?

Ten workers, four regions. Half of the runs are of logistic regression on even shards from w = 0, half of squared error
on skewed shards from a start at distance 1 of the optimum. Algorithm 1 has partial masks, or samples of the rows
(newton-zero), so that its gradients are never exact; the default has partial or full masks, samples, absences.
"""

from __future__ import annotations

import argparse
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cache

import numpy as np

import danl
from benchmarks.blocks import BLOCKS, made_with, markdown_table

MASKS = "coverage:psi=3,gamma=2"
SETTINGS = {"logistic": ("iid", 0), "squared": ("sorted:shuffle=0.2", 1)}
"""By loss: how rows are divided, and the seed."""
ALGORITHM_1 = {"danl-paper": MASKS, "danl-masked": MASKS, "newton-zero:batch_size=120,hessian_batch=120": "full"}
LARGE, SMALL = (1e-3, 1e2, 1e3, 1e6), (1e-5, 1e-3, 1e2)
"""Penalties: the conditions of Theorem 1 ask for large ones."""
DEFAULTS = (
    ("danl", "full", "local"),
    ("danl", MASKS, "local:dropout=0.1"),
    ("danl-secant", MASKS, "local"),
    ("danl:batch_size=20", MASKS, "local"),
)
"""Method, masks and engine."""
ROUNDS = 100
HEADER = ["runs of", "runs", "theorem applies", "with inexact gradients", "violated", "printed applies", "violated"]


@dataclass(frozen=True)
class Run:
    """What is solved and how."""

    loss: str
    alpha: float
    method: str
    policy: str
    engine: str = "local"

    @property
    def line(self) -> str:
        """What it is counted under."""
        masks, absences = "full" if self.policy == "full" else "partial", "dropout" in self.engine
        return f"`{self.method}`, {masks} masks{', absences' if absences else ''}"


@dataclass(frozen=True)
class Verdict:
    """What the certificate of a run says."""

    applies: bool
    """The corrected Theorem 1, or the default's theorem."""
    inexact: bool
    """Whether the bound allows for gradients that are not exact: c > 0."""
    violated: bool
    printed_applies: bool
    printed_violated: bool
    """Whether Theorem 1 as printed applies and the run breaks it."""

    @classmethod
    def of(cls, certificate: danl.Certificate) -> Verdict:
        corrected, descent = certificate.corrected, certificate.descent
        printed = certificate.applies and certificate.first_violation is not None
        return cls(
            applies=corrected.applies or descent.applies,
            inexact=corrected.applies and corrected.error > 0,
            violated=certificate.violated,
            printed_applies=certificate.applies,
            printed_violated=printed,
        )


def runs() -> Iterator[Run]:
    """All 48."""
    for loss in SETTINGS:
        for method, policy in ALGORITHM_1.items():
            yield from (Run(loss, alpha, method, policy) for alpha in LARGE)
        for default in DEFAULTS:
            yield from (Run(loss, alpha, *default) for alpha in SMALL)


@cache
def prepared(loss: str, alpha: float) -> tuple[danl.Problem, danl.Reference]:
    scheme, seed = SETTINGS[loss]
    data = danl.load_dataset("a1a")
    shards = danl.partition(data.X, data.y, workers=10, scheme=scheme, seed=seed)
    problem = danl.Problem(shards, loss=loss, alpha=alpha)
    return problem, danl.reference_optimum(problem)


def certified(run: Run) -> danl.Certificate:
    """Make a run and certify it."""
    problem, reference = prepared(run.loss, run.alpha)
    w0, seed = np.zeros(problem.n_coefficients), SETTINGS[run.loss][1]
    if run.loss == "squared":
        away = np.random.default_rng(seed).standard_normal(problem.n_coefficients)
        w0 = reference.w + away / np.linalg.norm(away)
    result = danl.solve(
        problem,
        method=run.method,
        policy=run.policy,
        engine=run.engine,
        w0=w0,
        seed=seed,
        max_rounds=ROUNDS,
        reference=reference,
    )
    return danl.certify(problem, result, reference=reference)


def headers() -> list[list[str]]:
    return [HEADER]


def table(verdicts: dict[Run, Verdict]) -> str:
    """The verdicts counted, a line for every kind of run."""
    lines = []
    for line in dict.fromkeys(run.line for run in verdicts):
        own = [verdict for run, verdict in verdicts.items() if run.line == line]
        tally = Counter(field.name for verdict in own for field in fields(verdict) if getattr(verdict, field.name))
        lines.append([line, str(len(own)), *(str(tally[field.name]) for field in fields(Verdict))])
    total = [str(sum(int(cells[column]) for cells in lines)) for column in range(1, len(HEADER))]
    return markdown_table(HEADER, [*lines, ["all", *total]])


def report(verdicts: dict[Run, Verdict]) -> str:
    violated = sum(verdict.violated for verdict in verdicts.values())
    return f"{len(verdicts)} runs, {violated} of them violate a theorem that applies.\n\n{table(verdicts)}"


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks certify", description=__doc__.split("\n")[0])
    parser.add_argument("--docs", action="store_true", help="put the table into docs/theory.md")
    options = parser.parse_args(words)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", danl.DanlWarning)
        verdicts = {run: Verdict.of(certified(run)) for run in runs()}
    text = f"{report(verdicts)}\n\n{made_with()}"
    print(text)
    for run in (run for run, verdict in verdicts.items() if verdict.violated):
        print(f"violated: {run}")
    if options.docs:
        BLOCKS["certify"].write(text)
    return int(any(verdict.violated for verdict in verdicts.values()))
