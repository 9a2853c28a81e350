"""Masks planned by rules that know all workers: everything, a few regions for all, or random with enough coverage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from danl.checks import check_choice, check_share, check_whole
from danl.errors import bad_argument
from danl.objective.regions import BoolArray
from danl.policies.base import PlannedPolicy, Promise, Round, Setting


@dataclass(frozen=True)
class Full(PlannedPolicy):
    """Every worker trains every region: psi* = N, S* = Q, gamma = 0.

    The reference all other policies are held against. With it Algorithm 1 keeps no stale gradient and is Newton Zero:
    one Hessian, fixed, and a whole gradient in every round.
    """

    def promise(self, setting: Setting) -> Promise:
        """Everything."""
        return Promise(min_coverage=setting.n_workers, min_trained=setting.n_regions, max_staleness=0)

    def masks(self, round: Round) -> BoolArray:
        """All true, shape (N, Q)."""
        return np.ones((round.setting.n_workers, round.setting.n_regions), dtype=bool)


@dataclass(frozen=True)
class Subset(PlannedPolicy):
    """All workers train the same `regions_per_round` regions.

    The opposite of spreading regions over workers: full coverage of few regions (psi* = N, S* = S). It is block
    coordinate descent seen from the server, and the setting of the paper's figures that is hardest on raw memory, since
    every untrained region is as old as it can be.

    Parameters
    ----------
    regions_per_round : int
        The paper's S*, between 1 and Q.
    order : {"cyclic", "random"}, default "cyclic"
        Take the regions in turn, or draw them anew in every round.

    Notes
    -----
    In cyclic order, round t takes the S positions ``(t - 1) * S .. t * S - 1`` of the endless sequence 0,
    1, ..., Q - 1, 0, 1, ... Region q stands at the positions p with p = q (mod Q), and position p is taken
    in round ``p // S + 1``. Two neighbouring ones are ``(p + Q) // S - p // S <= ceil(Q / S)`` rounds
    apart, so the region goes untrained for at most ceil(Q / S) - 1 rounds in between. Region Q - 1 is first
    trained in round ceil(Q / S), so this is attained, whether or not S divides Q.
    """

    regions_per_round: int
    order: Literal["cyclic", "random"] = "cyclic"

    def __post_init__(self) -> None:
        count = check_whole("regions_per_round", self.regions_per_round, next_step="try regions_per_round=1")
        object.__setattr__(self, "regions_per_round", count)
        check_choice("order", self.order, ("cyclic", "random"))

    def check(self, setting: Setting) -> None:
        """Refuse more regions a round than there are."""
        if self.regions_per_round > setting.n_regions:
            allowed = f"between 1 and {setting.n_regions}, the number of regions"
            next_step = "lower regions_per_round or cut the model into more regions"
            raise bad_argument("regions_per_round", self.regions_per_round, allowed, next_step)

    def promise(self, setting: Setting) -> Promise:
        """Coverage N, S regions trained; in cyclic order, staleness at most ceil(Q / S) - 1."""
        bounded = self.order == "cyclic" or self.regions_per_round == setting.n_regions
        return Promise(
            min_coverage=setting.n_workers,
            min_trained=self.regions_per_round,
            max_staleness=-(-setting.n_regions // self.regions_per_round) - 1 if bounded else None,
        )

    def masks(self, round: Round) -> BoolArray:
        """The next S regions in turn, or S random ones, for every worker."""
        n_regions, count = round.setting.n_regions, self.regions_per_round
        if self.order == "random":
            chosen = round.rng.choice(n_regions, size=count, replace=False)
        else:
            chosen = ((round.number - 1) * count + np.arange(count)) % n_regions
        masks = np.zeros((round.setting.n_workers, n_regions), dtype=bool)
        masks[:, chosen] = True
        return masks


@dataclass(frozen=True)
class Coverage(PlannedPolicy):
    """At least `psi` workers train each region, and no worker leaves one out for more than `gamma` rounds.

    Independent coin flips now and then leave a region to one worker, or to none, and the worst round is what the
    paper's bounds depend on (psi* is a minimum over rounds). So coverage is filled up after the coins have fallen, and
    staleness, where it is to be bounded, is repaired before.

    A bound on the staleness can be kept in two ways. Letting every pair wait as long as it may is the cheapest, but all
    pairs are fresh after Phase I, so they come due together, in bursts, and whatever is computed from memories of one
    age swings with it. Waits drawn at random are spread out, and stay so.

    Parameters
    ----------
    psi : int
        The paper's psi*, between 1 and N.
    gamma : int, optional
        The paper's gamma, at least 1. None bounds nothing.
    keep : float, default 0
        The chance with which a (worker, region) is trained anyway.
    waits : {"spread", "longest"}, default "spread"
        How long a pair waits where gamma is given: "spread" draws the wait from 0, ..., gamma, each as likely;
        "longest" is gamma, unless a coin or step 3 picks the pair before.

    Notes
    -----
    In each round, in this order:

    1. a pair whose wait is over trains now: with ``waits="spread"`` one of staleness s with chance
       ``1 / (gamma + 1 - s)``, which makes the wait uniform on 0, ..., gamma; with "longest" one of staleness gamma;
    2. every other pair trains with chance `keep`;
    3. a region with fewer than `psi` workers gets random further ones until it has `psi`.

    With ``keep=0`` and ``gamma=None`` every region has exactly `psi` workers in every round.
    """

    psi: int
    gamma: int | None = None
    keep: float = 0.0
    waits: Literal["spread", "longest"] = "spread"

    def __post_init__(self) -> None:
        object.__setattr__(self, "psi", check_whole("psi", self.psi, next_step="try psi=1"))
        if self.gamma is not None:
            next_step = "leave it out for no bound, or use Full for no staleness"
            object.__setattr__(self, "gamma", check_whole("gamma", self.gamma, next_step=next_step))
        object.__setattr__(self, "keep", check_share("keep", self.keep, "try keep=0"))
        check_choice("waits", self.waits, ("spread", "longest"), "leave it out for 'spread'")

    def check(self, setting: Setting) -> None:
        """Refuse a psi that is larger than the number of workers."""
        if self.psi > setting.n_workers:
            allowed = f"between 1 and {setting.n_workers}, the number of workers"
            raise bad_argument("psi", self.psi, allowed, "lower psi or use more workers")

    def promise(self, setting: Setting) -> Promise:
        """Coverage psi, all Q regions trained, staleness at most gamma."""
        return Promise(min_coverage=self.psi, min_trained=setting.n_regions, max_staleness=self.gamma)

    def masks(self, round: Round) -> BoolArray:
        """Train what is due, flip the coins, then fill up to psi."""
        shape = (round.setting.n_workers, round.setting.n_regions)
        chosen = self._coins(round.rng, shape)
        if self.gamma is not None:
            left = np.maximum(self.gamma - round.staleness, 0)  # rounds the pair may still wait
            chosen |= round.rng.random(shape) < 1 / (left + 1) if self.waits == "spread" else left == 0
        # Each region's first psi workers: those already chosen, then the others in random order.
        priority = round.rng.random(shape)
        priority[chosen] = -1.0
        last = np.partition(priority.T.copy(), self.psi - 1, axis=1)[:, self.psi - 1]
        return priority <= last  # those already chosen are below any other

    def _coins(self, rng: np.random.Generator, shape: tuple[int, int]) -> BoolArray:
        if self.keep == 0 and isinstance(rng.bit_generator, np.random.PCG64):
            rng.bit_generator.advance(shape[0] * shape[1])  # past coins of which none is heads
            return np.zeros(shape, dtype=bool)
        return rng.random(shape) < self.keep
