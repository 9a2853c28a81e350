r"""What the data says of a model at hand: the Hessian of the objective there, and if asked the rows' scores.

Not a way to a model but a look at one: w stays where it is. Everyone is asked, and those missing are asked again for
the same model, so that the sums are over all workers:

    hessian    sum_i weight_i Hess F_i(w)                                  the observed information per row
    scores     sum_i weight_i^2 sum_j r_ij^2 g_ij g_ij^T                   the middle matrix of the sandwich estimator
    loss       sum_i weight_i F_i(w)
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from danl.frozen import replace
from danl.methods.base import HoldsHessian, Info, Setup, Status, Turn
from danl.protocol.messages import PERMANENT, Array, Exchange, HessianTask, Mask, ScoresTask, Task, unpack
from danl.protocol.replies import Replies


@dataclass(frozen=True)
class InformationState:
    """Sums so far, and who is still to answer."""

    w: Array
    asked: Literal["hessian", "scores"]
    missing: Mask  # (N,)
    tries: int
    packed: Array | float = 0.0  # the sum of what is being asked for
    loss: float = 0.0
    status: Status | None = None
    products: dict[str, Array] = field(default_factory=dict)


@dataclass(frozen=True)
class Information(HoldsHessian):
    """The Hessian, and with `scores` the rows' scores, at the start of the run.

    Parameters
    ----------
    scores : bool
        Ask for the scores as well: one exchange more.
    hessian : bool
        Ask for the Hessian. Where it is known from before, the scores alone are asked for.
    patience : int
        Exchanges that may be missed before the run gives up; those missed by workers that the engine expects back are
        not counted.

    """

    name = "information"

    scores: bool = False
    hessian: bool = True
    patience: int = 50

    def begin(self, setup: Setup) -> InformationState:
        everyone = np.ones(setup.n_workers, dtype=bool)
        asked: Literal["hessian", "scores"] = "hessian" if self.hessian else "scores"
        return InformationState(setup.w0, asked, everyone, 0)

    def plan(self, state: InformationState, setup: Setup, turn: Turn) -> Exchange:
        kind = HessianTask if state.asked == "hessian" else ScoresTask
        task: Task = kind(turn.exchange, state.w)
        return Exchange(state.asked, task, np.flatnonzero(state.missing))

    def absorb(self, state: InformationState, replies: Replies, setup: Setup) -> tuple[InformationState, Info]:
        missing, packed, loss = state.missing.copy(), state.packed, state.loss
        here = replies.workers
        missing[here] = False
        if replies.curvature_sum is not None and state.asked == "hessian":
            packed = packed + replies.curvature_sum
            loss += float(setup.weights[here] @ replies.losses_of_all(setup.n_workers)[here])
        elif state.asked == "scores":
            for worker, scores in replies.curvatures.items():
                packed = packed + float(setup.weights[worker]) ** 2 * scores
        state = replace(state, missing=missing, packed=packed, loss=loss, tries=state.tries + bool(replies.absent))
        if missing.any():
            gone = any(failure.kind in PERMANENT for failure in replies.failures.values())
            return (replace(state, status="quorum_lost") if gone or state.tries >= self.patience else state), Info()
        return self._answered(state, setup), Info(objective=loss if self.hessian else np.nan)

    def _answered(self, state: InformationState, setup: Setup) -> InformationState:
        """Everyone has answered: the next question, or the end."""
        products = state.products | {state.asked: unpack(np.asarray(state.packed), setup.n_coefficients)}
        if state.asked == "hessian" and self.scores:
            everyone = np.ones(setup.n_workers, dtype=bool)
            return replace(state, asked="scores", missing=everyone, tries=0, packed=0.0, products=products)
        if self.hessian:
            products |= {"loss": np.array(state.loss)}
        return replace(state, status="converged", products=products)
