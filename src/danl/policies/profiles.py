"""What a worker's machine can do, and what a round costs it.

One cost model serves the `ResourceAware` policy, which plans by it, and the simulated seconds in a run's
history, so that what was planned and what is reported agree. A pass takes a row there (its margin) and back (its
part of the gradient). A gradient at the whole w needs every margin, and goes back to the columns it was asked for;
a pruned model, w with zeros outside its k of d coordinates, needs these columns alone. For a worker with m rows that
trains k of d coordinates, in Q regions:

    work_rows  = m * (1 + k / d) / 2            a gradient at w; m * k / d of a pruned model
    bytes_down = 8 * d + ceil(Q / 8)            the model, and the mask as bits
    bytes_up   = 8 * k + 8 + ceil(Q / 8)        the fragment, the loss, and the mask as bits
    memory     = shard_bytes + 8 * d + 8 * k    its rows, the model and its fragment; of a pruned model the columns
                                                it needs, its sub-model and its fragment, shard_bytes * k / d + 16 * k
    seconds    = bytes_down / downlink + work_rows / rows_per_second + bytes_up / uplink
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from math import inf
from typing import Any

import numpy as np

from danl.checks import check_number
from danl.policies.base import FloatArray
from danl.policies.masks import mask_bytes


@dataclass(frozen=True)
class Profile:
    """One worker's machine; what is not given is unlimited.

    Parameters
    ----------
    rows_per_second : float
        Rows of its shard, with all d columns, that it takes through a gradient in a second.
    uplink, downlink : float
        Bytes a second from the worker to the server, and from the server to the worker.
    memory : float
        Bytes it can spare for a round.
    """

    rows_per_second: float = inf
    uplink: float = inf
    downlink: float = inf
    memory: float = inf

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            checked = check_number(field.name, value, "leave it out for no limit", infinite=True)
            object.__setattr__(self, field.name, checked)


@dataclass(frozen=True, eq=False)
class Fleet:
    """The profiles of N workers, one array of shape (N,) for each of their numbers."""

    rows_per_second: FloatArray
    uplink: FloatArray
    downlink: FloatArray
    memory: FloatArray

    @classmethod
    def of(cls, profiles: Sequence[Profile]) -> Fleet:
        """Line the profiles up, worker by worker."""
        return cls(
            *(np.array([getattr(profile, field.name) for profile in profiles], dtype=float) for field in fields(cls))
        )


@dataclass(frozen=True, eq=False)
class Load:
    """What a round asks of a worker, or of each of N workers: numbers, or arrays of shape (N,)."""

    work_rows: Any
    bytes_down: Any
    bytes_up: Any
    memory: Any


def gradient_passes(share: Any, *, pruned: bool) -> Any:
    """Passes over a row for the gradient on a share of the coordinates: at the whole w, or of the pruned model."""
    return share if pruned else (1 + share) / 2


def load_of(
    kept: Any, *, rows: Any, shard_bytes: Any, n_coefficients: int, n_regions: int, pruned: bool = False
) -> Load:
    """What it takes to train `kept` of `n_coefficients` coordinates; numbers or arrays of shape (N,)."""
    mask, share = mask_bytes(n_regions), kept / n_coefficients
    return Load(
        work_rows=rows * gradient_passes(share, pruned=pruned),
        bytes_down=8 * n_coefficients + mask,
        bytes_up=8 * kept + 8 + mask,
        memory=shard_bytes * share + 16 * kept if pruned else shard_bytes + 8 * (n_coefficients + kept),
    )


def seconds(profile: Profile | Fleet, *, work_rows: Any, bytes_down: Any, bytes_up: Any) -> Any:
    """How long a round takes on a machine: receive, compute, send, one after the other."""
    return bytes_down / profile.downlink + work_rows / profile.rows_per_second + bytes_up / profile.uplink
