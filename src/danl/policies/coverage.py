"""Random masks with guaranteed coverage: at least psi workers for every region, in every round.

Independent coin flips now and then leave a region to one worker, or to none, and the worst round is what
the paper's bounds depend on (psi* is a minimum over rounds). So coverage is filled up after the coins have
fallen, and staleness, where it is to be bounded, is repaired before.

A bound on the staleness can be kept in two ways. Letting every pair wait as long as it may is the cheapest, but all
pairs are fresh after Phase I, so they come due together, in bursts, and whatever is computed from memories of one age
swings with it. Waits drawn at random are spread out, and stay so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from danl.checks import check_choice, check_share, check_whole
from danl.errors import bad_argument
from danl.objective.regions import BoolArray
from danl.policies.base import PlannedPolicy, Promise, Round, Setting


@dataclass(frozen=True)
class Coverage(PlannedPolicy):
    """At least `psi` workers train each region, and no worker leaves one out for more than `gamma` rounds.

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
            raise bad_argument(
                "psi",
                self.psi,
                f"between 1 and {setting.n_workers}, the number of workers",
                "lower psi or use more workers",
            )

    def promise(self, setting: Setting) -> Promise:
        """Coverage psi, all Q regions trained, staleness at most gamma."""
        return Promise(min_coverage=self.psi, min_trained=setting.n_regions, max_staleness=self.gamma)

    def masks(self, round: Round) -> BoolArray:
        """Train what is due, flip the coins, then fill up to psi."""
        shape = (round.setting.n_workers, round.setting.n_regions)
        chosen = round.rng.random(shape) < self.keep
        if self.gamma is not None:
            left = np.maximum(self.gamma - round.staleness, 0)  # rounds the pair may still wait
            chosen |= round.rng.random(shape) < 1 / (left + 1) if self.waits == "spread" else left == 0
        # Each region's first psi workers, those already chosen before the others, and the others in random
        # order.
        priority = np.where(chosen, -1.0, round.rng.random(shape))
        first = priority.argpartition(self.psi - 1, axis=0)[: self.psi]
        chosen[first, np.arange(shape[1])] = True
        return chosen
