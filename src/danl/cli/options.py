"""Options the commands share, and how they become, once, a problem, its methods and a run.

`RunOptions` is the list of them, one field an option; `shares_options` gives them to a command, so that `fit`,
`compare` and `certify` take the same options with the same meaning and only add their own.
"""

from __future__ import annotations

import inspect
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, get_args

import typer
from rich.console import Console

from danl.cli.display import ProgressLine
from danl.cli.terminal_view import TerminalView
from danl.data import Dataset, load_dataset, partition
from danl.data.fetch import digest_and_rows
from danl.engines import Engine, make_engine
from danl.errors import DanlWarning, InputError, bad_argument
from danl.methods import AnyMethod, make_method
from danl.objective.losses import MULTINOMIAL, Multinomial, make_loss, target_of
from danl.objective.problem import Problem
from danl.objective.regions import Regions
from danl.policies import Policy, Profile, make_policy, read_profiles
from danl.policies.profile_file import check_count
from danl.run.callback import AnyCallback
from danl.run.result import Reference, Result
from danl.run.solver import reference_optimum, solve
from danl.run.trace import Trace
from danl.spec import parse_spec
from danl.wording import counted

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
            metavar="DATA", help="A registered data set (danl datasets list), or a LIBSVM, CSV or Parquet file."
        ),
    ]
    workers: Annotated[int | None, option(DATA, "Number of workers; default 10, or one per site.")] = None
    partition: Annotated[
        str,
        option(DATA, "How rows are dealt out: iid, sorted[:shuffle=0.2], dirichlet:alpha=0.5, quantity:alpha=1, site."),
    ] = "iid"
    n_features: Annotated[
        int | None, option(DATA, "Number of features of a LIBSVM file; default: its largest index.")
    ] = None
    zero_based: Annotated[bool, option(DATA, "Indices of a LIBSVM file start at 0, not 1.", "--zero-based")] = False
    target: Annotated[str | None, option(DATA, "Target column of a CSV or Parquet file; default: the last.")] = None
    site: Annotated[str | None, option(DATA, "Column with the site of each row: one worker per site.")] = None
    weight: Annotated[str | None, option(DATA, "Column with the weight of each row.")] = None
    loss: Annotated[str, option(PROBLEM, "logistic, multinomial, squared, poisson, squared_hinge, or a plug-in's.")] = (
        "logistic"
    )
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

    def job(self, *methods: str) -> Job:
        """Make everything that has a name; then load the data, divide it, and state the problem."""
        made = {method: make_method(self.with_batches(method)) for method in methods}
        profiles = None if self.profiles is None else read_profiles(self.profiles)
        policy, engine, start = make_policy(self.bound_policy(), profiles), make_engine(self.engine), self.start()
        loss = None if self.loss == MULTINOMIAL else make_loss(self.loss)
        data = load_dataset(
            self.data,
            n_features=self.n_features,
            zero_based=self.zero_based,
            target="classes" if loss is None else target_of(loss),
            target_column=self.target,
            site_column=self.site,
            weight_column=self.weight,
        )
        scheme = "site" if self.site is not None and self.partition == "iid" else self.partition
        if scheme == "site" and data.sites is None:
            raise InputError("partition='site': needs the site of each row; name the column that has it with --site")
        shards = partition(
            data.X,
            data.y,
            workers=10 if self.workers is None and scheme != "site" else self.workers,
            scheme=scheme,
            seed=self.seed,
            weights=data.weights,
            sites=data.sites,
            feature_names=data.feature_names,
        )
        problem = Problem(
            shards,
            loss=Multinomial(len(data.classes or ())) if loss is None else loss,
            l2=self.l2,
            alpha=self.alpha,
            weighting=self.weighting,
            intercept=self.intercept,
        )
        if self.profiles is not None and profiles is not None:
            check_count(self.profiles, profiles, problem.n_workers)
        regions = problem.layout.regions(self.regions, data.feature_names)
        penalty = f"alpha {problem.alpha:g}" if problem.alpha is not None else f"lambda {problem.l2:g}"
        title = (
            f"{data.name}: {counted(problem.n_workers, 'worker')} ({scheme}), "
            f"{counted(regions.n_regions, 'region')}, {self.policy}, "
            f"{problem.loss.name}, {penalty}{', intercept' if problem.intercept else ''}"
        )
        return Job(data, problem, regions, scheme, title, profiles, made, policy, engine, start)

    def start(self) -> AnyMethod | None:
        """The method that makes the start; None for zeros."""
        if self.init == "zero":
            return None
        name, options = parse_spec(self.init, argument="init")
        if name != "fedavg" or "rounds" not in options:
            raise bad_argument("init", self.init, "zero or fedavg with its rounds", "for example fedavg:rounds=10")
        return make_method(self.init)

    def with_batches(self, method: str) -> str:
        """The text of a method with --batch-size and --hessian-batch among its options."""
        for name, size in (("batch_size", self.batch_size), ("hessian_batch", self.hessian_batch)):
            if size is not None and f"{name}=" in method.replace("-", "_"):
                raise InputError(
                    f"--{name.replace('_', '-')}={size}: is given in --method {method!r} already; give it once"
                )
            method = method if size is None else with_option(method, name, size)
        return method

    def reference(self, job: Job, screen: Console) -> Reference:
        """Compute the optimum to measure against, and say so while it takes."""
        waiting = nullcontext() if self.quiet else screen.status("computing the optimum to measure against")
        with waiting, warnings.catch_warnings():
            warnings.simplefilter("ignore", DanlWarning)  # the run itself will say it
            return reference_optimum(job.problem)

    def solve(
        self,
        job: Job,
        method: str,
        screen: Console,
        *,
        trace: Trace | None = None,
        live: bool = False,
        callbacks: Sequence[AnyCallback] = (),
        **arguments: Any,
    ) -> Result:
        """Run one method of the job, with the live display; a warning becomes one line when the display is gone."""
        trace = Trace(newest=1) if trace is None and live else trace
        with warnings_shown(screen) as said, self.display(screen, job.title, method, trace, live) as shown:
            result = solve(
                job.problem,
                method=job.methods[method],
                regions=job.regions,
                policy=job.policy,
                w0=job.start,
                max_rounds=self.rounds,
                tol=self.tol,
                seed=self.seed,
                engine=job.engine,
                profiles=job.profiles,
                callback=[shown, *callbacks],
                trace=trace,
                **arguments,
            )
            said.extend(result.notes)
        return result

    def display(
        self, screen: Console, title: str, method: str, trace: Trace | None, live: bool
    ) -> ProgressLine | TerminalView:
        """What follows the run: one line, or the view of --live."""
        if live:
            return TerminalView(screen, title, method, self.rounds, self.tol, trace)
        return ProgressLine(screen, method, self.rounds, quiet=self.quiet)


@contextmanager
def warnings_shown(screen: Console) -> Iterator[list[str]]:
    """Print danl's warnings after the display is gone, except those in the result's notes, which go into the list."""
    said: list[str] = []
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", DanlWarning)
        yield said
    for each in warned:
        if str(each.message) not in said:
            screen.print(f"warning: {each.message}", style="yellow", soft_wrap=True, markup=False)


@dataclass(frozen=True)
class Job:
    """What the options ask for, made once: data, problem, methods by their text, policy, engine; a title for people."""

    data: Dataset
    problem: Problem
    regions: Regions
    partition: str
    title: str
    profiles: Sequence[Profile] | None
    methods: Mapping[str, AnyMethod]
    policy: Policy
    engine: Engine
    start: AnyMethod | None

    @property
    def data_summary(self) -> dict[str, Any]:
        """What --json says of the data."""
        return {"data": self.data.name, "rows": int(self.problem.rows.sum()), "partition": self.partition}

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the data's text, unpacked where the file is packed; taken once, however many runs are written."""
        return digest_and_rows(Path(self.data.source))[0]


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


def with_option(text: str, name: str, value: object) -> str:
    """The text of a method or an engine with one option more."""
    return f"{text}{',' if ':' in text else ':'}{name}={value}"
