"""`danl cohort`: a table of the records of the sites, before anything is fitted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from danl.cli.display import console
from danl.cli.options import OUTPUT, PROBLEM, RUN, Json, option
from danl.errors import InputError


def cohort(
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help="A CSV or Parquet file a site.")],
    columns: Annotated[
        str | None, option(PROBLEM, "Columns, parted by commas; the first holds numbers.", "--columns")
    ] = None,
    formula: Annotated[str | None, option(PROBLEM, "Instead: the formula of the model to come.", "--formula")] = None,
    family: Annotated[str, option(PROBLEM, "Of the formula; binomial for an outcome in words.")] = "gaussian",
    engine: Annotated[str, option(RUN, "local or ray.")] = "local",
    out: Annotated[Path | None, option(OUTPUT, "Folder for cohort.csv, cohort.json and cohort.txt.")] = None,
    as_json: Json = False,
) -> int:
    """Describe the records of each site and of all: counts, means, deviations, quartiles, levels, missing values.

    Example: danl cohort north.csv south.csv --columns age,smoking
    """
    from danl.cli.formula import sites_of  # here: --help should not wait for it
    from danl.statistics.cohort import cohort as described
    from danl.storage.atomic import write_text

    if out is not None and out.exists() and not out.is_dir():
        raise InputError(f"--out={str(out)!r}: is a file; name a folder")
    named = None if columns is None else [name.strip() for name in columns.split(",") if name.strip()]
    references = sites_of(files[0], files[1:])
    table = described(formula, sites=references, columns=named, family=family, engine=engine)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        table.to_csv(out / "cohort.csv")
        table.to_json(out / "cohort.json")
        write_text(out / "cohort.txt", f"{table}\n")
    print(json.dumps(table.to_dict(), allow_nan=False) if as_json else table)
    if out is not None:
        console().print(f"written to {out}/", soft_wrap=True)
    return 0
