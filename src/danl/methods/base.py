"""What a method is: three pure functions, and the loop around them belongs to `danl.solve`.

    begin(setup)                    -> state            before anything is sent
    plan(state, setup, turn)        -> exchange         which task goes to which worker
    absorb(state, replies, setup)   -> (state, info)    how the replies move the state

State goes on from exchange to exchange; info is recorded and never read again. A state is plain data, so a run can
be stopped after any exchange and resumed. A state that is a dataclass with `@storable` (`danl.storage.serialize`) above
it can be in a checkpoint.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeVar

import numpy as np

from danl.frozen import at_once, cached_property, replace
from danl.objective.regions import IntArray, Regions
from danl.policies.base import Limits, PlannedPolicy, Setting, WorkerPolicy
from danl.policies.profiles import Profile
from danl.protocol.graph import Graph
from danl.protocol.messages import Array, Exchange, Mask, Task
from danl.protocol.replies import Replies
from danl.storage.serialize import storable

Status = Literal["converged", "max_rounds", "diverged", "quorum_lost", "interrupted", "stopped"]
LOST: tuple[Status, ...] = ("diverged", "quorum_lost")
"""Runs that ended so came near to nothing, whatever their last row says."""


@at_once
@dataclass(frozen=True)
class Setup:
    """What a method knows of the problem: sizes, weights and settings, never data."""

    w0: Array
    """The start, (d,)."""
    weights: Array
    """weight_i of every worker in the objective, (N,); they sum to 1."""
    penalties: Array
    """penalty_i of every worker, (N,)."""
    regions: Regions
    """Which coordinates of w each region has."""
    policy: PlannedPolicy | WorkerPolicy
    """Who trains what, for methods that mask; others leave it alone."""
    setting: Setting
    """What the policy knows: sizes, rows of each worker, `max_rounds`."""
    seed: int
    """Of every random draw: make generators of it and of the exchange, so that a run can be resumed."""
    tol: float
    """Converged is a decrement of at most this."""
    free: Mask = field(default_factory=lambda: np.zeros(0, dtype=bool))
    """Which numbers of w have no penalty, (d,)."""
    profiles: Sequence[Profile] | None = None
    """What the workers' machines can do, where that is known."""
    entries_per_row: Array = field(default_factory=lambda: np.zeros(0))
    """Stored entries of a row of every worker, (N,): what a Hessian costs it."""
    rows_here: bool = True
    """Whether the rows are in the memory of the process that solves the problem."""
    n_outputs: int = 1
    """Margins of a row: one, or one for every class."""
    constant_curvature: bool = False
    """Whether the Hessian is the same at every model: that of a squared loss."""
    curvature_jumps: bool = False
    """Whether it changes by jumps: that of a squared hinge."""
    log_odds_from_null: bool = False
    """Whether margins are log odds, with an intercept, and w0 is the model without features."""
    graph: Graph | None = None
    """Who talks to whom, for methods without a server; None where there is one and no graph was given."""

    @property
    def limits(self) -> Limits | None:
        """What no exchange may take any worker past, where the policy's masks bind."""
        return getattr(self.policy, "limits", None)

    @property
    def penalised(self) -> bool:
        """Whether there is any penalty."""
        return bool(self.penalties.any())

    @cached_property
    def n_workers(self) -> int:
        """N."""
        return len(self.weights)

    @cached_property
    def n_coefficients(self) -> int:
        """d, the length of w."""
        return len(self.w0)

    @property
    def strong_convexity(self) -> float:
        """What the penalty guarantees: sum_i weight_i penalty_i."""
        return self.strong_convexity_of(self.weights)

    def strong_convexity_of(self, weights: Array) -> float:
        """The same for the objective with other weights: that of the workers that are there."""
        return 0.0 if self.any_free else float(weights @ self.penalties)

    @cached_property
    def any_free(self) -> bool:
        """Whether some number of w has no penalty."""
        return bool(self.free.any())

    def floor(self, mu: float | None, weights: Array | None = None) -> float:
        """The projection's floor: the one asked for, or the objective's strong convexity."""
        return self.strong_convexity_of(self.weights if weights is None else weights) if mu is None else mu

    def ask_everyone(self, kind: str, task: Task) -> Exchange:
        """The same task for all workers."""
        return Exchange(kind, task, np.arange(self.n_workers))


class State(Protocol):
    """What the loop reads of a method's state; the rest is the method's own."""

    @property
    def w(self) -> Array:
        """The model the run would return if it stopped here."""
        ...

    @property
    def status(self) -> Status | None:
        """How the run ended; None while it goes on."""
        ...

    # It may also have `notes`, lines for the result, `remark` (`danl.methods.stopping`), one to warn of as well, and
    # `why`, the reason for the next question in a few words, for the history.


@at_once
@dataclass(frozen=True)
class Turn:
    """What the loop knows when an exchange is planned."""

    exchange: int
    """The number of this exchange: how many there were before it, of whatever kind. Its tasks have to carry it."""
    staleness: IntArray
    """For how many rounds each (worker, region) has gone untrained, (N, Q)."""


@storable
@at_once
@dataclass(frozen=True)
class Info:
    """What an exchange showed, for the record and for the stopping rule."""

    decrement: float = np.nan
    """sqrt(grad^T H^-1 grad / f) at the state's model, or a bound of it: what `tol` is compared with, by the method."""
    estimated: bool = False
    """Whether the gradient of it is partly from memory: then the loop asks everyone before it says "converged"."""
    objective: float = np.nan
    """f at the state's model, where the workers reported it: it is recorded, and not measured again."""
    exact_norm: float = np.nan
    """|grad f| there, where every worker sent all of it."""
    trial_rejected: bool = False
    """Whether the losses that came were too high to accept the trial step."""
    lost: tuple[int, ...] = ()
    """With status "quorum_lost": the workers it was lost for. Default: those that were absent from this exchange."""


S = TypeVar("S", bound=State)


def too_few(state: S, replies: Replies, *, everyone: bool = False) -> tuple[S, Info]:
    """Repeat the exchange while missing workers are expected back; otherwise end with status "quorum_lost".

    With `everyone`, one absent worker is enough to end the run.
    """
    expected = len(replies.failures) - len(replies.absent)
    again = expected > 0 and not (everyone and replies.absent)
    return (state if again else replace(state, status="quorum_lost")), Info()


class Method(Protocol[S]):
    """The interface of a method; implement it to bring your own."""

    @property
    def name(self) -> str:
        """What it is called on the command line and in a result."""
        ...

    def begin(self, setup: Setup) -> S:
        """The state before anything is sent."""
        ...

    def plan(self, state: S, setup: Setup, turn: Turn) -> Exchange:
        """Which task goes to which worker in the next exchange."""
        ...

    def absorb(self, state: S, replies: Replies, setup: Setup) -> tuple[S, Info]:
        """The state that the replies lead to, whatever is missing among them, and what they showed."""
        ...


class HoldsHessian:
    """A method whose server holds a whole Hessian: the run is refused where that does not fit into memory."""

    def curvature_numbers(self, regions: Regions) -> int:
        """Numbers of the curvature that the server holds."""
        return regions.n_coefficients**2


AnyMethod = Method[Any]
"""A method, whatever its state is."""
