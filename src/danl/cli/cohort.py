"""`danl cohort`: a table of the records of the sites, before anything is fitted."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import click
import typer

from danl.cli.display import console
from danl.cli.fit import NOT_WRITTEN
from danl.cli.options import OUTPUT, PROBLEM, RUN, Json, on_sites, option
from danl.errors import bad_argument


def cohort(
    files: Annotated[
        list[str] | None, typer.Argument(metavar="[FILE]...", help="A CSV or Parquet file a site; none for Flower.")
    ] = None,
    columns: Annotated[
        str | None, option(PROBLEM, "Columns, parted by commas; the first holds numbers.", "--columns")
    ] = None,
    formula: Annotated[str | None, option(PROBLEM, "Instead: the formula of the model to come.", "--formula")] = None,
    family: Annotated[str, option(PROBLEM, "Of the formula; binomial for an outcome in words.")] = "gaussian",
    engine: Annotated[str, option(RUN, "local, ray, or flower: the sites of a federation, as in danl fit.")] = "local",
    out: Annotated[Path | None, option(OUTPUT, "Folder for cohort.csv, cohort.json and cohort.txt.")] = None,
    force: Annotated[bool, option(OUTPUT, "Overwrite a table that is there already.", "--force")] = False,
    as_json: Json = False,
) -> int:
    """Describe the records of each site and of all: counts, means, deviations, quartiles, levels, missing values.

    Example: danl cohort north.csv south.csv --columns age,smoking
    """
    from danl.cli.output import out_folder, say_written, written  # here: --help should not wait for it
    from danl.statistics.cohort import FILES, JSON, TEXT
    from danl.storage.atomic import write_text

    with out_folder(out, force=force, files=FILES, holds="a table"):
        texts = _texts(files or [], engine, formula=formula, columns=columns, family=family)
        write = {name: partial(write_text, text=text) for name, text in texts.items()}
        missing = [] if out is None else written(out, write)
    print(json.dumps(json.loads(texts[JSON])) if as_json else texts[TEXT].rstrip("\n"))
    if missing:
        say_written(out, missing, console())
        return NOT_WRITTEN
    if out is not None:
        console().print(f"written to {out}/", soft_wrap=True)
    return 0


def _texts(files: list[str], engine: str, **asked: Any) -> dict[str, str]:
    """The text of each file of the table."""
    if on_sites(engine):
        if files:
            raise bad_argument("FILE", files[0], "left out with --engine flower", "the sites have their files")
        from danl.cli.sites import cohort_on_sites

        return cohort_on_sites(engine, **asked)
    if not files:
        raise click.UsageError("Missing argument 'FILE...'.", click.get_current_context(silent=True))
    from danl.cli.formula import sites_of
    from danl.statistics.cohort import cohort as described

    return described(sites=sites_of(files[0], files[1:]), engine=engine, **asked).files()
