"""A few regions a round, the same for all workers.

The opposite of spreading regions over workers: full coverage of few regions (psi* = N, S* = S). It is block
coordinate descent seen from the server, and the setting of the paper's figures that is hardest on raw
memory, since every untrained region is as old as it can be.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from danl.checks import check_choice, check_whole
from danl.errors import bad_argument
from danl.objective.regions import BoolArray
from danl.policies.base import PlannedPolicy, Promise, Round, Setting


@dataclass(frozen=True)
class Subset(PlannedPolicy):
    """All workers train the same `regions_per_round` regions.

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
            raise bad_argument(
                "regions_per_round",
                self.regions_per_round,
                f"between 1 and {setting.n_regions}, the number of regions",
                "lower regions_per_round or cut the model into more regions",
            )

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
