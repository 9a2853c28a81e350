"""What is run: one `RunSpec` is one fit, written down so that it can be repeated, named and found again.

The paper's setting (its section 6): 10 workers, 4 regions, lambda = 1e-4, the start is the tenth iterate of FedAvg, and
the masks have given psi*, S* and gamma. It does not say how the masks were drawn, how FedAvg was set, or how often a
run was repeated; docs/reproduction.md lists what we chose.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import product

DATA = ("a1a", "a2a", "a3a", "phishing")
READINGS = ("danl-paper", "danl-masked", "danl")
PAPER = "lambda=0.0001"
"""The paper's penalty, lambda / (2 m) |w|^2."""
MILD = "alpha=0.001"
"""A penalty on the averaged loss at which raw memory can converge."""
PENALTIES = (PAPER, "alpha=0.0001", MILD)
START = "fedavg:rounds=10"
ROUNDS = 100
NEAR = "near"
"""Start at half the distance from w* that condition (iv) of Theorem 1 allows, in a random direction."""


@dataclass(frozen=True)
class RunSpec:
    """One fit."""

    data: str
    penalty: str
    """``lambda=...``, the paper's, or ``alpha=...``, absolute."""
    method: str
    """A method's spec; a learning rate may be given as a multiple of 1/L: ``gd:learning_rate=1.9/L``."""
    policy: str = "full"
    seed: int = 0
    """Of the shards, the masks and the start."""
    partition: str = "iid"
    start: str = START
    """``zero``, ``near``, or a method that makes the start."""
    decades: float = 0.0
    """Features are multiplied by 10^u, u uniform on +-decades/2: a badly scaled problem."""
    rounds: int = ROUNDS
    workers: int = 10
    regions: int = 4
    certified: bool = False
    """Whether Theorem 1's conditions are checked on it."""

    @property
    def problem(self) -> tuple[object, ...]:
        """What decides the shards and the objective: runs that agree in it share the optimum."""
        return self.data, self.penalty, self.partition, self.decades, self.workers, self.seed

    @property
    def name(self) -> str:
        """A file name a person can read, and a digest of every field that makes it the only one."""
        digest = hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:10]
        parts = [self.penalty, self.method, self.policy]
        parts += [self.partition] * (self.partition != "iid") + [self.start] * (self.start != START)
        words = [re.sub(r"[^\w.=]+", "-", part) for part in parts]
        return f"{'_'.join(words)}_seed{self.seed}_{digest}"


@dataclass(frozen=True)
class Curve:
    """One line of a figure: masks with a promise, and what the paper calls them."""

    label: str
    policy: str
    psi: int
    S: int
    gamma: int | None = None


@dataclass(frozen=True)
class FigureSpec:
    """One of the paper's two figures, or a variation of one: the same settings on every data set."""

    name: str
    title: str
    curves: tuple[Curve, ...]
    readings: tuple[str, ...] = READINGS

    def curve(self, psi: int, S: int = 4, gamma: int | None = None) -> Curve:
        """The line with these numbers."""
        return next(each for each in self.curves if (each.psi, each.S, each.gamma) == (psi, S, gamma))


def _figure2(name: str, title: str, waits: str = "", readings: tuple[str, ...] = READINGS) -> FigureSpec:
    curves = (
        Curve(f"psi*={psi}, gamma={gamma}", f"coverage:psi={psi},gamma={gamma}{waits}", psi, 4, gamma)
        for psi, gamma in ((1, 4), (2, 4), (1, 2), (2, 2))
    )
    return FigureSpec(name, f"Figure 2: coverage psi* and staleness gamma, {title}", tuple(curves), readings)


FIGURES = {
    figure.name: figure
    for figure in (
        FigureSpec(
            "fig1",
            "Figure 1: coverage psi* and trained regions S*",
            (
                Curve("psi*=1, S*=4", "coverage:psi=1", 1, 4),
                Curve("psi*=3, S*=4", "coverage:psi=3", 3, 4),
                Curve("psi*=10, S*=1", "subset:S=1,order=random", 10, 1),
            ),
        ),
        _figure2("fig2", "waits spread"),
        _figure2("fig2-longest", "longest waits", ",waits=longest", ("danl-masked",)),
    )
}
TARGETS = {"fig1": ("fig1",), "fig2": ("fig2", "fig2-longest")}
"""The figures each target of the command draws."""


@dataclass(frozen=True)
class Plan:
    """How much is run: on which data sets, with how many seeds, at which penalties."""

    data: tuple[str, ...] = DATA
    n_seeds: int = 5
    penalties: tuple[str, ...] = PENALTIES

    @property
    def seeds(self) -> range:
        return range(self.n_seeds)

    @property
    def first_and_last(self) -> tuple[str, str]:
        """The two data sets of claims that need many runs on each."""
        return self.data[0], self.data[-1]

    def figure_runs(self, name: str) -> list[RunSpec]:
        """Every run of a figure."""
        figure = FIGURES[name]
        combinations = product(self.data, self.penalties, figure.readings, figure.curves)
        return [run for parts in combinations for run in self.curve_runs(*parts)]

    def curve_runs(self, data: str, penalty: str, reading: str, curve: Curve) -> Iterator[RunSpec]:
        """The runs one line of a panel is made of, one a seed."""
        for seed in self.seeds:
            yield RunSpec(data, penalty, reading, curve.policy, seed)


QUICK = Plan(data=("a1a",), n_seeds=2, penalties=(PAPER, MILD))
"""One data set that comes with the package, two seeds, two penalties: under a minute."""
