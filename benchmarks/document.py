"""docs/benchmarks.md: every part measured in a process of its own, one run, and the document made of its rows alone."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import THREADS
from benchmarks.__main__ import PARTS
from benchmarks.blocks import BLOCKS
from benchmarks.measure import prose, table
from benchmarks.parts import part, write_json

ROOT = Path(__file__).resolve().parents[1]
DOCUMENT = ROOT / "docs" / "benchmarks.md"
IMAGES = ROOT / "docs" / "images"
ROWS = ROOT / "benchmarks" / "rows.json"
"""The rows of the run the document shows."""

Run = dict[str, dict[str, Any]]

OPENING = """
What danl costs next to other solvers, next to a bare gradient, and as a problem grows. `make bench` measures everything
on this page again and writes the page, its figures and `benchmarks/rows.json`; `python -m benchmarks NAME` makes one
part of it ({names}). All numbers are from one machine, those of a part from one run.
"""
WHERE = """
{processor}, {cores} cores, {system}; {commit}; {versions}. Threads are pinned to one, by the environment ({pinned})
and by threadpoolctl, which reports as threads of the libraries: {pools}. Load of the machine, averaged over the last
minute of each part: {loads}; the part itself is about 1 of it. The run took {minutes:.0f} minutes.
"""
HOW = """
What is compared is timed in turn within one process, so that whatever else the machine does meets all of it, and who
begins changes from time to time. The first time does not count, and of the others the best stands in the table: noise
only ever adds. Garbage is collected before each run and the collector is left on. Parts run one after the other, in
processes of their own.
"""
LIMITS = (
    """**One thread**, but for the threads part: several solvers would use more cores for parts of their work.""",
    """**In process.** Nothing crosses a network in the speed, rounds and growth parts: they show what the computation
    and the bookkeeping cost. What a network would cost is simulated in the network part, from bytes and exchanges that
    are real and speeds that are made up; workers there share no link, and the server's own link has no limit.""",
    """**The peers know the answer.** Each of their tolerances in the speed part is the loosest of the grid that reaches
    the norm, found beforehand. That is more than a user would know; the grid makes some go further than needed. danl's
    is its default, which asks for more than that norm.""",
    """**What is on the clock.** scikit-learn and glum check their input and prepare it inside `fit`. danl's shards are
    made and its data is checked before its clock starts, as a worker has its rows before a run; what `danl.solve`
    prepares of them is on the clock.""",
    """**"Does not reach it"** is about a solver as its package offers it, with its stopping rules: scikit-learn's lbfgs
    also stops when the objective no longer falls in its last digits. It is not about L-BFGS.""",
    """**A data set is not all data.** The four of the speed part are sparse, of a few megabytes, and fit the
    processor's caches in part; the penalty is mild. Synthetic rows are spread evenly over columns and workers, real
    ones are not.""",
    """**An objective is not a model.** In the shapes part danl ends where scikit-learn's defaults end, which is a few
    digits of the objective and fewer of the coefficients; what it takes to its own end is beside it.""",
    """**Peaks of memory** are those of the resident set. They depend on the allocator, and small ones on the page
    size.""",
    """**A line through logarithms** is a summary: a time that is a constant plus a linear part has an exponent between
    0 and 1 that depends on where one looks. The points are in the tables.""",
)


def speed_block(run: Run) -> str:
    """The short table of these rows, for the README."""
    where = run["speed"]["environment"]
    made = f"Measured with danl {where['versions']['danl']} ({where['commit']}), Python {where['versions']['Python']}."
    return f"{part('speed').short_table(run['speed']['rows'])}\n\n{made}"


def speed_headers() -> list[list[str]]:
    return [part("speed").short_header(part("speed").DATA)]


def measure_all(*, quick: bool) -> Run:
    """Every part in a process of its own."""
    run: Run = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in PARTS:
            print(f"== {name}", file=sys.stderr, flush=True)
            path = Path(folder) / f"{name}.json"
            command = [sys.executable, "-m", "benchmarks", name, "--json", str(path), *(["--quick"] if quick else [])]
            subprocess.run(command, check=True, cwd=ROOT, env={**os.environ, **THREADS}, stdout=subprocess.DEVNULL)
            run[name] = json.loads(path.read_text(encoding="utf-8"))
    return run


def markdown(run: Run, images: dict[str, list[tuple[str, str]]]) -> str:
    """The document; `images` has the figures of each part, by path from the document and by text."""
    names = ", ".join(f"`{name}`" for name in PARTS)
    parts = ["# Benchmarks", prose(OPENING, names=names), "## At a glance", glance(run)]
    parts += ["## Where and how", where(run), prose(HOW)]
    for name, found in run.items():
        module = part(name)
        parts += [f"## {module.TITLE}", f"`python -m benchmarks {name}`", module.markdown(found["rows"])]
        parts += [f"![{text}]({path})" for path, text in images.get(name, [])]
    limits = [prose("- " + text, indent="  ") for text in LIMITS]
    parts += ["## What the numbers do not say", "\n".join(limits)]
    return "\n\n".join(parts) + "\n"


def glance(run: Run) -> str:
    """Every number that is held against a bar."""
    words = {True: "yes", False: "**no**", None: "-"}
    lines = [
        [what, measured, bar, words[met]]
        for name, found in run.items()
        for what, measured, bar, met in part(name).goals(found["rows"])
    ]
    return table(["what", "measured", "at most", "met"], lines)


def where(run: Run) -> str:
    """The machine, the versions and the threads."""
    first = next(iter(run.values()))["environment"]
    versions = ", ".join(f"{name} {version}" for name, version in first["versions"].items())
    pools = {
        f"{pool['internal_api']} {pool['version'] or ''}".strip(): pool["num_threads"]
        for found in run.values()
        for pool in found["environment"]["pools"]
    }
    return prose(
        WHERE,
        **{name: first[name] for name in ("processor", "cores", "system")},
        versions=versions,
        commit=", ".join(commits_of(run)),
        pinned=", ".join(f"`{name}={value}`" for name, value in first["threads"].items()),
        pools=", ".join(f"{name} {count}" for name, count in sorted(pools.items())),
        loads=", ".join(f"{name} {found['environment']['load']}" for name, found in run.items()),
        minutes=sum(found["seconds"] for found in run.values()) / 60,
    )


def commits_of(run: Run) -> list[str]:
    """The commit of most parts, and of others that were measured by themselves."""
    parts_of: dict[str, list[str]] = {}
    for name, found in run.items():
        parts_of.setdefault(found["environment"]["commit"], []).append(name)
    first, *others = sorted(parts_of, key=lambda commit: -len(parts_of[commit]))
    return [first, *(f"{' and '.join(parts_of[each])} with {each}" for each in others)]


def draw(run: Run, folder: Path, prefix: str) -> dict[str, list[tuple[str, str]]]:
    """Draw every figure; what the document needs of them."""
    return {
        name: [(f"{prefix}{path.name}", text) for path, text in part(name).plots(found["rows"], folder)]
        for name, found in run.items()
    }


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks all", description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="small sizes and few repeats: to see that it runs")
    parser.add_argument("--docs", action="store_true", help="write docs/benchmarks.md, its figures and its rows")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows to FILE")
    parser.add_argument("--from-json", type=Path, metavar="FILE", help="measure nothing; read what --json wrote")
    options = parser.parse_args(words)
    if options.from_json:
        run: Run = json.loads(options.from_json.read_text(encoding="utf-8"))
    else:
        run = measure_all(quick=options.quick)
    if options.json:
        write_json(options.json, run)
    if not options.docs:
        with tempfile.TemporaryDirectory() as folder:
            print(markdown(run, draw(run, Path(folder), "images/")))
        return 0
    if any(found["quick"] for found in run.values()):
        parser.error("--docs takes no quick rows: they show that it runs, and nothing else")
    write_json(ROWS, run)
    for old in IMAGES.glob("bench-*.png"):
        old.unlink()
    DOCUMENT.write_text(markdown(run, draw(run, IMAGES, "images/")), encoding="utf-8")
    BLOCKS["speed"].write(speed_block(run))
    print(f"written: {DOCUMENT.relative_to(ROOT)}, README.md's table, {ROWS.relative_to(ROOT)}", file=sys.stderr)
    return 0
