"""The tables of docs/method.md, made from the rows that `benchmarks.convergence` measured."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from statistics import median
from typing import Any

from benchmarks.blocks import made_with
from benchmarks.blocks import markdown_table as table

HEADER = ["runs", "exchanges", "Hessians", "bytes", "ended"]
BY_BLOCK, BY_POLICY = ["block", "setting", "bar", *HEADER, "over", "status"], ["policy", *HEADER]

Rows = list[dict[str, Any]]


def markdown(rows: Rows, blocks: Iterable[Any], missed: list[str]) -> str:
    """Everything: by block, absences, by mask policy, and where it was measured."""
    names = ", ".join(dict.fromkeys(row["data"] for row in rows))
    seeds = ", ".join(str(seed) for seed in sorted({row["seed"] for row in rows}))
    parts = [
        f"{len(rows):,} runs on {names}; seeds {seeds}; {len(missed)} over their bar.",
        table(
            BY_BLOCK,
            [by_block(block, of_block(rows, block.name), missed) for block in blocks if of_block(rows, block.name)],
            left=2,
        ),
    ]
    ratios = absence_ratios(rows)
    if ratios:
        parts.append(
            f"Block 3a took {median(ratios):.1f} times the exchanges of the same run in block 1 at the median, "
            f"{max(ratios):.1f} times at worst."
        )
    first = of_block(rows, "1")
    for what, own in (
        ("partial", [row for row in first if row["policy"] != "full"]),
        ("full", [row for row in first if row["policy"] == "full"]),
    ):
        if own:
            newton, memory = (sum(row[name] for row in own) for name in ("newton_steps", "memory_steps"))
            parts.append(
                f"Steps taken in block 1 with {what} masks: {newton:,} right after a Hessian exchange, {memory:,} from "
                f"the memory after a gradient exchange."
            )
    if first:
        policies = dict.fromkeys(row["policy"] for row in first)
        lines = []
        for policy in policies:
            own = [row for row in first if row["policy"] == policy]
            lines.append([f"`{policy}`", str(len(own)), *numbers(own)])
        parts += [
            "Block 1 by mask policy:",
            table(BY_POLICY, lines),
        ]
    parts.append(made_with())
    return "\n\n".join(parts)


def headers() -> list[list[str]]:
    return [BY_BLOCK, BY_POLICY]


def of_block(rows: Rows, name: str) -> Rows:
    return [row for row in rows if row["block"] == name]


def by_block(block: Any, rows: Rows, missed: list[str]) -> list[str]:
    bar = str(block.bar) if block.bar is not None else "4 x" if block.dropout else "-"
    over = sum(line.startswith(f"{block.name},") for line in missed)
    statuses = ", ".join(f"{status} {count}" for status, count in Counter(row["status"] for row in rows).items())
    return [block.name, block.title, bar, str(len(rows)), *numbers(rows), str(over), statuses]


def numbers(rows: Rows) -> list[str]:
    """Median and worst of exchanges and Hessian exchanges, the median bytes, the worst number until it stopped."""
    return [
        *(median_and_worst([row[name] for row in rows]) for name in ("exchanges", "hessians")),
        megabytes([row["bytes"] for row in rows]),
        str(max(row["ended"] for row in rows)),
    ]


def median_and_worst(values: list[int | None]) -> str:
    reached = [value for value in values if value is not None]
    if not reached:
        return "never"
    worst = str(max(reached)) if len(reached) == len(values) else "never"
    return f"{median(reached):g} / {worst}"


def megabytes(values: list[int | None]) -> str:
    reached = [value for value in values if value is not None]
    return f"{median(reached) / 1e6:.1f} MB" if reached else "-"


def absence_ratios(rows: Rows) -> list[float]:
    """Exchanges with absences over exchanges without, run by run."""

    def reached(block: str) -> dict[tuple, int]:
        own = of_block(rows, block)
        return {
            (row["data"], row["policy"], row["start"], row["seed"]): row["exchanges"] for row in own if row["exchanges"]
        }

    alone, absent = reached("1"), reached("3a")
    return [count / alone[setting] for setting, count in absent.items() if setting in alone]
