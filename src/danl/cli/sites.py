"""`danl fit` and `danl cohort --engine flower`: on a Flower federation's sites, shown and written as every other."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from danl._version import __version__
from danl.callbacks import Callbacks, MLflow, TensorBoard
from danl.checks import check_seconds
from danl.cli.display import console
from danl.cli.job import display, start_of, warnings_shown
from danl.cli.options import RunOptions
from danl.cli.output import TABLES, ending_of, run_report, say_written, show_result, write_run
from danl.design.analysis import Analysis
from danl.errors import InputError, bad_argument
from danl.federation.local_federation import running
from danl.federation.run_config import OF_A_SUMMARY
from danl.federation.submit import run_app, run_until
from danl.methods import make_method
from danl.objective.losses import make_loss
from danl.policies import make_policy
from danl.run.result import RESULT, Result
from danl.spec import parse_spec
from danl.statistics.cohort import FILES
from danl.statistics.cohort import analysis_of as cohort_analysis
from danl.statistics.fit import Tables
from danl.storage.atomic import write_text
from danl.wording import counted

OPTIONS = {"dir": "", "superlink": "", "sites": 0, "deadline": 300.0, "wait": 120.0, "timeout": 3600.0}
"""Options of `--engine flower` on the command line, and their defaults."""
SENT = ("policy", "graph", "regions", "loss", "l2", "alpha", "weighting", "intercept", "init", "rounds", "tol", "seed")
"""Options of a fit that are the same in the run configuration; empty there for what is not given."""


def fit_on_sites(
    options: RunOptions,
    method: str,
    *,
    analysis: Analysis | None,
    tables: Tables | None,
    reference: bool,
    live: bool,
    loggers: Sequence[MLflow | TensorBoard],
    out: Path | None,
    as_json: bool,
) -> tuple[Result, bool]:
    """`danl fit --engine flower`: drive a fit on the sites of a SuperLink; show and write what every fit does.

    Returns the result, and whether all of its files are written.
    """
    screen = console()
    config, target = _run_config(options, method, reference)
    named = options.data or (None if analysis is None else analysis.formula) or "a fit"
    if analysis is not None:
        config |= {key.replace("_", "-"): value for key, value in analysis.to_dict().items()}
        del config["weighting"], config["intercept"], config["loss"]
    if tables is not None:
        config |= {"summary": True} | {key: getattr(tables, key) for key in OF_A_SUMMARY}
    shared = Path(tempfile.mkdtemp(prefix="danl-fit-"))  # where the ServerApp writes and this process reads
    try:
        title = f"{named} on its sites"
        with warnings_shown(screen) as said, display(options, screen, title, method, None, live) as shown:
            result = _watched([shown, *loggers], config, shared, target)
            said.extend(result.notes)
        sites = json.loads((shared / RESULT).read_text(encoding="utf-8"))["sites"]
        texts = {name: (shared / name).read_text(encoding="utf-8") for name in TABLES if (shared / name).is_file()}
    finally:
        shutil.rmtree(shared, ignore_errors=True)
    settings = result.settings
    title = (
        f"{named}: {counted(settings['workers'], 'site')} ({', '.join(sites)}), "
        f"{counted(len(settings['regions']), 'region')}, {options.policy}, {settings['loss']}"
    )
    request = {"danl": __version__, "run_config": config, "sites": sites}
    more = {name: partial(_write, text) for name, text in texts.items()}
    missing = write_run(out, result, title, request | ending_of(result), screen, more=more)
    data_summary = {"data": named, "rows": int(sum(settings["rows"])), "sites": sites}
    report = run_report(options, data_summary, result, None if missing else out)
    if "summary.json" in texts:
        report["tables"] = json.loads(texts["summary.json"])
    show_result(screen, title, report, result, as_json=as_json)
    if "summary.txt" in texts and not as_json:
        print(texts["summary.txt"], end="")
    return result, say_written(out, missing, screen)


def cohort_on_sites(engine: str, formula: str | None, columns: str | None, family: str) -> dict[str, str]:
    """`danl cohort --engine flower`: the text of each of its files."""
    cohort_analysis(formula, columns, family)  # the server of the sites will; whether it can is known now
    config, target = _federation(engine)
    config |= {"cohort": True, "formula": formula or "", "columns": columns or "", "family": family}
    with tempfile.TemporaryDirectory(prefix="danl-cohort-") as folder:
        run_until(FILES[-1], config, out=Path(folder), **target)
        return {name: (Path(folder) / name).read_text(encoding="utf-8") for name in FILES}


def _write(text: str, path: Path) -> None:
    write_text(path, text)


def _watched(callbacks: list[Any], config: dict[str, Any], shared: Path, target: dict[str, Any]) -> Result:
    """The run, with the callbacks of a run that is here; it ends where the sites' server ends it."""
    several = Callbacks(callbacks)
    try:
        several.begin(lambda: config)
        result = run_app(config, out=shared, callback=several, **target)
    except BaseException:
        several.end(None)
        raise
    several.end(result)
    return result


def _run_config(options: RunOptions, method: str, reference: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """The run configuration, and where to run it; everything is checked before anything is sent."""
    if reference:
        raise InputError("--reference: needs the rows here, and they are at the sites; leave it out")
    if options.workers is not None or options.partition != "iid" or options.site is not None:
        raise InputError("--workers, --partition and --site: the sites have their rows already; leave them out")
    if options.profiles is not None:
        raise InputError(
            "--profiles: is for workers that are here, and the sites take what time they take; leave it out"
        )
    named = options.with_batches(method)
    for make, text in ((make_method, named), (make_policy, options.policy), (make_loss, options.loss)):
        make(text)  # the server of the sites will; whether it can is known now
    start_of(options)
    of_engine, target = _federation(options.engine, options.data)
    config = {name: "" if (value := getattr(options, name)) is None else value for name in SENT}
    return config | {"method": named} | of_engine, target


def _federation(engine: str, data: str = "") -> tuple[dict[str, Any], dict[str, Any]]:
    """What an engine's text says for the run configuration, and where to run it."""
    given = parse_spec(engine, argument="engine")[1]
    given.pop("simulate", None)
    for name in given:
        if name not in OPTIONS:
            raise InputError(f"engine={engine!r}: flower has no option {name!r}; it has {', '.join(OPTIONS)}")
    chosen: dict[str, Any] = OPTIONS | given
    check_seconds("timeout", chosen["timeout"])
    sites = chosen["sites"]
    target: dict[str, Any] = {"connection": str(chosen["superlink"]), "home": None}
    if not chosen["superlink"]:
        state = running(Path(str(chosen["dir"])) if chosen["dir"] else None)
        if data not in ("", state["data"]):
            raise bad_argument("DATA", data, f"{state['data']!r}, which the sites hold", "or start other sites")
        sites = sites or len(state["sites"])
        target = {"connection": state["connection"], "home": Path(state["home"])}
    seconds = {name: float(chosen[name]) for name in ("deadline", "wait")}
    return {"sites": sites or 1} | seconds, target | {"timeout": float(chosen["timeout"])}
