r"""Which curvature suits a problem: whole Hessians of all rows, of some of them, or the diagonal with pairs alone.

Chosen before the first exchange, from sizes alone, by rough seconds on one core:

    gradient      entries * ENTRY
    Hessian       rows * entries_of_a_row^2 * (DENSE_PRODUCT or SPARSE_PRODUCT)
    its factors   d^3 * FACTOR + d^2 * NUMBER
    an exchange   HERE where the rows are in this process; else ELSEWHERE, and its bytes over LINE

    1  a Hessian of all rows that costs at most CHEAP gradient exchanges: that
    2  rows that are here, and a penalty that hides what a sample misses: a Hessian of as many rows as cost one gradient
       exchange, at least ROWS_EACH for each column, drawn by their leverage (`danl.objective.row_samples`)
    3  if what is left after that costs more than DEAR gradient exchanges: the diagonal, with pairs of steps and changes
       of the gradient (limited-memory BFGS), and no other Hessian at all

Rows of others are never sampled: two samples tell more of single rows than one sum, and a round trip costs more than
the work it saves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from danl.methods.base import Setup
from danl.methods.membership import MANY

ENTRY, DENSE_PRODUCT, SPARSE_PRODUCT = 1e-9, 0.05e-9, 0.6e-9
"""Seconds: of a gradient for each entry of the rows, and of a Hessian for each pair of entries of a row."""
FACTOR, NUMBER = 0.02e-9, 20e-9
"""Seconds: to factor a matrix, and to make, check and use it, for each of its numbers."""
HERE, ELSEWHERE, LINE = 3e-4, 0.1, 1e7
"""Seconds of an exchange beside its work, in this process and with others, and bytes a second of a worker's line."""
CHEAP, DEAR = 4.0, 12.0
"""A Hessian is not worth sampling below so many gradient exchanges, and not worth having above so many."""
ROWS_EACH = 20
"""Sampled rows for each column, at least."""
LEAST_PENALTY = 1e-6
"""Below this a sample does not tell which directions are flat, and steps along them would be too long."""
NEARLY_ALL = 0.5
"""A sample of more than this share of the rows saves too little."""


@dataclass(frozen=True)
class CurvatureChoice:
    """What is exchanged of Hessians, how many rows of each worker they are of (None: all), and why."""

    curvature: Literal["full", "diag"]
    rows: int | None
    why: str


def choose_curvature(setup: Setup) -> CurvatureChoice:
    """The curvature that suits a problem of this size."""
    work, d = _Work.of(setup), setup.n_coefficients
    exchange, matrix = work.exchange, work.of_matrix
    whole = work.product(work.rows) + matrix
    if whole <= CHEAP * exchange:
        return CurvatureChoice("full", None, f"a Hessian of all rows costs {_times(whole, exchange)}")
    if setup.rows_here and _sampled_is_safe(setup):
        affordable = work.rows * exchange / work.product(work.rows)
        rows = max(affordable, ROWS_EACH * work.columns)
        sampled = work.product(rows) + matrix
        if rows <= NEARLY_ALL * work.rows and sampled <= DEAR * exchange:
            why = (
                f"a Hessian of all rows would cost {_times(whole, exchange)}, one of these {_times(sampled, exchange)}"
            )
            return CurvatureChoice("full", int(np.ceil(rows / setup.n_workers)), why)
    if whole <= DEAR * exchange:
        return CurvatureChoice("full", None, f"a Hessian of all rows costs {_times(whole, exchange)}")
    why = f"a Hessian of {d:,} coefficients would cost {_times(whole, exchange)}"
    return CurvatureChoice("diag", None, why)


def _times(cost: float, exchange: float) -> str:
    ratio = cost / exchange
    return f"as much as {ratio:.2g} gradients" if ratio < 100 else f"as much as {ratio:,.0f} gradients"


def _sampled_is_safe(setup: Setup) -> bool:
    """Whether curvature that a sample misses is hidden by the penalty, and somebody has rows to spare."""
    return bool(setup.n_workers <= MANY and setup.penalties.min() >= LEAST_PENALTY)


@dataclass(frozen=True)
class _Work:
    """Sizes of what is computed at one place: by all workers in this process, or by the largest of them."""

    rows: float
    entries: float  # of a row, over all outputs
    columns: int  # of one output
    dense: bool
    d: int
    here: bool

    @classmethod
    def of(cls, setup: Setup) -> _Work:
        rows, entries = np.asarray(setup.setting.rows, dtype=float), setup.entries_per_row
        d, outputs = setup.n_coefficients, max(setup.n_outputs, 1)
        per_row = float(rows @ entries / rows.sum())
        count = float(rows.sum() if setup.rows_here else rows.max())
        return cls(count, per_row, d // outputs, per_row >= 0.24 * d, d, setup.rows_here)

    @property
    def exchange(self) -> float:
        """Seconds of an exchange of gradients."""
        work = self.rows * self.entries * ENTRY
        return work + HERE if self.here else work + ELSEWHERE + 16 * self.d / LINE

    def product(self, rows: float) -> float:
        """Seconds of the products that a Hessian of so many rows is made of."""
        return rows * self.entries**2 * (DENSE_PRODUCT if self.dense else SPARSE_PRODUCT)

    @property
    def of_matrix(self) -> float:
        """Seconds of what is done with a Hessian once it is made."""
        sent = 0.0 if self.here else 4 * self.d**2 / LINE
        return self.d**3 * FACTOR + self.d**2 * NUMBER + sent
