"""Checks of the numbers that policies are constructed with, so that all of them refuse in the same words."""

from __future__ import annotations

from numbers import Integral, Real

from danl.errors import bad_argument


def whole_number(name: str, value: object, next_step: str) -> int:
    """Return `value` as an int of at least 1, or raise the error that says so."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise bad_argument(name, value, "a whole number of at least 1", next_step)
    return int(value)


def share(name: str, value: object, next_step: str, *, zero: bool = True) -> float:
    """Return `value` as a float in [0, 1], or in (0, 1] if not `zero`, or raise the error that says so."""
    allowed = "between 0 and 1" if zero else "above 0 and at most 1"
    number = real(name, value, allowed, next_step)
    if not (0 <= number <= 1 and (zero or number > 0)):
        raise bad_argument(name, value, allowed, next_step)
    return number


def positive(name: str, value: object, next_step: str) -> float:
    """Return `value` as a float above 0, infinity included, or raise the error that says so."""
    allowed = "a number above 0 (infinity is allowed)"
    number = real(name, value, allowed, next_step)
    if not number > 0:
        raise bad_argument(name, value, allowed, next_step)
    return number


def real(name: str, value: object, allowed: str, next_step: str) -> float:
    """Return `value` as a float, or raise the error that says what is allowed."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise bad_argument(name, value, allowed, next_step)
    return float(value)
