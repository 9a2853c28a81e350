"""Line 11 of Algorithm 1 for all workers: who computes which regions in round t."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from danl.methods.base import Setup, Turn
from danl.policies.base import Round, validated_masks
from danl.policies.full import Full
from danl.policies.measures import with_a_region
from danl.protocol.batches import Tasks
from danl.protocol.messages import GradientTask, Task
from danl.protocol.streams import PLANNED_MASKS, stream


def masked_tasks(template: GradientTask, setup: Setup, turn: Turn, idle: Task | None = None) -> Mapping[int, Task]:
    """The template with every worker's mask: planned here, or left to the worker where the policy is its own.

    A worker without a region this round gets `idle`, or is not bothered at all.
    """
    if setup.policy.side == "worker":
        return Tasks(replace(template, choose=True), np.arange(setup.n_workers))
    if isinstance(setup.policy, Full):  # without the generator, which takes longer to make than a small gradient
        return Tasks(template, np.arange(setup.n_workers), np.ones(turn.staleness.shape, dtype=bool), idle)
    rng = stream(setup.seed, PLANNED_MASKS, template.round)
    view = Round(setup.setting, template.round, template.w, turn.staleness, rng, setup.regions)
    masks = validated_masks(setup.policy.masks(view), policy=setup.policy, round=view)
    everyone = np.arange(setup.n_workers)
    busy = with_a_region(masks)
    if idle is not None or busy.all():
        return Tasks(template, everyone, masks, idle)
    return Tasks(template, everyone[busy], masks[busy])
