"""What a run returns: the model, how it ended, and the record of how it got there."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from danl.methods.base import Status
from danl.objective.layout import Layout
from danl.protocol.messages import Array, Failure
from danl.run.history import History


@dataclass(frozen=True)
class Reference:
    """A point to measure against: the optimum, as well as it could be had."""

    w: Array
    """The model."""
    objective: float
    """f there."""
    grad_norm: float
    """What was reached: the gradient norm at w."""
    exchanges: int = 0
    """What it took to get there."""


@dataclass(frozen=True)
class Result:
    """The end of a run. Not reaching the tolerance is a status, never an exception."""

    w: Array
    """The model."""
    status: Status
    """converged, max_rounds, diverged, quorum_lost, interrupted (by Ctrl-C) or stopped (by a callback)."""
    history: History
    """One row an exchange."""
    method: str
    """The name of the method."""
    failures: tuple[Failure, ...] = ()
    """Workers that did not answer, in the order it happened."""
    notes: tuple[str, ...] = ()
    """What a reader of the result should know: workers that left, refused or were quarantined, for example."""
    dropped: int = 0
    """Replies that came late, twice or for another exchange, and were dropped."""
    start: Result | None = None
    """The run that made w0, where a method was given for it."""
    products: dict[str, Array] = field(default_factory=dict)
    """What a method computed beside the model."""
    settings: dict[str, Any] = field(default_factory=dict)
    """What the run was asked to do, in words and numbers."""
    centre: Array | None = None
    """What columns were moved by inside, where their means are large; the model is that of the columns as they were."""

    @property
    def n_rounds(self) -> int:
        """Exchanges after the first one (the paper's T); one for the means of the columns is not among them."""
        asked = len(self.history) > 0 and self.history[0].kind == "moments"
        return max(len(self.history) - 1 - asked, 0)

    @property
    def objective(self) -> float:
        """F at the model, by the newest row; nan where it is not known."""
        return self.history[-1].objective if len(self.history) else float("nan")

    @property
    def layout(self) -> Layout:
        """The places of coefficients and intercepts in w."""
        told = self.settings
        return Layout(told["features"], told.get("outputs", 1), told.get("intercept", False))

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """What the features are called, in the order of the coefficients; None where they have no names."""
        names = self.settings.get("feature_names")
        return None if names is None else tuple(names)

    @property
    def w0(self) -> Array:
        """The model the run started from."""
        return np.asarray(self.settings["w0"], dtype=float)

    def summary(self) -> dict[str, Any]:
        """The run in one flat dictionary of plain numbers and words; None where a number is not known."""
        history = self.history
        last = history[-1] if len(history) else None
        return {
            "status": self.status,
            "method": self.method,
            "rounds": self.n_rounds,
            "exchanges": len(history),
            "hessian_exchanges": int(np.sum(history.column("kind") == "hessian")),
            "objective": _known(last.objective) if last else None,
            "gap": _known(last.gap) if last else None,
            "grad_norm": _known(last.grad_norm) if last else None,
            "decrement": _known(last.decrement) if last else None,
            "bytes_up": int(history.column("bytes_up").sum()),
            "bytes_down": int(history.column("bytes_down").sum()),
            "min_coverage": last.min_coverage if last else None,
            "max_staleness": last.max_staleness if last else None,
            "min_trained": last.min_trained if last else None,
            "pruning_error": last.pruning_error if last else None,
            "seconds": float(history.column("seconds").sum()),
            "simulated_seconds": _known(float(history.column("simulated_seconds").sum())),
            "failed_replies": len(self.failures),
            "dropped_replies": self.dropped,
            "notes": list(self.notes),
            "w_sha256": hashlib.sha256(np.ascontiguousarray(self.w).tobytes()).hexdigest(),
        }

    def __repr__(self) -> str:
        return f"Result({self.method}: {self.status} after {len(self.history)} exchanges, {self.history!r})"


def _known(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
