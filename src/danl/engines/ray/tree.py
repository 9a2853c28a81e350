"""Hessians added up in a tree of Ray calls, so that nobody holds N of them: sum_i weight_i Hess F_i.

A leaf takes the Hessians of up to `fan_in` workers, looks at each as the server would, and adds up the good ones; the
nodes above add the sums. The groups follow the workers' numbers, so the same Hessians give the same bits. The driver
sees the root's sum and what was wrong with whom. (Ray itself keeps objects below 100 kB with the driver and sends them
on from there: one Hessian of up to 158 coefficients.)

The nodes are calls to a few actors of their own, not to the workers: nobody judges what he sent himself. They keep
nothing, so Ray may restart them and repeat their calls. A leaf whose Hessians cannot all be fetched fails as a whole;
then every worker gets a leaf of its own, and those whose Hessians are lost are named. Every wait has an end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import ray
from ray.exceptions import RayError

from danl.engines.ray.calls import first_line
from danl.protocol.hessian_checks import packed_fault
from danl.protocol.messages import Array, packed_size
from danl.protocol.replies import HessianSum
from danl.protocol.reply_form import vector_fault

TREE_SECONDS = 60.0
"""How long adding up may take. Nothing of a worker's work is in it: this is for machines that vanish half-way."""
MOST_ADDERS = 16
"""Actors that add up at the same time; more leaves than this take turns."""


@dataclass(frozen=True)
class Leaf:
    """What is known of one worker's Hessian where it is added up."""

    worker: int
    penalties: Array  # on every coefficient
    excused: bool  # it need not be finite: the loss is infinite there
    blown_up: bool  # nor definite: the model is beyond all bounds
    hessian: Any  # ObjectRef

    def term(self, weight: float) -> tuple[int, float, Array, bool, bool]:
        """What the call that adds it up gets."""
        return self.worker, weight, self.penalties, self.excused, self.blown_up


class Adder:
    """An actor that adds up."""

    def leaf(
        self, terms: Sequence[tuple[int, float, Array, bool, bool]], d: int, *hessians: Array
    ) -> tuple[Array | None, dict[int, str]]:
        """sum_i weight_i Hess F_i over the good ones (None if there are none), and the faults of the others."""
        total: Array | None = None
        faults: dict[int, str] = {}
        for (worker, weight, penalties, excused, blown_up), packed in zip(terms, hessians, strict=True):
            fault = vector_fault("Hessian", packed, packed_size(d))
            fault = fault or packed_fault(packed, penalties, excused=excused, blown_up=blown_up)
            if fault is not None:
                faults[worker] = fault
                continue
            with np.errstate(invalid="ignore", over="ignore"):  # at a model that blew up: its loss refuses it
                total = weight * packed if total is None else total + weight * packed
        return total, faults

    def node(self, *sums: Array | None) -> Array | None:
        """The sum of sums."""
        total: Array | None = None
        for each in sums:
            if each is not None:
                with np.errstate(invalid="ignore", over="ignore"):
                    total = each if total is None else total + each
        return total


class Tree:
    """The actors that add up the Hessians of `n_workers` workers, and the way they do."""

    def __init__(self, n_workers: int, fan_in: int) -> None:
        self._fan_in = fan_in
        count = min(-(-n_workers // fan_in), MOST_ADDERS)
        made = ray.remote(Adder).options(
            num_cpus=0, max_restarts=-1, max_task_retries=2, scheduling_strategy="SPREAD" if count > 1 else "DEFAULT"
        )
        self._adders = [made.remote() for _ in range(count)]

    def add_up(self, leaves: Mapping[int, Leaf], d: int, weights: Mapping[int, float]) -> HessianSum:
        """The Hessians of some workers added up with their weights; what is faulty or lost is left out and named."""
        workers = sorted(weights)
        groups = _groups(workers, self._fan_in)
        try:
            return self._summed([self._leaf(k, group, leaves, d, weights) for k, group in enumerate(groups)], d)
        except RayError:  # one Hessian is lost, or a machine: find out whose
            alone = {who: self._leaf(k, [who], leaves, d, weights) for k, who in enumerate(workers)}
        ended, _ = ray.wait([faults for _, faults in alone.values()], num_returns=len(alone), timeout=TREE_SECONDS)
        lost = {
            who: why for who, (_, faults) in alone.items() if (why := _trouble(faults, faults in ended)) is not None
        }
        try:
            found = self._summed([pair for who, pair in alone.items() if who not in lost], d)
        except RayError as error:
            return HessianSum(np.zeros(packed_size(d)), {}, {who: _lost(error) for who in workers})
        return HessianSum(found.packed, found.faults, lost)

    def close(self) -> None:
        """Let the actors go."""
        for adder in self._adders:
            ray.kill(adder, no_restart=True)

    def _leaf(
        self, turn: int, group: Sequence[int], leaves: Mapping[int, Leaf], d: int, weights: Mapping[int, float]
    ) -> tuple[Any, Any]:
        """The ObjectRefs of a group's sum and of its faults."""
        adder = self._adders[turn % len(self._adders)]
        terms = [leaves[who].term(weights[who]) for who in group]
        total, faults = adder.leaf.options(num_returns=2).remote(terms, d, *[leaves[who].hessian for who in group])
        return total, faults

    def _summed(self, leaves: Sequence[tuple[Any, Any]], d: int) -> HessianSum:
        sums = [total for total, _ in leaves]
        while len(sums) > 1:
            groups = _groups(sums, self._fan_in)
            sums = [self._adders[k % len(self._adders)].node.remote(*group) for k, group in enumerate(groups)]
        total: Array | None = None
        found: list[dict[int, str]] = []
        if sums:
            total, *found = ray.get([*sums, *[faults for _, faults in leaves]], timeout=TREE_SECONDS)
        packed = np.zeros(packed_size(d)) if total is None else total
        return HessianSum(packed, {worker: fault for faults in found for worker, fault in faults.items()})


def _groups(items: Sequence[Any], fan_in: int) -> list[Sequence[Any]]:
    """As few groups of neighbours as there can be, of sizes that differ by one at most."""
    count = -(-len(items) // fan_in)
    ends = [len(items) * k // count for k in range(count + 1)]
    return [items[start:end] for start, end in pairwise(ends)]


def _trouble(reference: Any, ended: bool) -> str | None:
    """Why a leaf gave nothing; None where it did. What has ended may still have to be fetched from another machine."""
    try:
        ray.get(reference, timeout=TREE_SECONDS if ended else 0)
    except RayError as error:
        return _lost(error)
    return None


def _lost(error: Exception) -> str:
    return f"its Hessian was lost on the way: {type(error).__name__}: {first_line(error)}"[:300]
