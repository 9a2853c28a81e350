"""`danl certify`: a run, and what Theorem 1 has to say about it."""

from __future__ import annotations

import json
from typing import Annotated

from rich.table import Column, Table
from rich.text import Text

from danl.cli.display import console, plain_table, right
from danl.cli.options import RUN, Json, RunOptions, option, shares_options
from danl.theory import Certificate
from danl.theory import certify as certify_run


@shares_options
def certify(
    options: RunOptions,
    method: Annotated[str, option(RUN, "Of Algorithm 1: danl-paper, danl-masked or newton-zero.")] = "danl-paper",
    as_json: Json = False,
) -> int:
    """Check Theorem 1 on a problem: its constants, its conditions, and the measured distances against 2^-t.

    Example: danl certify a1a --policy coverage:psi=3,gamma=2 --alpha 1e-2
    """
    screen = console()
    job = options.job(method)
    reference = options.reference(job, screen)
    result = options.solve(job, method, screen, reference=reference)
    if result.status == "interrupted":  # half a run would be certified for what it did not do
        raise KeyboardInterrupt
    certificate = certify_run(job.problem, result, reference=reference)
    if as_json:
        print(json.dumps({"data": job.data.name, "status": result.status} | certificate.to_dict(), allow_nan=False))
    screen.print(f"{job.title}, {result.method}: {result.status}", style="bold")
    screen.print(constants_table(certificate))
    screen.print(conditions_table(certificate))
    screen.print(certificate.verdict)
    return 0


MEANINGS = {
    "mu": "strong convexity (Assumption 1)",
    "iota_g": "Lipschitz constant of the gradients (2)",
    "iota_h": "Lipschitz constant of the Hessians (2)",
    "L": "bound of the gradients on the run's ball (2)",
    "Lambda": "deviation of a sampled gradient (3 i)",
    "kappa": "deviation of a sampled Hessian (3 ii)",
    "delta": "largest pruning error |w - w_i| (4)",
    "psi": "psi*: fewest workers on a trained region",
    "gamma": "longest run of untrained rounds",
    "a": "iota_h^2 / 2",
    "b": "mu^2 / 16 - kappa^2",
    "c": "noise, pruning and staleness together",
    "rho": "b^2 - 4 a c",
    "low": "(b - sqrt(rho)) / (2 a)",
    "high": "(b + sqrt(rho)) / (2 a)",
    "initial_distance": "|w0 - w*|",
}


def constants_table(certificate: Certificate) -> Table:
    table = plain_table(Column("constant", no_wrap=True), right("value"), Column("what it is", style="dim"))
    for name, meaning in MEANINGS.items():
        table.add_row(name, f"{getattr(certificate.constants, name):.4g}", meaning)
    return table


def conditions_table(certificate: Certificate) -> Table:
    table = plain_table("condition", "statement", "here", "holds")
    for condition in certificate.conditions:
        verdict = Text("yes", style="green") if condition.holds else Text("no", style="bold red")
        table.add_row(condition.name, condition.statement, condition.numbers, verdict)
    return table
