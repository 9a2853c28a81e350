"""`danl certify`: a run, and what Theorem 1, or the theorem of the default method, has to say about it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

from rich.table import Column, Table
from rich.text import Text

from danl.cli.display import console, plain_table, right
from danl.cli.imports import quick_imports
from danl.cli.options import RUN, Json, RunOptions, option, shares_options

if TYPE_CHECKING:
    from danl.theory import Certificate, Condition, Descent


@shares_options
def certify(
    options: RunOptions,
    method: Annotated[str, option(RUN, "Algorithm 1 (danl-paper, danl-masked, newton-zero), or danl.")] = "danl-paper",
    as_json: Json = False,
) -> int:
    """Check a theorem on a run: its constants, its conditions, and what was measured against its bound.

    Theorem 1, printed and corrected, for methods that are Algorithm 1; for danl and danl-secant their own.

    Example: danl certify a1a --policy coverage:psi=3,gamma=2 --alpha 1e-2
    """
    with quick_imports():  # here: --help should not wait for it
        from danl.theory import certify as certify_run

    screen = console()
    job = options.job(method)
    reference = job.reference(screen)
    result = job.solve(method, screen, reference=reference)
    if result.status == "interrupted":  # half a run would be certified for what it did not do
        raise KeyboardInterrupt
    certificate = certify_run(job.problem, result, reference=reference)
    if as_json:
        print(json.dumps({"data": job.data.name, "status": result.status} | certificate.to_dict(), allow_nan=False))
    screen.print(f"{job.title}, {result.method}: {result.status}", style="bold")
    if certificate.descent.applies:
        screen.print(descent_table(certificate.descent))
    else:
        screen.print(constants_table(certificate))
        screen.print(conditions_table((*certificate.corrected.conditions, *certificate.conditions)))
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
CORRECTED = {
    "longest_step": "s: measured, or sqrt(n) (L + Lambda) / mu",
    "error": "bound of |grad F^t - grad f(w_t)|",
    "squared_radius": "radius^2 = 8 error^2 / mu^2",
}


def constants_table(certificate: Certificate) -> Table:
    table = plain_table(Column("constant", no_wrap=True), right("value"), Column("what it is", style="dim"))
    for name, meaning in MEANINGS.items():
        table.add_row(name, f"{getattr(certificate.constants, name):.4g}", meaning)
    for name, meaning in CORRECTED.items():
        table.add_row(name, f"{getattr(certificate.corrected, name):.4g}", meaning)
    return table


def conditions_table(conditions: Iterable[Condition]) -> Table:
    table = plain_table("condition", "statement", "here", "holds")
    for condition in conditions:
        verdict = Text("yes", style="green") if condition.holds else Text("no", style="bold red")
        table.add_row(condition.name, condition.statement, condition.numbers, verdict)
    return table


OF_THE_DEFAULT = {
    "mu": "strong convexity",
    "smoothness": "iota_g: Lipschitz constant of the gradients",
    "curvature": "M: largest |g|^2 / g^T B^-1 g of the exact steps",
    "length": "eta: what no exact step was shorter than",
    "rate": "q: 2 c1 mu eta / M, c1 = 1e-4",
    "longest_wait": "K: an exact step in any so many exchanges",
    "least_curvature": "m before the run",
    "largest_curvature": "M before the run",
    "least_rate": "q before the run",
}


def descent_table(descent: Descent) -> Table:
    table = plain_table(Column("constant", no_wrap=True), right("value"), Column("what it is", style="dim"))
    for name, meaning in OF_THE_DEFAULT.items():
        table.add_row(name, f"{getattr(descent, name):.4g}", meaning)
    return table
