"""The options that several methods share, checked once, when a method is configured."""

from __future__ import annotations

from typing import Any

from danl.checks import check_number, check_whole

WHOLE_SHARD = "leave it out for the whole shard"
SHARED: dict[str, tuple[Any, str]] = {
    "mu": (check_number, "leave it out for the strong convexity of the penalty"),
    "learning_rate": (check_number, "leave it out for 1 / smoothness"),
    "batch_size": (check_whole, WHOLE_SHARD),
    "hessian_batch": (check_whole, WHOLE_SHARD),
}
"""How each is checked, and what leaving it out does."""


def check_options(method: object, **least: int) -> None:
    """Check the options of a frozen method: the shared ones where given, and whole numbers by the least each may be.

    `check_options(self, steps=1)` checks `steps`, a whole number >= 1, beside the shared ones.
    """
    for name, (check, next_step) in SHARED.items():
        if getattr(method, name, None) is not None:
            object.__setattr__(method, name, check(name, getattr(method, name), next_step=next_step))
    for name, lowest in least.items():
        object.__setattr__(method, name, check_whole(name, getattr(method, name), lowest))
