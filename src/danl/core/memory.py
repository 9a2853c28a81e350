"""The server's gradient memory Theta: the newest fragment every worker sent for every region."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from danl.core.messages import Array, GradientReply, Mask
from danl.regions import Regions


@dataclass(frozen=True)
class Memory:
    """Theta_i^q for all workers and regions, as one array: row i, the coordinates of region q."""

    fragments: Array  # (N, d)

    def refreshed(self, replies: Mapping[int, GradientReply], regions: Regions) -> Memory:
        """Lines 17-19: replace what came back, keep the rest."""
        fragments = self.fragments.copy()
        for worker, reply in replies.items():
            kept = slice(None) if reply.mask is None else regions.coordinates(reply.mask)
            fragments[worker, kept] = reply.fragment
        return Memory(fragments)

    def mean_all(self, weights: Array) -> Array:
        """Line 20: grad^q = sum_i weight_i Theta_i^q, over all N workers."""
        return np.asarray(weights @ self.fragments)

    def mean_covered(self, weights: Array, trained: Mask, regions: Regions) -> Array:
        """The proofs' reading (Lemmas 3 and 4): trained regions averaged over C^{t,q} only, the others over all N."""
        counted = weights[:, None] * np.where(trained.any(axis=0), trained, True)  # (N, Q)
        counted = counted / counted.sum(axis=0)
        return np.asarray(np.einsum("id,id->d", counted[:, regions.of_feature], self.fragments))
