"""Masks given in advance: any run can be replayed, and any pattern of the paper be written down.

A schedule is what a recorded run is replayed with, what a plan made by other software comes in as, and what
tests build known cases from.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from danl.errors import bad_argument
from danl.objective.regions import BoolArray
from danl.policies.base import PlannedPolicy, Promise, Round, Setting
from danl.policies.masks import MaskRecord


@dataclass(frozen=True, eq=False, init=False)
class Schedule(PlannedPolicy):
    """Round t uses ``masks[t - 1]``.

    Parameters
    ----------
    masks : bool array, shape (T, N, Q)
        The regions each worker trains in each round. Kept, as a read-only copy, under the name ``planned``.
    cycle : bool, default False
        Begin again after T rounds. Otherwise the schedule must be as long as the run.
    """

    planned: BoolArray
    cycle: bool

    def __init__(self, masks: ArrayLike, cycle: bool = False) -> None:
        planned = np.array(masks)
        if planned.dtype != np.bool_:
            raise bad_argument("masks.dtype", str(planned.dtype), "bool", "convert with masks.astype(bool)")
        if planned.ndim != 3 or planned.size == 0:
            raise bad_argument("masks.shape", planned.shape, "(T, N, Q), rounds by workers by regions, none of 0")
        if not isinstance(cycle, bool):
            raise bad_argument("cycle", cycle, "True or False")
        planned.flags.writeable = False
        object.__setattr__(self, "planned", planned)
        object.__setattr__(self, "cycle", cycle)

    def check(self, setting: Setting) -> None:
        """Refuse a schedule for other workers or regions, or one that ends before the run does."""
        expected = (setting.n_workers, setting.n_regions)
        if self.planned.shape[1:] != expected:
            workers, regions = expected
            allowed = f"(T, {workers}, {regions}), as there are {workers} workers and {regions} regions"
            raise bad_argument("masks.shape", self.planned.shape, allowed, "make the schedule for this problem")
        length = len(self.planned)
        if length < setting.max_rounds and not self.cycle:
            allowed = f"at least {setting.max_rounds}, the rounds of this run"
            raise bad_argument("len(masks)", length, allowed, f"pass cycle=True or max_rounds={length}")

    def promise(self, setting: Setting) -> Promise:
        """What the masks themselves amount to over ``max_rounds`` rounds, exactly."""
        length = len(self.planned)
        # The second time around shows the runs that span the seam; the third would show nothing new.
        rounds = min(setting.max_rounds, 2 * length)
        record = MaskRecord.start(setting.n_workers, setting.n_regions)
        for number in range(rounds):
            record = record.after(self.planned[number % length])
        never_trained = bool((record.staleness == rounds).any())
        return Promise(
            min_coverage=record.min_coverage,
            min_trained=record.min_trained,
            max_staleness=setting.max_rounds if never_trained else record.max_staleness,
        )

    def masks(self, round: Round) -> BoolArray:
        """The masks of this round, shape (N, Q)."""
        position = round.number - 1
        masks: BoolArray = self.planned[position % len(self.planned) if self.cycle else position]
        return masks
