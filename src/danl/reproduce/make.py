"""From a plan to files: run what is missing, draw, judge, pages.

1  rows       pool.complete, into the store
2  figures    drawing.draw_all, from the store
3  verdicts   claims.judge_all, from the store
4  pages      pages.index_page and claims_page, from figures and verdicts
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from danl.reproduce import pages
from danl.reproduce.claims import claim_runs, judge_all
from danl.reproduce.claims.base import Verdict
from danl.reproduce.drawing import draw_all
from danl.reproduce.execute import digest
from danl.reproduce.pool import complete, missing_runs
from danl.reproduce.runs import TARGETS, Plan, RunSpec
from danl.reproduce.store import Store
from danl.reproduce.tables import all_tables
from danl.storage.atomic import write_json, write_text

CLAIMS = "claims"


@dataclass(frozen=True)
class Needed:
    """The runs a command stands on, and those of them that are not there yet."""

    runs: tuple[RunSpec, ...]
    missing: tuple[RunSpec, ...]

    @property
    def rounds(self) -> int:
        """Rounds that have to be done."""
        return sum(run.rounds for run in self.missing)


@dataclass(frozen=True)
class Made:
    """What was made: the figures' files and the verdicts (None where claims were not asked for)."""

    figures: tuple[Path, ...]
    verdicts: tuple[Verdict, ...] | None


def needed(plan: Plan, targets: Collection[str], out: Path) -> Needed:
    """Which runs the targets (fig1, fig2, claims) need, and which of them have to be done."""
    runs = [run for figure in figures_of(targets) for run in plan.figure_runs(figure)]
    if CLAIMS in targets:
        runs += claim_runs(plan)
    unique = tuple(dict.fromkeys(runs))
    return Needed(unique, tuple(missing_runs(Store(out), unique)))


def make(
    plan: Plan,
    targets: Collection[str],
    out: Path,
    runs: Needed,
    *,
    processes: int | None = None,
    progress: Callable[[int], object] = lambda done: None,
    waiting: Callable[[str], AbstractContextManager[object]] = lambda what: nullcontext(),
) -> Made | None:
    """Make the targets in the folder `out`; None if somebody pressed Ctrl-C, and then all that was run is kept.

    `runs` are those of `needed(plan, targets, out)`: what is in the folder already is not done again. `progress` gets
    how many rounds of the missing ones are done; `waiting` makes the context for a step that takes a moment.
    """
    store, missing = Store(out), runs.missing
    read = cache(store.read)  # tables and claims look at the same runs
    out.mkdir(parents=True, exist_ok=True)
    digests = {name: digest(name) for name in plan.data}
    write_json(out / "environment.json", pages.environment(plan, digests))
    if missing and not complete(store, list(missing), processes=processes or os.cpu_count() or 1, progress=progress):
        return None
    names, figures, tables = figures_of(targets), [], []
    if names:
        with waiting("drawing the figures"):
            figures = draw_all(store, plan, names, out / "figures")
            tables = all_tables(plan, names, read)
    verdicts: list[Verdict] | None = None
    if CLAIMS in targets:
        with waiting("judging the claims"):
            verdicts = judge_all(plan, read)
        write_json(out / "claims.json", pages.claims_dictionary(verdicts, plan))
        write_text(out / "claims.md", pages.claims_page(verdicts, plan))
    write_text(out / "index.md", pages.index_page(plan, figures, tables, verdicts))
    return Made(tuple(figures), None if verdicts is None else tuple(verdicts))


def figures_of(targets: Collection[str]) -> list[str]:
    """The figures the targets draw."""
    return [figure for target, figures in TARGETS.items() if target in targets for figure in figures]
