"""The loop of a run: exchanges, the record of them, and the ending. It is the same for every method:

1  the method plans the exchange                    method.plan(state)
2  the engine carries tasks out and replies in      engine.exchange(tasks), through the border
3  the replies move the state                       method.absorb(state, replies)
4  the exchange is measured and recorded            History, MaskRecord
5  the run ends, or goes on                         status
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from danl.core.aggregate import mean_gradient, of_kind, trained_pairs
from danl.core.border import Border
from danl.core.costs import bytes_each, bytes_of, pruning_error, seconds_each
from danl.core.messages import FOR_GOOD, Array, Exchange, Failure, GradientReply, GradientTask, Mask, Replies, Task
from danl.core.stack import Tasks, who_answered, who_was_asked
from danl.engines import Engine
from danl.errors import InputError
from danl.history import TRAINING, History, Row
from danl.methods import AnyMethod, Info, Setup, State, Status, Turn
from danl.policies import MaskRecord, Profile, coverage_counts
from danl.problem import Problem, RemoteProblem
from danl.result import Reference, Result
from danl.trace import ANSWERED, SILENT, Trace
from danl.warn import warn

UNCOVERED_ROUNDS = 50
"""Warn when a region was in nobody's mask for this many masked rounds in a row."""
BLOWN_UP = 1e12
"""Stop as diverged when the objective is this many times 1 + |f(w0)|: nothing comes back from there."""
ENDED_WORSE = 10.0
"""Call a run that used up its rounds diverged when it ends this many times above 1 + |f(w0)|."""
CHECK_AGAIN = 0.1
"""After a check that failed, wait until the estimate has fallen to this share before asking the workers again."""


@dataclass(frozen=True)
class Run:
    """Everything a run is made of, checked."""

    problem: Problem | RemoteProblem
    method: AnyMethod
    setup: Setup
    profiles: Sequence[Profile] | None
    reference: Reference | None
    monitor: bool
    border: Border
    entries_per_row: Array = field(default_factory=lambda: np.zeros(0))
    trace: Trace | None = None


class Saver(Protocol):
    """Something that keeps what a run carries."""

    def save(self, carried: Mapping[str, Any], *, last: bool) -> None: ...


def go_through(
    run: Run,
    engine: Engine,
    callback: Callable[[Row], bool] | None,
    saver: Saver | None = None,
    carried: Mapping[str, Any] | None = None,
) -> Result:
    """Go through the exchanges on an engine, opened for this run; `carried` is where an earlier process stopped."""
    policy = run.setup.policy if run.setup.policy.side == "worker" else None
    engine.open(run.problem, regions=run.setup.regions, policy=policy, seed=run.setup.seed)
    loop = Loop(run, engine)
    if carried is not None:
        loop.restore(carried)
    try:
        status = loop.go(callback, saver)
    except KeyboardInterrupt:
        status = "interrupted"
        if saver is not None:
            saver.save(loop.carried, last=True)
    return Result(
        w=loop.w,
        status=status,
        history=loop.history,
        method=run.method.name,
        failures=tuple(loop.failures),
        notes=(*loop.shut_out_notes, *getattr(loop.state, "notes", ())),
        dropped=loop.dropped,
        products=dict(getattr(loop.state, "products", {})),
        settings=settings_of(run, engine, loop.shut_out),
    )


class Loop:
    """The exchanges of one run: what is carried (state, mask record) and what is recorded (history, failures)."""

    def __init__(self, run: Run, engine: Engine) -> None:
        self.run, self.engine, self.setup = run, engine, run.setup
        self.state: State = run.method.begin(run.setup)
        self.w = run.setup.w0  # the newest finite model
        self.record = MaskRecord.start(run.setup.n_workers, run.setup.regions.n_regions)
        self.pruning_error = 0.0
        self.measured: tuple[Array, Array, float, float] | None = None  # w, weights, objective, gradient norm
        self.history = History()
        self.failures: list[Failure] = []
        self.failed = 0  # workers that were asked in the newest exchange and did not answer
        self.dropped = 0
        self.shut_out: dict[int, Failure] = {}  # workers that refused, or whose reply was invalid
        self.shut_out_notes: list[str] = []
        self.carried: dict[str, Any] = {}  # of the newest exchange that was recorded
        self.uncovered = (0,) * run.setup.regions.n_regions  # masked rounds each region was left out of, to today
        self.estimate = math.inf  # of the gradient norm, where the method has only that
        self.failed_check = math.inf  # the estimate at the last check that failed
        self.told = Info()  # what the workers said of the newest model
        self.ceiling = math.inf
        if run.monitor and isinstance(run.problem, Problem):
            self.ceiling = 1.0 + abs(run.problem.objective(run.setup.w0))
        if math.isinf(self.ceiling) and run.monitor:
            raise InputError("w0: the objective is infinite there; start nearer to zero, or leave it out for zeros")

    def go(self, callback: Callable[[Row], bool] | None, saver: Saver | None = None) -> Status:
        """Exchange until there is a status; a callback that returns True ends the run as well."""
        status: Status | None = None
        while status is None and len(self.history) <= self.setup.setting.max_rounds:
            status = self._check() if self._check_due() else self._exchange()
            self.carried = self._carried()
            if saver is not None:
                last = status is not None or len(self.history) > self.setup.setting.max_rounds
                saver.save(self.carried, last=last)
            if callback is not None and callback(self.history[-1]) and status is None:
                status = "stopped"
                if saver is not None:
                    saver.save(self.carried, last=True)
        if status in (None, "max_rounds"):
            worse = len(self.history) > 0 and self.history[-1].objective > ENDED_WORSE * self.ceiling
            return "diverged" if worse else "max_rounds"
        return status

    def _carried(self) -> dict[str, Any]:
        """What the run would go on from: plain data, none of it changed in place before the exchange after the next."""
        return {
            "state": self.state,
            "w": self.w,
            "record": self.record,
            "pruning_error": self.pruning_error,
            "rows": len(self.history),
            "failures": tuple(self.failures),
            "dropped": self.dropped,
            "shut_out": dict(self.shut_out),
            "shut_out_notes": tuple(self.shut_out_notes),
            "uncovered": self.uncovered,
            "estimate": self.estimate,
            "failed_check": self.failed_check,
            "history": self.history,
        }

    def restore(self, carried: Mapping[str, Any]) -> None:
        """Go on from there."""
        self.state, self.w, self.record = carried["state"], carried["w"], carried["record"]
        self.pruning_error, self.uncovered = carried["pruning_error"], tuple(int(n) for n in carried["uncovered"])
        self.history, self.failures = carried["history"], list(carried["failures"])
        self.dropped, self.shut_out = carried["dropped"], dict(carried["shut_out"])
        self.shut_out_notes = list(carried["shut_out_notes"])
        self.estimate, self.failed_check = carried["estimate"], carried["failed_check"]

    def _exchange(self) -> Status | None:
        """Steps 1 to 5 of the loop."""
        begun = time.perf_counter()
        exchange = self.run.method.plan(self.state, self.setup, Turn(len(self.history), self.record.staleness))
        exchange, replies = self._carry(exchange)
        state, info = self.run.method.absorb(self.state, replies, self.setup)
        elapsed = time.perf_counter() - begun
        self.state, self.estimate, self.told = state, info.grad_norm, info
        finite = bool(np.isfinite(state.w).all())
        row = self._record(exchange, replies, state.w if finite else self.w, elapsed)
        if not finite or (self.run.monitor and not row.objective <= BLOWN_UP * self.ceiling):  # nan is not <=
            return "diverged"
        ended: Status | None = state.status
        return ended

    def _carry(self, exchange: Exchange) -> tuple[Exchange, Replies]:
        """Step 2: out and in through the border; those that were shut out are not asked, and count as gone."""
        asked = exchange.tasks
        if self.shut_out:
            left = asked.without(self.shut_out) if isinstance(asked, Tasks) else _without(asked, self.shut_out)
            exchange = replace(exchange, tasks=left)
        replies = self.run.border.admit(exchange, self.engine.exchange(exchange), self.setup.weights)
        self.dropped += replies.dropped
        self.failures.extend(replies.failures.values())
        self.failed = len(replies.failures)
        for worker, failure in replies.failures.items():
            if failure.kind in FOR_GOOD:
                self.shut_out[worker] = failure
                self.shut_out_notes.append(_shut_out_note(failure, len(self.history)))
        known = {worker: failure for worker, failure in self.shut_out.items() if worker in asked}
        return exchange, replace(replies, failures={**replies.failures, **known}) if known else replies

    def _check_due(self) -> bool:
        # An estimate from memory says the gradient is small enough: only the workers can tell whether it is.
        return self.estimate <= min(self.setup.tol, CHECK_AGAIN * self.failed_check)

    def _check(self) -> Status | None:
        """Ask everyone for the whole gradient at w; the method does not see the replies."""
        begun = time.perf_counter()
        task = GradientTask(len(self.history), self.state.w)
        exchange = self.setup.ask_everyone("check", task)
        exchange, replies = self._carry(exchange)
        answers = of_kind(replies, GradientReply)
        norm = math.inf
        if len(answers) == self.setup.n_workers:
            norm = float(np.linalg.norm(mean_gradient(answers, self.setup.weights, self.setup.n_features)))
        self._record(exchange, replies, self.w, time.perf_counter() - begun)
        self.failed_check, self.estimate = self.estimate, math.inf
        return "converged" if norm <= self.setup.tol else None

    def _measure(self, w: Array, weights: Array) -> tuple[float, float]:
        """Objective and gradient norm at w; a model that did not move is not measured again.

        Where nothing is measured from outside, what the workers told of it.
        """
        if not self.run.monitor or not isinstance(self.run.problem, Problem):
            return self.told.objective, self.told.exact_norm
        if not (self.measured is not None and self.measured[0] is w and self.measured[1] is weights):
            objective, gradient = self.run.problem.value_and_gradient(w, weights)
            self.measured = (w, weights, objective, float(np.linalg.norm(gradient)))
        return self.measured[2], self.measured[3]

    def _warn_uncovered(self) -> None:
        longest = max(self.uncovered)
        if longest == UNCOVERED_ROUNDS + 1:  # once, when it happens
            warn(
                f"region {self.uncovered.index(longest)} was trained by nobody for {UNCOVERED_ROUNDS} masked rounds; "
                "use a policy that covers it, such as coverage:psi=1"
            )

    def _record(self, exchange: Exchange, replies: Replies, w: Array, elapsed: float) -> Row:
        """Step 4: one row."""
        regions, reference = self.setup.regions, self.run.reference
        trained = trained_pairs(replies, self.setup.n_workers, regions.n_regions)
        coverage = tuple(coverage_counts(trained).tolist())
        if exchange.kind in TRAINING:
            self.record = self.record.after(trained, coverage)
            self.pruning_error = max(self.pruning_error, pruning_error(exchange, replies, trained, regions))
        if exchange.kind == "gradient":
            self.uncovered = tuple(
                0 if count else rounds + 1 for count, rounds in zip(coverage, self.uncovered, strict=True)
            )
            self._warn_uncovered()
        up, down = bytes_of(exchange, replies)
        taken = self._seconds(exchange, replies)
        weights = getattr(self.state, "weights", self.setup.weights)  # fewer workers, another objective
        comparable = reference is not None and np.array_equal(weights, self.setup.weights)
        objective, grad_norm = self._measure(w, weights)
        row = Row(
            exchange=len(self.history),
            kind=exchange.kind,
            active=len(replies.received),
            failed=self.failed,
            refused=int(self.told.refused and exchange.kind != "check"),
            min_coverage=self.record.min_coverage,
            max_staleness=self.record.max_staleness,
            min_trained=self.record.min_trained,
            pruning_error=self.pruning_error,
            objective=objective,
            gap=objective - reference.objective if comparable and reference is not None else math.nan,
            grad_norm=grad_norm,
            step_norm=_norm(w - self.w),
            model_norm=_norm(w),
            distance=_norm(w - reference.w) if comparable and reference is not None else math.nan,
            bytes_up=up,
            bytes_down=down,
            seconds=elapsed,
            simulated_seconds=math.nan if taken is None else _slowest(taken),
            coverage=coverage,
        )
        self.history.append(row)
        self.w = w
        if self.run.trace is not None:
            self._note(self.run.trace, row.exchange, exchange, replies, trained, taken)
        return row

    def _seconds(self, exchange: Exchange, replies: Replies) -> Array | None:
        """What the exchange took every worker by its profile; None where there are none."""
        run, problem = self.run, self.run.problem
        if run.profiles is None:
            return None
        return seconds_each(exchange, replies, run.profiles, problem.rows, run.entries_per_row, problem.n_coefficients)

    def _note(
        self, trace: Trace, number: int, exchange: Exchange, replies: Replies, trained: Mask, taken: Array | None
    ) -> None:
        """Step 4, worker by worker, where somebody wants to know."""
        count = self.setup.n_workers
        asked = np.zeros(count, dtype=np.int8)
        asked[who_was_asked(exchange.tasks)] = SILENT
        asked[who_answered(replies)] = ANSWERED
        trace.note(number, asked, trained, *bytes_each(exchange, replies, count), taken)


def settings_of(run: Run, engine: Engine, shut_out: Collection[int] = ()) -> dict[str, Any]:
    """What was run; the rows of workers that were shut out are none of it."""
    setup, problem = run.setup, run.problem
    names: list[str] = (
        [part.name for part in dataclasses.fields(run.method)] if dataclasses.is_dataclass(run.method) else []
    )
    options = {name: getattr(run.method, name) for name in names}
    return {
        "method": run.method.name,
        "method_options": options,
        "policy": repr(setup.policy),
        "regions": [int(size) for size in setup.regions.sizes],
        "workers": problem.n_workers,
        "rows": [0 if worker in shut_out else int(rows) for worker, rows in enumerate(problem.rows)],
        "features": problem.n_features,
        "feature_names": None if problem.feature_names is None else list(problem.feature_names),
        "outputs": problem.layout.n_outputs,
        "loss": problem.loss.name,
        "l2": problem.l2,
        "alpha": problem.alpha,
        "weighting": problem.weighting,
        "intercept": problem.intercept,
        "max_rounds": setup.setting.max_rounds,
        "tol": setup.tol,
        "seed": setup.seed,
        "engine": repr(engine),
        "w0": [float(value) for value in setup.w0],
    }


def _slowest(taken: Array) -> float:
    told = taken[~np.isnan(taken)]  # nan: did not answer
    return float(told.max(initial=0.0))


def _norm(vector: Array) -> float:
    return math.sqrt(vector @ vector)  # at a third of np.linalg.norm's overhead


def _without(tasks: Mapping[int, Task], shut_out: Mapping[int, Failure]) -> Mapping[int, Task]:
    return {who: task for who, task in tasks.items() if who not in shut_out}


def _shut_out_note(failure: Failure, exchange: int) -> str:
    what = "refused" if failure.kind == "refused" else "was quarantined"
    return f"worker {failure.worker} {what} in exchange {exchange}: {failure.detail}"
