r"""An end that is proven by the penalty alone: for methods whose own curvature is learned, local or none at all.

What `tol` is compared with is the decrement, sqrt(grad^T H^-1 grad / f) (`danl.methods.acceptance`). With a penalty the
true Hessian is at least mu I, so that

    grad^T H^-1 grad <= |grad|^2 / mu

whatever a method takes for H. Where there is none, nothing is proven, and such a method goes on for its rounds.
"""

from __future__ import annotations

import math

import numpy as np

from danl.methods.acceptance import relative
from danl.methods.base import Setup
from danl.protocol.messages import Array


def proven_decrement(gradient: Array, loss: float, setup: Setup) -> float:
    """A bound on the decrement, from everyone's whole gradient and loss at a model; nan without a penalty."""
    mu = setup.strong_convexity
    if mu <= 0 or not (math.isfinite(loss) and np.isfinite(gradient).all()):
        return math.nan
    return relative(float(gradient @ gradient) / mu, abs(loss))
