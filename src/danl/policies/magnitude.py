"""Pruning by magnitude: keep the regions in which the model is largest.

What the pruning literature does, and the least harmful choice for the pruned sub-model of Algorithm 1: of
all masks that keep as many regions, this one has the smallest pruning error |w - w ⊙ tau|^2 (the paper's
delta^2). It is also the one that starves regions: what is small is not trained, and what is not trained
stays as it was.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from danl.checks import check_share
from danl.objective.regions import BoolArray, Regions
from danl.policies.base import FloatArray, Promise, Setting, WorkerPolicy


@dataclass(frozen=True)
class Magnitude(WorkerPolicy):
    """Each worker trains the ``ceil(keep * Q)`` regions of the largest Euclidean norm |w^q|.

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
        return Promise(
            min_coverage=setting.n_workers,
            min_trained=count,
            max_staleness=0 if count == setting.n_regions else None,
        )

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
