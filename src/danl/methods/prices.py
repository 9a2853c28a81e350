"""What a question costs: simulated seconds where the machines' profiles are known, else bytes.

An exchange takes as long as the slowest of those that are asked. Where only bytes are known they are added up over the
workers, and every message counts EXCHANGE_BYTES more: a round trip is not free, however small it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from danl.methods.base import Setup
from danl.methods.curvature_exchange import hessian_task
from danl.methods.portions import Portions
from danl.methods.questions import planned_masks
from danl.policies.profiles import Fleet, seconds
from danl.protocol.costs import work_of_each
from danl.protocol.messages import Array, Dtype, GradientTask, Mask, Task

if TYPE_CHECKING:
    from danl.methods.danl import DANL

EXCHANGE_BYTES = 16_000
"""What a round trip to a worker counts as, where its line and its processor are not known."""
SAMPLED = 2.0
"""Where masks bind, curvature is of so many rows that it takes this many times the exchanges of a whole gradient."""


@dataclass(frozen=True)
class Prices:
    """The price of each kind of question, worker by worker, (N,)."""

    whole: Array  # its whole gradient
    masked: Array  # its gradient on the policy's masks; inf where nobody knows these
    hessian: dict[Dtype, Array]  # its whole gradient and its curvature, in either kind of number
    in_seconds: bool
    sampled: Array | None = None  # its whole gradient and its curvature on `rows`, where masks bind
    rows: int | None = None

    @classmethod
    def of(cls, options: DANL, setup: Setup) -> Prices:
        """By the profiles, or in bytes."""
        if setup.limits is not None:
            return cls._in_portions(options, setup, setup.limits.deadline)
        regions, d = setup.regions, setup.n_coefficients
        gradient = GradientTask(0, setup.w0, batch_size=options.batch_size, whole_loss=True)
        masks = planned_masks(setup)
        shares = None if masks is None else masks @ regions.sizes / d
        kinds: tuple[Dtype, Dtype] = ("float64", "float32")
        priced = _Pricing(setup)
        return cls(
            whole=priced(gradient, np.ones(setup.n_workers)),
            masked=np.full(setup.n_workers, np.inf) if shares is None else priced(gradient, shares),
            hessian={
                kind: priced(
                    hessian_task(options.hessian_form, 0, setup.w0, dtype=kind, hessian_batch=options.hessian_batch),
                    np.ones(setup.n_workers),
                    options.hessian_form.nbytes(regions, kind),
                )
                for kind in kinds
            },
            in_seconds=setup.profiles is not None,
        )

    @classmethod
    def _in_portions(cls, options: DANL, setup: Setup, deadline: float) -> Prices:
        """Where masks bind: the exchanges it takes to gather everything, each as long as the deadline."""
        rows = options.hessian_batch
        rounds = {kind: Portions(options, setup, kind, rows).rounds(curvature=True) for kind in ("float64", "float32")}
        whole = Portions(options, setup).rounds(curvature=False)
        most, least = int(np.max(setup.setting.rows)), max(1, int(np.min(setup.setting.rows)) // 64)
        sample, sampled = rows or most, rounds["float32"]
        while sample > least and np.median(sampled) > SAMPLED * whole.max():  # fewer rows, until it is soon done
            sample = (sample + 1) // 2
            sampled = Portions(options, setup, "float32", sample).rounds(curvature=True)
        return cls(
            whole=deadline * whole,
            masked=np.full(setup.n_workers, deadline),
            hessian={"float64": deadline * rounds["float64"], "float32": deadline * rounds["float32"]},
            in_seconds=True,
            sampled=deadline * sampled if sample < (rows or most) else None,
            rows=sample,
        )

    def together(self, each: Array) -> float:
        """The price of an exchange, from those of the workers in it."""
        return float(each.max() if self.in_seconds else each.sum())

    @property
    def gradient(self) -> float:
        """Of everyone's whole gradient."""
        return self.together(self.whole)

    def curvature(self, senders: Mask, dtype: Dtype) -> float:
        """Of everyone's whole gradient, and the curvature of some."""
        return self.together(np.where(senders, self.hessian[dtype], self.whole))


@dataclass(frozen=True)
class _Pricing:
    setup: Setup

    def __call__(self, task: Task, shares: Array, more_bytes: int = 0) -> Array:
        """What a task costs every worker that trains a share of the coordinates."""
        setup, d = self.setup, self.setup.n_coefficients
        up, down = 8.0 * d * shares + 8 + more_bytes, 8.0 * d
        if setup.profiles is None:
            return np.asarray(up + down + EXCHANGE_BYTES)
        work = work_of_each(task, shares, setup.setting.rows, setup.entries_per_row, setup.regions)
        return np.asarray(seconds(Fleet.of(setup.profiles), work_rows=work, bytes_down=down, bytes_up=up))
