"""Independent coin flips, tossed by each worker for itself.

The simplest heterogeneous masks, and the model of workers that nobody coordinates. Nothing is promised: a
region may be left out by all workers in a round, and then keeps its gradient from before.
`danl.policies.Coverage` with the same `keep` is the coordinated version.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from danl.checks import check_share
from danl.objective.regions import BoolArray, Regions
from danl.policies.base import FloatArray, Promise, Setting, WorkerPolicy


@dataclass(frozen=True)
class Random(WorkerPolicy):
    """Each worker trains each region with chance `keep`, independently.

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
