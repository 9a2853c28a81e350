"""What can be asked: masked rounds and whether they pay, mini-batches and their noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from danl.frozen import replace
from danl.methods.base import Setup, Turn
from danl.policies.base import Round
from danl.policies.masks import validated_masks, with_a_region
from danl.policies.planned import Full
from danl.protocol.messages import Exchange, GradientTask, Mask, Task
from danl.protocol.streams import PLANNED_MASKS, stream
from danl.storage.serialize import storable

Question = Literal["masked", "gradient", "curvature", "full", "hessian"]
"""About a model, and everyone's loss there:

    masked     gradients on the regions of the policy's masks          goes on with the replies there are
    gradient   whole gradients                                         likewise
    curvature  whole gradients, and the curvature of the senders       likewise
    full       whole gradients of everyone                             those missing are asked again
    hessian    the same, and the curvature of the senders              likewise
"""
STILL_HELPS = 0.9
"""With mini-batches, an exact gradient helped when its decrement fell at least to this share since the last."""
WORTH = 0.5
"""Masked rounds go on while they gain this share of what a step from everyone's whole gradient gained."""


def masked_round(template: GradientTask, setup: Setup, turn: Turn, idle: Task | None = None) -> Exchange:
    """Line 11 of Algorithm 1: the template with every worker's mask, planned here or left to a policy of the worker.

    A worker without a region this round gets `idle`, or is not bothered at all.
    """
    everyone = np.arange(len(setup.weights))
    if setup.policy.side == "worker":
        return Exchange("gradient", replace(template, choose=True), everyone)
    if isinstance(setup.policy, Full):  # without the generator, which takes longer to make than a small gradient
        return Exchange("gradient", template, everyone, np.ones(turn.staleness.shape, dtype=bool), idle)
    rng = stream(setup.seed, PLANNED_MASKS, template.round)
    view = Round(setup.setting, template.round, template.w, turn.staleness, rng, setup.regions)
    masks = validated_masks(setup.policy.masks(view), policy=setup.policy, round=view)
    if idle is None:
        everyone = np.flatnonzero(with_a_region(masks))
        masks = masks.take(everyone, axis=0)  # a tenth of the time of masks[everyone]
    return Exchange("gradient", template, everyone, masks, idle)


def planned_masks(setup: Setup) -> Mask | None:
    """The masks of the first round, (N, Q), to see what masked rounds cost; None where they are full or not planned."""
    if setup.policy.side == "worker" or isinstance(setup.policy, Full):
        return None
    staleness = np.zeros((setup.n_workers, setup.regions.n_regions), dtype=np.int64)
    rng = stream(setup.seed, PLANNED_MASKS, 1)
    view = Round(setup.setting, 1, setup.w0, staleness, rng, setup.regions)
    return validated_masks(setup.policy.masks(view), policy=setup.policy, round=view)


@storable
@dataclass(frozen=True)
class Sampling:
    """Which rows are sampled, and how a run with mini-batches stands towards the noise of its gradients."""

    batch_size: int | None = None  # of gradients; None: they are of whole shards
    hessian_batch: int | None = None
    length: float = 1.0  # of the steps: halved when one is rejected, doubled when one is accepted
    n_rejected: int = 0  # in a row
    gain: float = np.inf  # at the last exact gradient
    at_floor: bool = False  # new curvature does not help any more

    def after_exact(self, gain: float, *, finish: bool) -> Sampling:
        """Where it no longer helped, noise is what is left: on to whole shards, to finish."""
        if self.batch_size is None:
            return self
        if gain <= STILL_HELPS * self.gain:
            return Sampling(self.batch_size, self.hessian_batch, gain=gain)
        return replace(self, batch_size=None) if finish else replace(self, at_floor=True)


@storable
@dataclass(frozen=True)
class Stretch:
    """Masked rounds since everyone's whole gradient was known, and their gain; nan where not everyone reported."""

    objective: float  # the newest
    whole: float = np.nan  # what the step from that gradient gained
    begin: float = np.nan  # the objective where the stretch begins: after that step, and every few rounds again
    rounds: int = -1  # since then
    number: int = 0  # of the stretch

    def after(self, objective: float) -> Stretch:
        """One round more; the first one tells what the step from the whole gradient gained."""
        if self.rounds < 0:
            return Stretch(objective, whole=self.objective - objective, begin=objective, rounds=0)
        return replace(self, objective=objective, rounds=self.rounds + 1)

    def next(self) -> Stretch:
        return replace(self, begin=self.objective, rounds=0, number=self.number + 1)

    def gained_enough(self) -> bool:
        """Whether its rounds gained enough; where not everyone reported, nobody knows."""
        return self.begin - self.objective >= WORTH * self.rounds * self.whole
