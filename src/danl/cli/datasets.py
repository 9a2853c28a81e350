"""`danl datasets`: what can be had by name, and where it is."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.table import Column

from danl.cli.display import plain_table, right

datasets = typer.Typer(
    help="Registered data sets: list them, fetch them, show where they are kept.", no_args_is_help=True
)


@datasets.command("list")
def list_() -> int:
    """List the registered data sets and where each would be read from."""
    from danl.data.fetch import status  # here and below: --help should not wait for it
    from danl.data.registry import REGISTRY

    name, where = Column("name", no_wrap=True), Column("where", no_wrap=True)
    table = plain_table(name, right("rows"), right("features"), "checksum", where)
    for entry in REGISTRY.values():
        known = "known" if entry.sha256 else "-"
        table.add_row(entry.name, f"{entry.rows:,}", f"{entry.features:,}", known, status(entry))
    Console(highlight=False).print(table)
    return 0


@datasets.command()
def fetch(names: Annotated[list[str], typer.Argument(help="Names from danl datasets list.")]) -> int:
    """Download data sets into the cache, unless they are there."""
    from danl.data import fetch as fetching
    from danl.data.registry import lookup

    for name in names:
        lookup(name)  # refuse a wrong name before the first download
    for name in names:
        print(f"{name}: {fetching.fetch(name)}")
    return 0


@datasets.command()
def path() -> int:
    """Print the folder downloads are kept in."""
    from danl.data.fetch import cache_dir

    print(cache_dir())
    return 0
