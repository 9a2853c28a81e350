r"""Curvature that every node makes of its own steps: limited-memory BFGS and DFP, damped, for all nodes at once.

Of a step s and the change y of its gradient along it a node keeps s and

    gamma = y . y / s . y  within [lo, hi];  lo where s . y <= 0
    theta = min(theta', hi |s| / |y|),   theta' = 0.75 gamma s . s / (gamma s . s - s . y)  if s . y < 0.25 gamma s . s
                                                  1                                         else
    ybar  = theta y + (1 - theta) gamma s

so that  s . ybar >= gamma s . s / 4  and  |ybar| <= (hi + gamma) |s|  whatever noise y has. From H = I / gamma, with
the newest gamma, the newest M pairs make

    bfgs   H <- (I - s ybar^T / c) H (I - ybar s^T / c) + s s^T / c              c = s . ybar
    dfp    H <- H - H ybar ybar^T H / (ybar . H ybar) + s s^T / c,  and at last H <- H + I / hi

whose eigenvalues are bounded: those of dfp are at least 1 / hi and at most (1 + 4 M) / lo + 1 / hi, those of bfgs at
least 1 / (hi + 4 M (hi + lo)^2 / lo). Above, bfgs has a bound as well, that grows with a power of M.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from danl.protocol.messages import Array, Mask
from danl.storage.serialize import storable


@storable
@dataclass(frozen=True)
class NodePairs:
    """The newest pairs (s, ybar) of every node, the newest last; zeros stand for none."""

    steps: Array  # s, (N, M, d)
    changes: Array  # ybar, (N, M, d)
    curvatures: Array  # gamma, (N,)

    @classmethod
    def none(cls, n_nodes: int, memory: int, d: int, curvature: float) -> NodePairs:
        """Without any: H = I / curvature."""
        nothing = np.zeros((n_nodes, memory, d))
        return cls(nothing, nothing, np.full(n_nodes, curvature))

    def with_pairs(self, steps: Array, changes: Array, which: Mask, lo: float, hi: float) -> NodePairs:
        """A pair more of the nodes in `which`, (s, y) of all nodes given; a node that did not move has none."""
        ss, sy, yy = _dots(steps, steps), _dots(steps, changes), _dots(changes, changes)
        which = which & (ss > 0)
        if not which.any() or not self.steps.shape[1]:
            return self
        gamma = np.where(sy > 0, np.clip(yy * _inverse(sy), lo, hi), lo)
        low = which & (sy < 0.25 * gamma * ss)
        theta = np.where(low, 0.75 * gamma * ss * _inverse(gamma * ss - sy), 1.0)
        theta = np.minimum(theta, np.where(yy > 0, hi * np.sqrt(ss * _inverse(yy)), 1.0))
        damped = theta[:, None] * changes + ((1.0 - theta) * gamma)[:, None] * steps
        return NodePairs(
            np.where(which[:, None, None], _pushed(self.steps, steps), self.steps),
            np.where(which[:, None, None], _pushed(self.changes, damped), self.changes),
            np.where(which, gamma, self.curvatures),
        )

    def bfgs(self, vectors: Array) -> Array:
        """H_i times a vector of every node, (N, d): two loops over the pairs (Nocedal & Wright, algorithm 7.4)."""
        count, shares = self.steps.shape[1], []
        inverse = _inverse(np.einsum("nmd,nmd->nm", self.steps, self.changes))
        rest = vectors
        for pair in reversed(range(count)):
            share = inverse[:, pair] * _dots(self.steps[:, pair], rest)
            rest = rest - share[:, None] * self.changes[:, pair]
            shares.append(share)
        product = rest / self.curvatures[:, None]
        for pair, share in enumerate(reversed(shares)):
            other = inverse[:, pair] * _dots(self.changes[:, pair], product)
            product = product + (share - other)[:, None] * self.steps[:, pair]
        return product

    def dfp(self, vectors: Array, hi: float) -> Array:
        """The same by DFP, with I / hi added."""
        inverse = _inverse(np.einsum("nmd,nmd->nm", self.steps, self.changes))
        bent: list[tuple[Array, Array]] = []  # H ybar of every pair, H that of the pairs before; 1 / ybar . H ybar

        def product(of: Array) -> Array:
            made = of / self.curvatures[:, None]
            for pair, (along, share) in enumerate(bent):
                step = self.steps[:, pair]
                made = made - (share * _dots(along, of))[:, None] * along
                made = made + (inverse[:, pair] * _dots(step, of))[:, None] * step
            return made

        for pair in range(self.steps.shape[1]):
            change = self.changes[:, pair]
            along = product(change)
            bent.append((along, _inverse(_dots(change, along))))
        return product(vectors) + vectors / hi


def _dots(left: Array, right: Array) -> Array:
    return np.asarray(np.einsum("nd,nd->n", left, right))


def _inverse(values: Array) -> Array:
    """Of what is above 0; 0 where there is no pair."""
    return np.divide(1.0, values, out=np.zeros_like(values), where=values > 0)


def _pushed(kept: Array, newest: Array) -> Array:
    return np.concatenate([kept[:, 1:], newest[:, None]], axis=1)
