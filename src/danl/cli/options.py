"""Options the commands share; `RunOptions` is the list of them, one field an option.

`shares_options` gives them to a command, so that `fit`, `compare` and `certify` take the same options with the same
meaning and only add their own. What they ask for is made in `danl.cli.job`; nothing here needs NumPy, so that help is
there at once.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import click
import typer

from danl.errors import InputError
from danl.spec import parse_spec

if TYPE_CHECKING:
    from danl.cli.job import Job

PANELS = DATA, PROBLEM, RUN, OUTPUT = "Data", "Problem", "Run", "Output"


def option(panel: str, help: str, *names: str) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=panel)


Out = Annotated[
    Path | None,
    option(OUTPUT, "Folder for history.csv, config.json, model.npz, workers.npz, result.json and the figure."),
]
Force = Annotated[bool, option(OUTPUT, "Overwrite a run that is there already.", "--force")]
Json = Annotated[bool, option(OUTPUT, "One JSON object on standard output.", "--json")]
ReferenceFlag = Annotated[bool, option(RUN, "Compute the optimum first and report the gap to it.")]


@dataclass(frozen=True)
class RunOptions:
    """What every run is made of; a field is an option of the command line."""

    data: Annotated[
        str,
        typer.Argument(
            metavar="DATA",
            help="A registered data set (danl datasets list), or a LIBSVM, CSV or Parquet file; not for Flower.",
        ),
    ] = ""
    workers: Annotated[int | None, option(DATA, "Number of workers; default 10, or one per site.")] = None
    partition: Annotated[
        str,
        option(
            DATA,
            "How rows are dealt out: iid, contiguous, sorted[:shuffle=0.2], dirichlet:alpha=0.5, quantity:alpha=1, "
            "site.",
        ),
    ] = "iid"
    n_features: Annotated[
        int | None, option(DATA, "Number of features of a LIBSVM file; default: its largest index.")
    ] = None
    zero_based: Annotated[bool, option(DATA, "Indices of a LIBSVM file start at 0, not 1.", "--zero-based")] = False
    target: Annotated[str | None, option(DATA, "Target column of a CSV or Parquet file; default: the last.")] = None
    site: Annotated[str | None, option(DATA, "Column with the site of each row: one worker per site.")] = None
    weight: Annotated[str | None, option(DATA, "Column with the weight of each row.")] = None
    loss: Annotated[
        str,
        option(
            PROBLEM,
            "logistic, multinomial, squared, poisson, gamma, negative-binomial:alpha=0.5, squared_hinge, or a "
            "plug-in's.",
        ),
    ] = "logistic"
    intercept: Annotated[bool, option(PROBLEM, "Fit an intercept, without a penalty.", "--intercept")] = False
    l2: Annotated[float | None, option(PROBLEM, "The paper's lambda: penalty l2/(2 m_i) |w|^2; default 1e-4.")] = None
    alpha: Annotated[float | None, option(PROBLEM, "Absolute penalty alpha/2 |w|^2, instead of --l2.")] = None
    weighting: Annotated[str, option(PROBLEM, "uniform (the paper) or samples (the pooled fit).")] = "uniform"
    regions: Annotated[
        str | None, option(RUN, "A number, sizes such as 30,30,63, prefix (by feature name) or classes; default 4.")
    ] = None
    policy: Annotated[
        str,
        option(
            RUN,
            "Who trains what: full, coverage:psi=3,gamma=2, subset:S=1,order=random, random:keep=0.5, "
            "magnitude:keep=0.5, schedule:file=masks.npy, "
            "resource-aware:deadline=0.1 (with --profiles), or a plug-in's.",
        ),
    ] = "full"
    profiles: Annotated[
        str | None,
        option(
            RUN,
            "CSV of the workers' machines (rows_per_second, uplink, downlink, memory, workers), for simulated seconds.",
        ),
    ] = None
    binding: Annotated[
        bool | None,
        option(
            RUN,
            "Whether a deadline of resource-aware holds for every exchange (its default).",
            "--binding/--no-binding",
        ),
    ] = None
    graph: Annotated[
        str | None,
        option(
            RUN,
            "Who talks to whom, for methods without a server: ring (their default), grid, complete, erdos:p=0.4, "
            "file:path=edges.txt.",
        ),
    ] = None
    init: Annotated[str, option(RUN, "The start: zero, or fedavg:rounds=10 (the paper's).")] = "zero"
    rounds: Annotated[int, option(RUN, "Most exchanges after the first one.")] = 100
    tol: Annotated[float, option(RUN, "Stop at this decrement (docs/method.md#the-end), by the workers' word.")] = 1e-8
    batch_size: Annotated[int | None, option(RUN, "Rows a worker samples for a gradient; default: all.")] = None
    hessian_batch: Annotated[int | None, option(RUN, "Rows a worker samples for the Hessian; default: all.")] = None
    engine: Annotated[
        str,
        option(RUN, "Where the workers run: local (local:dropout=0.3 plays absences), ray, flower, or a plug-in's."),
    ] = "local"
    seed: Annotated[int, option(RUN, "Of the partition, the masks and the mini-batches.")] = 0
    quiet: Annotated[bool, option(OUTPUT, "No live display.", "--quiet", "-q")] = False

    def __post_init__(self) -> None:
        if not self.data and not on_sites(self.engine):
            raise click.UsageError("Missing argument 'DATA'.", click.get_current_context(silent=True))

    def bound_policy(self) -> str:
        """The policy with --binding among its options."""
        if self.binding is None:
            return self.policy
        if self.policy.partition(":")[0] != "resource-aware":
            raise InputError(
                f"--binding: is for --policy resource-aware:deadline=..., not for {self.policy!r}; leave it out, or "
                "give the machines by --profiles and that policy"
            )
        return with_option(self.policy, "binding", str(self.binding).lower())

    def with_batches(self, method: str) -> str:
        """The text of a method with --batch-size and --hessian-batch among its options."""
        for name, size in (("batch_size", self.batch_size), ("hessian_batch", self.hessian_batch)):
            if size is not None and f"{name}=" in method.replace("-", "_"):
                raise InputError(
                    f"--{name.replace('_', '-')}={size}: is given in --method {method!r} already; give it once"
                )
            method = method if size is None else with_option(method, name, size)
        return method

    def job(self, *methods: str) -> Job:
        """What the options ask for: data, problem and these methods, made and checked."""
        from danl.cli.job import make_job  # here: --help should not wait for it

        return make_job(self, methods)


def shares_options(command: Callable[..., int]) -> Callable[..., int]:
    """Give `command(options, ...)` the options of RunOptions beside its own, in one signature for the parser."""
    shared, (_, *own) = (  # of its own without `options`
        [each.replace(kind=each.KEYWORD_ONLY) for each in inspect.signature(of, eval_str=True).parameters.values()]
        for of in (RunOptions, command)
    )

    def run(**values: Any) -> int:
        options = RunOptions(**{parameter.name: values.pop(parameter.name) for parameter in shared})
        try:
            return command(options, **values)
        except KeyboardInterrupt:  # outside a run, which ends with what it has; the parser would say nothing
            print("interrupted before there was anything to keep", file=sys.stderr)
            return 130

    run.__name__, run.__doc__ = command.__name__, command.__doc__
    # The data set first; within a panel of the help, what the command is about comes before what all commands share.
    ordered = [shared[0], *sorted([*own, *shared[1:]], key=_panel)]
    run.__signature__ = inspect.Signature(ordered)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in ordered}
    return run


def _panel(parameter: inspect.Parameter) -> int:
    return PANELS.index(get_args(parameter.annotation)[1].rich_help_panel)


def on_sites(engine: str) -> bool:
    """Whether an engine of the command line is a Flower federation, and not one played on this machine."""
    if engine.partition(":")[0].strip() != "flower":
        return False
    return parse_spec(engine, argument="engine")[1].get("simulate") is not True


def with_option(text: str, name: str, value: object) -> str:
    """The text of a method or an engine with one option more."""
    return f"{text}{',' if ':' in text else ':'}{name}={value}"
