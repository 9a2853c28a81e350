"""The loop of a run: exchanges, the record of them, and the ending. It is the same for every method:

1  the method plans the exchange                    method.plan(state)
2  the engine carries tasks out and replies in      engine.exchange(tasks), and the replies are checked
3  the replies move the state                       method.absorb(state, replies)
4  the exchange is measured and recorded            History, MaskRecord, Trace
5  the run ends, or goes on                         status
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any, get_args

import numpy as np

from danl.engines import Engine
from danl.errors import InputError, warn
from danl.frozen import replace
from danl.methods import Info, State, Status, Turn
from danl.methods.acceptance import relative_decrement, scale_of
from danl.methods.stopping import FLAT, Remark
from danl.objective.centring import from_centred
from danl.objective.problem import Problem
from danl.objective.regions import IntArray, Regions
from danl.policies.masks import coverage_counts
from danl.protocol.costs import pruning_error, seconds_each
from danl.protocol.hessian_form import fitting_pieces
from danl.protocol.message_bytes import bytes_down, bytes_up
from danl.protocol.messages import PERMANENT, Array, Exchange, Failure, GradientTask, MomentsTask, Task
from danl.protocol.replies import Replies
from danl.run.checkpoint import CheckpointWriter, Resumed
from danl.run.history import TRAINING, History, Row
from danl.run.prepared import PreparedRun, after_moments, centred, settings_of
from danl.run.result import Result
from danl.run.separation import separation_bound
from danl.run.state import RunState, exclusion_notes, first_state, quorum_note, resumed_state, start_of
from danl.run.trace import ANSWERED, SILENT
from danl.server.aggregation import mean_gradient, mean_loss

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
CHECK_AGAIN = 0.1
"""After a check that failed, wait until the estimate has fallen to this share before asking the workers again."""


def run_loop(
    run: PreparedRun,
    engine: Engine,
    callback: Callable[[Row, Array], bool] | None = None,
    saver: CheckpointWriter | None = None,
    resumed: Resumed | None = None,
) -> Result:
    """Go through the exchanges on an engine, opened for this run, and tell how it ended."""
    loop = Loop(run, engine, saver, resumed)
    if not loop.is_over:  # a run that was at its end asks nobody anything
        loop.open()
    try:
        status = loop.go(callback)
    except KeyboardInterrupt:
        status = "interrupted"
        loop.save(last=True)
    run, state, method_state = loop.run, loop.state, loop.state.method_state
    remark: Remark | None = getattr(method_state, "remark", None)
    if remark is None and status == "max_rounds" and math.isinf(state.info.decrement):
        remark = Remark(FLAT)
    remarks = [] if remark is None else [remark.text_with(run.problem.coefficient_name)]
    if state.untrained_rounds > 0:
        remarks.append(NOBODY_TRAINED.format(rounds=state.untrained_rounds))
    for each in remarks:
        warn(each)
    quorum = [quorum_note(state, loop.failures)] if status == "quorum_lost" else []
    return Result(
        w=loop.as_given(state.w),
        status=status,
        history=loop.history,
        method=run.method.name,
        failures=tuple(loop.failures),
        notes=(*state.notes, *getattr(method_state, "notes", ()), *quorum, *remarks),
        dropped=state.dropped,
        products=dict(getattr(method_state, "products", {})),
        settings=settings_of(run, engine, state.excluded, w0=loop.as_given(state.w0)),
        centre=state.centre if run.may_centre else None,
    )


class Loop:
    """The exchanges of one run: `state` is what it goes on from, `history` and `failures` are what only grows."""

    def __init__(
        self, run: PreparedRun, engine: Engine, saver: CheckpointWriter | None = None, resumed: Resumed | None = None
    ) -> None:
        self.engine, self.saver = engine, saver
        self.history, self.failures = History(), list[Failure]()
        if resumed is None:
            self.run, self.state = run, first_state(run)
        else:
            self.history, self.failures = resumed.history, list(resumed.failures)
            self.state = resumed_state(resumed.state, run.setup.tol)
            run = centred(run, self.state.centre)
            from_null = self.state.log_odds_from_null
            self.run = replace(run, setup=replace(run.setup, w0=self.state.w0, log_odds_from_null=from_null))
        self.separated_below = separation_bound(run.problem)
        self.most_rows = run.setup.setting.max_rounds + run.ask_moments  # the means of the columns are one more

    def open(self) -> None:
        """Tell the engine what its workers work on."""
        setup = self.run.setup
        if not self.run.ask_moments or self.state.exchanges:  # else it begins when they are known
            self._refuse(_wrong_state("begin", self.state.method_state, setup.n_coefficients))
        own = setup.policy if setup.policy.side == "worker" else None
        self.engine.open(self.run.problem, regions=setup.regions, policy=own, seed=setup.seed)

    def as_given(self, w: Array) -> Array:
        """A model of this run for the columns as they were given."""
        return from_centred(w, self.run.problem.layout, self.state.centre if self.run.may_centre else None)

    @property
    def is_over(self) -> bool:
        """Whether there is nothing left to ask."""
        return self.state.status is not None or self.state.exchanges > self.most_rows

    def save(self, *, last: bool) -> None:
        """Have the newest state kept, where somebody keeps it."""
        if self.saver is not None and self.state.exchanges:
            self.saver.save(self.state, self.history, self.failures, last=last)

    def go(self, callback: Callable[[Row, Array], bool] | None) -> Status:
        """Exchange until there is a status; a callback that returns True ends the run as well."""
        if self.is_over:
            self.save(last=True)
        while self.state.status is None and self.state.exchanges <= self.most_rows:
            with np.errstate(over="ignore", invalid="ignore"):  # at a model that blew up: the status says so
                if self.run.ask_moments and not self.state.exchanges:
                    state, row = self._ask_moments()
                elif self.state.estimate <= min(self.run.setup.tol, CHECK_AGAIN * self.state.failed_check):
                    state, row = self._check()
                else:
                    state, row = self._exchange()
            self.history.append(row)
            self.state = state
            if self.saver is not None:
                self.save(last=self.is_over)
            if callback is not None and callback(row, self.as_given(state.w)) and state.status is None:
                self.save(last=True)
                return "stopped"
        if self.state.status in (None, "max_rounds"):
            worse = self.state.exchanges > 0 and self.history[-1].objective > ENDED_WORSE * self.state.ceiling
            return "diverged" if worse else "max_rounds"
        return self.state.status

    def _exchange(self) -> tuple[RunState, Row]:
        """Steps 1 to 5."""
        begun, run, before = time.perf_counter(), self.run, self.state
        exchange, replies, state = self._transport(self._plan())
        method_state, info = self._absorb(replies)
        elapsed, w = time.perf_counter() - begun, method_state.w
        estimate = info.decrement if info.estimated else math.inf
        if method_state.status == "quorum_lost" and not info.lost:
            info = replace(info, lost=tuple(sorted(replies.absent)))
        finite = math.isfinite(w.dot(w)) or bool(np.isfinite(w).all())
        w = w if finite else before.w
        changes, row = self._record(state, method_state, info, exchange, replies, w, elapsed)
        status = method_state.status
        if not finite or (run.monitored and not row.objective <= BLOWN_UP * state.ceiling):  # nan is not <=
            status = "diverged"
        elif row.objective < self.separated_below and self._everyone_counts(method_state):
            status = "diverged"  # there is no optimum: proven
        changes |= {"method_state": method_state, "info": info, "estimate": estimate, "status": status}
        return replace(state, **changes), row

    def _plan(self) -> Exchange:
        """Step 1; what the method returns is looked at."""
        run, state = self.run, self.state
        exchange = run.method.plan(state.method_state, run.setup, Turn(state.exchanges, state.masks.staleness))
        self._refuse(_wrong_plan(exchange, state.exchanges, run.setup.regions))
        return exchange

    def _absorb(self, replies: Replies) -> tuple[State, Info]:
        """Step 3, likewise."""
        moved: Any = self.run.method.absorb(self.state.method_state, replies, self.run.setup)
        if not isinstance(moved, tuple) or len(moved) != 2 or not isinstance(moved[1], Info):
            self._refuse(f"absorb returned {moved!r:.60}; (state, Info)")
        method_state, info = moved
        self._refuse(_wrong_state("absorb", method_state, len(self.state.w)))
        return method_state, info

    def _refuse(self, wrong: str) -> None:
        """Say what is wrong with what the method returned, if anything is."""
        if wrong:
            returned, _, rule = wrong.rpartition("; ")
            name, exchange = self.run.method.name, self.state.exchanges
            raise InputError(f"method {name!r}: {returned} in exchange {exchange}; must be {rule} (docs/extending.md)")

    def _transport(self, exchange: Exchange, fatal: tuple[str, ...] = PERMANENT) -> tuple[Exchange, Replies, RunState]:
        """Step 2: out and in. Who has a `fatal` failure is excluded: not asked again, and counted as gone."""
        state, asked = self.state, exchange.workers
        if state.excluded:
            exchange = exchange.without(state.excluded)
        given = self.engine.exchange(exchange)
        if not isinstance(given, Replies):
            raise InputError(f"engine {self.engine.name!r}: exchange returned {given!r:.60}; must be a Replies")
        replies = self.run.rules.validate_replies(exchange, given, self.run.setup.weights)
        if replies.failures or replies.dropped:
            self.failures.extend(replies.failures.values())
            new = {who: failure for who, failure in replies.failures.items() if failure.kind in fatal}
            state = replace(
                state,
                dropped=state.dropped + replies.dropped,
                excluded={**state.excluded, **new},
                notes=state.notes + exclusion_notes(new.values(), state.exchanges),
            )
        gone = {who: failure for who, failure in state.excluded.items() if who in asked}
        return exchange, replace(replies, failures={**replies.failures, **gone}) if gone else replies, state

    def _ask_moments(self) -> tuple[RunState, Row]:
        """With an intercept, before anything else: the means of the columns, which are moved where they are large."""
        begun = time.perf_counter()
        exchange = self.run.setup.ask_everyone("moments", MomentsTask(0))
        exchange, replies, state = self._transport(exchange, fatal=("invalid",))
        begin = after_moments(self.run, replies)
        moved = begin.problem is not self.run.problem
        self.run, state = begin, replace(state, **start_of(begin))
        self._refuse(_wrong_state("begin", state.method_state, begin.setup.n_coefficients))
        if moved:
            self.open()
        elapsed = time.perf_counter() - begun
        changes, row = self._record(state, state.method_state, state.info, exchange, replies, state.w, elapsed)
        return replace(state, **changes), row

    def _check(self) -> tuple[RunState, Row]:
        """Ask everyone for the whole gradient at w, as an estimate says that it is small enough.

        The method does not see the replies.
        """
        begun, setup, method_state = time.perf_counter(), self.run.setup, self.state.method_state
        exchange = setup.ask_everyone("check", GradientTask(self.state.exchanges, method_state.w))
        exchange, replies, state = self._transport(exchange)
        decrement = math.nan
        if len(replies.workers) == setup.n_workers:
            gradient = mean_gradient(replies, setup.weights)
            scale = scale_of(mean_loss(replies, setup.weights), getattr(method_state, "largest", 0.0))
            decrement = relative_decrement(getattr(method_state, "metric", None), gradient, scale)
        info, elapsed = replace(state.info, decrement=decrement), time.perf_counter() - begun
        changes, row = self._record(state, method_state, info, exchange, replies, state.w, elapsed)
        if len(replies.absent) == len(replies.failures):  # else somebody is expected back: ask again
            changes |= {"failed_check": state.estimate, "estimate": math.inf}
        return replace(state, **changes, info=info, status="converged" if decrement <= setup.tol else None), row

    def _everyone_counts(self, method_state: State) -> bool:
        """Whether the objective is that of all workers."""
        weights = self.run.setup.weights
        return np.array_equal(getattr(method_state, "weights", weights), weights)

    def _measure(self, method_state: State, info: Info, w: Array) -> tuple[float, float]:
        """Objective and gradient norm at w: what the workers reported, else measured.

        A model that did not move is not measured again. Of a method that reports its objective, only what it has not
        reported yet is measured, and no gradient.
        """
        run, before = self.run, self.state
        if not run.monitor or not isinstance(run.problem, Problem):
            return info.objective, info.exact_norm
        objective, norm = info.objective, info.exact_norm
        if not math.isnan(objective) and not math.isnan(norm):
            return objective, norm
        weights = getattr(method_state, "weights", run.setup.weights)  # fewer workers, another objective
        then = getattr(before.method_state, "weights", run.setup.weights)
        moved = w is not before.w and not np.array_equal(w, before.w)  # not the same object where a run was resumed
        same = before.exchanges > 0 and not moved and (weights is then or np.array_equal(weights, then))
        if math.isnan(objective) and run.method_reports:
            objective = self.history[-1].objective if same else run.problem.objective(w, weights)
        if not math.isnan(objective):
            return objective, self.history[-1].grad_norm if same and math.isnan(norm) else norm
        if same:
            return self.history[-1].objective, self.history[-1].grad_norm
        objective, gradient = run.problem.batch.value_and_gradient(w, weights)
        return objective, float(np.linalg.norm(gradient))

    def _record(
        self,
        state: RunState,
        method_state: State,
        info: Info,
        exchange: Exchange,
        replies: Replies,
        w: Array,
        elapsed: float,
    ) -> tuple[dict[str, Any], Row]:
        """Step 4: what the exchange changes in the state, and its row."""
        run, task, masks, pruned = self.run, exchange.task, state.masks, state.pruning_error
        regions, uncovered, untrained = run.setup.regions, state.uncovered, state.untrained_rounds
        objective, grad_norm = self._measure(method_state, info, w)
        up, down = bytes_up(exchange, replies, regions), bytes_down(exchange, regions)
        n_workers, n_regions = masks.staleness.shape
        as_ever = replies.all_trained(n_workers) and run.trace is None and not masks.max_staleness
        trained: Any = None if as_ever else replies.trained(n_workers, n_regions)
        coverage = (n_workers,) * n_regions if as_ever else tuple(coverage_counts(trained).tolist())
        if exchange.kind in TRAINING and not as_ever:
            masks = masks.after(trained, coverage)
        if exchange.kind == "gradient" and isinstance(task, GradientTask):
            if task.submodel == "pruned" and not as_ever:
                pruned = max(pruned, pruning_error(exchange, replies, trained, regions))
            if task.round > 0:  # a round of Algorithm 1, not a portion of what is gathered
                uncovered = tuple([0 if count else n + 1 for count, n in zip(coverage, uncovered, strict=True)])
            if max(uncovered) == UNCOVERED_ROUNDS + 1:  # once, when it happens
                region = uncovered.index(UNCOVERED_ROUNDS + 1)
                warn(
                    f"region {region} was trained by nobody for {UNCOVERED_ROUNDS} masked rounds; "
                    "use a policy that covers it, such as coverage:psi=1"
                )
            if untrained >= 0 and task.round > 0 and len(replies.workers):  # a round of Algorithm 1
                untrained = -1 if any(coverage) else untrained + 1
        seconds = None
        if run.setup.profiles is not None:
            profiles, entries = run.setup.profiles, run.setup.entries_per_row
            seconds = seconds_each(exchange, replies, profiles, run.problem.rows, entries, regions)
        if run.trace is not None:
            run.trace.note(
                state.exchanges,
                _by_worker(n_workers, np.int8, (exchange.workers, SILENT), (replies.workers, ANSWERED)),
                trained,
                _by_worker(n_workers, np.int64, (replies.workers, up)),
                _by_worker(n_workers, np.int64, (exchange.workers, down)),
                seconds,
            )
        step, reference = w - state.w, run.reference
        if reference is not None and not self._everyone_counts(method_state):
            reference = None  # it is the optimum of another objective
        row = Row(
            exchange=state.exchanges,
            kind=exchange.kind,
            active=len(replies.workers),
            failed=len(self.failures) - state.n_failures,
            refused=int(info.trial_rejected and exchange.kind != "check"),
            min_coverage=masks.min_coverage,
            max_staleness=masks.max_staleness,
            min_trained=masks.min_trained,
            pruning_error=pruned,
            objective=objective,
            gap=math.nan if reference is None else objective - reference.objective,
            grad_norm=grad_norm,
            decrement=info.decrement,
            step_norm=math.sqrt(step @ step),  # at a third of np.linalg.norm's overhead
            model_norm=math.sqrt(w @ w),
            distance=math.nan if reference is None else float(np.linalg.norm(w - reference.w)),
            bytes_up=int(up.sum()),
            bytes_down=int(down.sum()),
            seconds=elapsed,
            simulated_seconds=math.nan if seconds is None else float(seconds[~np.isnan(seconds)].max(initial=0.0)),
            coverage=coverage,
            senders=len(replies.curvature_senders) if exchange.kind == "hessian" else 0,
            why=getattr(state.method_state, "why", ""),
        )
        count, failed = state.exchanges + 1, len(self.failures)
        changes = {"w": w, "masks": masks, "uncovered": uncovered, "untrained_rounds": untrained}
        return changes | {"pruning_error": pruned, "exchanges": count, "n_failures": failed}, row


def _by_worker(n_workers: int, dtype: type, *entries: tuple[IntArray, Any]) -> np.ndarray[Any, Any]:
    """An array with an entry for every worker: values for some of them, 0 for the others."""
    values: np.ndarray[Any, Any] = np.zeros(n_workers, dtype=dtype)
    for workers, own in entries:
        values[workers] = own
    return values


def _wrong_plan(exchange: object, number: int, regions: Regions) -> str:
    """What is wrong with a plan, and what it must be; empty where nothing is."""
    if not isinstance(exchange, Exchange) or not isinstance(exchange.task, Task):
        return f"plan returned {exchange!r:.60}; an Exchange of a task, such as setup.ask_everyone(kind, task)"
    if exchange.task.exchange != number:
        return f"plan made a task of exchange {exchange.task.exchange}; one of turn.exchange, {number}"
    if exchange.masks is None and not len(exchange.workers):
        return "plan asked nobody; an Exchange with workers, or the status says that the run is over"
    if exchange.pieces is not None and not fitting_pieces(exchange, regions):
        return "plan made pieces that are none; for every worker a range [first, last) of the numbers of its curvature"
    return ""


def _wrong_state(function: str, state: Any, d: int) -> str:
    """The same of a state."""
    w: Any = getattr(state, "w", None)
    status = getattr(state, "status", "missing")
    if not isinstance(w, np.ndarray) or w.shape != (d,):
        return f"{function} made a state whose w is a {type(w).__name__} of shape {np.shape(w)}; an array ({d},)"
    if status is not None and status not in get_args(Status):
        return f"{function} made a state whose status is {status!r}; None or one of {', '.join(get_args(Status))}"
    return ""
