"""Numbers and lists as people say them, for tables, reports and what the command line says."""

from __future__ import annotations

import math
from collections.abc import Sequence


def human_bytes(count: float) -> str:
    """1234567 -> 1.2 MB."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def counted(count: int, noun: str) -> str:
    """(1, "reply") -> 1 reply; (7, "reply") -> 7 replies."""
    if count == 1:
        return f"1 {noun}"
    return f"{count:,} {noun[:-1]}ies" if noun.endswith("y") else f"{count:,} {noun}s"


def listed(items: Sequence[object], most: int = 8) -> str:
    """Items as in a sentence: 2; 2 and 5; 2, 5 and 7; a long list ends in how many more there are."""
    words = [str(item) for item in items]
    if len(words) > most:
        return f"{', '.join(words[:most])} and {len(words) - most:,} more"
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def percent(share: float) -> str:
    """A share of 1 in per cent; neither 0 nor 100 unless it is."""
    if 0 < share < 0.005:
        return "less than 1 %"
    if 0.995 <= share < 1:
        return "more than 99 %"
    return f"{100 * share:.0f} %"


def seconds(value: float) -> str:
    """Seconds with as many digits as matter."""
    return f"{value:,.0f} s" if value >= 100 else f"{value:.3g} s"


def small(value: float) -> str:
    """A gap or a norm."""
    return "not known" if math.isnan(value) else f"{value:.1e}"
