"""The commands, put together."""

from __future__ import annotations

import typer

from danl.cli.certify import certify
from danl.cli.compare import compare
from danl.cli.datasets import datasets
from danl.cli.fit import fit
from danl.cli.flower import flower
from danl.cli.plan import plan
from danl.cli.report import report
from danl.cli.reproduce import reproduce

app = typer.Typer(
    name="danl",
    help="Newton-type learning across machines that differ in data, speed and memory.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit status: 0 converged, ran its rounds or was stopped, 2 wrong input, 3 diverged or lost its quorum, "
    "130 interrupted. Methods, policies, losses and engines of your own have names, too: docs/extending.md.",
)
for command in (fit, compare, certify, report, reproduce, plan):
    app.command()(command)
app.add_typer(datasets, name="datasets")
app.add_typer(flower, name="flower")


@app.callback()
def _root(version: bool = typer.Option(False, "--version", "-V", help="Show the version and exit.")) -> None:
    """Newton-type learning across machines that differ in data, speed and memory."""
