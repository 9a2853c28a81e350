"""What a run is made of, and where it begins: with an intercept, at the model without features, on moved columns."""

from __future__ import annotations

import os
from collections.abc import Collection
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import numpy as np

from danl.design.agreement import agree
from danl.engines import Engine
from danl.errors import InputError
from danl.frozen import at_once, replace
from danl.methods import AnyMethod, Setup
from danl.objective.centring import centre_of, to_centred
from danl.objective.losses import null_margins
from danl.objective.problem import Problem, RemoteProblem
from danl.objective.regions import Regions
from danl.policies.profiles import Fleet, seconds
from danl.protocol.messages import Array
from danl.protocol.replies import Replies, ReplyRules
from danl.run.result import Reference
from danl.run.trace import Trace
from danl.server.aggregation import mean_value


@at_once
@dataclass(frozen=True)
class PreparedRun:
    """Everything a run is made of, checked."""

    problem: Problem | RemoteProblem
    method: AnyMethod
    setup: Setup
    reference: Reference | None
    monitor: bool
    rules: ReplyRules
    trace: Trace | None = None
    may_centre: bool = False  # whether columns may be moved inside, for an intercept (`danl.objective.centring`)
    ask_moments: bool = False  # whether the workers are asked for the means of their columns first
    start_at_null: bool = False  # whether the intercept starts at that of the model without features
    curvature_why: str = ""  # why the method's curvature was chosen, where that was left to it

    @property
    def monitored(self) -> bool:
        """Whether rows are to have the objective and the gradient norm, and the rows of data are here for that."""
        return self.monitor and isinstance(self.problem, Problem)

    @property
    def method_reports(self) -> bool:
        """Whether the workers report the objective at the method's model: it need not be measured."""
        return bool(getattr(self.method, "reports_objective", False))


def centred(run: PreparedRun, centre: Array | None) -> PreparedRun:
    """The run on moved columns: its problem, its start, and what it is compared with."""
    if centre is None or not run.may_centre or run.problem.centre is not None:
        return run
    layout, reference = run.problem.layout, run.reference
    if reference is not None:
        reference = replace(reference, w=to_centred(reference.w, layout, centre))
    setup = replace(run.setup, w0=to_centred(run.setup.w0, layout, centre))
    return replace(run, problem=run.problem.centred_by(centre), setup=setup, reference=reference)


def after_moments(run: PreparedRun, replies: Replies) -> PreparedRun:
    """The run as it begins once the workers have reported the means of their columns and of their targets.

    The means of the workers that answered are enough: any point near the rows will do.
    """
    layout, values, weights = run.problem.layout, replies.values, run.setup.weights
    if not len(replies.workers):
        return run
    means, targets = mean_value(replies, weights, "means"), mean_value(replies, weights, "targets")
    around = replace(replies, values={"variances": values["variances"] + np.square(values["means"] - means)})
    variances = mean_value(around, weights, "variances")
    begin = centred(run, centre_of(means, variances))
    if not run.start_at_null:
        return begin
    intercepts = null_margins(run.problem.loss, targets, offset=run.problem.has_offset)
    w0 = layout.join(np.zeros((layout.n_outputs, layout.n_features)), intercepts)
    log_odds = bool(getattr(run.problem.loss, "log_odds", False)) and not run.problem.has_offset
    return replace(begin, setup=replace(begin.setup, w0=w0, log_odds_from_null=log_odds))


def connected(problem: RemoteProblem, engine: Engine) -> RemoteProblem:
    """The problem with what its workers reported; of an analysis, with the design that they agreed on first."""
    if problem.analysis is not None and problem.design is None:
        survey = getattr(engine, "survey", None)
        if survey is None:
            raise InputError(f"engine={engine!r}: has no `survey`, which a formula needs (docs/extending.md)")
        surveyed = survey(problem)
        problem = problem.agreed_on(agree(problem.analysis, surveyed.surveys), surveyed.left_out)
    return problem.described(engine.connect(problem))


def moments_fit(setup: Setup) -> bool:
    """Whether everyone can send the means of its columns by a deadline that binds; columns stay as they are if not."""
    if setup.limits is None:
        return True
    fleet, d = Fleet.of(setup.limits.profiles), setup.n_coefficients
    needed = seconds(fleet, work_rows=np.asarray(setup.setting.rows), bytes_down=0, bytes_up=8 * 3 * d)
    return bool((needed <= setup.limits.deadline).all())


def settings_of(run: PreparedRun, engine: Engine, excluded: Collection[int] = (), *, w0: Array) -> dict[str, Any]:
    """What a run was asked to do, in words and numbers; the rows of workers that were excluded are none of it.

    `w0` is the start, for the columns as they were given.
    """
    setup, problem = run.setup, run.problem
    parts: Any = fields(run.method) if is_dataclass(run.method) else ()
    options = {part.name: getattr(run.method, part.name) for part in parts}
    return {
        "method": run.method.name,
        "method_options": options,
        "curvature_why": run.curvature_why,
        "policy": repr(setup.policy),
        "graph": None if setup.graph is None else setup.graph.name,
        "regions": setup.regions.sizes.tolist(),
        "workers": problem.n_workers,
        "rows": [0 if worker in excluded else rows for worker, rows in enumerate(problem.rows.tolist())],
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
        "w0": w0.tolist(),
    } | _of_design(problem)


def _of_design(problem: Problem | RemoteProblem) -> dict[str, Any]:
    """The analysis of a run, the design of its sites, and what became of their records."""
    if problem.design is None:
        return {}
    info = problem.shard_info
    return {
        "design": problem.design.to_dict(),
        "sites": [each.site for each in info],
        "left_out": [each.left_out for each in info],
        "unknown_levels": [each.unknown_levels for each in info],
    }


def refuse_if_too_large(method: Any, regions: Regions) -> None:
    """Refuse curvature of more than half of the machine's memory: 8 d^2 bytes for methods with whole Hessians.

    A method says how many numbers it holds (`curvature_numbers`); one that does not has nothing to be refused.
    """
    d, memory = regions.n_coefficients, total_memory()
    numbers = getattr(method, "curvature_numbers", None)
    needed = 0 if numbers is None else 8 * numbers(regions)
    if memory is not None and needed > memory / 2:
        what = "a Hessian" if needed == 8 * d**2 else "curvature"
        raise InputError(
            f"method={method.name!r}: {d} coefficients make {what} of {needed / 1e9:.1f} GB, more than half of this "
            f"machine's {memory / 1e9:.1f} GB; use method='danl', which chooses by itself, or curvature='lowrank:50', "
            "'diag' or, with many regions, 'block', or method='gd' or 'fedavg'"
        )


def total_memory() -> int | None:
    """Bytes of this machine's memory, where the system tells."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None
