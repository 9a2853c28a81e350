"""The question for curvature as a `DANL` puts it, and what comes of the answers: whole Hessians, or parts of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from danl.protocol.messages import Array, CurvatureTask, HessianTask

if TYPE_CHECKING:
    from danl.methods.danl import DANL


def whole_hessian_task(
    options: DANL, exchange: int, w: Array, batch_size: int | None = None, hessian_batch: int | None = None
) -> HessianTask | CurvatureTask:
    """Ask for the whole Hessian, in the numbers the options say."""
    if options.hessian_dtype == "float64":
        return HessianTask(exchange, w, batch_size, hessian_batch)
    return CurvatureTask(
        exchange, w, "full", batch_size=batch_size, hessian_batch=hessian_batch, dtype=options.hessian_dtype
    )
