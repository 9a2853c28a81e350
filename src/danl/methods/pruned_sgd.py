r"""SGD on pruned models: every worker trains the regions of its mask, the server averages region by region.

Zhou, Lan, Venkataramani & Ding, "On the convergence of heterogeneous federated learning with arbitrary adaptive online
model pruning", 2022 (arXiv 2201.11803). Algorithm 1 of danl's paper has its masks from there.

        for round = 1, 2, ...
     1    masks = policy(w)                                                      which regions each worker trains
          each worker i with a region
     2      v_i = w * mask_i
     3      repeat `steps` times:   v_i <- v_i - learning_rate grad F_i,S(v_i) * mask_i
          server, for every region q
     4      trained = {i: mask_i has q}
     5      w^q <- sum_{i in trained} weight_i v_i^q / sum_{i in trained} weight_i            w^q, if there is nobody

The box is as we know it and as the authors' program confirms; the numbers of the lines are ours.

- Masks come from the run's policy: one that plans them at the server, or one of the worker's side, M(w, i), which the
  server asks with the worker's own random stream. A worker whose mask is empty is not asked.
- Line 5 without anybody: the theory assumes that every region is trained in every round. That its value is kept is our
  reading; the authors' program would set it to 0, and sees to it that it does not happen.
- The model is pruned before it is trained, so that with partial masks the optimum is not where it stops, whatever the
  steps are: the theory has a term that grows with |w - w * mask|^2 and does not vanish. Only where coordinates of
  different regions have nothing to do with each other there is no such floor.
- Open in the paper: who is absent. Regions are averaged over those that answered.
- learning_rate: 1 / max_i (L_i + L_rows_i / batch_size), so that no worker's own steps are too long; the first exchange
  asks for these constants. The theory has 1 / sqrt(steps * rounds).
- Never ends by itself, as nobody sends a whole gradient at w.
- With full masks and one step it is mini-batch SGD, with whole shards `gd`; with more steps FedAvg.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from danl.checks import check_whole
from danl.frozen import replace
from danl.methods.base import Info, Setup, Status, Turn, too_few
from danl.methods.mini_batches import BATCH_SIZE, StepConstants, check_steps
from danl.methods.questions import masked_round
from danl.objective.regions import IntArray
from danl.policies.masks import staleness_after, validated_mask, with_a_region
from danl.protocol.messages import Array, Exchange, GradientTask, Mask
from danl.protocol.replies import Replies
from danl.protocol.streams import WORKER_MASK, stream
from danl.storage.serialize import storable
from danl.tasks.pruned_steps import PrunedStepsTask
from danl.tasks.step_constants import StepConstantsTask


@storable
@dataclass(frozen=True)
class PrunedState:
    """The model, the number of the next round, and for how many rounds each (worker, region) has gone untrained."""

    w: Array
    learning_rate: float | None
    staleness: IntArray
    round: int = 1
    status: Status | None = None


@dataclass(frozen=True)
class PrunedSGD:
    """Local SGD on models that are pruned to the regions of a mask.

    Parameters
    ----------
    steps : int
        Local steps of a round.
    batch_size : int or "all"
        Rows a worker draws for a step, with replacement; "all", or None: the whole shard.
    learning_rate : float, optional
        Default: from the smoothness constants that workers tell in an exchange before the first round.

    """

    name = "pruned-sgd"

    steps: int = 10
    batch_size: int | None = BATCH_SIZE
    learning_rate: float | None = None

    def __post_init__(self) -> None:
        check_steps(self)
        object.__setattr__(self, "steps", check_whole("steps", self.steps))

    def begin(self, setup: Setup) -> PrunedState:
        return PrunedState(
            setup.w0, self.learning_rate, np.zeros((setup.n_workers, setup.regions.n_regions), dtype=np.int64)
        )

    def plan(self, state: PrunedState, setup: Setup, turn: Turn) -> Exchange:
        if state.learning_rate is None:
            return setup.ask_everyone("step-constants", StepConstantsTask(turn.exchange, state.w))
        workers, masks = planned_round(state, setup, turn)  # line 1
        task = PrunedStepsTask(turn.exchange, state.w, self.steps, state.learning_rate, self.batch_size)
        own = {"mask": masks, "kept": masks @ setup.regions.sizes}
        return Exchange("pruned-steps", task, workers, None if len(workers) else masks, own=own)

    def absorb(self, state: PrunedState, replies: Replies, setup: Setup) -> tuple[PrunedState, Info]:
        if len(replies.failures) == setup.n_workers:
            return too_few(state, replies)
        if state.learning_rate is None:
            told = StepConstants.of(replies, setup, self.batch_size, "pruned-sgd:learning_rate=0.01")
            return replace(state, learning_rate=1.0 / max(told.largest, np.finfo(float).tiny)), Info()
        total, mass = np.zeros_like(state.w), np.zeros_like(state.w)
        trained = np.zeros_like(state.staleness, dtype=bool)
        for worker, reply in replies.messages.items():  # lines 4 and 5
            trained[worker] = reply.mask
            kept = setup.regions.expand(reply.mask)
            total[kept] += setup.weights[worker] * reply.fragment
            mass[kept] += setup.weights[worker]
        w = np.where(mass > 0, np.divide(total, mass, out=np.zeros_like(total), where=mass > 0), state.w)
        staleness = staleness_after(state.staleness, trained)
        return replace(state, w=w, round=state.round + 1, staleness=staleness), Info()


def planned_round(state: PrunedState, setup: Setup, turn: Turn) -> tuple[IntArray, Mask]:
    """Who trains at all, and which regions each of them does."""
    policy, number, regions = setup.policy, state.round, setup.regions
    if policy.side == "server":
        template = GradientTask(turn.exchange, state.w, round=number)
        exchange = masked_round(template, setup, replace(turn, staleness=state.staleness))
        assert exchange.masks is not None
        return exchange.workers, exchange.masks
    masks = np.zeros((setup.n_workers, regions.n_regions), dtype=bool)
    for worker in range(setup.n_workers):  # M(w, i), as the worker itself would choose it
        mask = policy.mask(state.w, worker, number, stream(setup.seed, WORKER_MASK, worker, number), regions)
        masks[worker] = validated_mask(mask, policy=policy, worker=worker, number=number, n_regions=regions.n_regions)
    asked = np.flatnonzero(with_a_region(masks))
    return asked, masks[asked]
