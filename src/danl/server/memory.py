r"""The server's gradient memory: the newest fragment every worker sent for every region, and the model it belongs to.

Raw, as in the paper, a fragment counts for what it was when it came. Corrected, it is carried to today's model to first
order: with v_iq the model behind the fragment of worker i for region q, and Pi the aggregated Hessian,

    grad^q = sum_i weight_i (g_i^q(v_iq) + [Pi (w - v_iq)]^q)
           = sum_i weight_i g_i^q(v_iq)  +  [Pi (w - v_q)]^q          with  v_q = sum_i weight_i v_iq

so the server needs, beside the fragments, one mean model per region: d^2 work a round, nothing more on the wire. The
correction vanishes as w settles, whatever Pi is. Only models that some fragment still refers to are kept.

Where a few of many workers come back, a round touches their rows and no others: of two arrays that take turns the older
one is brought up to date, and the mean is a running sum, added up anew every UPDATES rounds so that rounding does not
build up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from danl.objective.kernels import few_of_many
from danl.objective.regions import IntArray, Regions
from danl.policies.measures import with_a_region
from danl.protocol.batches import Stacked
from danl.protocol.messages import Array, GradientReply, Mask, Reply

UPDATES = 64
"""Rounds after which a running sum is added up anew."""


@dataclass(frozen=True)
class RunningSum:
    """sum_i weight_i Theta_i, kept up to date by what changes."""

    weights: Array  # (N,)
    total: Array  # (d,)
    updates: int = 0  # since it was added up


@dataclass(frozen=True)
class Memory:
    """Theta_i^q for all workers and regions: row i, the coordinates of region q; and which model each belongs to.

    It stays as it is until the memory that was made of it has been refreshed in turn.
    """

    fragments: Array  # (N, d)
    stamps: IntArray  # (N, Q): the number of the model behind each fragment
    models: Mapping[int, Array]  # those that a stamp refers to
    running: RunningSum | None = None

    @classmethod
    def fresh(cls, fragments: Array, w: Array, n_regions: int, stamp: int = 0) -> Memory:
        """Line 6: every fragment of every worker at the same model."""
        return cls(fragments, np.full((len(fragments), n_regions), stamp), {stamp: w})

    def refreshed(
        self, replies: Mapping[int, Reply], w: Array, stamp: int, regions: Regions, weights: Array | None = None
    ) -> Memory:
        """Lines 17-18: replace what came back, computed at w, and keep the rest.

        With the weights a mean will be asked for, its sum is kept where that pays.
        """
        if isinstance(replies, Stacked) and replies.numbers is not None:
            trained = replies.trained(*self.stamps.shape)
            if trained.all():
                return Memory.fresh(replies.gradients, w, regions.n_regions, stamp)
            who = np.flatnonzero(with_a_region(trained))
            few = few_of_many(len(who), len(self.fragments), self.fragments.size)
            if few or replies.holders is not None:
                told, summed = replies.gradients_at(who), weights if few else None
                return self._with_rows(who, trained[who], told, w, stamp, regions, summed)
            fragments = np.where(regions.expand(trained), replies.numbers, self.fragments)
            return self._with(fragments, np.where(trained, stamp, self.stamps), w, stamp)
        fragments, stamps = self.fragments.copy(), self.stamps.copy()
        for worker, reply in replies.items():
            if not isinstance(reply, GradientReply):
                continue  # its loss alone
            kept = slice(None) if reply.mask is None else regions.coordinates(reply.mask)
            fragments[worker, kept] = reply.fragment
            stamps[worker, slice(None) if reply.mask is None else reply.mask] = stamp
        return self._with(fragments, stamps, w, stamp)

    def _with_rows(
        self,
        who: IntArray,
        trained: Mask,
        gradients: Array,
        w: Array,
        stamp: int,
        regions: Regions,
        weights: Array | None,
    ) -> Memory:
        """The same for the rows of those who came back, (n, Q) and (n, d), touching no others."""
        old, stamps = self.fragments[who], self.stamps.copy()
        new = np.where(regions.expand(trained), gradients, old)
        stamps[who] = np.where(trained, stamp, stamps[who])
        fragments = self._taken_up_to_date()
        fragments[who] = new
        running = None
        if weights is not None:
            before = self.running
            if before is None or before.updates + 1 >= UPDATES or not np.array_equal(before.weights, weights):
                running = RunningSum(weights, weights @ fragments)
            else:
                running = RunningSum(weights, before.total + weights[who] @ (new - old), before.updates + 1)
        made = self._with(fragments, stamps, w, stamp, running)
        made._own.append(fragments)
        if self._own:  # not somebody else's array, and not given away before
            made._older.append((self._own.pop(), who))
        return made

    @cached_property
    def _own(self) -> list[Array]:
        """The array of the fragments, if it was made here, until a memory that is made of this one gets it."""
        return []

    @cached_property
    def _older(self) -> list[tuple[Array, IntArray]]:
        """The array of the memory this one was made of, and the rows that are older there."""
        return []

    def _taken_up_to_date(self) -> Array:
        """An array with the fragments of this memory, which is not this memory's."""
        if not self._older:
            return self.fragments.copy()
        array, rows = self._older.pop()  # once: the next one to ask gets a copy
        array[rows] = self.fragments[rows]
        return array

    def _with(
        self, fragments: Array, stamps: IntArray, w: Array, stamp: int, running: RunningSum | None = None
    ) -> Memory:
        """New fragments, and the models they still refer to."""
        referred = np.flatnonzero(np.bincount(stamps.ravel())).tolist()  # a tenth of np.unique's time
        models = {number: w if number == stamp else self.models[number] for number in referred}
        return Memory(fragments, stamps, models, running)

    def mean_all(self, weights: Array) -> Array:
        """Line 19: grad^q = sum_i weight_i Theta_i^q, over all N workers."""
        if self.running is not None and np.array_equal(self.running.weights, weights):
            return self.running.total.copy()
        return np.asarray(weights @ self.fragments)

    def mean_covered(self, weights: Array, trained: Mask, regions: Regions) -> Array:
        """The proofs' reading (Lemmas 3 and 4): trained regions averaged over C^{t,q} only, the others over all N."""
        counted = weights[:, None] * np.where(trained.any(axis=0), trained, True)  # (N, Q)
        counted = counted / counted.sum(axis=0)
        return np.asarray(np.einsum("id,id->d", counted[:, regions.of_feature], self.fragments))

    def mean_offsets(self, weights: Array, w: Array) -> Array:
        """W - v_q = sum_i weight_i (w - v_iq) for every region, (Q, d); exactly 0 where all fragments are of w."""
        numbers = np.array(list(self.models))
        shares = np.einsum("i,iqr->qr", weights, self.stamps[:, :, None] == numbers)  # (Q, R)
        return np.asarray(shares @ (w - np.stack(list(self.models.values()))))

    def slopes(self, hessian: Array, w: Array, step: Array, regions: Regions) -> Array:
        """What every worker's corrected gradient at w promises along a step: (N,) numbers grad_i . step."""
        # step . [Pi (w - v)] region by region = (Pi's columns of q times the step's part there) . (w - v)
        bent = np.stack(
            [hessian[:, own] @ step[own] for own in map(regions.indices, range(regions.n_regions))]
        )  # (Q, d)
        numbers = {number: row for row, number in enumerate(self.models)}
        at_models = np.stack(list(self.models.values())) @ bent.T  # (R, Q)
        rows = np.vectorize(numbers.__getitem__, otypes=[np.intp])(self.stamps)  # (N, Q)
        carried = bent @ w - at_models[rows, np.arange(regions.n_regions)]  # (N, Q)
        return np.asarray(self.fragments @ step + carried.sum(axis=1))

    def corrected(self, weights: Array, hessian: Array, w: Array, regions: Regions) -> Array:
        """The gradient at w that the fragments and the curvature between their models and w make up."""
        gradient = self.mean_all(weights)
        if all(model is w for model in self.models.values()):
            return gradient  # every fragment is of w
        for q, offset in enumerate(self.mean_offsets(weights, w)):
            own = regions.indices(q)
            gradient[own] += hessian[own] @ offset
        return gradient
