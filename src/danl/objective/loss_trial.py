"""A loss of one's own, tried with a few targets and margins before it is trusted with a run."""

from __future__ import annotations

import numpy as np

from danl.errors import InputError
from danl.objective.log_link import Poisson
from danl.objective.losses import Array, Loss, outputs_of


def try_loss(loss: Loss, targets: Array) -> None:
    """Refuse a loss that is not danl's own and whose functions cannot be right, by a few targets and margins."""
    if type(loss).__module__ in (Loss.__module__, Poisson.__module__):
        return
    n_outputs = outputs_of(loss)
    y, z = np.repeat([targets[0], targets.min(), targets.max()], 3), np.tile([0.0, 1.0, -1.0], 3)
    if n_outputs > 1:
        z = np.outer(z, np.linspace(0.5, 1.0, n_outputs))

    def refuse(fault: bool, function: str, what: str) -> None:
        if fault:
            raise InputError(f"loss {loss.name!r}: {function}(y, z) {what} (docs/extending.md)")

    def tried(function: str, z: Array, shape: tuple[int, ...] = y.shape) -> Array:
        given = y.copy(), z.copy()
        made = np.asarray(getattr(loss, function)(*given))
        refuse(made.shape != shape, function, f"has shape {made.shape} for {len(y)} rows; must be {shape}")
        refuse(not np.isfinite(made).all(), function, "is not finite for a margin from -1 to 1; must be finite there")
        changed = not (np.array_equal(given[0], y) and np.array_equal(given[1], z))
        refuse(changed, function, "changes y or z; must leave them as they are")
        return made

    with np.errstate(all="ignore"):
        values, slopes = tried("value", z), tried("first", z, z.shape)
        if n_outputs > 1:
            return
        second = tried("second", z)
        concave = bool((second < -1e-12 * np.abs(second).max()).any())
        refuse(concave, "second", "is negative; must be >= 0: losses are convex in z")
        h = 1e-3  # between two points a convex function rises as fast as the slopes at both ends allow
        rise = (tried("value", z + h) - tried("value", z - h)) / (2 * h)
        off = np.maximum(tried("first", z - h) - rise, rise - tried("first", z + h))
        rounding = 4 * np.finfo(values.dtype if values.dtype.kind == "f" else float).eps / h
        off -= 1e-4 * np.abs(rise) + rounding * np.abs(values)
        row = int(np.argmax(off))
        found = f"is {slopes[row]:.4g} at z = {z[row]:g}, where the slope of value is {rise[row]:.4g}"
        refuse(off[row] > 1e-12, "first", f"{found}; must be the derivative of value in z")
