"""Any function as a policy: the paper's M(w, i), written by the user."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from danl.errors import bad_argument
from danl.objective.regions import BoolArray, Regions
from danl.policies.base import FloatArray, WorkerPolicy
from danl.policies.masks import validated_mask


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
