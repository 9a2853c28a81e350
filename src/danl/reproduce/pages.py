"""What a reproduction says: the verdicts as JSON and as a page, the environment they were made in, and the figures.

    claims.json        the verdicts, for machines
    claims.md          the verdicts, for people: a table, then each with its rule and its numbers
    index.md           the figures, the table of verdicts, the open points
    environment.json   versions, machine, data digests, plan

Everything is made from the stored rows and the verdicts; nothing here decides anything.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

from danl._version import __version__
from danl.checks import is_installed
from danl.reproduce.claims.base import NumbersTable, Verdict
from danl.reproduce.curves import slug
from danl.reproduce.open_points import OPEN_POINTS
from danl.reproduce.runs import FIGURES, PAPER, ROUNDS, Plan, RunSpec
from danl.reproduce.store import code_digest
from danl.wording import number

LIBRARIES = {"numpy": "numpy", "scipy": "scipy", "scikit-learn": "sklearn", "matplotlib": "matplotlib"}
"""What the numbers and figures depend on, with the names by which it is imported."""


def environment(plan: Plan, digests: Mapping[str, str]) -> dict[str, Any]:
    """What the numbers depend on."""
    return {
        "danl": __version__,
        "code_sha256": code_digest(),
        "plan": asdict(plan) | {"seeds": list(plan.seeds)},
        "data_sha256": dict(digests),
        "versions": {"python": platform.python_version()}
        | {name: metadata.version(name) for name, module in LIBRARIES.items() if is_installed(module)},
        "machine": {"platform": platform.platform(), "processor": processor(), "cores": os.cpu_count()},
    }


def processor() -> str:
    """The processor's name where the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def claims_dictionary(verdicts: Sequence[Verdict], plan: Plan) -> dict[str, Any]:
    """The verdicts as plain data."""
    return {"plan": asdict(plan), "verdicts": [asdict(verdict) for verdict in verdicts]}


def verdict_from(entry: Mapping[str, Any]) -> Verdict:
    """A verdict as `claims_dictionary` wrote it."""
    rows = tuple(tuple(row) for row in entry["numbers"]["rows"])
    table = NumbersTable(tuple(entry["numbers"]["columns"]), rows)
    return Verdict(**{**entry, "numbers": table, "readings": tuple(entry["readings"])})


def claims_page(verdicts: Sequence[Verdict], plan: Plan) -> str:
    sections = [verdict_section(verdict) for verdict in verdicts]
    return "\n".join(["# The paper's claims", "", setting(plan), "", verdict_table(verdicts), "", *sections])


def verdict_table(verdicts: Iterable[Verdict]) -> str:
    return _table(
        ("claim", "verdict", "why"), [(cell(each.statement), word(each), cell(each.why)) for each in verdicts]
    )


def word(verdict: Verdict) -> str:
    """The verdict, with the readings it holds for where it does not hold for all."""
    if verdict.word == "holds for some readings":
        return f"**holds for** {cell('; '.join(verdict.readings))}"
    return f"**{verdict.word}**"


def verdict_section(verdict: Verdict) -> str:
    """One claim with everything that was looked at."""
    return f"""## {verdict.claim}

{verdict.statement} ({verdict.where})

- Verdict: {word(verdict)}. {verdict.why}
- Run: {verdict.run}
- Rule: {verdict.rule}

{markdown_table(verdict.numbers)}
"""


def markdown_table(table: NumbersTable) -> str:
    return _table([cell(name) for name in table.columns], [[cell(value) for value in row] for row in table.rows])


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Cells of Markdown as its table."""
    return "\n".join(f"| {' | '.join(line)} |" for line in (columns, ["---"] * len(columns), *rows))


def cell(value: Any) -> str:
    """A value in a cell: a dash where it is not known, and nothing that ends the cell early."""
    if value is None or isinstance(value, float):
        return number(value, ".3g")
    return str(value).replace("|", "\\|").replace("\n", " ").replace("*", "\\*")


def setting(plan: Plan) -> str:
    return (
        f"Data sets: {', '.join(plan.data)}. Seeds: {plan.n_seeds}. Penalties: {', '.join(plan.penalties)} "
        f"(lambda is the paper's, lambda/(2m) |w|^2; alpha is on the averaged loss). {RunSpec.workers} workers, "
        f"{RunSpec.regions} regions, start: 10 rounds of FedAvg, {ROUNDS} rounds."
    )


def index_page(
    plan: Plan, figures: Sequence[Path], tables: Sequence[tuple[str, NumbersTable]], verdicts: Sequence[Verdict] | None
) -> str:
    """index.md: the figures, their tables and the verdicts of this folder."""
    lines = ["# Reproduction", "", setting(plan), ""]
    for name, figure in FIGURES.items():
        own = tuple(f"{name}-{reading}-" for reading in ("overview", *figure.readings))
        drawn = [path for path in figures if path.suffix == ".png" and path.name.startswith(own)]
        lines += [f"## {figure.title}", ""] if drawn else []
        # Overviews first; the paper's penalty before the others.
        drawn.sort(key=lambda path: ("overview" not in path.name, slug(PAPER) not in path.name, path.name))
        lines += [f"![{path.stem}](figures/{path.name})\n" for path in drawn]
    if any(path.name == "penalties.png" for path in figures):
        lines += ["## Where each reading converges", "", "![penalties](figures/penalties.png)", ""]
    if verdicts is not None:
        lines += ["## Claims", "", "Rules and numbers: [claims.md](claims.md).", "", verdict_table(verdicts), ""]
    for title, table in tables:
        lines += [f"## {title}", "", markdown_table(table), ""]
    return "\n".join([*lines, "## Differences and open points", "", open_points(), ""])


def open_points() -> str:
    """What the paper leaves open or contradicts, and what we chose."""
    return markdown_table(NumbersTable(("in the paper", "here"), OPEN_POINTS))
