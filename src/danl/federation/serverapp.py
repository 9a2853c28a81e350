"""The ServerApp: reads the run configuration, solves on the federation's sites, writes the result into a folder.

The files are those of `danl.Result.save`. history.csv is written anew after every exchange, so that a run can be
watched; result.json comes last: when it is there, the run is over. With `cohort` nothing is fitted, and the files are
those of `danl cohort --out`, cohort.txt the last. Where the run cannot be made there is error.txt.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from danl.engines.flower.engine import GridEngine
from danl.errors import InputError
from danl.federation.run_config import ERROR, cohort_arguments, solve_arguments, tables_of
from danl.objective.problem import RemoteProblem
from danl.run.history import History, Row
from danl.run.prepared import connected
from danl.run.result import Result, files_of, write_files
from danl.run.solver import solve
from danl.statistics.cohort import Cohort, cohort
from danl.statistics.fit import fit_of
from danl.statistics.fit_summary import summary_files
from danl.statistics.held_engine import HeldEngine
from danl.storage.atomic import write_text

app = ServerApp()


@app.main()  # type: ignore[untyped-decorator, unused-ignore]
def main(grid: Grid, context: Context) -> None:
    """Run what the run configuration asks for."""
    folder = Path(str(context.run_config.get("out") or f"danl-run-{context.run_id}")).expanduser()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        made = (describe if context.run_config.get("cohort") else run)(grid, context.run_config, folder)
    except Exception as error:  # said where the result would be: Flower's log is all there would be else
        text = str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {error}"
        (folder / ERROR).write_text(text + "\n", encoding="utf-8")
        raise
    what = "a table of the cohort" if isinstance(made, Cohort) else repr(made)
    print(f"danl: {what}, written to {folder}", flush=True)
    for note in made.notes:
        print(f"danl: {note}", flush=True)


def run(grid: Any, config: Mapping[str, Any], folder: Path) -> Result:
    """Solve on the sites of a Grid and write the result into a folder."""
    problem, arguments, options = solve_arguments(config)
    tables, rows = tables_of(config), History()

    def watched(row: Row) -> None:
        rows.append(row)
        rows.to_csv(folder / "history.csv")

    with HeldEngine(GridEngine(grid, **options)) as engine:
        asked = connected(RemoteProblem(**problem), engine)
        result = solve(asked, engine=engine, callback=watched, trace=True, **arguments)
        files = files_of(result, more={"sites": list(engine.site_names)})
        if tables is not None:  # they come first: result.json says that all is there
            files = summary_files(fit_of(asked, result, engine, tables)) | files
    write_files(folder, files)
    return result


def describe(grid: Any, config: Mapping[str, Any], folder: Path) -> Cohort:
    """Describe the records of the sites of a Grid and write the table into a folder."""
    asked, options = cohort_arguments(config)
    table = cohort(asked, engine=GridEngine(grid, **options))
    for name, text in table.files().items():
        write_text(folder / name, text)
    return table
