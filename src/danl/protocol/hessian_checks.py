"""What a part of a Hessian must be: finite numbers that have no negative direction.

    full, block   as a Hessian (`danl.protocol.validation`), each block of it
    diag          no entry below the penalty
    lowrank       the diagonal as above, and a sketch Y = A Omega that some A without a negative direction has, as far
                  as is looked for: Omega^T Y is symmetric and has none either, and no column of Y is longer than
                  trace(A) times its column of Omega

Up to rounding: of float64, or of float32 where that was asked for.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from danl.objective.regions import Regions
from danl.protocol.hessian_form import HessianForm, sketch_matrix
from danl.protocol.messages import Array, Array32, CurvatureTask, packed_size

SLACK = {"float64": 1e-8, "float32": 1e-5}
"""How far off rounding may be, as a share of the largest number there is."""


def numbers_fault(
    task: CurvatureTask,
    numbers: Array | Array32,
    penalties: Array,
    regions: Regions,
    hessian_fault: Callable[[Array, Array, float], str | None],
    *,
    excused: bool,
    blown_up: bool,
) -> str | None:
    """What is wrong with the numbers; `hessian_fault` looks at a packed matrix."""
    form, d = HessianForm.of(task), regions.n_features
    if not np.isfinite(numbers).all():
        return None if excused else "its curvature is not finite"
    if blown_up:
        return None
    numbers, slack = numbers.astype(np.float64), SLACK[task.dtype]
    match form.kind:
        case "full":
            return hessian_fault(numbers, penalties, slack)
        case "block":
            start = 0
            for q in range(regions.n_regions):
                own = regions.indices(q)
                end = start + packed_size(own.size)
                fault = hessian_fault(numbers[start:end], penalties[own], slack)
                if fault is not None:
                    return f"region {q}: {fault}"
                start = end
            return None
        case "diag":
            return _diagonal_fault(numbers, penalties, slack)
        case "lowrank":
            fault = _diagonal_fault(numbers[:d], penalties, slack)
            omega = sketch_matrix(task.sketch, d, form.columns(d))
            with np.errstate(over="ignore", invalid="ignore"):  # numbers that are finite and their squares not
                sketch = numbers[d:].reshape(omega.shape)
                return fault or _sketch_fault(sketch, omega, numbers[:d], penalties, slack)


def _diagonal_fault(diagonal: Array, penalties: Array, slack: float) -> str | None:
    room = slack * max(float(np.abs(diagonal).max(initial=0.0)), float(np.finfo(float).tiny))
    if (diagonal - penalties < -room).any():
        entry = int((diagonal - penalties).argmin())
        return f"its Hessian is indefinite: entry {entry} of the diagonal is below the penalty"
    return None


def _sketch_fault(sketch: Array, omega: Array, diagonal: Array, penalties: Array, slack: float) -> str | None:
    if sketch.shape[1] == 0:
        return None
    trace = max(float((diagonal - penalties).sum()), 0.0)
    room = slack * max(float(np.abs(diagonal).sum()), float(np.finfo(float).tiny))  # the penalty is rounded, too
    widths = np.linalg.norm(omega, axis=0)
    if not (np.linalg.norm(sketch, axis=0) <= (trace + room) * widths).all():
        return "its sketch is larger than its diagonal allows"
    core = (omega / widths).T @ (sketch / widths)  # entries of a matrix no larger than the trace
    if not (np.abs(core - core.T) <= room).all():
        return "its sketch is that of no symmetric matrix"
    if float(np.linalg.eigvalsh((core + core.T) / 2)[0]) < -room * len(core):
        return "its sketch is that of an indefinite matrix"
    return None
