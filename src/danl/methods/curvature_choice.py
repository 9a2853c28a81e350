r"""Which curvature suits a problem: whole Hessians of all rows, of some of them, or the diagonal with pairs alone.

Chosen before the first exchange, from sizes alone, as what is likely to take the least time on one core:

    e             an exchange of gradients: entries * ENTRY, and HERE where the rows are in this process; else
                  ELSEWHERE, and its bytes over LINE
    H(rows)       a Hessian: rows * d^2 * DENSE_PRODUCT or rows * entries_of_a_row^2 * SPARSE_PRODUCT, and what is done
                  with it, d^3 * FACTOR + d^2 * NUMBER

    all rows      WHOLE exchanges and HESSIANS Hessians; of a squared loss one of each
    some rows     DIGITS / log10(sqrt(rows / columns)) exchanges and HESSIANS Hessians: an exchange gains about as many
                  digits as a sample has; rows are drawn by their leverage (`danl.objective.row_samples`)
    diagonal      PAIRS exchanges: limited-memory BFGS; after as many as a whole Hessian costs, and if as many are still
                  to come, whole Hessians, so that a problem that is harder than most costs about twice at worst

The counts are those of many runs, rounded. Rows are sampled only where they are here: two samples of others' rows tell
more of single rows than one sum does, and a round trip costs more than the work it saves; and where there is a penalty:
without one a sample does not tell which directions are flat.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from danl.methods.base import Setup
from danl.methods.membership import MANY
from danl.objective.kernels import NEARLY_DENSE

ENTRY, DENSE_PRODUCT, SPARSE_PRODUCT = 1e-9, 0.035e-9, 1.2e-9
"""Seconds: of a gradient for each entry of the rows, and of a Hessian for each pair of entries of a mean row; sparse
rows differ in length, and those with many entries take most of the time."""
FACTOR, NUMBER = 0.02e-9, 20e-9
"""Seconds: to factor a matrix, and to make, check and use it, for each of its numbers."""
HERE, ELSEWHERE, LINE = 3e-4, 0.1, 1e7
"""Seconds of an exchange beside its work, in this process and with others, and bytes a second of a worker's line."""
WHOLE, HESSIANS, DIGITS, PAIRS = 4.0, 2.5, 7.0, 40.0
"""Exchanges with whole Hessians, how many of these; digits that samples have to gain; exchanges with pairs alone."""
FEWEST_ROWS = 20
"""Sampled rows for each column, at least."""
WORTH = 0.85
"""Samples are taken where they are expected to take at most this share of the time."""
MOST_BYTES = 2e8
"""Whole Hessians do not take the place of the diagonal where one is larger: 5,000 coefficients."""
LEAST_PENALTY = 1e-6
"""Below this a sample does not tell which directions are flat, and steps along them would be too long."""


@dataclass(frozen=True)
class CurvatureChoice:
    """What is exchanged of Hessians, how many rows of each worker they are of (None: all), and why."""

    curvature: Literal["full", "diag"]
    rows: int | None
    why: str
    whole_after: int | None = None  # exchanges with the diagonal after which whole Hessians would have cost no more


def choose_curvature(setup: Setup) -> CurvatureChoice:
    """The curvature that suits a problem of this size."""
    sizes, d = _Sizes.of(setup), setup.n_coefficients
    e, whole = sizes.exchange, sizes.hessian(sizes.rows)
    price = whole / e
    exchanges, hessians = (1.0, 1.0) if setup.constant_curvature else (WHOLE, HESSIANS)
    seconds = {"full": exchanges * e + hessians * whole, "diag": PAIRS * e}
    if setup.rows_here and setup.n_workers <= MANY and setup.penalties.min() >= LEAST_PENALTY:
        rows = float(FEWEST_ROWS * sizes.columns)
        while rows < sizes.rows / 2:
            exchanges = DIGITS / math.log10(math.sqrt(rows / sizes.columns))
            seconds[f"{rows:.0f}"] = (exchanges * e + HESSIANS * sizes.hessian(rows)) / WORTH
            rows *= 2
    best = min(seconds, key=lambda name: seconds[name])
    like = f"as much as {price:.2g}" if price < 100 else f"as much as {price:,.0f}"
    if best == "diag":
        why = f"a Hessian of {d:,} coefficients would cost {like} gradients"
        return CurvatureChoice("diag", None, why, math.ceil(price) if 8 * d * d <= MOST_BYTES else None)
    if best == "full":
        return CurvatureChoice("full", None, f"one costs {like} gradients")
    each = math.ceil(int(best) / setup.n_workers)
    cheaper = f"one of all rows would cost {like} gradients, this one {sizes.hessian(float(best)) / e:.2g}"
    return CurvatureChoice("full", each, cheaper)


def price_here(setup: Setup, rows: int | None) -> float:
    """What a Hessian of so many rows of each worker costs in this process, in exchanges of gradients."""
    sizes = _Sizes.of(setup)
    return sizes.hessian(sizes.rows if rows is None else min(sizes.rows, rows * setup.n_workers)) / sizes.exchange


@dataclass(frozen=True)
class _Sizes:
    """Sizes of what is computed at one place: by all workers in this process, or by the largest of them."""

    rows: float
    entries: float  # of a row, over all outputs
    columns: int  # of one output
    d: int
    here: bool

    @classmethod
    def of(cls, setup: Setup) -> _Sizes:
        rows, entries = np.asarray(setup.setting.rows, dtype=float), setup.entries_per_row
        count = float(rows.sum() if setup.rows_here else rows.max())
        d = setup.n_coefficients
        return cls(count, float(rows @ entries / rows.sum()), d // setup.n_outputs, d, setup.rows_here)

    @property
    def exchange(self) -> float:
        """Seconds of an exchange of gradients."""
        work = self.rows * self.entries * ENTRY
        return work + (HERE if self.here else ELSEWHERE + 16 * self.d / LINE)

    def hessian(self, rows: float) -> float:
        """Seconds of a Hessian of so many rows, and of what is done with it."""
        dense = self.entries >= NEARLY_DENSE * self.d
        product = self.d**2 * DENSE_PRODUCT if dense else self.entries**2 * SPARSE_PRODUCT
        sent = 0.0 if self.here else 4 * self.d**2 / LINE
        return rows * product + self.d**3 * FACTOR + self.d**2 * NUMBER + sent
