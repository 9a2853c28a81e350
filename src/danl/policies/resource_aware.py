"""Masks that fit each worker's machine: as many regions as deadline and memory allow, the stalest first.

This is the paper's reason for regions: a slow or small machine trains a part of the model and is still in
time. Taking the stalest region first, always, is what makes the staleness bounded without any bookkeeping
beyond the staleness itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from danl.checks import check_number
from danl.errors import InputError, bad_argument
from danl.objective.regions import BoolArray, IntArray
from danl.policies.base import FloatArray, Limits, PlannedPolicy, Promise, Round, Setting
from danl.policies.profiles import Fleet, Profile, load_of, seconds


@dataclass(frozen=True)
class ResourceAware(PlannedPolicy):
    """Each worker trains its stalest region, and then every further one that fits, the stalest first.

    Parameters
    ----------
    profiles : sequence of Profile, length N
        What each worker's machine can do.
    deadline : float
        The seconds a round may take, by the cost model of `danl.policies.profiles`.
    binding : bool
        Whether that is what the machines can do, so that the default method gathers whatever takes longer in portions;
        or only what masked rounds should take, other exchanges may take longer.

    Notes
    -----
    Equally stale regions are taken in an order that is rotated by round and worker, so that workers do not
    all choose the same.

    Let j be the number of its largest regions that a worker could train together. Then the first j regions
    of any order fit, so it trains at least its j stalest in every round. Let c(s) be the number of its
    regions with ``staleness >= s``: at the start c(0) = Q, and c(s) = 0 for s >= 1. What is s + 1 rounds
    stale after a round was s rounds stale before it and untrained in it, and the j stalest were trained, so

        c(s + 1) after the round  <=  max(0, c(s) - j) before it,

    and by induction c(s) <= max(0, Q - s j) in every round. So c(ceil(Q / j)) = 0: no region goes untrained
    for more than ceil(Q / j) - 1 rounds, whatever the sizes. `check` makes sure that j >= 1, so the
    staleness is Q - 1 at most.
    """

    profiles: Sequence[Profile]
    deadline: float
    binding: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "profiles", tuple(self.profiles))
        for worker, profile in enumerate(self.profiles):
            if not isinstance(profile, Profile):
                raise bad_argument(f"profiles[{worker}]", profile, "a danl.policies.Profile")
        deadline = check_number("deadline", self.deadline, "give the seconds a round may take", infinite=True)
        object.__setattr__(self, "deadline", deadline)

    @property
    def limits(self) -> Limits | None:
        """The profiles and the deadline, where they bind."""
        return Limits(self.profiles, self.deadline) if self.binding else None

    @cached_property
    def _fleet(self) -> Fleet:
        return Fleet.of(self.profiles)

    def check(self, setting: Setting) -> None:
        """Refuse profiles for other workers, and a region that some worker cannot train even alone."""
        if len(self.profiles) != setting.n_workers:
            allowed = f"{setting.n_workers}, the number of workers"
            raise bad_argument("len(profiles)", len(self.profiles), allowed, "pass one profile per worker")
        # The largest region costs every worker most; if it fits, each of the others does.
        region = int(np.argmax(setting.region_sizes))
        needed_seconds, needed_memory = self._needs(setting, int(setting.region_sizes[region]))
        least_seconds, least_memory = self._needs(setting, 0)
        slowest = int(np.argmax(needed_seconds))
        if needed_seconds[slowest] > self.deadline:
            # Four digits are rounded by at most 5e-4 of the value; whoever types in what the error says must succeed.
            needed = f"{needed_seconds[slowest] * (1 + 5e-4):.4g} seconds, which worker {slowest}"
            next_step = "raise the deadline or " + _less_work(least_seconds[slowest] < self.deadline)
            raise _too_little("deadline", self.deadline, needed, region, next_step)
        smallest = int(np.argmax(needed_memory - self._fleet.memory))
        memory = self.profiles[smallest].memory
        if needed_memory[smallest] > memory:
            needed = f"{math.ceil(needed_memory[smallest])} bytes, which worker {smallest}"
            next_step = "give it more memory or " + _less_work(least_memory[smallest] < memory)
            raise _too_little(f"profiles[{smallest}].memory", memory, needed, region, next_step)

    def promise(self, setting: Setting) -> Promise:
        """What follows from the regions each worker is sure to manage in a round (see the class)."""
        largest_together = np.cumsum(np.sort(setting.region_sizes)[::-1])
        managed = np.maximum(sum(self._fits(setting, kept).astype(int) for kept in largest_together), 1)
        return Promise(
            min_coverage=max(1, int(np.count_nonzero(managed == setting.n_regions))),
            min_trained=int(managed.max()),
            max_staleness=int(-(-setting.n_regions // managed.min()) - 1),
        )

    def masks(self, round: Round) -> BoolArray:
        """Go through each worker's regions, stalest first, and take what fits."""
        setting = round.setting
        n_workers, n_regions = setting.n_workers, setting.n_regions
        workers = np.arange(n_workers)
        turn = (np.arange(n_regions) - round.number - workers[:, None]) % n_regions
        # turn < Q, so it only decides between regions of equal staleness.
        order = np.argsort(turn - round.staleness * n_regions, axis=1)
        masks = np.zeros((n_workers, n_regions), dtype=bool)
        kept = np.zeros(n_workers, dtype=np.int64)
        for rank in range(n_regions):
            region = order[:, rank]
            with_region = kept + setting.region_sizes[region]
            takes = self._fits(setting, with_region) | (rank == 0)
            masks[workers, region] = takes
            kept = np.where(takes, with_region, kept)
        return masks

    def _needs(self, setting: Setting, kept: int | IntArray) -> tuple[FloatArray, FloatArray]:
        """The seconds and bytes, shape (N,), that each worker needs to train `kept` coordinates."""
        load = load_of(
            kept,
            rows=setting.rows,
            shard_bytes=setting.shard_bytes,
            n_coefficients=setting.n_coefficients,
            n_regions=setting.n_regions,
            pruned=setting.pruned,
        )
        costs = {"work_rows": load.work_rows, "bytes_down": load.bytes_down, "bytes_up": load.bytes_up}
        return seconds(self._fleet, **costs), load.memory

    def _fits(self, setting: Setting, kept: int | IntArray) -> BoolArray:
        needed_seconds, needed_memory = self._needs(setting, kept)
        return (needed_seconds <= self.deadline) & (needed_memory <= self._fleet.memory)


def _too_little(name: str, value: float, needed: str, region: int, next_step: str) -> InputError:
    return bad_argument(name, value, f"at least {needed} needs for region {region} alone", next_step)


def _less_work(smaller_regions_help: np.bool_) -> str:
    # Without any region the model still comes down and, unless it is pruned, every row still has a margin.
    return "cut the model into more regions" if smaller_regions_help else "give it fewer rows"
