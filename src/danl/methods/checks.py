"""Checks of the options that methods share, made once, when a method is configured."""

from __future__ import annotations

import math
from collections.abc import Sequence

from danl.errors import bad_argument


def check_choice(name: str, value: object, allowed: Sequence[str]) -> None:
    """One of a few words."""
    if value not in allowed:
        raise bad_argument(name, value, " or ".join(repr(word) for word in allowed))


def check_mu(mu: float | None) -> None:
    """The projection's floor: positive, or None for the problem's own."""
    if mu is not None:
        _check_positive("mu", mu, "leave it out for the strong convexity of the penalty")


def check_batch_size(name: str, size: int | None) -> None:
    """A number of rows, or None for the whole shard."""
    if size is not None:
        check_whole(name, size, "leave it out for the whole shard")


def check_share(name: str, value: object) -> None:
    """A number between 0 and 1, neither of them."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < 1:
        raise bad_argument(name, value, "a number between 0 and 1")


def check_whole(name: str, value: object, next_step: str = "") -> None:
    """A count of at least one."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise bad_argument(name, value, "a whole number >= 1", next_step)


def check_learning_rate(rate: float | None) -> None:
    """A step length, or None for one over the smoothness constant."""
    if rate is not None:
        _check_positive("learning_rate", rate, "leave it out for 1 / smoothness")


def _check_positive(name: str, value: object, next_step: str) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < math.inf:
        raise bad_argument(name, value, "a finite number > 0", next_step)
