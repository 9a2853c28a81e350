"""The loop of a run: exchanges, the record of them, and the ending. It is the same for every method:

1  the method plans the exchange                    method.plan(state)
2  the engine carries tasks out and replies in      engine.exchange(tasks), through the border
3  the replies move the state                       method.absorb(state, replies)
4  the exchange is measured and recorded            History, MaskRecord
5  the run ends, or goes on                         status
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from danl.engines import Engine
from danl.errors import InputError, warn
from danl.methods import Info, State, Status, Turn
from danl.methods.ending import FLAT, Remark, relative_decrement, size_of
from danl.objective.centring import from_moved
from danl.objective.problem import Problem
from danl.objective.regions import IntArray
from danl.policies import MaskRecord, coverage_counts
from danl.protocol.costs import pruning_error, seconds_each
from danl.protocol.messages import (
    FOR_GOOD,
    Array,
    Exchange,
    Failure,
    GradientTask,
    Mask,
    MomentsTask,
)
from danl.protocol.replies import Replies, bytes_down, bytes_up
from danl.run.history import TRAINING, History, Row
from danl.run.result import Result
from danl.run.run import Run, after_moments, moved_run, settings_of
from danl.run.separation import separation_bound
from danl.run.trace import ANSWERED, SILENT, Trace
from danl.server.aggregation import mean_gradient, mean_loss
from danl.wording import listed

UNCOVERED_ROUNDS = 50
"""Warn when a region was in nobody's mask for this many masked rounds in a row."""
BLOWN_UP = 1e12
"""Stop as diverged when the objective is this many times |f(w0)| + |f(0)|: nothing comes back from there."""
ENDED_WORSE = 10.0
"""Call a run that used up its rounds diverged when it ends this many times above |f(w0)| + |f(0)|."""
NOBODY_TRAINED = (
    "nobody trained any region in {rounds} masked round(s): all progress came from exchanges that ask everyone for "
    "everything; use a policy that covers the regions, such as coverage:psi=1"
)
NAMED = 20
"""How many workers, or reasons, the note on a lost quorum names one by one."""
CHECK_AGAIN = 0.1
"""After a check that failed, wait until the estimate has fallen to this share before asking the workers again."""


class Saver(Protocol):
    """Something that keeps what a run carries."""

    def save(self, carried: Mapping[str, Any], *, last: bool) -> None: ...


def go_through(
    run: Run,
    engine: Engine,
    callback: Callable[[Row, Array], bool] | None,
    saver: Saver | None = None,
    carried: Mapping[str, Any] | None = None,
) -> Result:
    """Go through the exchanges on an engine, opened for this run; `carried` is where an earlier process stopped."""
    if carried is not None:
        run = moved_run(run, carried["centre"])
    loop = Loop(run, engine)
    if carried is not None:
        loop.restore(carried)
    if not loop.is_over:  # a run that was at its end asks nobody anything
        loop.open()
    try:
        status = loop.go(callback, saver)
    except KeyboardInterrupt:
        status = "interrupted"
        if saver is not None:
            saver.save(loop.carried, last=True)
    remark: Remark | None = getattr(loop.state, "remark", None)
    if remark is None and status == "max_rounds" and math.isinf(loop.told.decrement):
        remark = Remark(FLAT)
    remarks = (() if remark is None else (remark.told(run.problem.coefficient_name),)) + loop.untrained_notes()
    for each in remarks:
        warn(each)
    return Result(
        w=loop.as_given(loop.w),
        status=status,
        history=loop.history,
        method=run.method.name,
        failures=tuple(loop.failures),
        notes=(*loop.shut_out_notes, *getattr(loop.state, "notes", ()), *loop.quorum_notes(status), *remarks),
        dropped=loop.dropped,
        products=dict(getattr(loop.state, "products", {})),
        settings=settings_of(run, engine, loop.shut_out) | {"w0": loop.as_given(loop.setup.w0).tolist()},
        centre=loop.moved_by,
    )


class Loop:
    """The exchanges of one run: what is carried (state, mask record) and what is recorded (history, failures)."""

    def __init__(self, run: Run, engine: Engine) -> None:
        self.engine, self.record = engine, MaskRecord.start(run.setup.n_workers, run.setup.regions.n_regions)
        self._begin(run)
        self.pruning_error = 0.0
        self.history = History()
        self.failures: list[Failure] = []
        self.ended: Status | None = None  # how the newest exchange ended the run
        self.failed = 0  # workers that were asked in the newest exchange and did not answer
        self.dropped = 0
        self.lost: tuple[int, ...] = ()  # workers without whom the newest exchange had no quorum, if it had none
        self.shut_out: dict[int, Failure] = {}  # workers that refused, died for good, or whose reply was invalid
        self.shut_out_notes: list[str] = []
        self.carried: dict[str, Any] = {}  # of the newest exchange that was recorded
        self.uncovered = (0,) * run.setup.regions.n_regions  # masked rounds each region was left out of, to today
        self.rounds_without_training = 0  # masked rounds in which nobody trained anything; -1 once somebody has
        self.estimate = math.inf  # of the decrement, where the method has only that
        self.failed_check = math.inf  # the estimate at the last check that failed
        self.told = Info()  # what the workers said of the newest model

    def _begin(self, run: Run) -> None:
        """The state before the first exchange of the method."""
        self.run, self.setup = run, run.setup
        self.state: State = run.method.begin(run.setup)
        self.w = run.setup.w0  # the newest finite model
        self.measured: tuple[Array, Array, float, float] | None = None  # w, weights, objective, gradient norm
        self.ceiling = math.inf
        if run.monitor and isinstance(run.problem, Problem):
            there = abs(run.problem.objective(self.w))
            self.ceiling = there + (abs(run.problem.objective(np.zeros_like(self.w))) if self.w.any() else there)
        self.separated_below = separation_bound(run.problem)
        if math.isinf(self.ceiling) and run.monitor:
            raise InputError("w0: the objective is infinite there; start nearer to zero, or leave it out for zeros")

    def open(self) -> None:
        """Tell the engine what its workers work on."""
        policy, setup = self.setup.policy, self.setup
        own = policy if policy.side == "worker" else None
        self.engine.open(self.run.problem, regions=setup.regions, policy=own, seed=setup.seed)

    @property
    def moved_by(self) -> Array | None:
        """What this run moved columns by; None where it did not, or was given a problem with moved columns."""
        return self.run.problem.centre if self.run.moves else None

    def as_given(self, w: Array) -> Array:
        """A model of this run for the columns as they were given."""
        return from_moved(w, self.run.problem.layout, self.moved_by)

    def _ask_moments(self) -> None:
        """With an intercept, before anything else: the means of the columns, which are moved where they are large."""
        begun = time.perf_counter()
        exchange, replies = self._carry(self.setup.ask_everyone("moments", MomentsTask(0)), for_good=("invalid",))
        begin = after_moments(self.run, replies)
        moved = begin.problem is not self.run.problem
        if begin is not self.run:
            self._begin(begin)
        if moved:
            self.open()
        self._record(exchange, replies, self.w, time.perf_counter() - begun)

    def go(self, callback: Callable[[Row, Array], bool] | None, saver: Saver | None = None) -> Status:
        """Exchange until there is a status; a callback that returns True ends the run as well."""
        status = self.ended
        if self.is_over and saver is not None:
            saver.save(self.carried, last=True)
        while status is None and len(self.history) <= self.most_rows:
            if self.run.ask_moments and not len(self.history):
                self._ask_moments()
            else:
                status = self.ended = self._check() if self._check_due() else self._exchange()
            self.carried = self._carried()
            if saver is not None:
                last = status is not None or len(self.history) > self.most_rows
                saver.save(self.carried, last=last)
            if callback is not None and callback(self.history[-1], self.as_given(self.w)) and status is None:
                status = "stopped"
                if saver is not None:
                    saver.save(self.carried, last=True)
        if status in (None, "max_rounds"):
            worse = len(self.history) > 0 and self.history[-1].objective > ENDED_WORSE * self.ceiling
            return "diverged" if worse else "max_rounds"
        return status

    @property
    def is_over(self) -> bool:
        """Whether there is nothing left to ask, before anything was."""
        return self.ended is not None or len(self.history) > self.most_rows

    @property
    def most_rows(self) -> int:
        """The number of the last exchange there may be: that for the means of the columns is one more."""
        return self.setup.setting.max_rounds + self.run.ask_moments

    def _carried(self) -> dict[str, Any]:
        """What the run would go on from: plain data, none of it changed in place before the exchange after the next.

        But for what only grows, history and failures: of these it has the first `rows` and `failed_replies`.
        """
        return {
            "state": self.state,
            "w": self.w,
            "record": self.record,
            "pruning_error": self.pruning_error,
            "rows": len(self.history),
            "failed_replies": len(self.failures),
            "ended": self.ended,
            "tol": self.setup.tol,
            "dropped": self.dropped,
            "shut_out": dict(self.shut_out),
            "shut_out_notes": tuple(self.shut_out_notes),
            "uncovered": self.uncovered,
            "rounds_without_training": self.rounds_without_training,
            "estimate": self.estimate,
            "failed_check": self.failed_check,
            "history": self.history,
            "centre": self.run.problem.centre,
            "ceiling": self.ceiling,
            "start_model": self.setup.w0,
            "failures": self.failures,
        }

    def restore(self, carried: Mapping[str, Any]) -> None:
        """Go on from there."""
        self.state, self.w, self.record = carried["state"], carried["w"], carried["record"]
        self.pruning_error, self.uncovered = carried["pruning_error"], tuple(int(n) for n in carried["uncovered"])
        self.history, self.failures = carried["history"], list(carried["failures"])
        self.dropped = carried["dropped"]  # and who was dead for good may be here again: other processes
        self.shut_out = {who: each for who, each in carried["shut_out"].items() if each.kind != "gone"}
        self.shut_out_notes = list(carried["shut_out_notes"])
        self.estimate, self.failed_check = carried["estimate"], carried["failed_check"]
        self.ceiling, self.rounds_without_training = carried["ceiling"], carried["rounds_without_training"]
        self.setup = replace(self.setup, w0=carried["start_model"])
        self.ended = carried["ended"]
        if self.ended == "quorum_lost" or (self.ended == "converged" and self.setup.tol < carried["tol"]):
            self.ended, self.state = None, _going_on(self.state)
        self.carried = self._carried()

    def _exchange(self) -> Status | None:
        """Steps 1 to 5 of the loop."""
        begun = time.perf_counter()
        exchange = self.run.method.plan(self.state, self.setup, Turn(len(self.history), self.record.staleness))
        exchange, replies = self._carry(exchange)
        state, info = self.run.method.absorb(self.state, replies, self.setup)
        elapsed = time.perf_counter() - begun
        self.state, self.told = state, info
        self.estimate = info.decrement if info.estimated else math.inf
        self.lost = info.lost or tuple(sorted(replies.absent))
        finite = bool(np.isfinite(state.w).all())
        row = self._record(exchange, replies, state.w if finite else self.w, elapsed)
        if not finite or (self.run.monitor and not row.objective <= BLOWN_UP * self.ceiling):  # nan is not <=
            return "diverged"
        if row.objective < self.separated_below and self._everyone_counts():
            return "diverged"  # there is no optimum: proven
        ended: Status | None = state.status
        return ended

    def _carry(self, exchange: Exchange, for_good: tuple[str, ...] = FOR_GOOD) -> tuple[Exchange, Replies]:
        """Step 2: out and in through the border; those that were shut out are not asked, and count as gone."""
        asked = exchange.workers
        if self.shut_out:
            exchange = exchange.without(self.shut_out)
        replies = self.run.rules.validate_replies(exchange, self.engine.exchange(exchange), self.setup.weights)
        self.dropped += replies.dropped
        self.failures.extend(replies.failures.values())
        self.failed = len(replies.failures)
        for worker, failure in replies.failures.items():
            if failure.kind in for_good:
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
        decrement = math.nan
        if len(replies.workers) == self.setup.n_workers:
            gradient = mean_gradient(replies, self.setup.weights)
            size = size_of(mean_loss(replies, self.setup.weights), getattr(self.state, "largest", 0.0))
            decrement = relative_decrement(getattr(self.state, "metric", None), gradient, size)
        self.told = replace(self.told, decrement=decrement)
        self._record(exchange, replies, self.w, time.perf_counter() - begun)
        if len(replies.absent) == len(replies.failures):  # else somebody is expected back: ask again
            self.failed_check, self.estimate = self.estimate, math.inf
        return "converged" if decrement <= self.setup.tol else None

    def quorum_notes(self, status: Status) -> tuple[str, ...]:
        """Of a run that lost its quorum: who was lost, and why."""
        if status != "quorum_lost":
            return ()
        newest = {failure.worker: failure for failure in (*self.failures, *self.shut_out.values())}
        return (_quorum_note([newest[who] for who in self.lost if who in newest], len(self.history) - 1),)

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

    def _everyone_counts(self) -> bool:
        return np.array_equal(getattr(self.state, "weights", self.setup.weights), self.setup.weights)

    def _warn_uncovered(self) -> None:
        longest = max(self.uncovered)
        if longest == UNCOVERED_ROUNDS + 1:  # once, when it happens
            warn(
                f"region {self.uncovered.index(longest)} was trained by nobody for {UNCOVERED_ROUNDS} masked rounds; "
                "use a policy that covers it, such as coverage:psi=1"
            )

    def untrained_notes(self) -> tuple[str, ...]:
        """A word where masked rounds trained nothing at all: what there is of a model came from other exchanges."""
        rounds = self.rounds_without_training
        return (NOBODY_TRAINED.format(rounds=rounds),) if rounds > 0 else ()

    def _record(self, exchange: Exchange, replies: Replies, w: Array, elapsed: float) -> Row:
        """Step 4: one row."""
        regions, reference = self.setup.regions, self.run.reference
        trained = replies.trained(self.setup.n_workers, regions.n_regions)
        coverage = tuple(coverage_counts(trained).tolist())
        if exchange.kind in TRAINING:
            self.record = self.record.after(trained, coverage)
            self.pruning_error = max(self.pruning_error, pruning_error(exchange, replies, trained, regions))
        if exchange.kind == "gradient":
            self.uncovered = tuple(
                0 if count else rounds + 1 for count, rounds in zip(coverage, self.uncovered, strict=True)
            )
            self._warn_uncovered()
            if _is_masked(exchange) and len(replies.workers) and self.rounds_without_training >= 0:
                self.rounds_without_training = -1 if any(coverage) else self.rounds_without_training + 1
        up, down = bytes_up(exchange, replies, regions), bytes_down(exchange)
        taken = self._seconds(exchange, replies)
        weights = getattr(self.state, "weights", self.setup.weights)  # fewer workers, another objective
        comparable = reference is not None and self._everyone_counts()
        objective, grad_norm = self._measure(w, weights)
        row = Row(
            exchange=len(self.history),
            kind=exchange.kind,
            active=len(replies.workers),
            failed=self.failed,
            refused=int(self.told.refused and exchange.kind != "check"),
            min_coverage=self.record.min_coverage,
            max_staleness=self.record.max_staleness,
            min_trained=self.record.min_trained,
            pruning_error=self.pruning_error,
            objective=objective,
            gap=objective - reference.objective if comparable and reference is not None else math.nan,
            grad_norm=grad_norm,
            decrement=self.told.decrement,
            step_norm=_norm(w - self.w),
            model_norm=_norm(w),
            distance=_norm(w - reference.w) if comparable and reference is not None else math.nan,
            bytes_up=int(up.sum()),
            bytes_down=int(down.sum()),
            seconds=elapsed,
            simulated_seconds=math.nan if taken is None else _slowest(taken),
            coverage=coverage,
        )
        self.history.append(row)
        self.w = w
        if self.run.trace is not None:
            self._note(self.run.trace, row.exchange, exchange, replies, trained, up, down, taken)
        return row

    def _seconds(self, exchange: Exchange, replies: Replies) -> Array | None:
        """What the exchange took every worker by its profile; None where there are none."""
        run, problem = self.run, self.run.problem
        if run.profiles is None:
            return None
        return seconds_each(exchange, replies, run.profiles, problem.rows, run.entries_per_row, self.setup.regions)

    def _note(
        self,
        trace: Trace,
        number: int,
        exchange: Exchange,
        replies: Replies,
        trained: Mask,
        up: IntArray,
        down: IntArray,
        taken: Array | None,
    ) -> None:
        """Step 4, worker by worker, where somebody wants to know."""
        count = self.setup.n_workers
        asked = np.zeros(count, dtype=np.int8)
        asked[exchange.workers] = SILENT
        asked[replies.workers] = ANSWERED
        sent, received = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
        sent[replies.workers], received[exchange.workers] = up, down
        trace.note(number, asked, trained, sent, received, taken)


def _is_masked(exchange: Exchange) -> bool:
    """Whether this is a round of Algorithm 1, and no question for all of the gradient."""
    return isinstance(exchange.task, GradientTask) and exchange.task.round > 0


def _slowest(taken: Array) -> float:
    told = taken[~np.isnan(taken)]  # nan: did not answer
    return float(told.max(initial=0.0))


def _norm(vector: Array) -> float:
    return math.sqrt(vector @ vector)  # at a third of np.linalg.norm's overhead


def _going_on(state: Any) -> Any:
    """A state that had ended, for a run that is to go on: workers may be back, a smaller tolerance is to be reached."""
    anew: dict[str, Any] = {"missed": np.zeros_like(state.missed)} if hasattr(state, "missed") else {}  # in a row
    anew |= {name: np.inf for name in ("decrement", "exact_decrement") if hasattr(state, name)}  # to compare with
    return replace(state, status=None, **anew)


def _shut_out_note(failure: Failure, exchange: int) -> str:
    what = {"refused": "refused", "gone": "died for good"}.get(failure.kind, "was quarantined")
    return f"worker {failure.worker} {what} in exchange {exchange}: {failure.detail}"


def _quorum_note(lost: Sequence[Failure], exchange: int) -> str:
    """Who was lost and why, in one line; those that failed alike together."""
    alike: dict[str, list[int]] = {}
    for failure in lost:
        alike.setdefault(": ".join(filter(None, (failure.kind, failure.detail))), []).append(failure.worker)
    told = [f"{'worker' if len(who) == 1 else 'workers'} {listed(who, NAMED)} ({why})" for why, who in alike.items()]
    return f"quorum lost in exchange {exchange}, without {listed(told, NAMED) if told else 'a failure'}"
