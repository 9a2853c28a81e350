r"""VR-SQN: quasi-Newton steps at every node of a graph, on a gradient that the nodes track together.

After Zhang, Liu, So & Ling, "Variance-reduced stochastic quasi-Newton methods for decentralized learning", IEEE
Transactions on Signal Processing 71, 2023, pp. 311-326 (arXiv 2201.07699 and 2201.07733, parts I and II).

     1  x_i = tau_i = w0,  v_i = scale_i grad F_i(tau_i),  g_i = v_i,  H_i = I / hi
        for k = 0, 1, ...
     2    x_i+ = sum_j W_ij (x_j - alpha H_j g_j)
     3    k + 1 divisible by T:   tau_i = x_i+                             worker i sends the whole gradient there
     4    v_i+ = scale_i (grad F_i,S(x_i+) - grad F_i,S(tau_i) + grad F_i(tau_i))             S: a mini-batch
     5    g_i+ = sum_j W_ij (g_j + v_j+ - v_j)
     6    H_i from the newest pairs  s = x_i+ - x_i,  y = g_i+ - g_i       `update`: `danl.methods.node_curvature`

W = (I + mixing) / 2. Lines 2 and 5 send a vector along every edge each.

The structure, both updates of H and the linear rate to the optimum itself are the paper's by its abstract; formulas and
constants are from memory, and the numbers of the lines are ours.

- The mean of all g_i is the mean of all v_i at all times, as W keeps sums: each node tracks the mean gradient.
- Differs from the paper as we know it: there x_i+ = sum_j W_ij x_j - alpha H_i g_i, and g_i+ likewise. To mix what was
  stepped, with a W that has no negative eigenvalue, allows longer steps on every graph.
- Not verified of the paper: whether "regularised" DFP adds its term to H, as here, or to the inverse of H.
- alpha: 0.5; hi: 2 L; lo: L / 4 for "dfp" and L for "bfgs", with L the largest smoothness of a node's scale_i F_i,
  which is asked for with the first gradient. A smaller lo makes longer steps. But the pairs have the noise of the
  batches and of the consensus in them, and with a lo far below these bounds runs wander off. The eigenvalues of "dfp"
  have the smaller bound above: it is the default.
- T: the mini-batches of a pass over the rows. With whole shards v_i is the gradient itself, and T has no meaning.
- Open in the paper: who is absent. Its node keeps x_i and v_i, and lines 2 and 5 mix as usual (`danl.methods.gossip`);
  one that has not sent a whole gradient yet counts as absent until the next tau.
- With memory = 0 it is gradient tracking with variance reduction and steps of alpha / hi; for dfp 2 alpha / hi.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from danl.checks import check_choice, check_number, check_whole
from danl.errors import bad_argument
from danl.frozen import replace
from danl.methods.base import Info, Setup, Status, Turn, too_few
from danl.methods.gossip import ask_constants, ask_nodes, at_start, graph_of, largest_smoothness, node_values, scales
from danl.methods.mini_batches import BATCH_SIZE, batches_of_a_pass, check_steps
from danl.methods.node_curvature import NodePairs
from danl.protocol.messages import Array, Exchange, Mask
from danl.protocol.replies import Replies
from danl.storage.serialize import storable
from danl.tasks.batch_gradient import BatchGradientTask
from danl.tasks.gradient_differences import DifferenceTask

LOWEST = {"bfgs": 1.0, "dfp": 0.25}
"""The default of lo / L."""
HIGHEST = 2.0
"""The default of hi / L."""


@storable
@dataclass(frozen=True)
class VRSQNState:
    """What the nodes have, a row for each, (N, d)."""

    models: Array  # x_i
    following: Array  # x_i+, where workers are asked next
    estimates: Array  # v_i
    trackers: Array  # g_i
    snapshots: Array  # tau_i
    gradients: Array  # scale_i grad F_i(tau_i)
    known: Mask  # who has sent that, (N,)
    pairs: NodePairs | None = None  # None: the bounds have yet to be chosen
    lo: float = np.nan
    hi: float = np.nan
    iteration: int = 0  # of `following`: k + 1
    status: Status | None = None

    @property
    def w(self) -> Array:
        """The average of the nodes' models."""
        return np.asarray(self.models.mean(axis=0))


@dataclass(frozen=True)
class VRSQN:
    """Variance-reduced stochastic quasi-Newton over a graph (`danl.solve`'s `graph`).

    Parameters
    ----------
    update : str
        How curvature is made of pairs: "dfp", damped and regularised, or "bfgs", damped; both of limited memory.
    alpha : float
        The share of a quasi-Newton step that is taken.
    T : int, optional
        Iterations from one snapshot to the next. Default: as many as make a pass over the rows.
    batch_size : int or "all"
        Rows a worker draws for a gradient, with replacement; "all", or None: the whole shard.
    memory : int
        Pairs that a node keeps.
    lo, hi : float, optional
        Bounds of the curvature that a node begins with. Default: L / 4 for "dfp", L for "bfgs"; and 2 L.

    """

    name = "vr-sqn"
    over_graph = True

    update: Literal["bfgs", "dfp"] = "dfp"
    alpha: float = 0.5
    T: int | None = None
    batch_size: int | None = BATCH_SIZE
    memory: int = 5
    lo: float | None = None
    hi: float | None = None

    def __post_init__(self) -> None:
        check_steps(self)
        check_choice("update", self.update, tuple(LOWEST))
        object.__setattr__(self, "alpha", check_number("alpha", self.alpha))
        object.__setattr__(self, "memory", check_whole("memory", self.memory, 0))
        if self.T is not None:
            object.__setattr__(self, "T", check_whole("T", self.T, next_step="leave it out for a pass over the rows"))
        for name in ("lo", "hi"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, check_number(name, getattr(self, name)))
        if self.lo is not None and self.hi is not None and self.lo > self.hi:
            raise bad_argument("lo", self.lo, f"at most hi, which is {self.hi:g}")

    def begin(self, setup: Setup) -> VRSQNState:
        models = at_start(setup)
        nothing, nobody = np.zeros_like(models), np.zeros(setup.n_workers, dtype=bool)
        return VRSQNState(models, models, nothing, nothing, models, nothing, nobody)

    def plan(self, state: VRSQNState, setup: Setup, turn: Turn) -> Exchange:
        if state.pairs is None:  # line 1: whole gradients, with the constants; then the vector of line 2 is sent
            return ask_constants(setup, turn, state.following)
        if self._is_snapshot(state, setup):  # line 3
            task = BatchGradientTask(turn.exchange, state.following[0])
            return ask_nodes(setup, task, state.following, vectors=2)
        difference = DifferenceTask(turn.exchange, state.following[0], state.snapshots[0], self.batch_size)
        return ask_nodes(setup, difference, state.following, vectors=2, before=state.snapshots)

    def absorb(self, state: VRSQNState, replies: Replies, setup: Setup) -> tuple[VRSQNState, Info]:
        if not len(replies.workers):
            return too_few(state, replies)
        first, lazy = state.pairs is None, (np.eye(setup.n_workers) + graph_of(setup).mixing) / 2
        if first:
            state = self._with_bounds(state, replies, setup)
        pairs = state.pairs
        assert pairs is not None
        if self._is_snapshot(state, setup):
            told, there = node_values(replies, setup, "gradient")
            here, estimates = there[:, None], scales(setup) * told
            state = replace(
                state,
                snapshots=np.where(here, state.following, state.snapshots),
                gradients=np.where(here, estimates, state.gradients),
                known=state.known | there,
            )
        else:
            told, there = node_values(replies, setup, "difference")
            there &= state.known
            here, estimates = there[:, None], scales(setup) * told + state.gradients
        estimates = np.where(here, estimates, state.estimates)  # line 4
        models = np.where(here, state.following, state.models)
        trackers = state.trackers + estimates - state.estimates
        trackers = trackers if first else lazy @ trackers  # line 5
        if not first:  # line 6
            steps, changes = models - state.models, trackers - state.trackers
            pairs = pairs.with_pairs(steps, changes, there, state.lo, state.hi)
        directions = pairs.bfgs(trackers) if self.update == "bfgs" else pairs.dfp(trackers, state.hi)
        return replace(
            state,
            models=models,
            following=lazy @ (models - self.alpha * directions),  # line 2
            estimates=estimates,
            trackers=trackers,
            pairs=pairs,
            iteration=state.iteration + 1,
        ), Info()

    def _is_snapshot(self, state: VRSQNState, setup: Setup) -> bool:
        period = batches_of_a_pass(setup, self.batch_size) if self.T is None else self.T
        return self.batch_size is None or state.iteration % period == 0

    def _with_bounds(self, state: VRSQNState, replies: Replies, setup: Setup) -> VRSQNState:
        """With lo and hi, and no pairs yet."""
        lo, hi = self.lo, self.hi
        if hi is None:
            hi = max(HIGHEST * largest_smoothness(replies, setup, f"{self.name}:hi=1,lo=0.1"), lo or 0.0)
        if lo is None:
            lo = hi * LOWEST[self.update] / HIGHEST
        pairs = NodePairs.none(setup.n_workers, self.memory, setup.n_coefficients, hi)
        return replace(state, pairs=pairs, lo=lo, hi=hi)
