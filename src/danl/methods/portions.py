"""What each worker manages in one exchange, where a policy's masks bind: its deadline holds for every question.

A whole gradient, and the curvature of those who send it, are then gathered at a model that is held, in portions: first
as many of the missing regions as fit, then as many numbers of the curvature as the time that is left allows. By the
cost model (`danl.protocol.costs`), for k coordinates and p numbers of a curvature of P:

    seconds = (8 d + mask) / downlink + m ((1 + k / d) / 2 + p / P passes of the Hessian) / rows_per_second
              + (8 k + 8 + mask + p * size of a number) / uplink

which is linear in k and p.
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
"""A portion uses this share of the deadline less than all of it: sums are rounded."""


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
        task = hessian_task(self.options, 0, setup.w0, dtype=self.dtype, hessian_batch=self.rows)
        passes = work_of_each(task, np.ones(setup.n_workers), rows, setup.entries_per_row, setup.regions) - rows
        alone = (8 * d + mask) / fleet.downlink + rows / 2 / fleet.rows_per_second + (8 + mask) / fleet.uplink
        coordinate = rows / (2 * d) / fleet.rows_per_second + 8 / fleet.uplink
        size = np.dtype(self.dtype).itemsize
        number = passes / self.numbers / fleet.rows_per_second + size / fleet.uplink
        return np.asarray(alone, float), np.asarray(coordinate, float), np.asarray(number, float)

    def _left(self) -> tuple[Array, Array, Array]:
        """Seconds and bytes that each worker has beside its loss, and the seconds a range of numbers takes to name."""
        limits = self.setup.limits
        assert limits is not None
        fleet = Fleet.of(limits.profiles)
        memory = fleet.memory - self.setup.setting.shard_bytes - 8 * self.setup.n_coefficients
        return limits.deadline * (1 - SLACK) - self._linear[0], memory, 16 / fleet.downlink

    def next(self, missing: Mask, unsent: IntArray) -> tuple[Mask, IntArray]:
        """The regions, (N, Q), and how many numbers of curvature, (N,), every worker is asked for now.

        `missing`: regions it has still to send, (N, Q). `unsent`: numbers it has still to send, (N,).
        """
        (left, memory, name), (_, coordinate, number) = self._left(), self._linear
        sizes, masks = self.setup.regions.sizes, np.zeros_like(missing)
        for region in range(missing.shape[1]):
            fits = missing[:, region] & (coordinate * sizes[region] <= left) & (8 * sizes[region] <= memory)
            masks[:, region] = fits
            left, memory = left - fits * coordinate * sizes[region], memory - fits * 8.0 * sizes[region]
        with np.errstate(divide="ignore", invalid="ignore"):
            most = np.minimum(np.maximum(left - name, 0.0) / number, np.maximum(memory, 0.0) / 8)
        several = np.minimum(np.nan_to_num(most, nan=np.inf), unsent)
        return masks, np.where((masks == missing).all(axis=1), np.floor(several), 0).astype(np.int64)

    def rounds(self, *, curvature: bool) -> Array:
        """Exchanges until every worker has sent its whole gradient, and its curvature, (N,); inf where it cannot."""
        n, regions = self.setup.n_workers, self.setup.regions
        (left, memory, name), (_, coordinate, number) = self._left(), self._linear
        with np.errstate(divide="ignore", invalid="ignore"):
            coordinates = np.floor(np.minimum(left / coordinate, memory / 8))
            largest = np.full(n, float(regions.sizes.max()))
            together = np.maximum(np.floor(np.nan_to_num(coordinates, nan=np.inf) / largest), 0.0)
            needed = np.where(together > 0, np.ceil(regions.n_regions / together), np.inf)
            needed = np.where(coordinates >= regions.n_coefficients, 1.0, needed)
            if curvature:
                most = np.nan_to_num(np.floor(np.minimum((left - name) / number, memory / 8)), nan=np.inf)
                beside = (needed * left - regions.n_coefficients * coordinate) / number  # in the same exchanges
                more = np.maximum(self.numbers - np.maximum(np.nan_to_num(beside, nan=np.inf), 0.0), 0.0)
                needed = needed + np.where(most >= 1, np.ceil(more / np.maximum(most, 1.0)), np.inf)
        return np.asarray(needed)
