"""What a run goes on from: every exchange makes a new `RunState`, a checkpoint has one, a resumed run begins with one.

Rows of the history and failed replies only ever grow, so they are kept beside it; it counts how many are its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from danl.errors import InputError
from danl.frozen import at_once, replace
from danl.methods import Info, State, Status
from danl.objective.losses import Loss
from danl.objective.problem import Problem
from danl.policies import MaskRecord
from danl.protocol.messages import Array, Failure
from danl.run.prepared import PreparedRun
from danl.storage.serialize import storable
from danl.wording import listed, named

NAMED = 20
"""How many workers, or reasons, the note on a lost quorum names one by one."""


@storable
@at_once
@dataclass(frozen=True, eq=False)
class RunState:
    """A run between two exchanges: plain data, and none of it is changed in place."""

    method_state: State
    """What the method goes on from."""
    w: Array
    """The newest finite model: what the run would return."""
    w0: Array
    """The start, on the columns the run has moved."""
    centre: Array | None
    """What columns are moved by (`danl.objective.centring`)."""
    ceiling: float
    """|f(w0)| + |f(0)|, what a diverging objective is compared with; inf where nothing is measured."""
    masks: MaskRecord
    """Staleness, and what the masks amounted to."""
    uncovered: tuple[int, ...]
    """Masked rounds in a row that each region was in nobody's mask."""
    tol: float
    """The tolerance of the run."""
    exchanges: int = 0
    """How many there were: rows of the history."""
    n_failures: int = 0
    """Replies that did not come."""
    dropped: int = 0
    """Replies that came late, twice or for another exchange."""
    info: Info = field(default_factory=Info)
    """What the newest exchange showed."""
    estimate: float = math.inf
    """Of the decrement, where the method has only that."""
    failed_check: float = math.inf
    """The estimate at the last check that failed."""
    pruning_error: float = 0.0
    """The largest |w - w_i|^2 at which a gradient was evaluated."""
    untrained_rounds: int = 0
    """Masked rounds in which nobody trained anything; -1 once somebody has."""
    excluded: Mapping[int, Failure] = field(default_factory=dict)
    """Workers that are not asked any more: they refused, died for good, or sent an invalid reply."""
    notes: tuple[str, ...] = ()
    """When that was, and why."""
    status: Status | None = None
    """How the newest exchange ended the run; None while it goes on."""
    log_odds_from_null: bool = False
    """As `Setup` has it, for a run that is resumed before its first step."""


def first_state(run: PreparedRun) -> RunState:
    """The state before anything is asked."""
    n_workers, n_regions = run.setup.n_workers, run.setup.regions.n_regions
    masks, w0 = MaskRecord.start(n_workers, n_regions), run.setup.w0
    start: dict[str, Any] = {"method_state": None, "w": w0, "w0": w0, "centre": run.problem.centre, "ceiling": math.inf}
    if not run.ask_moments:  # else it depends on these
        start = start_of(run)
    return RunState(**start, masks=masks, uncovered=(0,) * n_regions, tol=run.setup.tol)


def start_of(run: PreparedRun) -> dict[str, Any]:
    """The part of a state that depends on where the run starts."""
    w0, ceiling = run.setup.w0, math.inf
    method_state = run.method.begin(run.setup)
    own_loss = type(run.problem.loss).__module__ == Loss.__module__  # these are finite there
    known_finite = run.method_reports and own_loss and (run.start_at_null or not w0.any())
    if run.monitor and isinstance(run.problem, Problem) and not known_finite:
        there = abs(run.problem.objective(w0))
        ceiling = there + (abs(run.problem.objective(np.zeros_like(w0))) if w0.any() else there)
        if math.isinf(ceiling):
            raise InputError("w0: the objective is infinite there; start nearer to zero, or leave it out for zeros")
    begun = {"method_state": method_state, "w": w0, "w0": w0, "centre": run.problem.centre, "ceiling": ceiling}
    return begun | {"log_odds_from_null": run.setup.log_odds_from_null}


def resumed_state(state: RunState, tol: float) -> RunState:
    """The state another process goes on from: who was dead for good may be back, the tolerance may be smaller."""
    excluded = {who: failure for who, failure in state.excluded.items() if failure.kind != "gone"}
    goes_on = state.status == "quorum_lost" or (state.status == "converged" and tol < state.tol)
    state = replace(state, excluded=excluded, tol=tol)
    if not goes_on:
        return state
    method_state: Any = state.method_state
    reopened = method_state.reopened() if hasattr(method_state, "reopened") else replace(method_state, status=None)
    return replace(state, status=None, method_state=reopened)


def exclusion_notes(failures: Iterable[Failure], exchange: int) -> tuple[str, ...]:
    """Why workers are not asked any more, a line for those that failed alike."""
    notes: list[str] = []
    for (kind, detail), who in _alike(failures).items():
        quarantined = "was quarantined" if len(who) == 1 else "were quarantined"
        did = {"refused": "refused", "gone": "died for good"}.get(kind, quarantined)
        notes.append(f"{named('worker', who, NAMED)} {did} in exchange {exchange}: {detail}")
    return tuple(notes)


def quorum_note(state: RunState, failures: Iterable[Failure]) -> str:
    """Who was lost in the exchange that had no quorum, and why, in one line; those that failed alike together."""
    newest = {failure.worker: failure for failure in (*failures, *state.excluded.values())}
    alike = _alike(newest[who] for who in state.info.lost if who in newest)
    groups = [f"{named('worker', who, NAMED)} ({': '.join(filter(None, why))})" for why, who in alike.items()]
    without = listed(groups, NAMED) if groups else "a failure"
    return f"quorum lost in exchange {state.exchanges - 1}, without {without}"


def _alike(failures: Iterable[Failure]) -> dict[tuple[str, str], list[int]]:
    """The workers of every kind and detail of failure."""
    alike: dict[tuple[str, str], list[int]] = {}
    for each in failures:
        alike.setdefault((each.kind, each.detail), []).append(each.worker)
    return alike
