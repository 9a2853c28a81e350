"""Printed output beside the output that a document shows: what must agree, and what belongs to the machine.

Words agree exactly, however they are broken into lines. A digest says that the last bits are the same, which they are
on no other processor: it agrees with any digest. Of the numbers, these are looked for in what was printed:

- whole numbers (exchanges, rows, bytes), within 2 or a quarter: rounding may end a run an exchange sooner;
- sizes with a unit, within a quarter;
- numbers with five digits or more between 1e-6 and 1e9 (objectives, coefficients), to one part in 1e4.

What is left are times, and numbers at the level of rounding, which are the machine's own.
"""

from __future__ import annotations

import re

DIGEST = re.compile(r"(?<![\w.])(?=[0-9a-f]*[a-f])(?=[0-9a-f]*\d)[0-9a-f]{16,}(?!\w)")
WORD = re.compile(r"(?<![\w.])[A-Za-z][A-Za-z_*-]+")  # not the e of 1e-3: a gap at rounding level may be 0 elsewhere
NUMBER = re.compile(r"(?<![\w.])[-+]?(\d{1,3}(?:,\d{3})+|\d+)(\.\d+)?(e[-+]?\d+)?(?: ?(ms|s|B|kB|MB|GB)\b|(?!\w|\.\d))")
SECONDS = re.compile(r"(?<=seconds)\W+[\d.]+(?:e[-+]?\d+)?")
UNITS = {"B": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9}
SMALLEST, LARGEST = 1e-6, 1e9


def words(text: str) -> list[str]:
    """The words of printed text in sorted order; numbers differ between machines, words do not."""
    without = NUMBER.sub(lambda match: " " if match[4] else match[0], DIGEST.sub("digest", text))
    return sorted(WORD.findall(without))


def numbers(text: str) -> list[tuple[str, float, float]]:
    """The numbers of a text that mean the same everywhere: as written, the value, and by how much it may differ."""
    found = []
    for match in NUMBER.finditer(SECONDS.sub(" ", DIGEST.sub("", text))):
        whole, fraction, exponent, unit = match.groups()
        value = float(match[0].removesuffix(unit or "").replace(",", ""))
        digits = len((whole + (fraction or "")).replace(",", "").replace(".", "").lstrip("0"))
        if unit in ("s", "ms"):
            continue
        if unit:
            found.append((match[0], value * UNITS[unit], 0.25 * value * UNITS[unit]))
        elif not fraction and not exponent:
            found.append((match[0], value, max(2.0, 0.25 * abs(value))))
        elif digits >= 5 and SMALLEST <= abs(value) <= LARGEST:
            found.append((match[0], value, 1e-4 * abs(value)))
    return found


def differences(printed: str, shown: str) -> list[str]:
    """What a document shows and a machine did not print, or the other way round, beyond what machines differ in."""
    reported = []
    if words(printed) != words(shown):
        left, right = words(shown), words(printed)
        reported += [
            f"shown, not printed: {word}" for word in sorted(set(left)) if left.count(word) > right.count(word)
        ]
        reported += [
            f"printed, not shown: {word}" for word in sorted(set(right)) if right.count(word) > left.count(word)
        ]
    there = [value for _, value, _ in numbers(printed)]
    for written, value, apart in numbers(shown):
        if not any(abs(value - other) <= apart for other in there):
            reported.append(f"shown, and nothing like it printed: {written}")
    return reported
