"""Checks of arguments, in the same words everywhere: each returns the value it checked or raises `danl.InputError`.

A bool is no number here, though Python counts with it, and NumPy's numbers are as good as Python's own: what comes back
is always an int or a float.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib.util import find_spec
from numbers import Integral, Real
from typing import TypeGuard

from danl.errors import InputError, bad_argument


def is_whole(value: object, least: float = -math.inf) -> TypeGuard[int]:
    """Whether this is a whole number, of at least so much."""
    return not isinstance(value, bool) and isinstance(value, Integral) and int(value) >= least


def is_real(value: object) -> TypeGuard[float]:
    """Whether this is a number, and not a complex one; infinity and nan are."""
    return not isinstance(value, bool) and isinstance(value, Real)


def is_finite(value: object) -> TypeGuard[float]:
    """Whether this is a number that is neither infinite nor nan."""
    return is_real(value) and math.isfinite(value)


def check_whole(name: str, value: object, least: int = 1, next_step: str = "") -> int:
    """A whole number of at least `least`."""
    if not is_whole(value, least):
        raise bad_argument(name, value, f"a whole number >= {least}", next_step)
    return int(value)


def check_number(
    name: str,
    value: object,
    next_step: str = "",
    *,
    least: float | None = None,
    above: float = 0.0,
    infinite: bool = False,
    of: str = "",
) -> float:
    """A number of at least `least`, or else above `above`; infinity only if `infinite`. `of` may name its unit."""
    low = is_real(value) and (value > above if least is None else value >= least)
    if not low or not (infinite or is_finite(value)):
        bound = f"> {above:g}" if least is None else f">= {least:g}"
        allowed = f"a number{of} {bound}, or infinity" if infinite else f"a finite number{of} {bound}"
        raise bad_argument(name, value, allowed, next_step)
    return float(value)  # type: ignore[arg-type]


def check_seconds(name: str, value: object, next_step: str = "") -> float:
    """A time to wait."""
    return check_number(name, value, next_step, of=" of seconds")


def check_share(name: str, value: object, next_step: str = "", *, zero: bool = True, one: bool = True) -> float:
    """A number from 0 to 1, with or without these two."""
    if not is_real(value) or not 0 <= value <= 1 or (value == 0 and not zero) or (value == 1 and not one):
        ends = f"{'of at least' if zero else 'above'} 0 and {'at most' if one else 'below'} 1"
        raise bad_argument(name, value, f"a number {'between 0 and 1' if zero == one else ends}", next_step)
    return float(value)


def check_flag(name: str, value: object) -> None:
    """True or False."""
    if not isinstance(value, bool):
        raise bad_argument(name, value, "True or False")


def check_choice(name: str, value: object, choices: Sequence[str], next_step: str = "") -> None:
    """One of a few words."""
    if value not in choices:
        *first, last = map(repr, choices)
        raise bad_argument(name, value, f"{', '.join(first)} or {last}", next_step)


def is_installed(package: str) -> bool:
    """Whether a package of an extra is there; nothing is imported."""
    return find_spec(package) is not None


def check_installed(what: str, package: str, extra: str) -> None:
    """Say which extra of danl to install where `what` needs a package that is not there."""
    if not is_installed(package):
        raise InputError(f"{what}: needs {package}; install it with pip install 'danl[{extra}]'")
