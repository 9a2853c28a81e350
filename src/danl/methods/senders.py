"""Who sends curvature: the rungs of the ladder, from the fewest senders to everyone.

    everyone   all of them
    able       the fleet's machines that can: those whose Hessians come in the time the slowest needs for its whole
               gradient, and beyond these as many as give the most of the objective's curvature for the price
    a number   so many, drawn by their rows and the seed, others every time; three times as many on the next rung

By default: the able where the machines' profiles are known, everyone up to MANY workers, MANY_SEND of them or more
where there are more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from danl.errors import InputError, bad_argument
from danl.frozen import replace
from danl.methods.base import Setup
from danl.methods.curvature_choice import price_here
from danl.methods.membership import MANY
from danl.methods.portions import Portions
from danl.methods.prices import Prices
from danl.protocol.messages import Dtype, Mask
from danl.protocol.streams import SENDERS, stream
from danl.storage.serialize import storable

if TYPE_CHECKING:
    from danl.methods.danl import DANL

MANY_SEND, ROWS_EACH = 32, 20
"""So many do where there are more; more of them where they have fewer rows than this for each coefficient."""
NEARLY_BEST = 0.8
"""As many machines count as able as have at least this share of the most curvature for the price."""
DIGITS = 1.25
"""The able send float64 where that costs at most this many times what float32 would."""
MORE = 3
"""By how much the number of senders grows from rung to rung."""


@storable
@dataclass(frozen=True)
class Rung:
    """Some senders, or a number of them, and the price of their curvature with everyone's gradient."""

    price: float
    count: int
    dtype: Dtype
    senders: Mask | None = None  # (N,); None: so many, by turns
    rows: int | None = None  # that their curvature is of; None: all of them
    whole: bool = False  # whole Hessians, where the method's options are for a part of them

    def of_turn(self, turn: int, setup: Setup) -> Mask:
        """Who sends curvature this time, (N,)."""
        if self.senders is not None:
            return self.senders
        chosen, weights = np.zeros(setup.n_workers, dtype=bool), setup.weights
        rng = stream(setup.seed, SENDERS, turn)
        chosen[rng.choice(setup.n_workers, size=self.count, replace=False, p=weights / weights.sum())] = True
        return chosen


def rungs_of(options: DANL, setup: Setup, prices: Prices) -> tuple[Rung, ...]:
    """The rungs a run can take, the cheapest first."""
    asked, n_workers = options.curvature_from, setup.n_workers
    if asked == "auto":
        able_ones = prices.in_seconds and options.hessian_form.whole
        asked = "able" if able_ones else "everyone" if n_workers <= MANY else enough(setup)
    dtype: Dtype = "float64"
    if options.hessian_dtype == "float32" or (options.hessian_dtype == "auto" and prices.in_seconds):
        dtype = "float32"
    all_of_them, work = np.ones(n_workers, dtype=bool), None
    if setup.rows_here and not prices.in_seconds and n_workers <= MANY and options.hessian_form.whole:
        work = price_here(setup, options.hessian_batch)

    def rung(senders: Mask, kind: Dtype = dtype) -> Rung:
        price = prices.curvature(senders, kind)
        if work is not None and senders.all():  # nothing travels: the cheaper of what it would send and what it takes
            price = min(price, (1.0 + work) * prices.gradient)
        return Rung(price, int(senders.sum()), kind, senders)

    rungs: list[Rung] = []
    if asked == "able":
        chosen = able(prices, setup.weights, dtype)
        digits = prices.curvature(chosen, "float64") <= DIGITS * prices.curvature(chosen, dtype)
        rungs.append(rung(chosen, "float64" if digits and options.hessian_dtype != "float32" else dtype))
        if prices.sampled is not None:
            of_samples = replace(prices, hessian={**prices.hessian, "float32": prices.sampled})
            cheap = able(of_samples, setup.weights, "float32")
            price = of_samples.curvature(cheap, "float32")
            rungs.insert(0, Rung(price, int(cheap.sum()), "float32", cheap, prices.rows))
    if isinstance(asked, int):
        counts = [asked]
        while counts[-1] * MORE < n_workers:
            counts.append(counts[-1] * MORE)
        for count in counts:
            if count < n_workers:
                dearest = np.zeros(n_workers, dtype=bool)
                dearest[np.argsort(-prices.hessian[dtype])[:count]] = True
                rungs.append(Rung(prices.curvature(dearest, dtype), count, dtype))
    if not rungs or rungs[-1].count < n_workers:
        rungs.append(rung(all_of_them))
    if dtype == "float32" and options.hessian_dtype == "auto":
        rungs.append(rung(all_of_them, "float64"))
    if options.whole_after is not None and not options.hessian_form.whole:
        whole = Prices.of(replace(options, curvature="full", hessian_compressor=None), setup)
        rungs.append(Rung(whole.curvature(all_of_them, "float64"), n_workers, "float64", all_of_them, whole=True))
    possible = tuple(each for each in rungs if math.isfinite(each.price))
    if not possible:
        rows = prices.rows if asked == "able" else options.hessian_batch
        raise _no_curvature(Portions(options, setup, dtype, rows), everyone=asked != "able")
    return possible


def _no_curvature(portions: Portions, *, everyone: bool) -> InputError:
    """Masks bind, and what they leave beside a region is too little for one number of curvature."""
    limits = portions.setup.limits
    assert limits is not None
    least = 1.000501 * portions.least_deadline(everyone=everyone)  # of four digits
    if least > limits.deadline:
        allowed = f"at least {least:.4g} seconds, to send a number of curvature"
        return bad_argument("deadline", limits.deadline, allowed, "raise the deadline")
    memory = [profile.memory for profile in limits.profiles]
    return bad_argument(
        "memory", min(memory), "8 bytes more at least, for a number of curvature", "give it more memory"
    )


def enough(setup: Setup) -> int:
    """Of many equal workers, so many that their rows are several for each coefficient."""
    rows = max(float(np.mean(setup.setting.rows)), 1.0)
    return max(MANY_SEND, min(math.ceil(ROWS_EACH * setup.n_coefficients / rows), setup.n_workers))


def able(prices: Prices, weights: np.ndarray, dtype: Dtype) -> Mask:
    """The machines whose Hessians are worth their price, (N,)."""
    each = np.maximum(prices.hessian[dtype] / prices.gradient, 1.0)
    order = np.argsort(each, kind="stable")
    worth = np.cumsum(weights[order]) / each[order]
    last = int(np.flatnonzero(worth >= NEARLY_BEST * worth.max())[-1])
    chosen = np.zeros(len(weights), dtype=bool)
    chosen[order[: last + 1]] = True
    return chosen
