"""What each worker manages in one exchange, where a policy's masks bind: its deadline holds for every question.

A whole gradient, and the curvature of those who send it, are then gathered at a model that is held, in portions: first
as many of the missing regions as fit, then as many numbers of the curvature as the time that is left allows. A worker
keeps the margins of its rows, so that they cost it half a pass in the first portion alone; one that has missed an
exchange may have been started anew, and is not counted on to have them. By the cost model (`danl.protocol.costs`), for
k coordinates and p numbers of a curvature of P:

    seconds = (8 d + mask) / downlink + m ((1 + k / d) / 2 + p / P passes of the Hessian) / rows_per_second
              + (8 k + 8 + mask + p * size of a number) / uplink

with k / d in place of 1 + k / d where the margins are kept; which is linear in k and p.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from danl.methods.base import Setup
from danl.methods.curvature_exchange import hessian_task
from danl.objective.regions import IntArray
from danl.policies.masks import mask_bytes
from danl.policies.profiles import Fleet
from danl.protocol.costs import work_of_each
from danl.protocol.messages import Array, Dtype, Mask

if TYPE_CHECKING:
    from danl.methods.danl import DANL


SLACK = 1e-9
"""A portion uses this share of the deadline less than all of it, unless it is one region: sums are rounded."""


@dataclass(frozen=True)
class Portions:
    """The limits of a run's workers."""

    options: DANL
    setup: Setup
    dtype: Dtype = "float64"
    rows: int | None = None  # a worker's curvature is computed on

    @cached_property
    def numbers(self) -> int:
        """Of a worker's curvature."""
        return self.options.hessian_form.numbers(self.setup.regions)

    @cached_property
    def _linear(self) -> tuple[Array, Array, Array]:
        """Seconds of every worker: for its loss alone, for a coordinate more, for a number more."""
        setup, d = self.setup, self.setup.n_coefficients
        limits = setup.limits
        assert limits is not None
        fleet, rows = Fleet.of(limits.profiles), np.asarray(setup.setting.rows)
        mask = mask_bytes(setup.regions.n_regions)
        task = hessian_task(self.options.hessian_form, 0, setup.w0, dtype=self.dtype, hessian_batch=self.rows)
        passes = work_of_each(task, np.ones(setup.n_workers), rows, setup.entries_per_row, setup.regions) - rows
        alone = (8 * d + mask) / fleet.downlink + rows / 2 / fleet.rows_per_second + (8 + mask) / fleet.uplink
        coordinate = rows / (2 * d) / fleet.rows_per_second + 8 / fleet.uplink
        size = np.dtype(self.dtype).itemsize
        number = passes / self.numbers / fleet.rows_per_second + size / fleet.uplink
        return np.asarray(alone, float), np.asarray(coordinate, float), np.asarray(number, float)

    def _left(self, kept: Mask | bool) -> tuple[Array, Array, Array]:
        """Seconds and bytes that each worker has beside its loss, and the seconds a range of numbers takes to name."""
        limits = self.setup.limits
        assert limits is not None
        fleet = Fleet.of(limits.profiles)
        memory = fleet.memory - self.setup.setting.shard_bytes - 8 * self.setup.n_coefficients
        margins = np.asarray(self.setup.setting.rows) / 2 / fleet.rows_per_second
        left = limits.deadline * (1 - SLACK) - self._linear[0] + np.where(kept, margins, 0.0)
        return np.asarray(left), memory, 16 / fleet.downlink

    @property
    def _slack(self) -> float:
        """Seconds by which one region alone may seem too long: `ResourceAware.check` has seen that it fits."""
        assert self.setup.limits is not None
        return 2 * SLACK * self.setup.limits.deadline

    def next(self, missing: Mask, unsent: IntArray, kept: Mask) -> tuple[Mask, IntArray]:
        """The regions, (N, Q), and how many numbers of curvature, (N,), every worker is asked for now.

        `missing`: regions it has still to send, (N, Q). `unsent`: numbers it has still to send, (N,). `kept`: who has
        the margins of this model, (N,).
        """
        (left, memory, name), (_, coordinate, number) = self._left(kept), self._linear
        sizes, masks = self.setup.regions.sizes, np.zeros_like(missing)
        for region in range(missing.shape[1]):
            exactly = np.where(masks.any(axis=1), 0.0, self._slack)
            enough = (coordinate * sizes[region] <= left + exactly) & (8 * sizes[region] <= memory)
            fits = missing[:, region] & enough
            masks[:, region] = fits
            left, memory = left - fits * coordinate * sizes[region], memory - fits * 8.0 * sizes[region]
        with np.errstate(divide="ignore", invalid="ignore"):
            most = np.minimum(_ratio(np.maximum(left - name, 0.0), number), np.maximum(memory, 0.0) / 8)
        several = np.minimum(most, unsent)
        return masks, np.where((masks == missing).all(axis=1), np.floor(several), 0).astype(np.int64)

    def least_deadline(self, *, everyone: bool) -> float:
        """Seconds in which everyone, or somebody, can send a number of curvature, once it has its margins."""
        limits = self.setup.limits
        assert limits is not None
        beside, number = limits.deadline - self._left(True)[0] + self._left(True)[2], self._linear[2]
        each = beside + number
        return float(each.max() if everyone else each.min())

    def rounds(self, *, curvature: bool) -> Array:
        """Exchanges until every worker has sent its whole gradient, and its curvature, (N,); inf where it cannot."""
        n, regions, d = self.setup.n_workers, self.setup.regions, self.setup.n_coefficients
        (first, memory, name), (_, coordinate, number) = self._left(False), self._linear
        later = self._left(True)[0]  # with the margins
        with np.errstate(divide="ignore", invalid="ignore"):

            def together(left: Array) -> Array:
                """Regions that a worker manages in one exchange."""
                coordinates = np.nan_to_num(np.floor(np.minimum(left / coordinate, memory / 8)), nan=np.inf)
                several = np.maximum(np.floor(coordinates / float(regions.sizes.max())), 0.0)
                return np.where(coordinates >= d, float(regions.n_regions), several)

            one = float(regions.sizes.max()) * coordinate
            at_first, then = np.maximum(together(first), one <= first + self._slack), together(later)
            more = np.maximum(np.ceil((regions.n_regions - at_first) / np.maximum(then, 1.0)), 0.0)
            needed = np.where(at_first > 0, 1.0 + more, np.full(n, np.inf))
            if curvature:
                # The curvature begins in the exchange with the last of the regions, beside them.
                left = np.where(needed > 1, regions.n_regions - at_first - (needed - 2) * then, regions.n_regions)
                beside = left * d / regions.n_regions
                time = np.where(needed > 1, later, first) - beside * coordinate - name
                begun = np.minimum(_ratio(np.maximum(time, 0.0), number), np.maximum(memory / 8 - beside, 0.0))
                most = np.floor(np.minimum(_ratio(np.maximum(later - name, 0.0), number), memory / 8))
                unsent = np.maximum(self.numbers - np.floor(begun), 0.0)
                more = np.where(most >= 1, np.ceil(unsent / np.maximum(most, 1.0)), np.where(unsent > 0, np.inf, 0.0))
                needed = needed + more
        return np.asarray(needed)


def _ratio(seconds: Array, each: Array) -> Array:
    """How many fit into so many seconds; where both are 0, none."""
    return np.nan_to_num(seconds / each, nan=0.0, posinf=np.inf)
