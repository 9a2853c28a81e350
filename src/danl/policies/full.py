"""Full masks: every worker trains every region in every round.

The reference all other policies are held against. With it Algorithm 1 keeps no stale gradient and is Newton
Zero: one Hessian, fixed, and a whole gradient in every round.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from danl.objective.regions import BoolArray
from danl.policies.base import PlannedPolicy, Promise, Round, Setting


@dataclass(frozen=True)
class Full(PlannedPolicy):
    """Every worker trains every region: psi* = N, S* = Q, gamma = 0."""

    def promise(self, setting: Setting) -> Promise:
        """Everything: coverage N, Q regions trained, no staleness."""
        return Promise(min_coverage=setting.n_workers, min_trained=setting.n_regions, max_staleness=0)

    def masks(self, round: Round) -> BoolArray:
        """All true, shape (N, Q)."""
        return np.ones((round.setting.n_workers, round.setting.n_regions), dtype=bool)
