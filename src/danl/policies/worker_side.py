"""Masks chosen by each worker for itself, the paper's M(w, i): by coin flips, by the model, by any function."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from danl.checks import check_share
from danl.errors import bad_argument
from danl.objective.regions import BoolArray, Regions
from danl.policies.base import FloatArray, Promise, Setting, WorkerPolicy
from danl.policies.masks import validated_mask


@dataclass(frozen=True)
class Random(WorkerPolicy):
    """Each worker trains each region with chance `keep`, independently.

    The simplest heterogeneous masks, and the model of workers that nobody coordinates. Nothing is promised: a region
    may be left out by all workers in a round, and then keeps its gradient from before. `danl.policies.Coverage` with
    the same `keep` is the coordinated version.

    Parameters
    ----------
    keep : float
        Between 0 and 1.
    """

    keep: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "keep", check_share("keep", self.keep, "try keep=0.5"))

    def promise(self, setting: Setting) -> Promise:
        """Nothing, unless all coins fall the same way."""
        if self.keep < 1:
            return Promise()
        return Promise(setting.n_workers, setting.n_regions, 0)

    def mask(self, w: FloatArray, worker: int, number: int, rng: np.random.Generator, regions: Regions) -> BoolArray:
        """Q coin flips."""
        return rng.random(regions.n_regions) < self.keep


@dataclass(frozen=True)
class Magnitude(WorkerPolicy):
    """Each worker trains the ``ceil(keep * Q)`` regions of the largest Euclidean norm |w^q|.

    What the pruning literature does, and the least harmful choice for the pruned sub-model of Algorithm 1: of all masks
    that keep as many regions, this one has the smallest pruning error |w - w ⊙ tau|^2 (the paper's delta^2). It is also
    the one that starves regions: what is small is not trained, and what is not trained stays as it was.

    Parameters
    ----------
    keep : float
        The share of the regions, above 0 and at most 1.

    Notes
    -----
    Where several regions of equal norm compete for the last places they take turns, as those of the cyclic
    `danl.policies.Subset` do, so that none of them starves; at w = 0 these are all regions. All workers see
    the same w and choose the same regions.
    """

    keep: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "keep", check_share("keep", self.keep, "try keep=0.5", zero=False))

    def promise(self, setting: Setting) -> Promise:
        """Coverage N and ceil(keep * Q) regions trained; the staleness depends on the model."""
        count = self._count(setting.n_regions)
        return Promise(setting.n_workers, count, 0 if count == setting.n_regions else None)

    def mask(self, w: FloatArray, worker: int, number: int, rng: np.random.Generator, regions: Regions) -> BoolArray:
        """Keep what is above the last norm that still fits in, and take turns among those that equal it."""
        n_regions = regions.n_regions
        count = self._count(n_regions)
        with np.errstate(over="ignore"):  # a run that diverges still needs a mask
            squared_norms = np.bincount(regions.of_coefficient, weights=w * w, minlength=n_regions)
        squared_norms[np.isnan(squared_norms)] = np.inf
        last = np.sort(squared_norms)[-count]
        mask: BoolArray = squared_norms > last
        equal = np.flatnonzero(squared_norms == last)
        places = count - np.count_nonzero(mask)
        mask[equal[((number - 1) * places + np.arange(places)) % len(equal)]] = True
        return mask

    def _count(self, n_regions: int) -> int:
        # 0.07 * 100 is a little more than 7 in floating point, and must not become 8.
        return max(1, math.ceil(self.keep * n_regions - 1e-9))


@dataclass(frozen=True)
class Custom(WorkerPolicy):
    """Each worker trains the regions for which ``function(w, worker, round, rng)`` says True.

    Parameters
    ----------
    function : callable
        Takes the model (read-only), the worker's number from 0, the round's number from 1 and a
        `numpy.random.Generator`; returns Q booleans. For runs that can be replayed it must draw from that
        generator only; for engines that run workers in other processes it must be possible to pickle it.
    """

    function: Callable[[FloatArray, int, int, np.random.Generator], Any]

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise bad_argument("function", self.function, "callable as function(w, worker, round, rng)")

    def mask(self, w: FloatArray, worker: int, number: int, rng: np.random.Generator, regions: Regions) -> BoolArray:
        """Ask the function, and check its answer."""
        model = w.view()
        model.flags.writeable = False  # the workers of one process share w
        answer = self.function(model, worker, number, rng)
        return validated_mask(answer, policy=self, worker=worker, number=number, n_regions=regions.n_regions)
