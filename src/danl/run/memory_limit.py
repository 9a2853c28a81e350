"""The machine's memory: curvature that would not fit is refused before anything runs."""

from __future__ import annotations

import os
from typing import Any

from danl.errors import InputError
from danl.objective.regions import Regions


def refuse_if_too_large(method: Any, regions: Regions) -> None:
    """Refuse curvature of more than half of the machine's memory: 8 d^2 bytes for methods with whole Hessians.

    A method says how many numbers it holds (`curvature_numbers`); one that does not has nothing to be refused.
    """
    d, memory = regions.n_coefficients, total_memory()
    numbers = getattr(method, "curvature_numbers", None)
    needed = 0 if numbers is None else 8 * numbers(regions)
    if memory is not None and needed > memory / 2:
        what = "a Hessian" if needed == 8 * d**2 else "curvature"
        raise InputError(
            f"method={method.name!r}: {d} coefficients make {what} of {needed / 1e9:.1f} GB, more than half of this "
            f"machine's {memory / 1e9:.1f} GB; use method='danl' with curvature='lowrank:50', 'diag' or, with many "
            "regions, 'block', or method='gd' or 'fedavg'"
        )


def total_memory() -> int | None:
    """Bytes of this machine's memory, where the system tells."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None
