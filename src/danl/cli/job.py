"""What the options of the command line ask for, made once: a problem, its methods, and the run of one of them."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from rich.console import Console

from danl.cli.display import ProgressLine
from danl.cli.options import RunOptions
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
from danl.protocol.graph import Graph, make_graph
from danl.run.callback import AnyCallback
from danl.run.result import Reference, Result
from danl.run.solver import reference_optimum, solve
from danl.run.trace import Trace
from danl.spec import parse_spec
from danl.wording import counted


@dataclass(frozen=True)
class Job:
    """What the options ask for, made once: data, problem, methods by their text, policy, engine; a title for people."""

    options: RunOptions
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
    graph: Graph | None

    @property
    def data_summary(self) -> dict[str, Any]:
        """What --json says of the data."""
        return {"data": self.data.name, "rows": int(self.problem.rows.sum()), "partition": self.partition}

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the data's text, unpacked where the file is packed; taken once, however many runs are written."""
        return digest_and_rows(Path(self.data.source))[0]

    def reference(self, screen: Console) -> Reference:
        """Compute the optimum to measure against, and say so while it takes."""
        waiting = nullcontext() if self.options.quiet else screen.status("computing the optimum to measure against")
        with waiting, warnings.catch_warnings():
            warnings.simplefilter("ignore", DanlWarning)  # the run itself will say it
            return reference_optimum(self.problem)

    def solve(
        self,
        method: str,
        screen: Console,
        *,
        trace: Trace | None = None,
        live: bool = False,
        callbacks: Sequence[AnyCallback] = (),
        **arguments: Any,
    ) -> Result:
        """Run one of the methods, with the live display; a warning becomes one line when the display is gone."""
        trace = Trace(newest=1) if trace is None and live else trace
        with warnings_shown(screen) as said, display(self.options, screen, self.title, method, trace, live) as shown:
            result = solve(
                self.problem,
                method=self.methods[method],
                regions=self.regions,
                policy=self.policy,
                w0=self.start,
                max_rounds=self.options.rounds,
                tol=self.options.tol,
                seed=self.options.seed,
                engine=self.engine,
                profiles=self.profiles,
                graph=self.graph,
                callback=[shown, *callbacks],
                trace=trace,
                **arguments,
            )
            said.extend(result.notes)
        return result


def make_job(options: RunOptions, methods: Sequence[str]) -> Job:
    """Make everything that has a name; then load the data, divide it, and state the problem."""
    made = {method: make_method(options.with_batches(method)) for method in methods}
    profiles = None if options.profiles is None else read_profiles(options.profiles)
    policy = make_policy(options.bound_policy(), profiles)
    engine, start = make_engine(options.engine), start_of(options)
    loss = None if options.loss == MULTINOMIAL else make_loss(options.loss)
    data = load_dataset(
        options.data,
        n_features=options.n_features,
        zero_based=options.zero_based,
        target="classes" if loss is None else target_of(loss),
        target_column=options.target,
        site_column=options.site,
        weight_column=options.weight,
    )
    scheme = "site" if options.site is not None and options.partition == "iid" else options.partition
    if scheme == "site" and data.sites is None:
        raise InputError("partition='site': needs the site of each row; name the column that has it with --site")
    shards = partition(
        data.X,
        data.y,
        workers=10 if options.workers is None and scheme != "site" else options.workers,
        scheme=scheme,
        seed=options.seed,
        weights=data.weights,
        sites=data.sites,
        feature_names=data.feature_names,
    )
    problem = Problem(
        shards,
        loss=Multinomial(len(data.classes or ())) if loss is None else loss,
        l2=options.l2,
        alpha=options.alpha,
        weighting=options.weighting,
        intercept=options.intercept,
    )
    if options.profiles is not None and profiles is not None:
        check_count(options.profiles, profiles, problem.n_workers)
    regions = problem.layout.regions(options.regions, data.feature_names)
    penalty = f"alpha {problem.alpha:g}" if problem.alpha is not None else f"lambda {problem.l2:g}"
    title = (
        f"{data.name}: {counted(problem.n_workers, 'worker')} ({scheme}), "
        f"{counted(regions.n_regions, 'region')}, {options.policy}, "
        f"{problem.loss.name}, {penalty}{', intercept' if problem.intercept else ''}"
    )
    graph = None if options.graph is None else make_graph(options.graph, problem.n_workers, options.seed)
    return Job(options, data, problem, regions, scheme, title, profiles, made, policy, engine, start, graph)


def start_of(options: RunOptions) -> AnyMethod | None:
    """The method that makes the start; None for zeros."""
    if options.init == "zero":
        return None
    name, given = parse_spec(options.init, argument="init")
    if name != "fedavg" or "rounds" not in given:
        raise bad_argument("init", options.init, "zero or fedavg with its rounds", "for example fedavg:rounds=10")
    return make_method(options.init)


def display(
    options: RunOptions, screen: Console, title: str, method: str, trace: Trace | None, live: bool
) -> ProgressLine:
    """What follows the run: one line, or the view of --live."""
    if live:
        from danl.cli.terminal_view import TerminalView  # here: only --live needs it

        return TerminalView(screen, title, method, options.rounds, options.tol, trace)
    return ProgressLine(screen, method, options.rounds, quiet=options.quiet)


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
