"""`danl fit`: one run on one data set."""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

import typer

from danl.cli.imports import quick_imports
from danl.cli.options import (
    DATA,
    OUTPUT,
    PROBLEM,
    RUN,
    Force,
    Json,
    Out,
    ReferenceFlag,
    RunOptions,
    on_sites,
    option,
    shares_options,
    with_option,
)
from danl.errors import InputError, bad_argument

if TYPE_CHECKING:
    from rich.console import Console

    from danl.callbacks import MLflow, TensorBoard
    from danl.run.result import Result
    from danl.run.trace import Trace

EXIT = {"converged": 0, "max_rounds": 0, "diverged": 3, "quorum_lost": 3, "interrupted": 130, "stopped": 0}
NOT_WRITTEN = 2
"""However the run ended: a file that was asked for is not there."""

METHOD_HELP = (
    "danl, danl-secant, danl-masked, danl-paper, newton-zero, newton, newton-undamped, gd, fedavg, or a plug-in's; "
    "options as fedavg:steps=5."
)


@shares_options
def fit(
    options: RunOptions,
    files: Annotated[
        list[str] | None,
        typer.Argument(metavar="[FILE]...", help="With --formula: the files of more sites.", rich_help_panel=DATA),
    ] = None,
    formula: Annotated[
        str | None, option(PROBLEM, "outcome ~ age + C(smoking, reference='never'): every FILE is a site.")
    ] = None,
    family: Annotated[
        str, option(PROBLEM, "Of a formula: gaussian, binomial, poisson, gamma, negative-binomial:alpha=1.")
    ] = "gaussian",
    event: Annotated[str | None, option(PROBLEM, "Of a binomial outcome in words: the one that is counted.")] = None,
    offset: Annotated[
        str | None, option(PROBLEM, "Of a formula: a column, or log(column), with coefficient 1.")
    ] = None,
    weights: Annotated[str | None, option(PROBLEM, "Of a formula: column with the weight of each record.")] = None,
    trials: Annotated[str | None, option(PROBLEM, "Binomial: column with how many trials successes are of.")] = None,
    missing_values: Annotated[
        str, option(PROBLEM, "Of a formula: complete leaves records with missing values out.", "--missing")
    ] = "complete",
    site_effects: Annotated[
        bool, option(PROBLEM, "Of a formula: an effect of every site but the first.", "--site-effects")
    ] = False,
    cluster: Annotated[str | None, option(PROBLEM, "What standard errors are clustered by: site, or a column.")] = None,
    summary: Annotated[
        bool,
        option(OUTPUT, "Of a formula: tables of coefficients, sites and the fit; with --out, model.json.", "--summary"),
    ] = False,
    covariance: Annotated[
        str, option(OUTPUT, "Of --summary: standard errors of the model, or robust: HC0, HC1.")
    ] = "model",
    meta: Annotated[bool, option(OUTPUT, "Of --summary: each site's own fit, combined, besides.", "--meta")] = False,
    diagnostics: Annotated[
        bool, option(OUTPUT, "Of --summary, binomial: AUC, calibration and classification.", "--diagnostics")
    ] = False,
    standardise: Annotated[
        bool, option(OUTPUT, "Of --summary: coefficients per standard deviation besides.", "--standardise")
    ] = False,
    method: Annotated[str, option(RUN, METHOD_HELP)] = "danl",
    reference: ReferenceFlag = False,
    checkpoint: Annotated[
        Path | None, option(RUN, "Folder for checkpoints, from which a run that was interrupted goes on.")
    ] = None,
    checkpoint_every: Annotated[int, option(RUN, "Exchanges between two checkpoints.")] = 1,
    resume: Annotated[
        Path | None, option(RUN, "Go on from the newest whole checkpoint in this folder, with the same options.")
    ] = None,
    address: Annotated[
        str | None, option(RUN, "Of a Ray cluster, for --engine ray: auto, or host:port; default: a new one here.")
    ] = None,
    live: Annotated[bool, option(OUTPUT, "Watch the run: a curve, who trains what, how far it is.", "--live")] = False,
    mlflow: Annotated[
        str | None, option(OUTPUT, "Log to MLflow: a server's address, or sqlite:///mlflow.db.", "--mlflow")
    ] = None,
    tensorboard: Annotated[Path | None, option(OUTPUT, "Folder for TensorBoard's events.", "--tensorboard")] = None,
    explain: Annotated[
        bool, option(OUTPUT, "Say what was asked of whom in every exchange, and why.", "--explain")
    ] = False,
    out: Out = None,
    force: Force = False,
    serve: Annotated[
        bool, option(OUTPUT, "Show the run in a browser, on this machine, as it goes.", "--serve")
    ] = False,
    serve_port: Annotated[int | None, option(OUTPUT, "Port for --serve; default: a free one.")] = None,
    as_json: Json = False,
) -> int:
    """Fit a model: N workers train their regions, the server steps.

    Example: danl fit a1a --policy coverage:psi=3 --alpha 1e-3 --init fedavg:rounds=10 --reference --out run
    """
    with quick_imports():  # here: --help should not wait for them
        from danl.cli.display import console
        from danl.cli.formula import analysis_of, asked_for, fit_by_formula
        from danl.cli.output import described, out_folder, requested, run_report, say_written, show_result, write_run
        from danl.cli.resumed import ResumedTrace, nothing_left
        from danl.run.checkpoint import Checkpoints, locked_checkpoints, make_checkpoints
        from danl.run.result import WORKERS
        from danl.run.trace import Trace

    options = replace(options, engine=at_address(options.engine, address))
    if live and options.quiet:
        raise InputError("--live and --quiet: one shows the run, the other nothing of it; give one of them")
    if serve_port is not None and not serve:
        raise InputError(f"--serve-port={serve_port}: is the port of --serve, which is not given; add --serve")
    asked: dict[str, Any] = {"formula": formula, "family": family, "event": event, "offset": offset, "weights": weights}
    asked |= {"trials": trials, "missing": missing_values, "site_effects": site_effects, "cluster": cluster}
    analysis = analysis_of(options, asked)
    if files and (analysis is None or on_sites(options.engine)):
        raise bad_argument("FILE", files[0], "given with --formula, where every file is a site", "give one DATA")
    if analysis is not None and (reference or serve):
        raise InputError(f"--{'reference' if reference else 'serve'}: is not for --formula; leave it out")
    tables = {"covariance": covariance, "meta": meta, "diagnostics": diagnostics, "standardise": standardise}
    asked_tables = asked_for(tables, summary=summary, analysis=analysis, l2=options.l2)
    loggers = made_loggers(mlflow, tensorboard, f"{method} on {Path(options.data).name}")
    if on_sites(options.engine):
        if checkpoint is not None or resume is not None:
            raise InputError("--checkpoint and --resume: are not for --engine flower; leave them out")
        if serve:
            raise InputError("--serve: is not for --engine flower; leave it out, and use danl report at the end")
    screen = console()
    # Folders before anything is read or computed; what --out holds is of the run that goes on.
    with out_folder(out, force=force or resume is not None):
        folder = checkpoint or resume
        checkpoints = None if folder is None else Checkpoints(folder, every=checkpoint_every)
        with locked_checkpoints(make_checkpoints(checkpoints, resume), resume):
            pass  # the run will have it; whether it can is known now
        if on_sites(options.engine) or analysis is not None:
            connect(loggers, screen)
            shown: dict[str, Any] = {"tables": asked_tables, "live": live, "loggers": loggers, "out": out}
            shown["as_json"] = as_json
            if analysis is not None and not on_sites(options.engine):
                shown |= {"checkpoint": checkpoints, "resume": resume}
                result, whole = fit_by_formula(options, method, analysis, files or (), **shown)
            else:
                from danl.cli.sites import fit_on_sites

                result, whole = fit_on_sites(options, method, analysis=analysis, reference=reference, **shown)
            if explain:
                show_reasons(result, screen)
            return EXIT[result.status] if whole else NOT_WRITTEN
        job = options.job(method)
        connect(loggers, screen)
        optimum = job.reference(screen) if reference else None
        trace = Trace()
        earlier = ResumedTrace(trace, out / WORKERS if out is not None and resume is not None else None)
        folders = {"checkpoint": checkpoint and str(checkpoint), "resume": resume and str(resume)}
        request = requested(options, method, job, **folders)
        served = Served(serve_port or 0, trace, request, job.title, screen) if serve else None
        with served or nullcontext():
            result = job.solve(
                method,
                screen,
                reference=optimum,
                checkpoint=checkpoints,
                resume=resume,
                trace=trace if out is not None or serve else None,
                live=live,
                callbacks=[earlier, *loggers, *([] if served is None else [served.page])],
            )
            result = replace(result, notes=(*result.notes, *earlier.notes))
            config = described(request, job, result) if serve or out is not None else {}
            if served is not None:
                served.page.finish(config)
        missing = write_run(out, result, job.title, config, screen, job.data)
    report = run_report(options, job.data_summary, result, None if missing else out, optimum)
    show_result(screen, job.title, report, result, as_json=as_json)
    if explain:
        show_reasons(result, screen)
    if earlier.rows == len(result.history):
        screen.print(nothing_left(result, options.rounds), soft_wrap=True)
    whole = say_written(out, missing, screen)
    if result.status == "interrupted" and folder is not None:
        screen.print(f"to go on: the same command with --resume {folder}", soft_wrap=True)
    if served is not None:
        served.stay()
    return EXIT[result.status] if whole else NOT_WRITTEN


def made_loggers(mlflow: str | None, tensorboard: Path | None, name: str) -> list[MLflow | TensorBoard]:
    """What the run is logged to."""
    if mlflow is None and tensorboard is None:
        return []
    from danl.callbacks import MLflow, TensorBoard

    loggers: list[MLflow | TensorBoard] = []
    if mlflow is not None:
        loggers.append(MLflow(tracking_uri=mlflow, run_name=name))
    if tensorboard is not None:
        loggers.append(TensorBoard(tensorboard))
    return loggers


def connect(loggers: Sequence[MLflow | TensorBoard], screen: Console) -> None:
    """Open what is logged to, before anything is computed; a server may take its time."""
    for logger in loggers:
        from danl.callbacks import MLflow

        if isinstance(logger, MLflow):
            where = re.sub(r"//[^/@]*@", "//", str(logger.tracking_uri))  # a password is not for the screen
            screen.print(f"connecting to {where}", style="dim", soft_wrap=True)
        logger.connect()


def show_reasons(result: Result, screen: Console) -> None:
    """`--explain`."""
    from danl.cli.explain import curvature_line, explanation

    line = curvature_line(result.settings)
    if line:
        screen.print(line, highlight=False)
    screen.print(explanation(result.history))


def at_address(engine: str, address: str | None) -> str:
    """Put --address into the engine's own options."""
    if address is None:
        return engine
    if engine.partition(":")[0] != "ray" or "address=" in engine:
        raise InputError(f"--address={address!r}: is for --engine ray, and given once; leave it out for {engine!r}")
    return with_option(engine, "address", address)


class Served:
    """`--serve`: the run as it goes and its end, in a browser on this machine; `page` is a callback of the run."""

    def __init__(self, port: int, trace: Trace, config: Mapping[str, Any], title: str, screen: Console) -> None:
        from danl.report.live_page import LivePage, LiveServer  # here: only --serve needs it

        self.page = LivePage(trace, config, title)
        self._server = LiveServer(self.page, port)
        self._screen = screen
        screen.print(f"the run is shown at {self._server.address}", soft_wrap=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:  # else the page stays, until `stay` has ended
            self._server.close()

    def stay(self) -> None:
        """On a terminal keep the page until Ctrl-C; else only until a page that is open has seen the end."""
        try:
            if self._screen.is_terminal:
                self._screen.print(f"the page stays at {self._server.address} until Ctrl-C", soft_wrap=True)
                threading.Event().wait()
            self.page.wait_for_last_look()
        except KeyboardInterrupt:
            self._screen.print("")
        finally:
            self._server.close()
