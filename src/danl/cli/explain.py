"""`danl fit --explain`: what was asked of whom, when, and why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from rich.table import Column, Table

from danl.cli.display import plain_table, right
from danl.run.history import History, Row
from danl.wording import human_bytes

NO_REASONS = "this method does not say why it asks what it asks"


def curvature_line(settings: Mapping[str, Any]) -> str:
    """Which curvature suited the problem, and why; empty where it was asked for, or not needed."""
    options, why = settings.get("method_options", {}), settings.get("curvature_why", "")
    if not why:
        return ""
    rows, after = options.get("hessian_batch"), options.get("whole_after")
    if options.get("curvature") == "diag":
        later = f", and whole Hessians if it takes more than {after} exchanges" if after else ""
        return f"curvature: the diagonal and pairs of gradients{later}; {why}"
    of_rows = "all rows" if rows is None else f"{rows:,} rows of each worker"
    return f"curvature: Hessians of {of_rows}; {why}"


def explanation(history: History) -> Table | str:
    """A line for every question that was asked for the same reason, in the order in which they came up."""
    if not any(row.why for row in history):
        return NO_REASONS
    timed = not np.isnan([row.simulated_seconds for row in history]).all()
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in history:
        groups.setdefault(_question(row), []).append(row)
    columns = [right("times"), right("exch."), Column("asked", no_wrap=True), right("senders"), right("bytes")]
    table = plain_table(*columns, *([right("sim. s")] if timed else []), right("refused"), Column("why"))
    for (asked, why), rows in groups.items():
        first, last = rows[0].exchange, rows[-1].exchange
        fewest, most = min(row.senders for row in rows), max(row.senders for row in rows)
        seconds = [f"{np.nansum([row.simulated_seconds for row in rows]):.3g}"] if timed else []
        table.add_row(
            str(len(rows)),
            str(first) if first == last else f"{first}-{last}",
            asked,
            f"{fewest}-{most}" if fewest < most else str(most or ""),
            human_bytes(sum(row.bytes_up + row.bytes_down for row in rows)),
            *seconds,
            str(sum(row.refused for row in rows) or ""),
            why,
        )
    return table


def _question(row: Row) -> tuple[str, str]:
    """What was asked, and why."""
    whole = len(set(row.coverage)) == 1 and row.coverage[0] == row.active
    names = {"hessian": "curvature", "gradient": "gradients" if whole else "parts"}
    return names.get(row.kind, row.kind), row.why
