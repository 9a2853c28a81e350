"""Numbers and lists as people say them, for tables, reports, error messages and what the command line says.

A gap f(w) - f(w*) is a difference of two numbers that each carry rounding. At the optimum it is zero, a little above or
a little below, and which of these depends on the processor. So there is one floor for figures, reports and terminals:
whatever is at or below it is drawn at the floor and said to be that, because nothing else can be told apart.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from typing import Any

FLOOR = 1e-15
"""The smallest gap, or gradient norm, that is drawn and said as it is."""
BELOW = 10.0
"""A gap down to -BELOW * FLOOR * (1 + |objective|) counts as rounding; a lower one is shown."""


def floored(values: Any) -> Any:
    """Numbers as a log axis shows them: FLOOR where they are at or below it; nan stays nan."""
    import numpy as np  # here: most of what words need is said without arrays

    return np.maximum(values, FLOOR)


def is_rounding(gap: float, objective: float = 0.0) -> bool:
    """Whether a gap is zero as far as can be told; below zero rounding grows with the objective."""
    scale = 1.0 + abs(objective) if math.isfinite(objective) else 1.0
    return -BELOW * FLOOR * scale <= gap <= FLOOR


def gap_text(gap: float, form: str = ".1e", objective: float = 0.0) -> str:
    """A gap: "<=1e-15" where it is rounding."""
    return f"<={FLOOR:.0e}" if is_rounding(gap, objective) else format(gap, form)


def number(value: float | None, form: str = ".1e", unknown: str = "-") -> str:
    """A number in a format; `unknown` where it is not known."""
    return unknown if value is None or math.isnan(value) else format(value, form)


def coefficient(value: float) -> str:
    """A coefficient in a table: four decimals, or an exponent below 1e-3 and from 1e5 on."""
    plain = value == 0 or 1e-3 <= abs(value) < 1e5 or not math.isfinite(value)
    return f"{value:.4f}" if plain else f"{value:.3e}"


def ratio_text(value: float) -> str:
    """exp(coefficient) in a table: where it is near 1, with the digits that say on which side and how far."""
    apart = abs(value - 1)
    if not 0 < apart < 1e-3:
        return coefficient(value)
    return f"{value:.{min(2 - math.floor(math.log10(apart)), 12)}f}"


def known(value: float) -> float | None:
    """A number for machines: None where it is not finite."""
    return float(value) if math.isfinite(value) else None


def human_bytes(count: float) -> str:
    """1234567 -> 1.2 MB."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


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


def duration(value: float) -> str:
    """Seconds as a clock would say them: 0.4 s, 12 s, 3 min 5 s, 2 h 10 min."""
    if value < 60:
        return f"{value:.1f} s" if value < 10 else f"{value:.0f} s"
    minutes, rest = divmod(round(value), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def counted(count: int, noun: str) -> str:
    """(1, "reply") -> 1 reply; (7, "reply") -> 7 replies."""
    if count == 1:
        return f"1 {noun}"
    return f"{count:,} {noun[:-1]}ies" if noun.endswith("y") else f"{count:,} {noun}s"


def listed(items: Iterable[object], most: int | None = 8) -> str:
    """Items as in a sentence: 2; 2 and 5; 2, 5 and 7; where there are more than `most`, it ends in how many more."""
    words = [str(item) for item in items]
    if most is not None and len(words) > most:
        return f"{', '.join(words[:most])} and {len(words) - most:,} more"
    return f"{', '.join(words[:-1])} and {words[-1]}" if len(words) > 1 else "".join(words)


def named(noun: str, items: Collection[object], most: int = 8) -> str:
    """("worker", [2]) -> worker 2; ("worker", [2, 5]) -> workers 2 and 5."""
    return f"{noun if len(items) == 1 else f'{noun}s'} {listed(items, most)}"


def rounded(value: Any, digits: int = 4) -> Any:
    """Plain data for machines: floats with so many digits, None for what is no finite number, the rest as it is."""
    if isinstance(value, float):
        return known(float(f"{value:.{digits}g}"))
    if isinstance(value, dict):
        return {name: rounded(item, digits) for name, item in value.items()}
    return [rounded(item, digits) for item in value] if isinstance(value, list) else value
