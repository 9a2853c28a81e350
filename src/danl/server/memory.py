r"""The server's gradient memory: the newest fragment every worker sent for every region, and the model it belongs to.

Raw, as in the paper, a fragment counts for what it was when it came. Corrected, it is taken to today's model to first
order: with v_iq the model behind the fragment of worker i for region q, and Pi the aggregated Hessian,

    grad^q = sum_i weight_i (g_i^q(v_iq) + [Pi (w - v_iq)]^q)
           = sum_i weight_i g_i^q(v_iq)  +  [Pi (w - v_q)]^q          with  v_q = sum_i weight_i v_iq

so the server needs, beside the fragments, one mean model per region: d^2 work a round, nothing more on the wire. The
correction vanishes as w settles, whatever Pi is. Only models that some fragment still refers to are kept.

Where a few of many workers come back, a round touches their rows and no others: their new rows stand beside the array
of all (`newer`), and the mean is a running sum. Every UPDATES rounds the rows are put into a new array and the sum is
added up anew, so that rounding does not build up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from danl.frozen import at_once, cached_property
from danl.objective.batch import MANY_NUMBERS
from danl.objective.batch_parts import few_of_many
from danl.objective.regions import IntArray, Regions, as_items
from danl.policies.masks import with_a_region
from danl.protocol.messages import Array, Mask
from danl.protocol.replies import Replies
from danl.server.curvature import Curvature
from danl.storage.serialize import storable

UPDATES = 64
"""Rounds after which rows that stand beside the array are put into it, and a running sum is added up anew."""
LONG_REGION = 8
"""Coordinates of a region, on average, from which on fragments are copied region by region."""
COMMON = 0.25
"""The least weight of those whose gradients are known at two models that stands for everyone's."""


def put_fragments(rows: Array, who: IntArray, gradients: Array, masks: Mask, regions: Regions) -> None:
    """Put what the masks keep of the gradients of some workers, (n, d), into the rows of all, (N, d)."""
    if gradients.size < MANY_NUMBERS or LONG_REGION * regions.n_regions > gradients.shape[1] or not regions.slices:
        rows[who] = np.where(masks[:, regions.of_coefficient], gradients, rows[who])
        return
    gradients = np.ascontiguousarray(gradients)
    for columns, kept in zip(regions.slices, masks.T, strict=True):
        new, parts = as_items(gradients, columns), as_items(rows, columns)
        if len(who) == len(rows):
            np.copyto(parts, new, where=kept)
        else:
            (own,) = np.nonzero(kept)
            parts[who[own]] = new[own]


@storable
@dataclass(frozen=True)
class RunningSum:
    """sum_i weight_i Theta_i, kept up to date by what changes."""

    weights: Array  # (N,)
    total: Array  # (d,)
    updates: int = 0  # since it was added up


@storable
@at_once
@dataclass(frozen=True)
class Memory:
    """Theta_i^q for all workers and regions: row i, the coordinates of region q; and which model each belongs to."""

    base: Array  # (N, d)
    stamps: IntArray  # (N, Q): the number of the model behind each fragment
    models: Mapping[int, Array]  # those that a stamp refers to
    newer: Mapping[int, Array] = field(default_factory=dict)  # rows that came after the base, by worker
    running: RunningSum | None = None

    @classmethod
    def fresh(cls, fragments: Array, w: Array, n_regions: int, stamp: int = 0) -> Memory:
        """Line 6: every fragment of every worker at the same model."""
        stamps = np.zeros((len(fragments), n_regions), dtype=np.int64)
        return cls(fragments, stamps + stamp if stamp else stamps, {stamp: w})

    def oldest(self, members: Mask) -> int:
        """The stamp of the region that no member has sent for the longest time."""
        return int(self.stamps[members].max(axis=0).min())

    @cached_property
    def fragments(self) -> Array:
        """The fragments of all workers, (N, d)."""
        if not self.newer:
            return self.base
        whole = self.base.copy()
        whole[list(self.newer)] = list(self.newer.values())
        return whole

    def refreshed(
        self, replies: Replies, w: Array, stamp: int, regions: Regions, weights: Array | None = None
    ) -> Memory:
        """Lines 17-18: replace what came back, computed at w, and keep the rest.

        With the weights a mean will be asked for, its sum is kept where that pays.
        """
        n_workers, n_regions = self.stamps.shape
        senders, gradients, masks = replies.senders, replies.gradients, replies.masks
        if gradients is None:
            return self
        if masks is None:
            masks = np.ones((len(senders), n_regions), dtype=bool)
        elif senders is not replies.workers:
            masks = masks[np.searchsorted(replies.workers, senders)]
        if len(senders) == n_workers and masks.all():
            return Memory.fresh(gradients, w, n_regions, stamp)
        (rows,) = np.nonzero(with_a_region(masks))
        if not len(rows):
            return self
        stamps = self._stamped(senders, masks, stamp)
        referred = np.flatnonzero(np.bincount(stamps.ravel())).tolist()  # a tenth of np.unique's time
        models = {number: w if number == stamp else self.models[number] for number in referred}
        if few_of_many(len(rows), n_workers, self.base.size):
            senders, gradients, masks = senders[rows], gradients[rows], masks[rows]
            kept = masks[:, regions.of_coefficient]
            return self._with_rows(senders, kept, gradients, stamps, models, weights)
        fragments = self.fragments.copy()
        put_fragments(fragments, senders, gradients, masks, regions)
        return Memory(fragments, stamps, models)

    def _with_rows(
        self,
        who: IntArray,
        kept: Mask,
        gradients: Array,
        stamps: IntArray,
        models: Mapping[int, Array],
        weights: Array | None,
    ) -> Memory:
        """The memory with the rows of those who came back, (n, d), touching no others."""
        workers = who.tolist()
        old = np.stack([self.newer.get(worker, self.base[worker]) for worker in workers])
        new = np.where(kept, gradients, old)
        base, newer = self.base, {**self.newer, **dict(zip(workers, new, strict=True))}
        before = self.running
        same = before is not None and weights is not None and np.array_equal(before.weights, weights)
        if before is not None and same and before.updates + 1 < UPDATES:
            total = before.total + before.weights[who] @ (new - old)
            return Memory(base, stamps, models, newer, RunningSum(before.weights, total, before.updates + 1))
        base = base.copy()
        base[list(newer)] = list(newer.values())
        return Memory(base, stamps, models, running=None if weights is None else RunningSum(weights, weights @ base))

    def _stamped(self, who: IntArray, masks: Mask, stamp: int) -> IntArray:
        """The stamps with those of some workers, (n, Q)."""
        if self.base.size < MANY_NUMBERS or few_of_many(len(who), len(self.stamps), self.base.size):
            stamps = self.stamps.copy()
            stamps[who] = np.where(masks, stamp, stamps[who])
            return stamps
        trained = np.zeros(self.stamps.shape, dtype=bool)  # of all: to pick rows of numbers takes ten times as long
        as_items(trained)[who] = as_items(np.ascontiguousarray(masks))
        # Where nobody can predict many masks, np.where takes five times as long.
        return np.asarray(self.stamps + trained * (stamp - self.stamps), dtype=np.int64)

    def mean_all(self, weights: Array) -> Array:
        """Line 19: grad^q = sum_i weight_i Theta_i^q, over all N workers."""
        if self.running is not None and np.array_equal(self.running.weights, weights):
            return self.running.total.copy()
        return np.asarray(weights @ self.fragments)

    def mean_covered(self, weights: Array, trained: Mask, regions: Regions) -> Array:
        """The proofs' reading (Lemmas 3 and 4): trained regions averaged over C^{t,q} only, the others over all N."""
        counted = weights[:, None] * np.where(trained.any(axis=0), trained, True)  # (N, Q)
        counted = counted / counted.sum(axis=0)
        return np.asarray(np.einsum("id,id->d", counted[:, regions.of_coefficient], self.fragments))

    def corrected(self, weights: Array, curvature: Curvature, w: Array, regions: Regions) -> Array:
        """The gradient at w that the fragments and the curvature between their models and w make up."""
        gradient, models = self.mean_all(weights), list(self.models.values())
        if all(model is w for model in models):
            return gradient  # every fragment is of w
        shares = np.einsum("i,iqr->qr", weights, self.stamps[:, :, None] == np.array(list(self.models)))  # (Q, R)
        return gradient + curvature.memory_correction(w - np.stack(models), shares, regions)

    def common_change(self, before: Memory, weights: Array) -> tuple[Array, Array] | None:
        """The newest step, and the change of the gradient along it: of those whose whole gradients are known at both.

        They stand for everyone; None where they are fewer than COMMON of the weight, or the step is none.
        """
        then, now = max(before.models), max(self.models)
        common = (before.stamps == then).all(axis=1) & (self.stamps == now).all(axis=1)
        share = float(weights[common].sum())
        if then == now or share < COMMON:
            return None
        change = weights[common] @ (self.fragments[common] - before.fragments[common]) / share
        return self.models[now] - before.models[then], change

    def predicted_changes(self, curvature: Curvature, w: Array, step: Array, regions: Regions) -> Array:
        """What every worker's corrected gradient at w says of a step: grad_i . step + (1/2) step^T Pi step, (N,)."""
        # step . [Pi (w - v)] region by region = (Pi times the step's part in q) . (w - v)
        every_region = np.arange(regions.n_regions)
        parts = np.where(regions.of_coefficient[:, None] == every_region, step[:, None], 0.0)  # (d, Q)
        products = curvature.times(parts)  # (d, Q)
        numbers = np.array(sorted(self.models))
        offsets = np.stack([w - self.models[int(number)] for number in numbers])  # (R, d)
        corrections = (offsets @ products)[np.searchsorted(numbers, self.stamps), every_region]  # (N, Q)
        half_curvature = 0.5 * float(step @ products.sum(axis=1))
        return np.asarray(self.fragments @ step + corrections.sum(axis=1) + half_curvature)
