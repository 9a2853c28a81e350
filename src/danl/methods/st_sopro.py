r"""St-SoPro: stochastic second-order proximal steps over a graph, each node against the pull of its neighbours.

After Qiu, Zhu, Ou & Lu, "A stochastic second-order proximal method for distributed optimization", IEEE Control Systems
Letters 7, 2023 (arXiv 2211.10591), which samples SoPro of Wu, Qu & Lu, IEEE Transactions on Automatic Control, 2021.

Models are equal where P x = 0 with P = I - mixing. Minimising sum_i scale_i F_i(x_i) among these has the augmented
Lagrangian  sum_i scale_i F_i(x_i) + <q, x> + (rho / 2) x . P x.  Its Hessian is replaced by that of every node by
itself, with a damping, so that a step needs no Hessian of a neighbour:

     1  x_i = w0,  q_i = 0 at every node i
        for k = 0, 1, ...
     2    g_i = scale_i grad F_i,S(x_i),  H_i = scale_i Hess F_i,R(x_i)              mini-batches S and R of worker i
     3    x_i <- x_i - (H_i + damping I)^-1 (g_i + q_i + rho sum_j P_ij x_j)
     4    x_i goes along every edge
     5    q_i <- q_i + rho sum_j P_ij x_j                                             the sum is that of the next line 3

The form of the updates, the numbers of the lines and the choice of P are ours: of the paper only the abstract could be
held against them, and its conditions on rho and the damping could not.

- rho: sqrt(mu L), with L the largest smoothness of a node's scale_i F_i, asked for first, when x_i = w0 goes along the
  edges, and mu that of the penalty; L / 100 without one.
- damping: rho lambda_max(P) with whole shards: for a quadratic line 3 is then the minimum of a bound on the augmented
  Lagrangian, whatever rho is. With mini-batches L more, that of the batches: the Hessian of a few rows is flat where
  the gradient has its noise.
- q_i tends to -scale_i grad F_i(x*), and not to 0. The sum of all q_i is 0 at all times, as the columns of P sum to 0.
- With whole shards it tends to the optimum; with mini-batches to a neighbourhood of it, which shrinks with their noise.
- Open in the paper: who is absent. Its node keeps x_i; line 5 goes on, so that the sum stays 0 (`danl.methods.gossip`).
- On a complete graph of nodes with the same data q stays 0, and it is Newton's method with a damping.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from danl.checks import check_number
from danl.frozen import replace
from danl.methods.base import Info, Setup, Status, Turn, too_few
from danl.methods.gossip import ask_constants, ask_nodes, at_start, graph_of, largest_smoothness, node_values, scales
from danl.methods.shared_options import check_options
from danl.protocol.messages import Array, Exchange
from danl.protocol.replies import Replies
from danl.storage.serialize import storable
from danl.tasks.proximal_step import ProximalStepTask

FLAT = 0.01
"""rho / L without a penalty."""


@storable
@dataclass(frozen=True)
class StSoProState:
    """The nodes' models and multipliers."""

    models: Array  # x_i, (N, d)
    multipliers: Array  # q_i, (N, d)
    rho: float | None
    damping: float | None  # None: has yet to be chosen
    status: Status | None = None

    @property
    def w(self) -> Array:
        """The average of the nodes' models."""
        return np.asarray(self.models.mean(axis=0))


@dataclass(frozen=True)
class StSoPro:
    """A stochastic second-order proximal method over a graph (`danl.solve`'s `graph`).

    Parameters
    ----------
    rho : float, optional
        How much neighbours pull. Default: sqrt(mu L).
    damping : float, optional
        What is added to the diagonal of a node's Hessian. Default: rho lambda_max(P), and L more with mini-batches.
    batch_size, hessian_batch : int, optional
        Rows a worker draws for gradient and Hessian, with replacement. Default: its whole shard.

    """

    name = "st-sopro"
    over_graph = True

    rho: float | None = None
    damping: float | None = None
    batch_size: int | None = None
    hessian_batch: int | None = None

    def __post_init__(self) -> None:
        check_options(self)
        if self.rho is not None:
            object.__setattr__(self, "rho", check_number("rho", self.rho))
        if self.damping is not None:
            object.__setattr__(self, "damping", check_number("damping", self.damping, least=0))

    def begin(self, setup: Setup) -> StSoProState:
        models, damping = at_start(setup), self.damping
        if damping is None and self.rho is not None and self._smallest_batch is None:
            damping = self.rho * _largest_eigenvalue(setup)
        return StSoProState(models, np.zeros_like(models), self.rho, damping)

    def plan(self, state: StSoProState, setup: Setup, turn: Turn) -> Exchange:
        if state.rho is None or state.damping is None:
            return ask_constants(setup, turn, state.models)
        task = ProximalStepTask(
            turn.exchange,
            state.models[0],
            state.multipliers[0],
            state.damping,
            batch_size=self.batch_size,
            hessian_batch=self.hessian_batch,
        )
        pulls = state.multipliers + state.rho * _differences(state.models, setup)
        return ask_nodes(setup, task, state.models, pull=pulls, scale=scales(setup)[:, 0])

    def absorb(self, state: StSoProState, replies: Replies, setup: Setup) -> tuple[StSoProState, Info]:
        if not len(replies.workers):
            return too_few(state, replies)
        if state.rho is None or state.damping is None:
            rho, damping = self._parameters(replies, setup)
            return replace(state, rho=rho, damping=damping), Info()
        steps, _ = node_values(replies, setup, "step")  # 0 of who is absent
        models = state.models - steps  # line 3
        multipliers = state.multipliers + state.rho * _differences(models, setup)  # line 5
        return replace(state, models=models, multipliers=multipliers), Info()

    def _parameters(self, replies: Replies, setup: Setup) -> tuple[float, float]:
        """Rho and the damping."""
        example, mu = f"{self.name}:rho=0.01,damping=1", setup.strong_convexity
        rho, damping = self.rho, self.damping
        if rho is None:
            smoothness = largest_smoothness(replies, setup, example)
            rho = math.sqrt(mu * smoothness) if mu > 0 else FLAT * smoothness
        if damping is None:
            damping, size = rho * _largest_eigenvalue(setup), self._smallest_batch
            if size is not None:
                damping += largest_smoothness(replies, setup, f"{self.name}:damping=1", size)
        return rho, damping

    @property
    def _smallest_batch(self) -> int | None:
        return min([size for size in (self.batch_size, self.hessian_batch) if size is not None], default=None)


def _differences(models: Array, setup: Setup) -> Array:
    """P models: of each node from the mean of its neighbourhood."""
    return np.asarray(models - graph_of(setup).mixing @ models)


def _largest_eigenvalue(setup: Setup) -> float:
    """lambda_max(P)."""
    return float(1.0 - np.linalg.eigvalsh(graph_of(setup).mixing)[0])
