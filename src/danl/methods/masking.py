"""Line 11 of Algorithm 1 for all workers: who computes which regions in round t."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from danl.methods.base import Setup, Turn
from danl.policies.base import Round
from danl.policies.full import Full
from danl.policies.masks import validated_masks
from danl.protocol.messages import Exchange, GradientTask, Task
from danl.protocol.streams import PLANNED_MASKS, stream


def masked_round(template: GradientTask, setup: Setup, turn: Turn, idle: Task | None = None) -> Exchange:
    """The template with every worker's mask: planned here, or left to the worker where the policy is its own.

    A worker without a region this round gets `idle`, or is not bothered at all.
    """
    everyone = np.arange(setup.n_workers)
    if setup.policy.side == "worker":
        return Exchange("gradient", replace(template, choose=True), everyone)
    if isinstance(setup.policy, Full):  # without the generator, which takes longer to make than a small gradient
        return Exchange("gradient", template, everyone, np.ones(turn.staleness.shape, dtype=bool), idle)
    rng = stream(setup.seed, PLANNED_MASKS, template.round)
    view = Round(setup.setting, template.round, template.w, turn.staleness, rng, setup.regions)
    masks = validated_masks(setup.policy.masks(view), policy=setup.policy, round=view)
    if idle is None:
        busy = masks.any(axis=1)
        everyone, masks = everyone[busy], masks[busy]
    return Exchange("gradient", template, everyone, masks, idle)
