"""What a Hessian, or a part of one, must be: finite numbers that have no negative direction.

    full, block   H_i without its penalty has none: its diagonal and 2 x 2 minors, and up to CHOLESKY_LIMIT coefficients
                  a Cholesky factorisation, say so; the same for each block
    diag          no entry below the penalty
    lowrank       the diagonal as above, and a sketch Y = A Omega that some A without a negative direction has, as far
                  as is looked for: Omega^T Y is symmetric and has none either, and no column of Y is longer than
                  trace(A) times its column of Omega

    a piece       entries of the diagonal that are in it are not below the penalty
    compressed    the form is that of its compressor; the diagonal as above, of identity and rankr all of it

Up to rounding: of float64, or of float32 where that was asked for.
"""

from __future__ import annotations

import numpy as np

from danl._scipy import dpptrf
from danl.objective.hessian_parts import diagonal_places
from danl.objective.regions import IntArray, Regions
from danl.protocol.compressed_hessians import is_empty, restored
from danl.protocol.compressors import Compressed, Identity, RankR, make_compressor
from danl.protocol.hessian_form import HessianForm, packed_blocks, piece_of, sketch_matrix
from danl.protocol.messages import Array, Array32, CurvatureTask, pack, unpack

CHOLESKY_LIMIT = 1000
"""Coefficients up to which every worker's Hessian is factorised to see that it is definite (d^3 / 3 each)."""
PACKED_LIMIT = 500
"""Coefficients up to which a factorisation in packed form is the faster way to see that all is well."""
CURVATURE_ROUNDING = 1e-8
"""How far below zero curvature may be, as a share of the Hessian's largest entry: rounding, and float32 on the way."""
SLACK = {"float64": 1e-8, "float32": 1e-5}
"""How far off rounding may be, as a share of the largest number there is."""


def packed_fault(packed: Array, penalties: Array, *, excused: bool, blown_up: bool) -> str | None:
    """What is wrong with a packed Hessian, here or where it is added up on the way."""
    if not excused and not np.isfinite(packed).all():
        return "its Hessian is not finite"
    return None if blown_up else hessian_fault(packed, penalties)


def hessian_fault(packed: Array, penalties: Array, rounding: float = CURVATURE_ROUNDING) -> str | None:
    """Whether H - diag(penalties) has a negative direction, as far as it is looked for."""
    d = penalties.size
    if not np.isfinite(packed).all():
        return None  # with a loss that overflows, at a wild model: the loss shows it
    slack = rounding * max(float(np.abs(packed).max(initial=0.0)), np.finfo(float).tiny)
    if d <= PACKED_LIMIT and _is_definite(packed, d, slack - penalties):
        return None  # H - diag(penalties) + slack I is definite: none of what follows can be wrong
    hessian = unpack(packed, d)
    diagonal = hessian.diagonal() - penalties
    if (diagonal < -slack).any():
        return f"its Hessian is indefinite: entry {int(diagonal.argmin())} of the diagonal is below the penalty"
    width = np.sqrt(np.maximum(diagonal, 0.0) + slack)
    hessian[np.diag_indices(d)] = 0.0
    if (np.abs(hessian) > np.outer(width, width) + slack).any():
        return "its Hessian is indefinite: an entry off the diagonal is larger than the diagonal allows"
    if d <= CHOLESKY_LIMIT:
        hessian[np.diag_indices(d)] = diagonal + slack * d
        try:
            np.linalg.cholesky(hessian)
        except np.linalg.LinAlgError:
            return "its Hessian is indefinite"
    return None


def _is_definite(packed: Array, d: int, shift: Array) -> bool:
    """Whether H + diag(shift) has a Cholesky factor; its upper rows are the lower columns LAPACK takes, packed."""
    shifted = packed.copy()
    shifted[diagonal_places(d)] += shift
    return int(dpptrf(d, shifted, lower=1, overwrite_ap=1)[1]) == 0


def numbers_fault(
    task: CurvatureTask, numbers: Array | Array32, penalties: Array, regions: Regions, *, excused: bool, blown_up: bool
) -> str | None:
    """What is wrong with the numbers of a part, or of a piece of it."""
    form, d = HessianForm.of(task), regions.n_coefficients
    if not np.isfinite(numbers).all():
        return None if excused else "its curvature is not finite"
    if blown_up:
        return None
    numbers, slack = numbers.astype(np.float64), SLACK[task.dtype]
    first, last, whole = piece_of(task, regions)
    if not whole:
        places = form.diagonal_places(regions)
        inside = (first <= places) & (places < last)
        return _diagonal_fault(numbers[places[inside] - first], penalties[inside], slack, np.flatnonzero(inside))
    match form.kind:
        case "full":
            return hessian_fault(numbers, penalties, slack)
        case "block":
            for q, (packed, own) in enumerate(packed_blocks(numbers, regions)):
                fault = hessian_fault(packed, penalties[own], slack)
                if fault is not None:
                    return f"region {q}: {fault}"
            return None
        case "diag":
            return _diagonal_fault(numbers, penalties, slack)
        case "lowrank":
            fault = _diagonal_fault(numbers[:d], penalties, slack)
            omega = sketch_matrix(task.sketch, d, form.columns(d))
            with np.errstate(over="ignore", invalid="ignore"):  # numbers that are finite and their squares not
                sketch = numbers[d:].reshape(omega.shape)
                return fault or _sketch_fault(sketch, omega, numbers[:d], penalties, slack)


def compressed_fault(
    task: CurvatureTask, message: Compressed, penalties: Array, *, excused: bool, blown_up: bool
) -> str | None:
    """What is wrong with a compressed Hessian whose message is of its form."""
    if is_empty(message):
        return None if excused else "its curvature is not finite"
    if blown_up:
        return None
    hessian, slack = restored(task, message, penalties), SLACK[task.dtype]
    if isinstance(make_compressor(task.compressor or ""), Identity | RankR):
        return hessian_fault(pack(hessian), penalties, slack)
    return _diagonal_fault(hessian.diagonal(), penalties, slack)


def _diagonal_fault(diagonal: Array, penalties: Array, slack: float, coordinates: IntArray | None = None) -> str | None:
    """Whether an entry of the diagonal, of all coordinates or of these, is below the penalty."""
    room = slack * max(float(np.abs(diagonal).max(initial=0.0)), float(np.finfo(float).tiny))
    if (diagonal - penalties < -room).any():
        lowest = int((diagonal - penalties).argmin())
        entry = lowest if coordinates is None else int(coordinates[lowest])
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
