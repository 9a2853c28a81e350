r"""DSGD: stochastic gradient steps at every node of a graph, each followed by a mean over the neighbours.

Pu, Olshevsky & Paschalidis, "A sharp estimate on the transient time of distributed stochastic gradient descent", IEEE
Transactions on Automatic Control 67(11), 2022, pp. 5900-5915 (arXiv 1906.02702).

     1  x_i = w0 at every node i
        for k = 0, 1, ...
     2    g_i = scale_i grad F_i,S(x_i)                        S: a mini-batch of worker i; scale_i = N weight_i
     3    x_i <- sum_j mixing_ij (x_j - alpha_k g_j)           over i and its neighbours: one vector along every edge

Adapt, then combine, as in code of the authors' group; the numbers of the lines are ours.

- alpha_k = theta / (mu (k + K)) with theta > 1, as in the paper as we know it (from memory, the constants too). Differs
  from the paper: K = theta L / mu, so that alpha_k = 1 / (L + mu k / theta) begins at 1 / L. The paper's K, which is
  2 theta L^2 / mu^2, begins at mu / (2 L^2): far too short to be of use at small penalties. L is the largest smoothness
  of what a node minimises, or of its mini-batches where it has any. It comes with whole gradients at w0, which are the
  g_i of the first step. mu is that of the penalty, and without one alpha_k stays 1 / L.
- A constant `learning_rate` is faster at first, and then stalls: at the noise of the batches, and where the nodes' data
  differ at a bias of order learning_rate / gap, even with whole shards.
- Open in the paper: who is absent. Its node keeps its model, and its neighbours mix as usual (`danl.methods.gossip`).
- On a complete graph every node has the mean after each step: it is mini-batch SGD with the batches of all nodes, and
  with whole shards gradient descent.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from danl.checks import check_number
from danl.frozen import replace
from danl.methods.base import Info, Setup, Status, Turn, too_few
from danl.methods.gossip import ask_constants, ask_nodes, at_start, graph_of, largest_smoothness, node_values, scales
from danl.methods.mini_batches import check_steps
from danl.methods.shared_options import check_options
from danl.protocol.messages import Array, Exchange
from danl.protocol.replies import Replies
from danl.storage.serialize import storable
from danl.tasks.batch_gradient import BatchGradientTask


@storable
@dataclass(frozen=True)
class DSGDState:
    """The nodes' models, and what step sizes follow from."""

    models: Array  # x_i, (N, d)
    iteration: int = 0  # k
    smoothness: float | None = None  # L, where it has been asked for
    status: Status | None = None

    @property
    def w(self) -> Array:
        """The average of the nodes' models."""
        return np.asarray(self.models.mean(axis=0))


@dataclass(frozen=True)
class DSGD:
    """Distributed stochastic gradient descent over a graph (`danl.solve`'s `graph`).

    Parameters
    ----------
    learning_rate : float, optional
        A step size that stays as it is. Default: 1 / (L + mu k / theta) in iteration k.
    batch_size : int or "all", optional
        Rows a worker draws for a gradient, with replacement. Default: its whole shard.
    theta : float
        Above 1: how slowly the steps become shorter.
    mu : float, optional
        Strong convexity that the step sizes count on. Default: that of the penalty.

    """

    name = "dsgd"
    over_graph = True

    learning_rate: float | None = None
    batch_size: int | None = None
    theta: float = 2.0
    mu: float | None = None

    def __post_init__(self) -> None:
        check_steps(self)
        check_options(self)
        object.__setattr__(self, "theta", check_number("theta", self.theta, above=1.0))

    def begin(self, setup: Setup) -> DSGDState:
        return DSGDState(at_start(setup))

    def plan(self, state: DSGDState, setup: Setup, turn: Turn) -> Exchange:
        if self.learning_rate is None and state.smoothness is None:
            return ask_constants(setup, turn, state.models)
        return ask_nodes(setup, BatchGradientTask(turn.exchange, state.models[0], self.batch_size), state.models)

    def absorb(self, state: DSGDState, replies: Replies, setup: Setup) -> tuple[DSGDState, Info]:
        if not len(replies.workers):
            return too_few(state, replies)
        if self.learning_rate is None and state.smoothness is None:
            smoothness = largest_smoothness(replies, setup, f"{self.name}:learning_rate=0.01", self.batch_size)
            state = replace(state, smoothness=smoothness)
        gradients, there = node_values(replies, setup, "gradient")
        adapted = state.models - self._step(state, setup) * scales(setup) * gradients  # lines 2 and 3
        models = np.where(there[:, None], graph_of(setup).mixing @ adapted, state.models)
        return replace(state, models=models, iteration=state.iteration + 1), Info()

    def _step(self, state: DSGDState, setup: Setup) -> float:
        """alpha_k."""
        if self.learning_rate is not None:
            return self.learning_rate
        assert state.smoothness is not None
        return 1.0 / (state.smoothness + setup.floor(self.mu) * state.iteration / self.theta)
