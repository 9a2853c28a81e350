"""A method of your own: Nesterov's accelerated gradient, for objectives with a penalty.

A method is three functions: `begin` makes the first state, `plan` says what is asked of the workers, `absorb` moves the
state by their replies. This one asks for smoothness constants first, for a step that is safe, and then for gradients at
a point ahead of the model, beta times the newest step:

    v = w + beta (w - previous)            beta = (1 - sqrt(mu rate)) / (1 + sqrt(mu rate))
    previous, w = w, v - rate grad f(v)    rate = 1 / L

Run it with `python examples/custom_method.py`.
"""

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

import danl
from danl.methods import (
    Exchange,
    GradientTask,
    Info,
    Replies,
    Setup,
    SmoothnessTask,
    Turn,
    mean_gradient,
    mean_loss,
    mean_value,
    storable,
    too_few,
)


@storable  # so that a run can be resumed from a checkpoint
@dataclass(frozen=True)
class NesterovState:
    """All that the next exchange depends on; `w` and `status` are there for every method."""

    w: np.ndarray
    previous: np.ndarray
    rate: float | None = None
    status: str | None = None

    def ahead(self, mu: float) -> np.ndarray:
        root = math.sqrt(mu * self.rate)
        return self.w + (1 - root) / (1 + root) * (self.w - self.previous)


@dataclass(frozen=True)
class Nesterov:
    """The fields are its options: with a learning rate nobody is asked for smoothness constants."""

    learning_rate: float | None = None
    name: ClassVar[str] = "nesterov"

    def begin(self, setup: Setup) -> NesterovState:
        if setup.strong_convexity == 0:
            raise danl.InputError("method='nesterov': needs a penalty on all of w; set alpha > 0, without an intercept")
        return NesterovState(setup.w0, setup.w0, self.learning_rate)

    def plan(self, state: NesterovState, setup: Setup, turn: Turn) -> Exchange:
        if state.rate is None:
            return setup.ask_everyone("smoothness", SmoothnessTask(turn.exchange))
        return setup.ask_everyone("gradient", GradientTask(turn.exchange, state.ahead(setup.strong_convexity)))

    def absorb(self, state: NesterovState, replies: Replies, setup: Setup) -> tuple[NesterovState, Info]:
        if not len(replies.workers):
            return too_few(state, replies)  # ask again, or end with status "quorum_lost"
        if state.rate is None:
            return replace(state, rate=1 / float(mean_value(replies, setup.weights, "smoothness"))), Info()
        gradient = mean_gradient(replies, setup.weights)
        ahead, mu = state.ahead(setup.strong_convexity), setup.strong_convexity
        # What `tol` is for, sqrt(grad^T H^-1 grad / f), is at most this, because H is at least mu.
        decrement = np.linalg.norm(gradient) / math.sqrt(mu * mean_loss(replies, setup.weights))
        if decrement <= setup.tol and not replies.failures:
            return replace(state, w=ahead, status="converged"), Info(decrement)
        return replace(state, w=ahead - state.rate * gradient, previous=state.w), Info(decrement)


def main() -> None:
    data = danl.load_dataset("a1a")
    problem = danl.Problem(danl.partition(data.X, data.y, workers=10, seed=0), alpha=1e-2)
    optimum = danl.reference_optimum(problem)
    for method in ("gd", Nesterov(), "danl"):
        result = danl.solve(problem, method=method, max_rounds=2000, tol=1e-6, reference=optimum)
        gap, megabytes = result.history[-1].gap, result.history.total_bytes()[-1] / 1e6
        print(
            f"{result.method:<8}  {result.status} after {len(result.history):4} exchanges and {megabytes:4.1f} MB, "
            f"gap {max(gap, 0.0):.1e}"
        )


if __name__ == "__main__":
    main()
