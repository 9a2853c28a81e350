"""`danl predict`: a fitted model applied to a file of new records."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from danl.cli.display import console
from danl.cli.options import OUTPUT, PROBLEM, option
from danl.errors import InputError
from danl.wording import counted


def predict(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="model.json of danl fit --summary, or its folder.")],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A CSV or Parquet file with the formula's columns.")],
    site: Annotated[
        str | None, option(PROBLEM, "With effects of sites: the site whose effect is meant.", "--site")
    ] = None,
    link: Annotated[bool, option(OUTPUT, "The linear predictor in place of the mean.", "--link")] = False,
    out: Annotated[Path | None, option(OUTPUT, "CSV file for the predictions; default: standard output.")] = None,
    force: Annotated[bool, option(OUTPUT, "Overwrite a file that is there already.", "--force")] = False,
) -> int:
    """Predict the mean outcome of new records, a line a record; empty where a value is missing.

    Example: danl predict run/model.json new.csv --out predicted.csv
    """
    from danl.statistics.model_file import Model, predictions_csv  # here: --help should not wait for it
    from danl.storage.atomic import write_text

    if out is not None and out.exists() and not force:
        raise InputError(f"--out={str(out)!r}: is there already; choose another file or add --force")
    predictions = Model.read(model).predict(file, site=site, link=link)
    text = predictions_csv(predictions)
    empty = int((predictions != predictions).sum())
    if out is None:
        print(text, end="")
    else:
        try:
            write_text(out, text)
        except OSError as error:
            raise InputError(f"--out={str(out)!r}: cannot be written ({error.strerror}); choose another file") from None
        said = f", {empty} without a prediction: a value is missing" if empty else ""
        console().print(f"{counted(len(predictions), 'record')}{said}, written to {out}", soft_wrap=True)
    return 0
