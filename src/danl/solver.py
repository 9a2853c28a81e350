"""`solve`: a problem, a method and an engine tied together, with the record kept and the ending decided.

The loop is the same for every method:

    1  the method plans the exchange                    method.plan(state)
    2  the engine carries tasks out and replies in      engine.exchange(tasks)
    3  the replies move the state                       method.absorb(state, replies)
    4  the exchange is measured and recorded            History, MaskRecord
    5  the run ends, or goes on                         status
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from danl.core.aggregate import mean_gradient, of_kind, trained_pairs
from danl.core.costs import bytes_of, pruning_error, simulated_seconds
from danl.core.messages import Array, Exchange, Failure, GradientReply, GradientTask, Replies
from danl.engines import Engine, make_engine
from danl.errors import InputError, bad_argument
from danl.history import History, Row
from danl.methods import AnyMethod, Setup, State, Status, Turn, make_method
from danl.policies import MaskRecord, Policy, Profile, ResourceAware, Setting, make_policy
from danl.problem import Problem
from danl.regions import Regions
from danl.result import Result
from danl.warn import warn, warn_if_separated, warn_if_too_large

DEFAULT_METHOD = "danl"
DEFAULT_REGIONS = 4

TRAINING = ("hessian", "gradient", "local-steps")
"""Kinds of exchange that count as a round of training for coverage and staleness."""
UNCOVERED_ROUNDS = 50
"""Warn when a region was in nobody's mask for this many masked rounds in a row."""
BLOWN_UP = 1e12
"""Stop as diverged when the objective is this many times 1 + |f(w0)|: nothing comes back from there."""
ENDED_WORSE = 10.0
"""Call a run that used up its rounds diverged when it ends this many times above 1 + |f(w0)|."""
START_ROUNDS = 1_000_000
"""A method that makes the start ends by its own rounds, however few the run after it may have."""
CHECK_AGAIN = 0.1
"""After a check that failed, wait until the estimate has fallen to this share before asking the workers again."""


@dataclass(frozen=True)
class Reference:
    """A point to measure against: the optimum, as well as it could be had."""

    w: Array
    objective: float
    grad_norm: float
    """What was reached: the gradient norm at w."""
    exchanges: int = 0


def solve(
    problem: Problem,
    *,
    method: str | AnyMethod = DEFAULT_METHOD,
    regions: int | Sequence[Any] | Regions | None = None,
    policy: str | Policy | Callable[..., Any] | None = None,
    w0: Array | str | AnyMethod | None = None,
    max_rounds: int = 100,
    tol: float = 1e-10,
    seed: int = 0,
    engine: str | Engine = "local",
    reference: Reference | None = None,
    profiles: Sequence[Profile] | None = None,
    monitor: bool = True,
    callback: Callable[[Row], object] | None = None,
) -> Result:
    """Minimise the problem's objective with workers that each train the regions they can afford.

    Parameters
    ----------
    problem : Problem
        Shards, loss and penalty.
    method : str or method
        A name, with options if need be ("fedavg:steps=5"), or an object from `danl.methods`.
    regions : int, sizes, index groups or Regions, optional
        How the model is cut. A number makes contiguous regions. Default: 4, or one per feature if there are fewer.
    policy : str, policy or callable, optional
        Who trains what in each round; see `danl.policies`. Default: everyone everything.
    w0 : array, str or method, optional
        The start: zeros by default; an array; or a method that makes it, such as "fedavg:rounds=10", the paper's.
    max_rounds : int
        The paper's T: every exchange after the first one counts, whatever its kind.
    tol : float
        Stop when the gradient norm of the objective, evaluated by the workers at the model returned, is at most this.
    seed : int
        Of every random draw: masks, mini-batches.
    engine : str or engine
        Where the workers run; "local" is this process.
    reference : Reference, optional
        From `danl.reference_optimum`: rows then have the gap and the distance to it.
    profiles : sequence of Profile, optional
        The machines' speeds, for simulated seconds. Default: those of a ResourceAware policy.
    monitor : bool
        Measure objective and gradient norm after every exchange. It costs a pass over the data and is not counted.
    callback : callable, optional
        Called with every new row.

    Returns
    -------
    Result
        The model, the status and the history. Ctrl-C ends a run with what it has, status "interrupted".

    """
    run = _prepare(problem, method, regions, policy, max_rounds, tol, seed, profiles, reference, monitor)
    warn_if_too_large(problem.n_features)
    start = None
    if w0 is not None and not isinstance(w0, np.ndarray | list | tuple):
        maker = _start_method(w0)
        setting = replace(run.setup.setting, max_rounds=START_ROUNDS)
        setup = replace(run.setup, tol=0.0, setting=setting)
        start = _run(replace(run, method=maker, reference=None, setup=setup), engine, callback=None)
        if start.status not in ("max_rounds", "converged"):
            return replace(start, start=start)
        w0 = start.w
    run = replace(run, setup=replace(run.setup, w0=_start_model(w0, problem.n_features)))
    result = replace(_run(run, engine, callback), start=start)
    warn_if_separated(problem, result.w, result.status)
    return result


def reference_optimum(problem: Problem, *, w0: Array | None = None, tol: float = 1e-13) -> Reference:
    """The optimum of the problem by safeguarded Newton, to gradient norm `tol` or rounding, with what was reached."""
    result = solve(problem, method="newton", w0=w0, regions=1, tol=tol, max_rounds=500)
    if result.status == "interrupted":
        raise KeyboardInterrupt  # half an optimum is none: nothing may be measured against it
    objective, gradient = problem.value_and_gradient(result.w)
    return Reference(result.w, objective, float(np.linalg.norm(gradient)), len(result.history))


@dataclass(frozen=True)
class _Run:
    """Everything a run is made of, checked."""

    problem: Problem
    method: AnyMethod
    setup: Setup
    profiles: Sequence[Profile] | None
    reference: Reference | None
    monitor: bool
    entries_per_row: Array = field(default_factory=lambda: np.zeros(0))


def _prepare(
    problem: Problem,
    method: str | AnyMethod,
    regions: int | Sequence[Any] | Regions | None,
    policy: str | Policy | Callable[..., Any] | None,
    max_rounds: int,
    tol: float,
    seed: int,
    profiles: Sequence[Profile] | None,
    reference: Reference | None,
    monitor: bool,
) -> _Run:
    """Check every argument before anything runs."""
    if not isinstance(max_rounds, int | np.integer) or isinstance(max_rounds, bool) or max_rounds < 0:
        raise bad_argument("max_rounds", max_rounds, "a whole number >= 0")
    if not (isinstance(tol, int | float | np.floating) and math.isfinite(tol) and tol >= 0):
        raise bad_argument("tol", tol, "a finite number >= 0")
    if not isinstance(seed, int | np.integer) or isinstance(seed, bool) or seed < 0:
        raise bad_argument("seed", seed, "a whole number >= 0")
    d = problem.n_features
    made_method = make_method(method)
    made_regions = Regions.make(min(DEFAULT_REGIONS, d) if regions is None else regions, d)
    made_policy = make_policy(policy)
    setting = Setting(
        n_workers=problem.n_workers,
        region_sizes=made_regions.sizes,
        rows=problem.rows,
        shard_bytes=np.array([shard.nbytes for shard in problem.shards]),
        max_rounds=int(max_rounds),
    )
    made_policy.check(setting)
    if profiles is None and isinstance(made_policy, ResourceAware):
        profiles = made_policy.profiles
    if profiles is not None and len(profiles) != problem.n_workers:
        raise InputError(
            f"profiles: must be one for each of the {problem.n_workers} workers, got {len(profiles)}; "
            "danl.Profile() is a machine without limits"
        )
    if reference is not None and len(reference.w) != d:
        raise InputError(
            f"reference: has {len(reference.w)} coefficients, the problem {d}; make it with reference_optimum"
        )
    setup = Setup(
        w0=np.zeros(d),
        weights=problem.weights,
        penalties=problem.penalties,
        regions=made_regions,
        policy=made_policy,
        setting=setting,
        seed=int(seed),
        tol=float(tol),
    )
    entries = np.array([_stored(shard.X) / shard.n_rows for shard in problem.shards])
    return _Run(problem, made_method, setup, profiles, reference, monitor, entries)


def _start_method(w0: str | AnyMethod) -> AnyMethod:
    method = make_method(w0)
    if getattr(method, "rounds", None) is None:
        raise InputError(
            f"w0={w0!r}: a method that makes the start must say how far it goes; "
            "use 'fedavg:rounds=10', an array, or leave it out for zeros"
        )
    return method


def _start_model(w0: Array | None, d: int) -> Array:
    if w0 is None:
        return np.zeros(d)
    w = np.array(w0, dtype=float)
    if w.shape != (d,):
        raise InputError(f"w0: must have shape ({d},), one number per feature, got {w.shape}")
    if not np.isfinite(w).all():
        raise InputError(f"w0: must be finite, and w0[{int(np.flatnonzero(~np.isfinite(w))[0])}] is not")
    return w


def _run(run: _Run, engine: str | Engine, callback: Callable[[Row], object] | None) -> Result:
    """Open the engine, go through the exchanges, and close it whatever happens."""
    made_engine = make_engine(engine)
    policy = run.setup.policy if run.setup.policy.side == "worker" else None
    made_engine.open(run.problem, regions=run.setup.regions, policy=policy, seed=run.setup.seed)
    loop = _Loop(run, made_engine)
    try:
        status = loop.go(callback)
    except KeyboardInterrupt:
        status = "interrupted"
    finally:
        made_engine.close()
    return Result(
        w=loop.w,
        status=status,
        history=loop.history,
        method=run.method.name,
        failures=tuple(loop.failures),
        notes=tuple(getattr(loop.state, "notes", ())),
        settings=_settings(run, made_engine),
    )


class _Loop:
    """The exchanges of one run: what is carried (state, mask record) and what is recorded (history, failures)."""

    def __init__(self, run: _Run, engine: Engine) -> None:
        self.run, self.engine, self.setup = run, engine, run.setup
        self.state: State = run.method.begin(run.setup)
        self.w = run.setup.w0  # the newest finite model
        self.record = MaskRecord.start(run.setup.n_workers, run.setup.regions.n_regions)
        self.pruning_error = 0.0
        self.measured: tuple[Array, Array, float, float] | None = None  # w, weights, objective, gradient norm
        self.history = History()
        self.failures: list[Failure] = []
        self.uncovered = np.zeros(run.setup.regions.n_regions, dtype=np.int64)  # masked rounds a region was left out of
        self.estimate = math.inf  # of the gradient norm, where the method has only that
        self.failed_check = math.inf  # the estimate at the last check that failed
        self.ceiling = 1.0 + abs(run.problem.objective(run.setup.w0)) if run.monitor else math.inf
        if math.isinf(self.ceiling) and run.monitor:
            raise InputError("w0: the objective is infinite there; start nearer to zero, or leave it out for zeros")

    def go(self, callback: Callable[[Row], object] | None) -> Status:
        """Exchange until there is a status."""
        status: Status | None = None
        while status is None and len(self.history) <= self.setup.setting.max_rounds:
            status = self._check() if self._check_due() else self._exchange()
            if callback is not None:
                callback(self.history[-1])
        if status in (None, "max_rounds"):
            worse = len(self.history) > 0 and self.history[-1].objective > ENDED_WORSE * self.ceiling
            return "diverged" if worse else "max_rounds"
        return status

    def _exchange(self) -> Status | None:
        """Steps 1 to 5 of the loop."""
        begun = time.perf_counter()
        exchange = self.run.method.plan(self.state, self.setup, Turn(len(self.history), self.record.staleness))
        replies = self.engine.exchange(exchange)
        state, info = self.run.method.absorb(self.state, replies, self.setup)
        elapsed = time.perf_counter() - begun
        self.state, self.estimate = state, info.grad_norm
        finite = bool(np.isfinite(state.w).all())
        row = self._record(exchange, replies, state.w if finite else self.w, elapsed)
        if not finite or (self.run.monitor and not row.objective <= BLOWN_UP * self.ceiling):  # nan is not <=
            return "diverged"
        ended: Status | None = state.status
        return ended

    def _check_due(self) -> bool:
        # An estimate from memory says the gradient is small enough: only the workers can tell whether it is.
        return self.estimate <= min(self.setup.tol, CHECK_AGAIN * self.failed_check)

    def _check(self) -> Status | None:
        """Ask everyone for the whole gradient at w; the method does not see the replies."""
        begun = time.perf_counter()
        task = GradientTask(len(self.history), self.state.w)
        exchange = self.setup.ask_everyone("check", task)
        replies = self.engine.exchange(exchange)
        answers = of_kind(replies, GradientReply)
        norm = math.inf
        if len(answers) == self.setup.n_workers:
            norm = float(np.linalg.norm(mean_gradient(answers, self.setup.weights, self.setup.n_features)))
        self._record(exchange, replies, self.w, time.perf_counter() - begun)
        self.failed_check, self.estimate = self.estimate, math.inf
        return "converged" if norm <= self.setup.tol else None

    def _measure(self, w: Array, weights: Array) -> tuple[float, float]:
        """Objective and gradient norm at w; a model that did not move is not measured again."""
        if not self.run.monitor:
            return math.nan, math.nan
        if not (self.measured is not None and self.measured[0] is w and self.measured[1] is weights):
            objective, gradient = self.run.problem.value_and_gradient(w, weights)
            self.measured = (w, weights, objective, float(np.linalg.norm(gradient)))
        return self.measured[2], self.measured[3]

    def _warn_uncovered(self) -> None:
        longest = int(self.uncovered.max())
        if longest == UNCOVERED_ROUNDS + 1:  # once, when it happens
            warn(
                f"region {int(self.uncovered.argmax())} was trained by nobody for {UNCOVERED_ROUNDS} masked rounds; "
                "use a policy that covers it, such as coverage:psi=1"
            )

    def _record(self, exchange: Exchange, replies: Replies, w: Array, elapsed: float) -> Row:
        """Step 4: one row."""
        regions, problem, reference = self.setup.regions, self.run.problem, self.run.reference
        trained = trained_pairs(replies, self.setup.n_workers, regions.n_regions)
        if exchange.kind in TRAINING:
            self.record = self.record.after(trained)
            self.pruning_error = max(self.pruning_error, pruning_error(exchange, replies, regions.expand(trained)))
        if exchange.kind == "gradient":
            self.uncovered = np.where(trained.any(axis=0), 0, self.uncovered + 1)
            self._warn_uncovered()
        self.failures.extend(replies.failures.values())
        up, down = bytes_of(exchange, replies)
        weights = getattr(self.state, "weights", self.setup.weights)  # fewer workers, another objective
        comparable = reference is not None and np.array_equal(weights, self.setup.weights)
        objective, grad_norm = self._measure(w, weights)
        row = Row(
            exchange=len(self.history),
            kind=exchange.kind,
            active=len(replies.received),
            failed=len(replies.failures),
            min_coverage=self.record.min_coverage,
            max_staleness=self.record.max_staleness,
            min_trained=self.record.min_trained,
            pruning_error=self.pruning_error,
            objective=objective,
            gap=objective - reference.objective if comparable and reference is not None else math.nan,
            grad_norm=grad_norm,
            step_norm=float(np.linalg.norm(w - self.w)),
            model_norm=float(np.linalg.norm(w)),
            distance=float(np.linalg.norm(w - reference.w)) if comparable and reference is not None else math.nan,
            bytes_up=up,
            bytes_down=down,
            seconds=elapsed,
            simulated_seconds=simulated_seconds(
                exchange,
                replies,
                self.run.profiles,
                problem.rows,
                self.run.entries_per_row,
                problem.n_features,
            ),
            coverage=tuple(int(count) for count in trained.sum(axis=0)),
        )
        self.history.append(row)
        self.w = w
        return row


def _settings(run: _Run, engine: Engine) -> dict[str, Any]:
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
        "rows": [int(rows) for rows in problem.rows],
        "features": problem.n_features,
        "loss": problem.loss.name,
        "l2": problem.l2,
        "alpha": problem.alpha,
        "weighting": problem.weighting,
        "max_rounds": setup.setting.max_rounds,
        "tol": setup.tol,
        "seed": setup.seed,
        "engine": repr(engine),
        "w0": [float(value) for value in setup.w0],
    }


def _stored(X: Any) -> int:
    return int(X.nnz) if hasattr(X, "nnz") else int(X.size)
