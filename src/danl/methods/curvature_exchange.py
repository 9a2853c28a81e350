"""What the curvature is: the question for Hessians, whole or in part, and what the server makes of the answers.

Whole Hessians (float64, or float32 as a `CurvatureTask` of kind "full") of some or all become a projected matrix
(`danl.server.some_hessians`); a block for every region, a sketch or a diagonal become what
`danl.server.partial_curvature` makes of them. Pairs of whole gradients correct either (`danl.server.quasi_newton`):
those on a whole Hessian end with it, those on a part of it go on.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from danl.frozen import replace
from danl.methods.base import Setup
from danl.protocol.hessian_form import WHOLE, HessianForm
from danl.protocol.messages import Array, CurvatureTask, Dtype, HessianTask, Mask, pack, unpack
from danl.protocol.streams import SKETCH, stream
from danl.server.curvature import Curvature
from danl.server.memory import Memory
from danl.server.partial_curvature import build, even
from danl.server.quasi_newton import Pairs, QuasiNewton
from danl.server.some_hessians import SomeHessians

if TYPE_CHECKING:
    from danl.methods.danl import DANL
    from danl.methods.safeguarded_state import Known


def hessian_task(
    form: HessianForm,
    exchange: int,
    w: Array,
    *,
    dtype: Dtype,
    sketch: int = 0,
    batch_size: int | None = None,
    hessian_batch: int | None = None,
    leverage: bool = False,
) -> HessianTask | CurvatureTask:
    """Ask for the Hessian, or for a part of it."""
    if form == WHOLE and dtype == "float64":
        return HessianTask(exchange, w, batch_size, hessian_batch, leverage)
    asked = (form.kind, form.rank, sketch, batch_size, hessian_batch, dtype)
    return CurvatureTask(exchange, w, *asked, leverage=leverage, compressor=form.compressor)


def sketch_number(form: HessianForm, setup: Setup, n_exchanged: int) -> int:
    """What everyone draws the sketch's random matrix from: the same for all who are asked about a model.

    Of a whole Hessian that comes in pieces, it is what its rows are drawn from.
    """
    if form.kind == "full":
        return n_exchanged + 1 if setup.limits is not None else 0
    return int(stream(setup.seed, SKETCH, n_exchanged).integers(2**62))


def new_curvature(
    options: DANL,
    form: HessianForm,
    numbers: Array,
    sent: Mask,
    weights: Array,
    setup: Setup,
    *,
    sketch: int,
    dtype: Dtype,
    before: Known | None,
    nearby: bool = False,
) -> tuple[Curvature, SomeHessians | None] | None:
    """The curvature that the numbers of those who sent theirs make, and what it is made of; None if it is not finite.

    `numbers` is their sum, weighted as in the objective of the members, whose weights are `weights`.
    """
    if not math.isfinite(numbers.sum()) and not np.isfinite(numbers).all():  # a finite sum says that all of them are
        return None
    least = setup.strong_convexity_of(weights)
    mu = least if options.mu is None else options.mu
    hessians = None
    if form.whole:
        total = unpack(numbers, setup.n_coefficients)
        hessians = SomeHessians.of(total, sent, weights, None if before is None else before.hessians)
        if nearby and before is not None and before.hessians is not None:
            hessians = hessians.together_with(before.hessians, weights)
        numbers = hessians.matrix()
    else:
        numbers = (pack(numbers) if numbers.ndim == 2 else numbers) / float(weights[sent].sum())
    convex = (
        form.whole and setup.rows_here and dtype == "float64" and bool(sent[weights > 0].all())
    )  # the penalty is everyone's
    made = build(form, numbers, setup.regions, mu, sketch, dtype, least, convex=convex)
    if not options.pairs:
        return made, hessians
    old = None if before is None else before.curvature
    if form.whole:
        return QuasiNewton.start(made, setup.n_coefficients), hessians
    beside = even(form, numbers, setup.regions, setup.free) if setup.penalised else None
    if isinstance(old, QuasiNewton):
        return replace(old, initial=made, even=beside), hessians
    return QuasiNewton.start(made, setup.n_coefficients, beside), hessians


def with_common_pair(known: Known, memory: Memory, weights: Array, most: int) -> Known:
    """What whole gradients of some of many workers add: a pair of those that sent theirs at both ends of a step."""
    curvature, found = known.curvature, memory.common_change(known.memory, weights)
    if found is None or not isinstance(curvature, QuasiNewton):
        return known
    return replace(known, curvature=curvature.with_pair(*found, most))


def without_pairs(curvature: Curvature) -> Curvature:
    """The curvature without the pairs that correct it, if there are any."""
    if not isinstance(curvature, QuasiNewton):
        return curvature
    return replace(curvature, pairs=Pairs.none(curvature.pairs.steps.shape[1]))
