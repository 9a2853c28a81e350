"""docs/field.md: every method of the field on the same tasks, what each takes, and what its paper claims.

python -m benchmarks field --quick      one problem, under two minutes, printed
python -m benchmarks field --docs       everything, into docs/field.md and docs/images; goes on where it was stopped
"""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks import rivals
from benchmarks.blocks import made_with, markdown_table, put_between_markers
from benchmarks.field_report import (
    GAPS,
    Judged,
    against_table,
    by_problem,
    curves,
    judged,
    overview,
    profile,
    sentences,
    winners_table,
)
from benchmarks.field_runs import PASSES, QUICK, STALLED, FieldStore, Plan, complete, pool
from benchmarks.network import NETWORKS

ROOT = Path(__file__).resolve().parents[1]
DOCUMENT, IMAGES = ROOT / "docs" / "field.md", ROOT / "docs" / "images"
CLAIM_COLUMNS = ("method", "says", "tried", "measured", "bar", "holds")


def claims(store: FieldStore, *, processes: int, say: Callable[[str], object]) -> list[dict[str, Any]]:
    """What every paper says, tried; kept like the runs."""
    names = sorted(each.name for each in pkgutil.iter_modules(rivals.__path__))
    found = {name: store.read_claim(name) for name in names}
    missing = [name for name, claim in found.items() if claim is None]
    with pool(processes, len(missing)) as workers:
        for name, claim in zip(missing, workers.map(_claim, missing), strict=True):
            store.write_claim(name, claim)
            found[name] = claim
            say(f"claim of {name}")
    return [claim for claim in found.values() if claim is not None]


def _claim(name: str) -> dict[str, Any]:
    begun = time.process_time()
    claim: dict[str, Any] = importlib.import_module(f"benchmarks.rivals.{name}").claim()
    plain = {key: value if isinstance(value, bool) else str(value) for key, value in claim.items()}
    return plain | {"seconds": time.process_time() - begun}


def claims_table(found: list[dict[str, Any]]) -> str:
    lines = [
        [
            f"`{each['method']}`",
            *(_cell(each[name]) for name in CLAIM_COLUMNS[1:-1]),
            "yes" if each["holds"] else "**no**",
        ]
        for each in found
    ]
    return markdown_table(list(CLAIM_COLUMNS), lines, left=len(CLAIM_COLUMNS))


def _cell(text: object) -> str:
    """Text as a cell of a table: a bar in it ends none."""
    return str(text).replace("|", "\\|").replace("*", "\\*")


def report(rows: list[Judged], plan: Plan, found: list[dict[str, Any]], core_minutes: float) -> str:
    """What stands between the markers."""
    networks = ". ".join(network.described() for network in NETWORKS)
    parts = [
        f"{len(plan.data)} data sets, {len(plan.penalties)} penalties, {' and '.join(map(str, plan.workers))} workers, "
        f"{' and '.join(plan.partitions)} shards, {len(plan.seeds)} seeds: {len(rows)} runs from zero, of at most "
        f"{plan.rounds + 1} exchanges and some {PASSES:,} passes over the data; one that blows up ends sooner, and one "
        f"that has not halved its gap in {STALLED} exchanges. They took {core_minutes:.0f} minutes of one core, tuning "
        f"and claims included. {networks}.",
        "### Who gets there",
        overview(rows),
        "### Who takes the least",
        winners_table(rows),
        "### Beside `danl`",
        against_table(rows),
    ]
    for name, text in (("up", "Bytes that a worker sends"), ("exchanges", "Exchanges")):
        for gap in GAPS[1:2] if len(plan.data) == 1 else GAPS:
            title = f"### {text} to a gap of {gap:.0e}, {plan.workers[0]} workers, even shards"
            parts += [title, by_problem(rows, name, gap, plan.workers[0], plan.partitions[0])]
    parts += ["### In sentences", "\n".join(f"- {each}" for each in sentences(rows))]
    if found:
        parts += ["### What the papers claim", claims_table(found)]
    return "\n\n".join([*parts, made_with()])


def _words(text: str) -> tuple[str, ...]:
    return tuple(word for word in text.split(",") if word)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, _words(text)))


def chosen(plan: Plan, options: argparse.Namespace) -> Plan:
    """The part of a plan that the command line asks for."""
    given = {"data": options.data, "workers": options.workers}
    given["seeds"] = None if options.seeds is None else tuple(range(options.seeds))
    return replace(plan, **{name: value for name, value in given.items() if value is not None})


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks field", description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="one problem, one seed, 60 exchanges")
    parser.add_argument("--docs", action="store_true", help="into docs/field.md, with its figures")
    parser.add_argument("--out", type=Path, default=ROOT / "field", metavar="DIR", help="where runs are kept")
    parser.add_argument("--data", type=_words, help="some of the data sets, separated by commas")
    parser.add_argument("--workers", type=_numbers, help="some of the numbers of workers")
    parser.add_argument("--seeds", type=int, help="so many seeds")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--no-claims", action="store_true", help="leave out what the papers claim")
    options = parser.parse_args(words)
    plan, store = chosen(QUICK if options.quick else Plan(), options), FieldStore(options.out)
    begun = time.perf_counter()

    def say(text: str) -> None:
        print(f"{time.perf_counter() - begun:6.0f} s: {text}", file=sys.stderr, flush=True)

    say("step sizes")
    complete(store, plan.tuning(), processes=options.processes, say=say)
    say("runs")
    complete(store, list(plan.runs(store)), processes=options.processes, say=say)
    rows = judged(plan, store)
    found = [] if options.no_claims else claims(store, processes=options.processes, say=say)
    tuned = [record for record in map(store.read, plan.tuning()) if record is not None]
    seconds = [float(each["seconds"]) for each in (*tuned, *(row.record for row in rows), *found)]
    text = report(rows, plan, found, sum(seconds) / 60)
    folder = IMAGES if options.docs else options.out
    folder.mkdir(parents=True, exist_ok=True)
    profile(rows, folder / "field-profile.png")
    shown = [name for name in ("a1a", "phishing", "w8a") if name in plan.data]
    curves(rows, folder / "field-curves.png", shown, plan.penalties[0], plan.workers[0], plan.partitions[0])
    if options.docs:
        put_between_markers(DOCUMENT, text, "field")
    else:
        print(text)
    say("done")
    return 0
