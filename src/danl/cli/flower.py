"""`danl flower`: an app for Flower, and a federation on this machine."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Annotated, Any

import typer

from danl.cli.imports import quick_imports
from danl.errors import InputError, bad_argument

flower = typer.Typer(
    help="Flower federations: write an app, or start a SuperLink and SuperNodes on this machine.", no_args_is_help=True
)


@flower.command()
def new(folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new or empty folder.")]) -> int:
    """Write a Flower app that runs danl on the sites of a federation."""
    from danl.federation.app_template import write_app  # here: --help should not wait for it

    for path in write_app(folder):
        print(path)
    return 0


@flower.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def node(context: typer.Context) -> int:
    """Start a site's SuperNode, which answers sooner than Flower's own; the options are those of flower-supernode."""
    from danl.federation.node import run_node  # here: --help should not wait for it

    return run_node(context.args)


@flower.command()
def up(
    data: Annotated[
        list[str],
        typer.Argument(
            metavar="DATA...", help="A registered data set, or a file, that is dealt out; or the files of the sites."
        ),
    ],
    sites: Annotated[int | None, typer.Option(help="Number of sites that rows are dealt to; default: 3.")] = None,
    partition_: Annotated[str, typer.Option("--partition", help="How rows are dealt out, as in danl fit.")] = "iid",
    seed: Annotated[int, typer.Option(help="Of the partition.")] = 0,
    loss: Annotated[str, typer.Option(help="The loss the sites' targets are coded for.")] = "logistic",
    n_features: Annotated[int | None, typer.Option(help="Number of features of a LIBSVM file.")] = None,
    target: Annotated[str | None, typer.Option(help="Target column of a CSV or Parquet file.")] = None,
    folder: Annotated[Path, typer.Option("--dir", help="Folder for the sites' files, logs and Flower's own.")] = Path(
        "danl-federation"
    ),
    rules: Annotated[str, typer.Option(help="Of every site: default, or open, which answers whatever it is asked.")] = (
        "default"
    ),
    min_rows: Annotated[int | None, typer.Option(help="Rule of every site: fewest rows it answers for.")] = None,
    tls: Annotated[bool, typer.Option("--tls", help="Encrypt, and let in only nodes whose keys are known.")] = False,
) -> int:
    """Start a SuperLink and SuperNodes on loopback, and stop them on Ctrl-C.

    Example: danl flower up --sites 3 a1a; or danl flower up north.csv south.csv
    """
    with quick_imports():  # here: --help should not wait for them
        from danl.checks import check_choice
        from danl.cli.display import console
        from danl.cli.formula import sites_of
        from danl.data import load_dataset, partition
        from danl.engines.flower.sitefiles import sites_of_files, write_sites
        from danl.federation.local_federation import Federation
        from danl.objective.losses import target_of

    screen = console()
    folder = folder.absolute()  # the processes run in it
    kind = target_of(loss)
    check_choice("--rules", rules, ("default", "open"))
    if (folder / "state.json").exists():
        raise InputError(f"--dir={str(folder)!r}: a federation is up there; stop it, or choose another folder")
    binary = kind == "binary"
    if len(data) > 1:
        for name, given in (("--sites", sites), ("--n-features", n_features)):
            if given is not None:
                raise bad_argument(name, given, "left out where every file is a site")
        named = {each.called(0): Path(str(each.path)) for each in sites_of(data[0], data[1:])}
        configs = sites_of_files(named, folder / "sites", binary=binary)
        configs = [config | ({} if target is None else {"target-column": target}) for config in configs]
        run = 'danl fit --engine flower --formula "outcome ~ age" --summary'
    else:
        loaded = load_dataset(data[0], n_features=n_features, target=kind, target_column=target)
        dealt: dict[str, Any] = {
            "workers": 3 if sites is None else sites,
            "scheme": partition_,
            "seed": seed,
            "weights": loaded.weights,
        }
        shards = partition(loaded.X, loaded.y, feature_names=loaded.feature_names, **dealt)
        folder.mkdir(parents=True, exist_ok=True)
        configs = write_sites(shards, folder / "sites", binary=binary)
        run = f"danl fit {data[0]} --engine flower --alpha 1e-3"
    if min_rows is not None:
        configs = [config | {"min-rows": min_rows} for config in configs]
    configs = [config | {"rules": rules} for config in configs]
    federation = Federation(folder, " ".join(data), configs, tls=tls)
    for number in (signal.SIGTERM, signal.SIGHUP):  # a service that is stopped, a terminal that is closed
        signal.signal(number, signal.default_int_handler)
    try:
        federation.start()
        screen.print(f"SuperLink on {federation.address}" + (", TLS and node keys" if tls else ", not encrypted"))
        for config in configs:
            screen.print(f"SuperNode {config['name']}: {config['data']}", soft_wrap=True)
        screen.print(f"logs in {folder / 'logs'}; in another terminal:", soft_wrap=True)
        screen.print(f"    {run}", style="bold", soft_wrap=True, markup=False)
        screen.print("Ctrl-C stops all of it")
        federation.wait()
    except KeyboardInterrupt:
        screen.print("stopping")
    finally:
        federation.stop()
    return 0
