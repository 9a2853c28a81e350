"""The commands, put together: all of them for the help, else only the one that is asked for."""

from __future__ import annotations

from importlib import import_module

import typer

COMMANDS = ("fit", "predict", "cohort", "compare", "certify", "report", "reproduce", "plan", "datasets", "flower")
"""In the order of the help; each is a file of this folder, with a command of that name, or several, in it."""


def application(command: str = "") -> typer.Typer:
    """The command line, with this command alone if there is one of that name: the others need not be made."""
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
    for name in (command,) if command in COMMANDS else COMMANDS:
        made = getattr(import_module(f"danl.cli.{name}"), name)
        if isinstance(made, typer.Typer):
            app.add_typer(made, name=name)
        else:
            app.command()(made)
    app.callback()(_root)
    return app


def _root(version: bool = typer.Option(False, "--version", "-V", help="Show the version and exit.")) -> None:
    """Newton-type learning across machines that differ in data, speed and memory."""
