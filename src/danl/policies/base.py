"""What a mask policy is: the two protocols, and what policies get to see.

A policy decides which regions each worker trains in a round. It is a frozen dataclass without state: what
it needs of the past (staleness) is handed in, and its randomness comes from a generator made anew for each
round from the run's seed. So a run can be resumed or replayed from any round, and a policy can be sent to
another machine as it is.

There are two sides. A *planned* policy runs at the server, sees all workers at once and can therefore
promise coverage. A *worker* policy is the paper's M(w, i): it runs where the worker is and sees only the
model, so that a worker may decide by what only it knows; the reply carries the mask back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from danl.frozen import at_once, cached_property
from danl.objective.regions import BoolArray, IntArray, Regions

if TYPE_CHECKING:
    from danl.policies.profiles import Profile

FloatArray: TypeAlias = NDArray[np.float64]


@at_once
@dataclass(frozen=True, eq=False)
class Setting:
    """What a policy knows when the run starts.

    Parameters
    ----------
    n_workers : int
        N.
    region_sizes : int array, shape (Q,)
        The number of coordinates of each region.
    rows : array, shape (N,)
        The number of rows of each worker's shard, m_i.
    shard_bytes : array, shape (N,)
        The bytes each worker's features take in memory.
    max_rounds : int
        The most rounds the run may take, T.
    pruned : bool
        Whether a worker's gradient is that of its pruned model (`submodel="pruned"`, danl-paper) instead of at w.
    """

    n_workers: int
    region_sizes: IntArray
    rows: NDArray[np.int64] | FloatArray
    shard_bytes: NDArray[np.int64] | FloatArray
    max_rounds: int
    pruned: bool = False

    @cached_property
    def n_regions(self) -> int:
        """The number of regions, Q."""
        return len(self.region_sizes)

    @cached_property
    def n_coefficients(self) -> int:
        """The number of coordinates of the model, d."""
        return int(np.sum(self.region_sizes))


@dataclass(frozen=True, eq=False)
class Round:
    """What a planned policy sees in one round.

    Parameters
    ----------
    setting : Setting
        What it knows since the start.
    number : int
        The round, t, counted from 1.
    w : float array, shape (d,)
        The global model.
    staleness : int array, shape (N, Q)
        For how many rounds in a row each (worker, region) has gone untrained so far; 0 says it was trained
        in the round before. Phase I trains everything, so all are 0 at t = 1.
    rng : numpy.random.Generator
        This round's own generator.
    regions : Regions
        Which coordinates each region has.
    """

    setting: Setting
    number: int
    w: FloatArray
    staleness: IntArray
    rng: np.random.Generator
    regions: Regions


@dataclass(frozen=True)
class Promise:
    """What the masks of a policy are sure to satisfy; None where nothing is promised.

    The promise is about the masks. A reply that never arrives leaves its pairs untrained, and is counted as
    such by `danl.policies.MaskRecord`, which measures what happened.

    Parameters
    ----------
    min_coverage : int or None
        At least so many workers train each region that is trained in a round (the paper's psi*).
    min_trained : int or None
        At least so many regions are trained in every round (S*).
    max_staleness : int or None
        No (worker, region) goes untrained for more rounds in a row than this (gamma).
    """

    min_coverage: int | None = None
    min_trained: int | None = None
    max_staleness: int | None = None


@dataclass(frozen=True)
class Limits:
    """What the workers' machines can do in one exchange: masks that bind."""

    profiles: Sequence[Profile]
    """One for each worker."""
    deadline: float
    """Seconds that no exchange may take any worker, by the cost model of `danl.policies.profiles`."""


class BasePolicy(Protocol):
    """What policies of both sides have."""

    @property
    def limits(self) -> Limits | None:
        """What no exchange of the default method may go beyond; None where masks are only what is enough."""
        return None

    def check(self, setting: Setting) -> None:
        """Raise `InputError` if the policy cannot keep its promise in this setting."""
        return

    def promise(self, setting: Setting) -> Promise:
        """Say what the masks are sure to satisfy in this setting: nothing, unless the policy knows better."""
        return Promise()


class PlannedPolicy(BasePolicy, Protocol):
    """Masks planned at the server, for all workers at once."""

    side: ClassVar[Literal["server"]] = "server"

    def masks(self, round: Round) -> BoolArray:
        """Choose the regions of every worker, shape (N, Q)."""


class WorkerPolicy(BasePolicy, Protocol):
    """Masks chosen by each worker for itself: the paper's M(w, i)."""

    side: ClassVar[Literal["worker"]] = "worker"

    def mask(self, w: FloatArray, worker: int, number: int, rng: np.random.Generator, regions: Regions) -> BoolArray:
        """Choose the regions of worker `worker` in round `number`, shape (Q,)."""


Policy: TypeAlias = PlannedPolicy | WorkerPolicy
