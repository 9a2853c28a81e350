"""`danl flower`: an app for Flower, a federation on this machine, and `danl fit --engine flower` on either."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from danl._version import __version__
from danl.callbacks import Callbacks, MLflow, TensorBoard
from danl.checks import check_seconds
from danl.cli.display import console
from danl.cli.options import RunOptions, warnings_shown
from danl.cli.output import ending_of, run_report, say_written, show_result, write_run
from danl.data import load_dataset, partition
from danl.engines.flower.sitefiles import write_sites
from danl.errors import InputError, bad_argument
from danl.federation.app_template import write_app
from danl.federation.local_federation import Federation, running
from danl.federation.submit import run_app
from danl.methods import make_method
from danl.objective.losses import make_loss, target_of
from danl.policies import make_policy
from danl.run.result import RESULT, Result
from danl.spec import parse_spec
from danl.wording import counted

flower = typer.Typer(
    help="Flower federations: write an app, or start a SuperLink and SuperNodes on this machine.", no_args_is_help=True
)
OPTIONS = {"dir": "", "superlink": "", "sites": 0, "deadline": 300.0, "wait": 120.0, "timeout": 3600.0}
"""Options of `--engine flower` on the command line, and their defaults."""
SENT = ("policy", "regions", "loss", "l2", "alpha", "weighting", "intercept", "init", "rounds", "tol", "seed")
"""Options of a fit that are the same in the run configuration; empty there for what is not given."""


@flower.command()
def new(folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new or empty folder.")]) -> int:
    """Write a Flower app that runs danl on the sites of a federation."""
    for path in write_app(folder):
        print(path)
    return 0


@flower.command()
def up(
    data: Annotated[str, typer.Argument(metavar="DATA", help="A registered data set, or a file; it is dealt out.")],
    sites: Annotated[int, typer.Option(help="Number of sites.")] = 3,
    partition_: Annotated[str, typer.Option("--partition", help="How rows are dealt out, as in danl fit.")] = "iid",
    seed: Annotated[int, typer.Option(help="Of the partition.")] = 0,
    loss: Annotated[str, typer.Option(help="The loss the sites' targets are coded for.")] = "logistic",
    n_features: Annotated[int | None, typer.Option(help="Number of features of a LIBSVM file.")] = None,
    target: Annotated[str | None, typer.Option(help="Target column of a CSV or Parquet file.")] = None,
    folder: Annotated[Path, typer.Option("--dir", help="Folder for the sites' files, logs and Flower's own.")] = Path(
        "danl-federation"
    ),
    min_rows: Annotated[int | None, typer.Option(help="Rule of every site: fewest rows it answers for.")] = None,
    tls: Annotated[bool, typer.Option("--tls", help="Encrypt, and let in only nodes whose keys are known.")] = False,
) -> int:
    """Start a SuperLink and SuperNodes on loopback, and stop them on Ctrl-C."""
    screen = console()
    kind = target_of(loss)
    if (folder / "state.json").exists():
        raise InputError(f"--dir={str(folder)!r}: a federation is up there; stop it, or choose another folder")
    loaded = load_dataset(data, n_features=n_features, target=kind, target_column=target)
    dealt: dict[str, Any] = {"workers": sites, "scheme": partition_, "seed": seed, "weights": loaded.weights}
    shards = partition(loaded.X, loaded.y, feature_names=loaded.feature_names, **dealt)
    folder.mkdir(parents=True, exist_ok=True)
    configs = write_sites(shards, folder / "sites", binary=kind == "binary")
    if min_rows is not None:
        configs = [config | {"min-rows": min_rows} for config in configs]
    federation = Federation(folder, data, configs, tls=tls)
    federation.start()
    try:
        screen.print(f"SuperLink on {federation.address}" + (", TLS and node keys" if tls else ", not encrypted"))
        for config, shard in zip(configs, shards, strict=True):
            screen.print(f"SuperNode {config['name']}: {shard.n_rows} rows, {config['data']}", soft_wrap=True)
        screen.print(f"logs in {folder / 'logs'}; in another terminal:", soft_wrap=True)
        screen.print(f"    danl fit {data} --engine flower --alpha 1e-3", style="bold", soft_wrap=True)
        screen.print("Ctrl-C stops all of it")
        federation.wait()
    except KeyboardInterrupt:
        screen.print("stopping")
    finally:
        federation.stop()
    return 0


def on_sites(engine: str) -> bool:
    """Whether an engine of the command line is a Flower federation, and not one played on this machine."""
    if engine.partition(":")[0].strip() != "flower":
        return False
    return parse_spec(engine, argument="engine")[1].get("simulate") is not True


def fit_on_sites(
    options: RunOptions,
    method: str,
    *,
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
    shared = Path(tempfile.mkdtemp(prefix="danl-fit-"))  # where the ServerApp writes and this process reads
    try:
        title = f"{options.data} on its sites"
        with warnings_shown(screen) as said, options.display(screen, title, method, None, live) as shown:
            result = _watched([shown, *loggers], config, shared, target)
            said.extend(result.notes)
        sites = json.loads((shared / RESULT).read_text(encoding="utf-8"))["sites"]
    finally:
        shutil.rmtree(shared, ignore_errors=True)
    settings = result.settings
    title = (
        f"{options.data}: {counted(settings['workers'], 'site')} ({', '.join(sites)}), "
        f"{counted(len(settings['regions']), 'region')}, {options.policy}, {settings['loss']}"
    )
    request = {"danl": __version__, "run_config": config, "sites": sites}
    missing = write_run(out, result, title, request | ending_of(result), screen)
    data_summary = {"data": options.data, "rows": int(sum(settings["rows"])), "sites": sites}
    report = run_report(options, data_summary, result, None if missing else out)
    show_result(screen, title, report, result, as_json=as_json)
    return result, say_written(out, missing, screen)


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
    given = parse_spec(options.engine, argument="engine")[1]
    given.pop("simulate", None)
    for name in given:
        if name not in OPTIONS:
            raise InputError(f"engine={options.engine!r}: flower has no option {name!r}; it has {', '.join(OPTIONS)}")
    chosen: dict[str, Any] = OPTIONS | given
    check_seconds("timeout", chosen["timeout"])
    named = options.with_batches(method)
    for make, text in ((make_method, named), (make_policy, options.policy), (make_loss, options.loss)):
        make(text)  # the server of the sites will; whether it can is known now
    options.start()
    sites = chosen["sites"]
    target: dict[str, Any] = {"connection": str(chosen["superlink"]), "home": None}
    if not chosen["superlink"]:
        state = running(Path(str(chosen["dir"])) if chosen["dir"] else None)
        if options.data != state["data"]:
            raise bad_argument("DATA", options.data, f"{state['data']!r}, which the sites hold", "or start other sites")
        sites = sites or len(state["sites"])
        target = {"connection": state["connection"], "home": Path(state["home"])}
    config = {name: "" if (value := getattr(options, name)) is None else value for name in SENT}
    config |= {"method": named, "sites": sites or 1}
    config |= {name: float(chosen[name]) for name in ("deadline", "wait")}
    return config, target | {"timeout": float(chosen["timeout"])}
