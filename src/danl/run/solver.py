"""`solve`: a problem, a method and an engine tied together. The arguments are checked here; `run.loop` is the run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from danl.checks import check_number, check_whole, is_whole
from danl.engines import Engine, make_engine
from danl.errors import InputError, bad_argument, warn
from danl.frozen import replace
from danl.methods import DANL, AnyMethod, Setup, make_method
from danl.methods.follow_up import FollowUp
from danl.methods.information import Information
from danl.objective.centring import from_centred, to_centred
from danl.objective.losses import outputs_of
from danl.objective.problem import Problem, RemoteProblem
from danl.objective.regions import Regions
from danl.policies import Policy, Profile, Promise, ResourceAware, Setting, make_policy
from danl.protocol.graph import Graph, make_graph
from danl.protocol.guards import Guards
from danl.protocol.messages import Array
from danl.protocol.replies import ReplyRules
from danl.run.callback import AnyCallback, Callbacks
from danl.run.checkpoint import Checkpoints, CheckpointWriter, fingerprint, locked_checkpoints, make_checkpoints
from danl.run.loop import run_loop
from danl.run.prepared import PreparedRun, centred, connected, moments_fit, refuse_if_too_large, settings_of
from danl.run.result import Reference, Result
from danl.run.separation import look_for_separation
from danl.run.trace import Trace
from danl.wording import listed

DEFAULT_METHOD = "danl"
DEFAULT_GRAPH = "ring"
START_ROUNDS = 1_000_000
"""A method that makes the start ends by its own rounds, however few the run after it may have."""


def solve(
    problem: Problem | RemoteProblem,
    *,
    method: str | AnyMethod = DEFAULT_METHOD,
    regions: int | Sequence[Any] | Regions | None = None,
    policy: str | Policy | Callable[..., Any] | None = None,
    w0: Array | str | AnyMethod | None = None,
    max_rounds: int = 100,
    tol: float = 1e-8,
    seed: int = 0,
    engine: str | Engine = "local",
    reference: Reference | None = None,
    profiles: Sequence[Profile] | None = None,
    graph: str | Graph | None = None,
    monitor: bool = True,
    guards: Guards | None = None,
    checkpoint: Checkpoints | str | Path | None = None,
    resume: str | Path | None = None,
    callback: AnyCallback | Sequence[AnyCallback] | None = None,
    trace: Trace | bool | None = None,
) -> Result:
    """Minimise the problem's objective with workers that each train the regions they can afford.

    Parameters
    ----------
    problem : Problem
        Shards, loss and penalty.
    method : str or method
        A name, with options if need be ("fedavg:steps=5"), or an object from `danl.methods`.
    regions : int, sizes, index groups or Regions, optional
        How the features are cut. A number makes contiguous regions. Default: 4, or one per feature if there are fewer.
        An intercept is in the last one; with a multinomial loss, "classes" makes one region of every class.
    policy : str, policy or callable, optional
        Who trains what in each round; see `danl.policies`. Default: everyone everything.
    w0 : array, str or method, optional
        The start: zeros by default, with an intercept the model without features; an array; or a method that makes
        it, such as "fedavg:rounds=10", the paper's.
    max_rounds : int
        The paper's T: every exchange after the first one counts, whatever its kind.
    tol : float
        Stop when the Newton decrement over the square root of the objective, sqrt(grad^T H^-1 grad / f), evaluated by
        the workers at the model returned, is at most this: a number without units (docs/method.md#the-end).
    seed : int
        Of every random draw: masks, mini-batches.
    engine : str or engine
        Where the workers run; "local" is this process.
    reference : Reference, optional
        From `danl.reference_optimum`: rows then have the gap and the distance to it.
    profiles : sequence of Profile, optional
        The machines' speeds, for simulated seconds. Default: those of a ResourceAware policy.
    graph : str or Graph, optional
        Who talks to whom, for methods without a server: "ring" (their default), "grid", "complete", "erdos:p=0.4",
        "file:path=edges.txt", or a `danl.Graph`. Other methods leave it alone.
    monitor : bool
        Record objective and gradient norm after every exchange: what the workers reported, as those of "danl" and
        "newton" do; what nobody reported is measured, a pass over the data that is not counted. The gradient norm is
        nan in masked rounds of "danl". False: nothing is measured.
    guards : Guards, optional
        Limits on what one worker's plausible replies can do; what every reply must satisfy is checked anyway.
    checkpoint : path or Checkpoints, optional
        Folder for checkpoints, after every exchange or as `danl.Checkpoints(folder, every=k)` says; one that holds
        none, as it is this run's alone. Default: that of `resume`.
    resume : path, optional
        Folder of a run that was interrupted: go on from its newest whole checkpoint. Everything but `max_rounds`, `tol`
        and the engine must be as it was. A run that had ended asks nobody anything.
    callback : callable or list of callables, optional
        Called with every new row, and with the model where it has a parameter `w`; True (`danl.STOP`) ends the run
        with status "stopped". See `danl.callbacks`.
    trace : bool or Trace, optional
        Whether to keep who did what in each exchange, in `result.trace`; a new `danl.Trace()` is filled as the run
        goes.

    Returns
    -------
    Result
        The model, the status and the history. Ctrl-C ends a run with what it has, status "interrupted".

    """
    callbacks, kept = Callbacks(callback), _make_trace(trace)
    made_engine, folders = make_engine(engine), ExitStack()
    try:
        checkpoints = make_checkpoints(checkpoint, resume)
        folders.enter_context(locked_checkpoints(checkpoints, resume))
        if isinstance(problem, RemoteProblem):
            problem, monitor = connected(problem, made_engine), False
        run = _prepare(
            problem, method, regions, policy, max_rounds, tol, seed, profiles, reference, monitor, guards, graph
        )
        refuse_if_too_large(run.method, run.setup.regions)
        begin = _make_start(w0, problem.n_coefficients)
        mark = "" if checkpoints is None else fingerprint(run, begin)
        resumed = None if resume is None else Checkpoints(Path(resume)).newest(mark)
        start = None if resumed is None else resumed.start
        may_centre = problem.intercept and problem.centre is None and not isinstance(run.method, Information | FollowUp)
        run = replace(run, may_centre=may_centre, ask_moments=may_centre and moments_fit(run.setup))
        if resumed is not None:
            for reason in resumed.passed_over:
                warn(f"checkpoint passed over, {reason}")
            begin = from_centred(resumed.state.w0, problem.layout, resumed.state.centre if may_centre else None)
        elif begin is not None and not isinstance(begin, np.ndarray):
            start = _start(run, begin, made_engine)
            if start.status not in ("max_rounds", "converged"):
                return replace(start, start=start, trace=kept)
            begin = start.w
        setup = run.setup if begin is None else replace(run.setup, w0=begin)
        run = replace(run, setup=setup, start_at_null=begin is None, trace=kept)
        writer = None if checkpoints is None else CheckpointWriter.after(resumed, checkpoints, mark, start)
        if start is not None:  # it has asked
            run = centred(replace(run, ask_moments=False), start.centre)
        if kept is not None:
            kept.begin(problem.n_workers, run.setup.regions.n_regions)
        if callbacks:
            given = from_centred(run.setup.w0, problem.layout, run.problem.centre if may_centre else None)
            settings = partial(settings_of, run, made_engine, w0=given)
            callbacks.begin(settings, None if resumed is None else resumed.history)
        result = run_loop(run, made_engine, callbacks if callbacks else None, writer, resumed)
        result = replace(result, start=start, trace=kept, notes=(*problem.notes, *result.notes))
    except BaseException:
        callbacks.end(None)
        raise
    finally:
        folders.close()
        made_engine.close()
    if result.status != "interrupted" and not result.products:  # products: a model was looked at, none was fitted
        result = _with_broken_promise(run, look_for_separation(problem, result))
    callbacks.end(result)
    return result


def observed_information(
    problem: Problem | RemoteProblem,
    w: Array,
    *,
    regions: Regions | None = None,
    scores: bool = False,
    hessian: bool = True,
    engine: str | Engine = "local",
) -> Result:
    """The Hessian of the objective at w, and the rows' scores, by exchanges that are counted: in `result.products`."""
    method = Information(scores=scores, hessian=hessian)
    return solve(problem, method=method, w0=w, regions=regions, monitor=False, engine=engine)


def reference_optimum(problem: Problem, *, w0: Array | None = None, tol: float = 1e-13) -> Reference:
    """The optimum of the problem by safeguarded Newton, to decrement `tol` or rounding, with what was reached."""
    result = solve(problem, method="newton", w0=w0, regions=1, tol=tol, max_rounds=500)
    if result.status == "interrupted":
        raise KeyboardInterrupt  # half an optimum is none: nothing may be measured against it
    objective, gradient = problem.centred_by(result.centre).value_and_gradient(
        to_centred(result.w, problem.layout, result.centre)
    )
    return Reference(result.w, objective, float(np.linalg.norm(gradient)), len(result.history))


def _prepare(
    problem: Problem | RemoteProblem,
    method: str | AnyMethod,
    regions: int | Sequence[Any] | Regions | None,
    policy: str | Policy | Callable[..., Any] | None,
    max_rounds: int,
    tol: float,
    seed: int,
    profiles: Sequence[Profile] | None,
    reference: Reference | None,
    monitor: bool,
    guards: Guards | None,
    graph: str | Graph | None = None,
) -> PreparedRun:
    """Check every argument before anything runs."""
    check_whole("max_rounds", max_rounds, 0)
    check_number("tol", tol, least=0)
    check_whole("seed", seed, 0)
    d = problem.n_coefficients
    made_method = make_method(method)
    made_regions = problem.layout.regions(regions)
    made_policy = make_policy(policy, profiles)
    setting = setting_of(problem, made_regions, made_method, int(max_rounds))
    made_policy.check(setting)
    promise = made_policy.promise(setting)
    if type(promise) is not Promise or not all(each is None or is_whole(each, 0) for each in vars(promise).values()):
        raise InputError(f"policy={policy!r}: promise must return a Promise of whole numbers; Promise() is none")
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
    if graph is None and getattr(made_method, "over_graph", False):
        graph = DEFAULT_GRAPH
    setup = Setup(
        w0=np.zeros(d),
        weights=problem.weights,
        penalties=problem.penalties,
        free=~problem.layout.penalised,
        regions=made_regions,
        policy=made_policy,
        setting=setting,
        seed=int(seed),
        tol=float(tol),
        profiles=profiles,
        entries_per_row=outputs_of(problem.loss) * np.array([info.entries_per_row for info in problem.shard_info]),
        rows_here=isinstance(problem, Problem),
        n_outputs=outputs_of(problem.loss),
        constant_curvature=problem.loss.third_bound == 0,
        curvature_jumps=bool(getattr(problem.loss, "curvature_jumps", False)),
        graph=None if graph is None else make_graph(graph, problem.n_workers, int(seed)),
    )
    rules, why = ReplyRules.of(problem, made_regions, guards), ""
    if isinstance(made_method, DANL):
        made_method, why = made_method.suited(setup)
    return PreparedRun(problem, made_method, setup, reference, monitor, rules, curvature_why=why)


def setting_of(problem: Problem | RemoteProblem, regions: Regions, method: AnyMethod, max_rounds: int) -> Setting:
    """What a policy learns of a run before it starts."""
    return Setting(
        n_workers=problem.n_workers,
        region_sizes=regions.sizes,
        rows=problem.rows,
        shard_bytes=np.array([info.nbytes for info in problem.shard_info]),
        max_rounds=max_rounds,
        pruned=getattr(method, "submodel", "full") == "pruned",
    )


def _start(run: PreparedRun, method: AnyMethod, engine: Engine) -> Result:
    """The run that makes w0; it ends by its own rounds, however few the run after it may have."""
    setting = replace(run.setup.setting, max_rounds=START_ROUNDS)
    setup = replace(run.setup, tol=0.0, setting=setting)
    run = replace(run, method=method, reference=None, setup=setup, start_at_null=True)
    return run_loop(run, engine)


def _with_broken_promise(run: PreparedRun, result: Result) -> Result:
    """Note, and warn of, a policy that promised more than was measured, where every reply came."""
    if result.failures or result.dropped or not len(result.history) or not isinstance(run.method, DANL):
        return result  # absences break a promise as well; other methods do not ask the policy
    if run.setup.limits is not None and run.method.curvature != "once":
        return result  # what is gathered in portions has masks that are not the policy's
    promise, last = vars(run.setup.policy.promise(run.setup.setting)), result.history[-1]
    less = {name: getattr(last, name) - promised for name, promised in promise.items() if promised is not None}
    less["max_staleness"] = -less.get("max_staleness", 0)
    broken = [f"{name} of {promise[name]}, and it was {getattr(last, name)}" for name in less if less[name] < 0]
    if not broken:
        return result
    note = f"policy {type(run.setup.policy).__name__} did not keep its promise: {listed(broken)}; mend promise or masks"
    warn(note)
    return replace(result, notes=(*result.notes, note))


def _make_trace(trace: Trace | bool | None) -> Trace | None:
    if trace is None or isinstance(trace, bool):
        return Trace() if trace else None
    if not isinstance(trace, Trace) or len(trace):
        raise bad_argument("trace", trace, "True, or a new danl.Trace(), without the exchanges of another run")
    return trace


def _make_start(w0: Array | str | AnyMethod | None, d: int) -> Array | AnyMethod | None:
    """The model to start from, or the method that makes it."""
    if w0 is None:
        return None
    if isinstance(w0, np.ndarray | list | tuple):
        w = np.array(w0, dtype=float)
        if w.shape != (d,):
            raise InputError(f"w0: must have shape ({d},), a number for every coefficient, got {w.shape}")
        if not np.isfinite(w).all():
            raise InputError(f"w0: must be finite, and w0[{int(np.flatnonzero(~np.isfinite(w))[0])}] is not")
        return w
    method = make_method(w0)
    if getattr(method, "rounds", None) is None:
        raise InputError(
            f"w0={w0!r}: a method that makes the start must say how far it goes; "
            "use 'fedavg:rounds=10', an array, or leave it out for zeros"
        )
    return method
