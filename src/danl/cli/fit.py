"""`danl fit`: one run on one data set."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from rich.console import Console

from danl.callbacks import MLflow, TensorBoard
from danl.cli.display import console, summary_table
from danl.cli.flower import fit_on_sites, on_sites
from danl.cli.options import OUTPUT, RUN, Force, Job, Json, Out, ReferenceFlag, RunOptions, option, shares_options
from danl.cli.output import asked, describe, out_folder, remove_page, say_written, write_run
from danl.cli.resumed import Earlier, FirstPart, nothing_left
from danl.cli.serve import Served
from danl.errors import InputError
from danl.run.checkpoint import Checkpoints
from danl.run.result import Reference, Result
from danl.run.resume import held, make_checkpoints
from danl.run.solver import DEFAULT_METHOD
from danl.run.trace import Trace
from danl.wording import human_bytes, number

EXIT = {"converged": 0, "max_rounds": 0, "diverged": 3, "quorum_lost": 3, "interrupted": 130, "stopped": 0}
NOT_WRITTEN = 2
"""However the run ended: a file that was asked for is not there."""

METHOD_HELP = (
    "danl, danl-secant, danl-masked, danl-paper, newton-zero, newton, newton-undamped, gd, fedavg; options as "
    "fedavg:steps=5."
)


@shares_options
def fit(
    options: RunOptions,
    method: Annotated[str, option(RUN, METHOD_HELP)] = DEFAULT_METHOD,
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
    options = replace(options, engine=at_address(options.engine, address))
    if live and options.quiet:
        raise InputError("--live and --quiet: one shows the run, the other nothing of it; give one of them")
    if serve_port is not None and not serve:
        raise InputError(f"--serve-port={serve_port}: is the port of --serve, which is not given; add --serve")
    loggers = loggers_of(mlflow, tensorboard, f"{method} on {Path(options.data).name}")
    if on_sites(options.engine):
        if checkpoint is not None or resume is not None:
            raise InputError("--checkpoint and --resume: are not for --engine flower; leave them out")
        if serve:
            raise InputError("--serve: is not for --engine flower; leave it out, and use danl report at the end")
    screen = console()
    missing: list[str] = []
    # Folders before anything is read or computed; what --out holds is of the run that goes on.
    with out_folder(out, force=force or resume is not None):
        if on_sites(options.engine):
            connect(loggers, screen)
            result, whole = fit_on_sites(
                options, method, reference=reference, live=live, loggers=loggers, out=out, as_json=as_json
            )
            return EXIT[result.status] if whole else NOT_WRITTEN
        folder = checkpoint or resume
        checkpoints = None if folder is None else Checkpoints(folder, every=checkpoint_every)
        with held(make_checkpoints(checkpoints, resume), resume):
            pass  # the run will have it; whether it can is known now
        job = options.job(method)
        connect(loggers, screen)
        measured_against = options.reference(job, screen) if reference else None
        trace, earlier = Trace(), Earlier()
        first_part = FirstPart(trace, out / "workers.npz") if out is not None and resume is not None else None
        told = asked(options, method, job, checkpoint=text_of(checkpoint), resume=text_of(resume))
        with Served(serve, serve_port or 0, trace, told, job.title, screen) as served:
            result = options.solve(
                job,
                method,
                screen,
                reference=measured_against,
                checkpoint=checkpoints,
                resume=resume,
                trace=trace if out is not None or serve else None,
                live=live,
                callbacks=[earlier, *([] if first_part is None else [first_part]), *loggers, served],
            )
            if first_part is not None and first_part.note is not None:
                result = replace(result, notes=(*result.notes, first_part.note))
            served.finish(describe(told, job, result) if serve else {})
        if out is not None:
            missing = write_run(out, result, job.title, describe(told, job, result), job.data)
            remove_page(out, screen)
    report = run_report(options, job, result, measured_against, str(out) if out and not missing else None)
    if as_json:
        print(json.dumps(report, allow_nan=False))
    screen.print(job.title, style="bold")
    screen.print(summary_table(report, reference))
    if result.start is not None:
        start = report["init"]
        screen.print(
            f"start: {start['method']}, {start['exchanges']} exchanges, {human_bytes(start['bytes_up'])} up, "
            f"{human_bytes(start['bytes_down'])} down, not counted above",
            style="dim",
        )
    if measured_against is not None:
        screen.print(f"reference optimum: gradient norm {number(measured_against.grad_norm, '.1e')}", style="dim")
    if result.failures:
        count, first = len(result.failures), result.failures[0]
        screen.print(
            f"{count} replies did not come; the first: worker {first.worker}, {first.kind}, {first.detail}",
            style="yellow",
            markup=False,
        )
    for note in result.notes:
        screen.print(note, style="yellow")
    if earlier.rows == len(result.history):
        screen.print(nothing_left(result, options.rounds), soft_wrap=True)
    whole = say_written(out, missing, screen)
    if result.status == "interrupted" and folder is not None:
        screen.print(f"to go on: the same command with --resume {folder}", soft_wrap=True)
    served.stay()
    return EXIT[result.status] if whole else NOT_WRITTEN


def loggers_of(mlflow: str | None, tensorboard: Path | None, name: str) -> list[MLflow | TensorBoard]:
    """What --mlflow and --tensorboard ask for."""
    loggers: list[MLflow | TensorBoard] = []
    if mlflow is not None:
        loggers.append(MLflow(tracking_uri=mlflow, run_name=name))
    if tensorboard is not None:
        loggers.append(TensorBoard(tensorboard))
    return loggers


def connect(loggers: Sequence[MLflow | TensorBoard], screen: Console) -> None:
    """Open what is logged to, before anything is computed; a server may take its time."""
    for logger in loggers:
        if isinstance(logger, MLflow):
            where = re.sub(r"//[^/@]*@", "//", str(logger.tracking_uri))  # a password is not for the screen
            screen.print(f"connecting to {where}", style="dim", soft_wrap=True)
        logger.connect()


def text_of(path: Path | None) -> str | None:
    """A path as it was given."""
    return None if path is None else str(path)


def at_address(engine: str, address: str | None) -> str:
    """Put --address into the engine's own options."""
    if address is None:
        return engine
    if engine.partition(":")[0] != "ray" or "address=" in engine:
        raise InputError(f"--address={address!r}: is for --engine ray, and given once; leave it out for {engine!r}")
    return engine + ("," if ":" in engine else ":") + f"address={address}"


def run_report(
    options: RunOptions, job: Job, result: Result, reference: Reference | None, out: str | None
) -> dict[str, Any]:
    """The object --json prints."""
    return result.summary() | {
        "data": job.data.name,
        "rows": int(job.problem.rows.sum()),
        "features": job.problem.n_features,
        "workers": job.problem.n_workers,
        "partition": job.partition,
        "regions": job.regions.n_regions,
        "policy": options.policy,
        "profiles": options.profiles,
        "loss": job.problem.loss.name,
        "l2": job.problem.l2,
        "alpha": job.problem.alpha,
        "weighting": job.problem.weighting,
        "intercept": job.problem.intercept,
        "seed": options.seed,
        "init": {"method": options.init} if result.start is None else result.start.summary(),
        "reference": None
        if reference is None
        else {
            "objective": reference.objective,
            "grad_norm": reference.grad_norm,
            "exchanges": reference.exchanges,
        },
        "out": out,
    }
