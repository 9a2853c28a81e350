"""What the curvature is: the question for Hessians, whole or in part, and what the server makes of the answers.

Whole Hessians (float64, or float32 as a `CurvatureTask` of kind "full") become a projected matrix; a block for every
region, a sketch or a diagonal become what `danl.server.partial_curvature` makes of them. Pairs of whole gradients
correct either (`danl.server.quasi_newton`): those on a whole Hessian end with it, those on a part of it go on.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from danl.methods.base import Setup
from danl.protocol.messages import Array, CurvatureTask, HessianTask
from danl.protocol.streams import SKETCH, stream
from danl.server.curvature import Curvature
from danl.server.partial_curvature import build
from danl.server.quasi_newton import QuasiNewton

if TYPE_CHECKING:
    from danl.methods.danl import DANL


def hessian_task(
    options: DANL,
    exchange: int,
    w: Array,
    *,
    sketch: int = 0,
    batch_size: int | None = None,
    hessian_batch: int | None = None,
) -> HessianTask | CurvatureTask:
    """Ask for the Hessian, or for the part of it that the options say, in their numbers."""
    form, dtype = options.hessian_form, options.hessian_dtype
    if form.kind == "full" and dtype == "float64":
        return HessianTask(exchange, w, batch_size, hessian_batch)
    return CurvatureTask(exchange, w, form.kind, form.rank, sketch, batch_size, hessian_batch, dtype)


def sketch_number(options: DANL, setup: Setup, n_exchanged: int) -> int:
    """What everyone draws the sketch's random matrix from: the same for all who are asked about a model."""
    if options.hessian_form.kind == "full":
        return 0
    return int(stream(setup.seed, SKETCH, n_exchanged).integers(2**62))


def new_curvature(
    options: DANL, numbers: Array, weights: Array, setup: Setup, sketch: int, before: Curvature | None
) -> Curvature | None:
    """The curvature of the numbers that the workers sent, their mean; None where they are not finite."""
    if not np.isfinite(numbers).all():
        return None
    form, mu, least = options.hessian_form, setup.floor(options.mu, weights), setup.strong_convexity_of(weights)
    made = build(form, numbers, setup.regions, mu, sketch, options.hessian_dtype, least)
    if not options.n_pairs:
        return made
    if isinstance(before, QuasiNewton) and form.kind != "full":
        return replace(before, initial=made)
    return QuasiNewton.start(made, setup.n_coefficients)


def without_pairs(curvature: Curvature) -> Curvature:
    """The curvature without the pairs that correct it, if there are any."""
    if not isinstance(curvature, QuasiNewton):
        return curvature
    return QuasiNewton.start(curvature.initial, curvature.steps.shape[1])
