r"""The server's gradient memory: the newest fragment every worker sent for every region, and the model it belongs to.

Raw, as in the paper, a fragment counts for what it was when it came. Corrected, it is carried to today's model to first
order: with v_iq the model behind the fragment of worker i for region q, and Pi the aggregated Hessian,

    grad^q = sum_i weight_i (g_i^q(v_iq) + [Pi (w - v_iq)]^q)
           = sum_i weight_i g_i^q(v_iq)  +  [Pi (w - v_q)]^q          with  v_q = sum_i weight_i v_iq

so the server needs, beside the fragments, one mean model per region: d^2 work a round, nothing more on the wire. The
correction vanishes as w settles, whatever Pi is. Only models that some fragment still refers to are kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from danl.core.messages import Array, GradientReply, Mask, Reply
from danl.core.stack import Stacked
from danl.regions import IntArray, Regions


@dataclass(frozen=True)
class Memory:
    """Theta_i^q for all workers and regions: row i, the coordinates of region q; and which model each belongs to."""

    fragments: Array  # (N, d)
    stamps: IntArray  # (N, Q): the number of the model behind each fragment
    models: Mapping[int, Array]  # those that a stamp refers to

    @classmethod
    def fresh(cls, fragments: Array, w: Array, n_regions: int, stamp: int = 0) -> Memory:
        """Line 6: every fragment of every worker at the same model."""
        return cls(fragments, np.full((len(fragments), n_regions), stamp), {stamp: w})

    def refreshed(self, replies: Mapping[int, Reply], w: Array, stamp: int, regions: Regions) -> Memory:
        """Lines 17-18: replace what came back, computed at w, and keep the rest."""
        if isinstance(replies, Stacked) and replies.of_all is not None:
            trained = replies.trained(*self.stamps.shape)
            if trained.all():
                return Memory.fresh(replies.of_all, w, regions.n_regions, stamp)
            fragments = np.where(regions.expand(trained), replies.of_all, self.fragments)
            return self._with(fragments, np.where(trained, stamp, self.stamps), w, stamp)
        fragments, stamps = self.fragments.copy(), self.stamps.copy()
        for worker, reply in replies.items():
            if not isinstance(reply, GradientReply):
                continue  # its loss alone
            kept = slice(None) if reply.mask is None else regions.coordinates(reply.mask)
            fragments[worker, kept] = reply.fragment
            stamps[worker, slice(None) if reply.mask is None else reply.mask] = stamp
        return self._with(fragments, stamps, w, stamp)

    def _with(self, fragments: Array, stamps: IntArray, w: Array, stamp: int) -> Memory:
        """New fragments, and the models they still refer to."""
        referred = np.flatnonzero(np.bincount(stamps.ravel())).tolist()  # a tenth of np.unique's time
        models = {number: w if number == stamp else self.models[number] for number in referred}
        return Memory(fragments, stamps, models)

    def mean_all(self, weights: Array) -> Array:
        """Line 19: grad^q = sum_i weight_i Theta_i^q, over all N workers."""
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
